//! Keeps the write-ahead log short without making the writer wait.
//!
//! A passive checkpoint copies pages beside the writer, but the log starts over only when *everything* in it has
//! been copied and nobody reads it. Under constant writing that moment never comes by itself, so when all but a few
//! pages are copied the writer is held for as long as those few take. Starting over matters for speed too: commits
//! that overwrite an old log sync twice as fast as commits that make it longer.

use super::Shared;
use super::connection::Watch;
use crate::figures::Figures;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// SQLite's own default: 4 MiB of log. Small commits feel it when the log is longer than that.
const STEP_PAGES: i64 = 1_000;
/// Where commits are large: pages that change with every commit are copied a quarter as often, and so are the syncs that
/// all callers wait behind.
const LONG_STEP_PAGES: i64 = 4_000;
/// Pages that make a commit a large one.
const MANY_PAGES: i64 = 6;
/// What can be copied while the writer waits, well within 5 ms on a disk that deserves the name.
const FEW_PAGES: i64 = 64;
/// When the writer makes more than this while we copy, a longer hold is the lesser evil.
const TOO_MANY_PAGES: i64 = 16_000;
const PASSES: usize = 8;
const PAGE_BYTES: i64 = 4_096;
/// A log of this size is worth a warning.
const WARN_BYTES: u64 = 64 << 20;
/// A read younger than this is never ended: it is not what keeps the log alive.
const YOUNG: Duration = Duration::from_secs(1);

/// Told by SQLite after every commit how long the log is.
pub(super) struct WalWatch {
    figures: Arc<Figures>,
    pages: AtomicI64,
    /// How long the log was when a checkpoint was asked for the last time.
    asked_at_pages: AtomicI64,
    /// Commits since then.
    commits: AtomicI64,
    signal: Mutex<Signal>,
    changed: Condvar,
}

#[derive(Default)]
struct Signal {
    is_due: bool,
    is_closed: bool,
}

impl WalWatch {
    pub(super) fn new(figures: Arc<Figures>) -> Self {
        Self {
            figures,
            pages: AtomicI64::new(0),
            asked_at_pages: AtomicI64::new(0),
            commits: AtomicI64::new(0),
            signal: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn attach(self: &Arc<Self>, db: &mut rusqlite::Connection) -> rusqlite::Result<()> {
        let watch = self.clone();
        db.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
            watch.committed(i64::from(pages));
            Ok(())
        }))
    }

    fn committed(&self, pages: i64) {
        self.figures.wal_bytes.set(pages * PAGE_BYTES);
        self.pages.store(pages, Ordering::Relaxed);
        let commits = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let grown = pages - self.asked_at_pages.load(Ordering::Relaxed);
        let step = if grown >= commits * MANY_PAGES { LONG_STEP_PAGES } else { STEP_PAGES };
        let has_started_over = grown < 0;
        if has_started_over || grown >= step {
            self.asked_at_pages.store(if has_started_over { 0 } else { pages }, Ordering::Relaxed);
            self.commits.store(0, Ordering::Relaxed);
        }
        if grown >= step {
            self.tell(|signal| signal.is_due = true);
        }
    }

    pub(super) fn close(&self) {
        self.tell(|signal| signal.is_closed = true);
    }

    fn tell(&self, change: impl FnOnce(&mut Signal)) {
        change(&mut self.signal.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    /// Waits until a checkpoint is due; false when the store closes.
    fn wait(&self) -> bool {
        let mut signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        while !signal.is_due && !signal.is_closed {
            signal = self.changed.wait(signal).unwrap_or_else(PoisonError::into_inner);
        }
        signal.is_due = false;
        !signal.is_closed
    }
}

/// The checkpointer's thread.
pub(super) fn work(
    shared: &Shared,
    db: &rusqlite::Connection,
    wal: &WalWatch,
    readers: &[Arc<Watch>],
    limit_bytes: u64,
) {
    let mut warned_at_bytes = 0;
    while wal.wait() {
        let left = checkpoint(shared, db, wal);
        let bytes = (wal.pages.load(Ordering::Relaxed) * PAGE_BYTES).cast_unsigned();
        if left <= FEW_PAGES || bytes < WARN_BYTES {
            warned_at_bytes = 0;
            continue;
        }
        let oldest = readers.iter().filter_map(|watch| watch.open_for()).max().unwrap_or_default();
        // Who writes faster than is copied is no reason to worry, unless that goes on for long.
        let is_worth_telling = oldest > YOUNG || bytes >= limit_bytes / 2;
        if is_worth_telling && bytes >= warned_at_bytes * 2 {
            warned_at_bytes = bytes;
            let oldest_read_ms = oldest.as_millis() as u64;
            tracing::warn!(
                bytes,
                limit_bytes,
                oldest_read_ms,
                "the write-ahead log cannot be cleared: is a long read open?"
            );
        }
        if bytes >= limit_bytes {
            evict(readers, bytes, &shared.figures);
        }
    }
}

/// Copies what is in the log, and returns how many pages could not be copied.
fn checkpoint(shared: &Shared, db: &rusqlite::Connection, wal: &WalWatch) -> i64 {
    let mut copied = 0;
    for _ in 0..PASSES {
        let Some(pass) = copy(db) else { break };
        copied = pass.copied;
        if copied < pass.log {
            // Somebody reads an old snapshot; neither holding the writer nor copying again would gain anything.
            break;
        }
        // What was committed while we copied.
        let left = wal.pages.load(Ordering::Relaxed) - copied;
        if left <= FEW_PAGES || left >= TOO_MANY_PAGES {
            let _writer_waits = shared.lock_writer();
            let began = Instant::now();
            copied = copy(db).map_or(copied, |pass| pass.copied);
            shared.figures.checkpoint_hold.record_duration(began.elapsed());
            break;
        }
    }
    wal.pages.load(Ordering::Relaxed) - copied
}

/// The log, in pages, when a pass over it began, and how many of them are copied by now.
struct Pass {
    log: i64,
    copied: i64,
}

fn copy(db: &rusqlite::Connection) -> Option<Pass> {
    let sql = "PRAGMA wal_checkpoint(PASSIVE)";
    let pass = db.query_row(sql, [], |row| Ok(Pass { log: row.get(1)?, copied: row.get(2)? }));
    // The data is safe in the log; the next step of growth tries again.
    pass.inspect_err(|error| tracing::warn!(%error, "checkpoint failed")).ok()
}

fn evict(readers: &[Arc<Watch>], wal_bytes: u64, figures: &Figures) {
    for watch in readers {
        if watch.open_for().is_some_and(|open| open > YOUNG) {
            watch.evict(wal_bytes);
            figures.reads_evicted.increment();
        }
    }
}
