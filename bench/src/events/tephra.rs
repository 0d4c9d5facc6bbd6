//! tephra, embedded: one writer thread, one `fdatasync` for all that wait.

use super::{Answer, Callers, Contender, DATA, Entry, TYPE, Verdict};
use anyhow::Result;
use std::path::Path;
use std::sync::Arc;
use tephra::{
    AppendCondition, AppendError, Event, EventType, Position, Query, QueryItem, SegmentConfig, SegmentSet,
    Tag, Tags, WriteCoordinator, WriteHandle, WriterConfig,
};

/// As in tephra's own examples; no cell fills one, so none is sealed while we measure.
const SEGMENT_BYTES: usize = 256 << 20;

/// A thread for each caller: better for few callers, who then wait for one wake-up less.
pub fn on_threads() -> Entry {
    Entry::new("tephra", async |folder| Ok(Arc::new(Tephra::open(&folder, Callers::Threads)?) as _))
}

/// Through its async API: as good or better for many.
pub fn on_tasks() -> Entry {
    Entry::new("tephra on tasks", async |folder| Ok(Arc::new(Tephra::open(&folder, Callers::Tasks)?) as _))
}

struct Tephra {
    // Dropped before the coordinator, which waits for its thread.
    handle: WriteHandle,
    _coordinator: WriteCoordinator,
    event_type: EventType,
    callers: Callers,
}

impl Tephra {
    fn open(folder: &Path, callers: Callers) -> Result<Self> {
        let segments = SegmentSet::open(folder, SegmentConfig::new(SEGMENT_BYTES))?;
        let (coordinator, handle) = WriteCoordinator::start(segments, WriterConfig::default())?;
        Ok(Self { handle, _coordinator: coordinator, event_type: EventType::new(TYPE)?, callers })
    }
}

impl Contender for Tephra {
    fn callers(&self) -> Callers {
        self.callers
    }

    fn append(&self, tag: String) -> Answer<'_, Verdict> {
        Box::pin(async move {
            let tags = Tags::new([Tag::new(tag)?])?;
            let events = vec![Event::new(&self.event_type, &tags, DATA.as_bytes())?];
            let condition = Some(AppendCondition::new(Query::item(QueryItem::with_tags(tags))));
            let appended = match self.callers {
                Callers::Tasks => self.handle.append_async(events, condition).await,
                Callers::Threads => self.handle.append(events, condition),
            };
            match appended {
                Ok(_) => Ok(Verdict::Appended),
                Err(AppendError::Conflict { .. }) => Ok(Verdict::Refused),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn read_all(&self) -> Answer<'_, u64> {
        Box::pin(async move {
            let mut events = self.handle.read(&Query::all(), Position::ZERO, None);
            let mut count = 0;
            while let Some(event) = events.next() {
                std::hint::black_box(event?.event.data());
                count += 1;
            }
            Ok(count)
        })
    }
}
