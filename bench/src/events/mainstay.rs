//! Mainstay, embedded: the log on SQLite.

use super::{Answer, Contender, DATA, Entry, TYPE, Verdict};
use anyhow::Result;
use mainstay_events::{Append, COMPONENT, Condition, Error, Log, MAX_PAGE, NewEvent, Selection};
use mainstay_store::Options;
use std::path::Path;
use std::sync::Arc;

/// On a SQLite file, through the library.
pub fn embedded() -> Entry {
    Entry::new("mainstay", async |folder| {
        let url = format!("sqlite:{}", folder.join("log.db").display());
        Ok(Arc::new(Mainstay::open(&url).await?) as _)
    })
}

/// Appends to a log as the library's users do.
pub struct Mainstay {
    log: Log,
    event: NewEvent,
}

impl Mainstay {
    /// Opens the log at `url`.
    pub async fn open(url: &str) -> Result<Self> {
        let store = Options::new(url).component(COMPONENT).open().await?;
        let data = serde_json::value::RawValue::from_string(DATA.to_owned())?;
        Ok(Self { log: Log::open(&store).await?, event: NewEvent::new(TYPE, &data)? })
    }
}

impl Contender for Mainstay {
    fn append(&self, tag: String) -> Answer<'_, Verdict> {
        Box::pin(async move {
            let once = Condition::no_tag(tag.as_str())?;
            match self.log.append(Append::from(self.event.clone().tag(tag)).unless(once)).await {
                Ok(_) => Ok(Verdict::Appended),
                Err(Error::ConditionFailed { .. }) => Ok(Verdict::Refused),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn read_all(&self) -> Answer<'_, u64> {
        Box::pin(async move {
            let (mut count, mut selection) = (0, Selection::all());
            loop {
                let page = self.log.read(&selection, MAX_PAGE).await?;
                for event in &page.events {
                    std::hint::black_box(event.data());
                    count += 1;
                }
                let Some(next) = page.next else { return Ok(count) };
                selection.after = next;
            }
        })
    }
}
