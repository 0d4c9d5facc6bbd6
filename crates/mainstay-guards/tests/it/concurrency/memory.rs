//! Slots in the memory of one process.

use super::contract::{self, Bench, SECOND, take};
use mainstay_core::clock::ManualClock;
use mainstay_guards::limits::memory::Memory;
use mainstay_guards::limits::{Concurrency, Slots};
use std::sync::Arc;

struct InMemory {
    clock: Arc<ManualClock>,
    backend: Memory,
}

impl InMemory {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Self::START_MS));
        Self { backend: Memory::new().clock(clock.clone()), clock }
    }
}

impl Bench for InMemory {
    async fn concurrency(&self, slots: Slots) -> Concurrency {
        self.clock.set(Self::START_MS);
        self.backend.concurrency(slots)
    }

    async fn again(&self, _slots: Slots) -> Option<Concurrency> {
        None
    }

    async fn advance(&self, by_ms: i64) {
        self.clock.advance(by_ms);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_in_memory_keep_the_contract() {
    contract::hold(&InMemory::new()).await;
}

#[tokio::test]
async fn at_the_cap_on_keys_what_is_over_makes_room_and_what_is_held_does_not() {
    let clock = Arc::new(ManualClock::at(0));
    let limit = Memory::new().clock(clock.clone()).max_keys(100).concurrency(Slots::new(1).unwrap());
    for number in 0..100 {
        take(&limit, &format!("key {number}"), SECOND).await.keep();
    }
    for _ in 0..3 {
        let error = limit.acquire("one too many", SECOND).await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("LIMIT_KEYS_TOO_MANY", true));
    }
    assert_eq!(limit.in_use("key 7").await.unwrap(), 1, "nobody was forgotten");
    clock.advance(1_000);
    let permit = take(&limit, "another", SECOND).await;
    assert!(permit.release().await.unwrap());
    for number in 0..100 {
        take(&limit, &format!("new {number}"), SECOND).await.keep();
    }
    // A clock that is put back keeps them for as long as they had, and no longer.
    clock.advance(-3_600_000);
    assert!(limit.acquire("one too many", SECOND).await.is_err());
    clock.advance(1_000);
    take(&limit, "at last", SECOND).await;
}

#[tokio::test]
async fn keys_without_end_take_no_room_once_they_are_given_back() {
    let limit = Memory::new().max_keys(10).concurrency(Slots::new(1).unwrap());
    for number in 0..10_000 {
        drop(take(&limit, &format!("key {number}"), SECOND).await);
    }
}
