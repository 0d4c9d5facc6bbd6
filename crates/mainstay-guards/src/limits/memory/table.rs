//! Keys and their budgets, in shards.
//!
//! A key is kept as a fingerprint: two hashes of 64 bits, seeded by random numbers of this table's own, so that two keys
//! meet by chance once in 10²⁴ tables of ten million, and nobody can make them meet who does not know the seeds. So an
//! entry is 32 bytes, lies in one line of the cache, and no key of any length takes more.

use foldhash::quality::RandomState;
use hashbrown::{HashMap, HashTable};
use mainstay_core::limits::{Account, Decision, Limit, State, Verb};
use parking_lot::{Mutex, MutexGuard};
use std::hash::{BuildHasher, Hasher};

/// Enough that threads seldom meet.
const MAX_SHARDS: usize = 64;
/// A shard for fewer keys than this is not worth its lock.
const MIN_SHARD_KEYS: usize = 64;
/// What share of a shard is made room for at once when no budget in it is full. Small enough that little is forgotten
/// early, large enough that looking through the shard is seldom.
const EVICTED_SHARE: usize = 16;

type Fingerprint = (u64, u64);

pub(super) struct Table {
    shards: Box<[Padded]>,
    /// Two hashes that know nothing of each other.
    hashers: (RandomState, RandomState),
}

/// Alone in its lines of the cache, so that threads in neighbouring shards do not slow each other down.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

struct Shard {
    limit: Limit,
    entries: HashTable<Entry>,
    max_entries: usize,
    /// Until when keys are blocked. Few are, so it is apart.
    blocks: HashMap<Fingerprint, i64>,
}

struct Entry {
    fingerprint: Fingerprint,
    state: State,
}

impl Table {
    pub(super) fn new(limit: &Limit, max_keys: usize) -> Self {
        let shards = (max_keys / MIN_SHARD_KEYS).clamp(1, MAX_SHARDS);
        let shards = 1 << shards.ilog2();
        let shard = || Shard {
            limit: *limit,
            entries: HashTable::new(),
            max_entries: max_keys / shards,
            blocks: HashMap::new(),
        };
        Self {
            shards: (0..shards).map(|_| Padded(Mutex::new(shard()))).collect(),
            hashers: Default::default(),
        }
    }

    #[inline]
    pub(super) fn consume(&self, key: &str, cost: u64, now_ms: i64) -> Decision {
        let fingerprint = self.fingerprint(key);
        let mut shard = self.shard(fingerprint);
        if !shard.blocks.is_empty() {
            return shard.act(fingerprint, Verb::Consume(cost), now_ms);
        }
        let limit = shard.limit;
        if let Some(entry) = shard.entries.find_mut(fingerprint.0, |entry| entry.fingerprint == fingerprint) {
            return limit.consume(&mut entry.state, now_ms, cost);
        }
        let mut state = limit.fresh(now_ms);
        let decision = limit.consume(&mut state, now_ms, cost);
        shard.keep(fingerprint, state, now_ms);
        decision
    }

    pub(super) fn act(&self, key: &str, verb: Verb, now_ms: i64) -> Decision {
        let fingerprint = self.fingerprint(key);
        self.shard(fingerprint).act(fingerprint, verb, now_ms)
    }

    pub(super) fn set_limit(&self, limit: &Limit, now_ms: i64) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = std::mem::replace(&mut shard.limit, *limit);
            for entry in &mut shard.entries {
                entry.state = limit.convert(&before, &entry.state, now_ms);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.entries = HashTable::new();
            shard.blocks = HashMap::new();
        }
    }

    #[inline]
    fn fingerprint(&self, key: &str) -> Fingerprint {
        let hash = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write(key.as_bytes());
            hasher.finish()
        };
        (hash(&self.hashers.0), hash(&self.hashers.1))
    }

    #[inline]
    fn shard(&self, fingerprint: Fingerprint) -> MutexGuard<'_, Shard> {
        lock(&self.shards[fingerprint.1 as usize & (self.shards.len() - 1)])
    }
}

#[inline]
fn lock(shard: &Padded) -> MutexGuard<'_, Shard> {
    shard.0.lock()
}

impl Shard {
    fn act(&mut self, fingerprint: Fingerprint, verb: Verb, now_ms: i64) -> Decision {
        let limit = self.limit;
        let mut account = Account::fresh(&limit, now_ms);
        let found = self.entries.find_mut(fingerprint.0, |entry| entry.fingerprint == fingerprint);
        if let Some(entry) = &found {
            account.state = entry.state;
        }
        if let Some(until_ms) = self.blocks.get(&fingerprint) {
            account.blocked_until_ms = *until_ms;
        }
        let decision = account.act(&limit, verb, now_ms);
        if verb.only_looks() {
            return decision;
        }
        match found {
            Some(entry) => entry.state = account.state,
            None => self.keep(fingerprint, account.state, now_ms),
        }
        if account.blocked_until_ms > now_ms {
            self.block(fingerprint, account.blocked_until_ms, now_ms);
        } else {
            self.blocks.remove(&fingerprint);
        }
        decision
    }

    /// Keeps a budget, unless it is full anyway.
    fn keep(&mut self, fingerprint: Fingerprint, state: State, now_ms: i64) {
        if state.missing == 0 {
            return;
        }
        if self.entries.len() >= self.max_entries {
            self.make_room(now_ms);
        }
        self.entries.insert_unique(fingerprint.0, Entry { fingerprint, state }, |entry| entry.fingerprint.0);
    }

    /// Forgets all budgets that are full; and if that is not enough, those that have least to recover.
    #[cold]
    fn make_room(&mut self, now_ms: i64) {
        let limit = self.limit;
        self.entries.retain(|entry| !limit.is_full(&entry.state, now_ms));
        let room = self.max_entries.div_ceil(EVICTED_SHARE);
        if self.entries.len() + room <= self.max_entries {
            return;
        }
        let mut surplus = self.entries.len() + room - self.max_entries;
        let mut values: Vec<i64> =
            self.entries.iter().map(|entry| limit.value(&entry.state, now_ms)).collect();
        let (_, least, _) = values.select_nth_unstable_by(surplus - 1, |one, other| other.cmp(one));
        let least = *least;
        self.entries.retain(|entry| {
            let goes = surplus > 0 && limit.value(&entry.state, now_ms) >= least;
            surplus -= usize::from(goes);
            !goes
        });
    }

    fn block(&mut self, fingerprint: Fingerprint, until_ms: i64, now_ms: i64) {
        if self.blocks.len() >= self.max_entries && !self.blocks.contains_key(&fingerprint) {
            self.blocks.retain(|_, until_ms| *until_ms > now_ms);
            let soonest = self.blocks.iter().min_by_key(|(_, until_ms)| **until_ms).map(|(key, _)| *key);
            if let Some(soonest) = soonest.filter(|_| self.blocks.len() >= self.max_entries) {
                self.blocks.remove(&soonest);
            }
        }
        self.blocks.insert(fingerprint, until_ms);
    }
}
