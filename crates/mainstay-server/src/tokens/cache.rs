//! What was looked up a moment ago, so that a busy client does not cost a read per request.

use crate::access::{Role, Scope};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A third of the second within which a revocation must be known everywhere; the rest is for looking and for reading.
const FRESH: Duration = Duration::from_millis(300);
/// Somebody who tries ids must not fill the memory; what does not fit is looked up each time.
const MOST: usize = 4_096;

/// What is known of an id.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) hash: String,
    pub(super) role: Role,
    pub(super) tenant: Option<String>,
    pub(super) scope: Option<Arc<Scope>>,
    pub(super) is_valid: bool,
}

#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: Mutex<HashMap<String, Entry>>,
    /// Counts revocations, so that what was read before one is not put in after it.
    generation: AtomicU64,
    /// Rows are never deleted: once true, always true.
    exist: AtomicBool,
    none_seen: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Entry {
    asked: Instant,
    known: Option<Known>,
}

/// The moment before a reading, from which its age counts.
pub(super) fn now() -> Instant {
    Instant::now()
}

impl Cache {
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// What is known and fresh: the outer `None` means that it must be looked up.
    pub(super) fn get(&self, id: &str) -> Option<Option<Known>> {
        let entries = lock(&self.entries);
        entries.get(id).filter(|entry| entry.asked.elapsed() < FRESH).map(|entry| entry.known.clone())
    }

    pub(super) fn put(&self, id: &str, known: Option<Known>, asked: Instant, generation: u64) {
        let mut entries = lock(&self.entries);
        if self.generation() != generation {
            return;
        }
        if entries.len() >= MOST {
            entries.retain(|_, entry| entry.asked.elapsed() < FRESH);
        }
        if entries.len() < MOST {
            entries.insert(id.to_owned(), Entry { asked, known });
        }
    }

    pub(super) fn forget(&self, id: &str) {
        let mut entries = lock(&self.entries);
        self.generation.fetch_add(1, Ordering::SeqCst);
        entries.remove(id);
    }

    pub(super) fn forget_all(&self) {
        let mut entries = lock(&self.entries);
        self.generation.fetch_add(1, Ordering::SeqCst);
        entries.clear();
    }

    /// Whether there are tokens, if that is known and fresh.
    pub(super) fn do_exist(&self) -> Option<bool> {
        if self.exist.load(Ordering::SeqCst) {
            return Some(true);
        }
        let is_fresh = lock(&self.none_seen).is_some_and(|asked| asked.elapsed() < FRESH);
        is_fresh.then_some(false)
    }

    pub(super) fn exist(&self) {
        self.exist.store(true, Ordering::SeqCst);
    }

    pub(super) fn looked(&self, exist: bool, asked: Instant) {
        match exist {
            true => self.exist(),
            false => *lock(&self.none_seen) = Some(asked),
        }
    }
}

/// A panic while the lock was held leaves a map that is whole: every change is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Option<Known> {
        Some(Known { hash: String::new(), role: Role::Reader, tenant: None, scope: None, is_valid: true })
    }

    #[test]
    fn what_was_read_before_a_revocation_is_not_put_in_after_it() {
        let cache = Cache::default();
        let generation = cache.generation();
        cache.forget("a");
        cache.put("a", known(), now(), generation);
        assert!(cache.get("a").is_none());
        cache.put("a", known(), now(), cache.generation());
        assert!(cache.get("a").is_some());
        cache.forget("a");
        assert!(cache.get("a").is_none());
    }

    #[test]
    fn what_is_old_is_looked_up_again() {
        let cache = Cache::default();
        let Some(long_ago) = Instant::now().checked_sub(FRESH) else { return };
        cache.put("a", known(), long_ago, cache.generation());
        assert!(cache.get("a").is_none());
        cache.looked(false, long_ago);
        assert_eq!(cache.do_exist(), None);
        cache.looked(false, now());
        assert_eq!(cache.do_exist(), Some(false));
        cache.exist();
        cache.looked(false, now());
        assert_eq!(cache.do_exist(), Some(true), "an older reading does not undo a creation");
    }

    #[test]
    fn it_does_not_grow_beyond_its_limit() {
        let cache = Cache::default();
        for number in 0..MOST + 10 {
            cache.put(&number.to_string(), None, now(), cache.generation());
        }
        assert_eq!(lock(&cache.entries).len(), MOST);
    }
}
