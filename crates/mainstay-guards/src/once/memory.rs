//! Answers in the memory of one process, for tests and single nodes.

use super::keeper::{Begun, Fingerprint, Id, Keeper, Kept, Pending};
use crate::{Error, Result};
use mainstay_core::clock::Clock;
use mainstay_store::system::SystemClock;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Answers in the memory of one process: others do not share them, and a restart forgets them.
pub struct MemoryKeeper {
    clock: Arc<dyn Clock>,
    max_keys: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    entries: HashMap<Id, Entry>,
    last_run: i64,
}

struct Entry {
    fingerprint: Fingerprint,
    run: i64,
    until_ms: i64,
    answer: Option<Kept>,
}

impl MemoryKeeper {
    /// At most so many keys at once. When there is no room for another, it is refused.
    pub fn new(max_keys: usize) -> Self {
        tracing::info!(max_keys, "answers are kept in the memory of this process: a restart forgets them");
        Self { clock: Arc::new(SystemClock), max_keys: max_keys.max(1), table: Mutex::default() }
    }

    /// Another clock, for tests.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    fn until(&self, after: Duration) -> i64 {
        self.clock.now_ms().saturating_add(i64::try_from(after.as_millis()).unwrap_or(i64::MAX))
    }

    fn begin_now(&self, id: &Id, fingerprint: &Fingerprint, lease: Duration) -> Result<Begun> {
        let (now_ms, until_ms) = (self.clock.now_ms(), self.until(lease));
        let Table { entries, last_run } = &mut *self.table.lock();
        match entries.get(id) {
            Some(entry) if entry.until_ms > now_ms => {
                return Ok(match &entry.answer {
                    _ if entry.fingerprint != *fingerprint => Begun::Reused,
                    Some(answer) => Begun::Done(answer.clone()),
                    None => Begun::Running,
                });
            }
            Some(_) => {}
            None if entries.len() < self.max_keys => {}
            None => {
                entries.retain(|_, entry| entry.until_ms > now_ms);
                if entries.len() >= self.max_keys {
                    return Err(Error::TooManyKeys);
                }
            }
        }
        *last_run += 1;
        let entry = Entry { fingerprint: *fingerprint, run: *last_run, until_ms, answer: None };
        entries.insert(id.clone(), entry);
        Ok(Begun::Mine(*last_run))
    }

    /// Does something to a key that is still held.
    fn change(&self, id: &Id, run: i64, change: impl FnOnce(&mut Entry)) -> bool {
        let mut table = self.table.lock();
        let held = table.entries.get_mut(id).filter(|entry| entry.run == run && entry.answer.is_none());
        held.map(change).is_some()
    }
}

fn now<'a, T: Send + 'a>(result: Result<T>) -> Pending<'a, T> {
    Box::pin(std::future::ready(result))
}

impl Keeper for MemoryKeeper {
    fn begin<'a>(&'a self, id: &'a Id, fingerprint: &'a Fingerprint, lease: Duration) -> Pending<'a, Begun> {
        now(self.begin_now(id, fingerprint, lease))
    }

    fn extend<'a>(&'a self, id: &'a Id, run: i64, lease: Duration) -> Pending<'a, bool> {
        let until_ms = self.until(lease);
        now(Ok(self.change(id, run, |entry| entry.until_ms = until_ms)))
    }

    fn finish<'a>(&'a self, id: &'a Id, run: i64, answer: Kept, keep: Duration) -> Pending<'a, bool> {
        let until_ms = self.until(keep);
        now(Ok(self.change(id, run, |entry| (entry.until_ms, entry.answer) = (until_ms, Some(answer)))))
    }

    fn forget<'a>(&'a self, id: &'a Id, run: i64) -> Pending<'a, ()> {
        let mut table = self.table.lock();
        if table.entries.get(id).is_some_and(|entry| entry.run == run && entry.answer.is_none()) {
            table.entries.remove(id);
        }
        now(Ok(()))
    }
}
