//! What every concurrency limit does, wherever it keeps its slots.
//!
//! An adapter supplies a [`Bench`]: how to make limits and how to let time pass. [`hold`] runs all of the contract on it;
//! there is no way to run a part.

use mainstay_guards::limits::{Acquired, Claim, Concurrency, MAX_TTL_MS, Permit, Slots};
use std::time::{Duration, Instant};

/// A place in which limits can be tried. Time begins anew with every limit, and moves only when told.
pub(crate) trait Bench {
    /// When time begins.
    const START_MS: i64 = mainstay_testkit::time::START_MS;

    /// A limit over a backend that all limits of this place share.
    async fn concurrency(&self, slots: Slots) -> Concurrency;

    /// The same limit as another process would have it that begins now; or none, if what is kept ends with the process.
    async fn again(&self, slots: Slots) -> Option<Concurrency>;

    /// Lets time pass, backwards if negative.
    async fn advance(&self, by_ms: i64);
}

/// Runs the whole contract.
pub(crate) async fn hold(bench: &impl Bench) {
    so_many_are_let_in_and_no_more(bench).await;
    of_many_at_once_as_many_are_let_in_as_there_are_slots(bench).await;
    a_slot_is_free_when_its_time_is_over_and_not_a_millisecond_earlier(bench).await;
    who_is_late_frees_nobody_elses_slot(bench).await;
    a_lease_that_is_renewed_lasts_and_one_that_is_over_is_not_renewed(bench).await;
    a_permit_that_is_dropped_is_given_back(bench).await;
    a_permit_that_is_kept_is_given_back_by_whoever_has_its_grant(bench).await;
    keys_and_limits_do_not_meet(bench).await;
    with_fewer_slots_than_are_taken_enough_must_leave(bench).await;
    a_clock_that_is_put_back_lets_nobody_in_and_keeps_nobody_out_for_ever(bench).await;
    what_is_taken_outlives_the_process(bench).await;
    what_cannot_be_taken_is_refused(bench).await;
    all_slots_of_a_key_can_be_taken(bench).await;
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn slots(name: &str, count: u64) -> Slots {
    Slots::new(count).unwrap().with_prefix(&format!("{name}:")).unwrap()
}

pub(crate) async fn take(limit: &Concurrency, key: &str, ttl: Duration) -> Permit {
    limit.acquire(key, ttl).await.unwrap().permit().expect("there is a slot")
}

/// When there will be a slot.
pub(crate) async fn denied(limit: &Concurrency, key: &str) -> u64 {
    match limit.acquire(key, SECOND).await.unwrap() {
        Acquired::Denied { retry_after_ms } => retry_after_ms,
        Acquired::Permit(permit) => panic!("{permit:?} was given"),
    }
}

pub(crate) async fn until_in_use(limit: &Concurrency, key: &str, wanted: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while limit.in_use(key).await.unwrap() != wanted {
        assert!(Instant::now() < deadline, "there never are {wanted}");
        tokio::task::yield_now().await;
    }
}

async fn so_many_are_let_in_and_no_more(bench: &impl Bench) {
    let limit = bench.concurrency(slots("so-many", 2)).await;
    assert_eq!((limit.slots().count(), limit.slots().prefix()), (2, "so-many:"));
    let one = take(&limit, "a", SECOND).await;
    let other = take(&limit, "a", 3 * SECOND).await;
    assert_ne!(one.grant(), other.grant());
    assert_eq!((denied(&limit, "a").await, limit.in_use("a").await.unwrap()), (1_000, 2));
    assert!(other.release().await.unwrap());
    assert_eq!(limit.in_use("a").await.unwrap(), 1);
    let third = take(&limit, "a", SECOND).await;
    assert_eq!(denied(&limit, "a").await, 1_000);
    assert!(one.release().await.unwrap() && third.release().await.unwrap());
    assert_eq!(limit.in_use("a").await.unwrap(), 0);
}

async fn of_many_at_once_as_many_are_let_in_as_there_are_slots(bench: &impl Bench) {
    let limit = bench.concurrency(slots("at-once", 5)).await;
    let callers = (0..50).map(|_| {
        let limit = limit.clone();
        tokio::spawn(async move { limit.acquire("a", SECOND).await.unwrap().permit() })
    });
    let mut permits = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        permits.extend(caller.await.unwrap());
    }
    assert_eq!((permits.len(), limit.in_use("a").await.unwrap()), (5, 5));
}

async fn a_slot_is_free_when_its_time_is_over_and_not_a_millisecond_earlier(bench: &impl Bench) {
    let limit = bench.concurrency(slots("exact", 1)).await;
    // Its holder has died.
    take(&limit, "a", SECOND).await.keep();
    bench.advance(999).await;
    assert_eq!(denied(&limit, "a").await, 1);
    bench.advance(1).await;
    let permit = take(&limit, "a", SECOND).await;
    assert_eq!(limit.in_use("a").await.unwrap(), 1);
    assert!(permit.release().await.unwrap());
}

async fn who_is_late_frees_nobody_elses_slot(bench: &impl Bench) {
    let limit = bench.concurrency(slots("late", 1)).await;
    let late = take(&limit, "a", SECOND).await;
    bench.advance(1_000).await;
    let holder = take(&limit, "a", SECOND).await;
    assert!(!late.renew(SECOND).await.unwrap());
    assert!(!late.release().await.unwrap());
    assert_eq!(denied(&limit, "a").await, 1_000);
    assert!(holder.renew(SECOND).await.unwrap());
    assert!(holder.release().await.unwrap());
}

async fn a_lease_that_is_renewed_lasts_and_one_that_is_over_is_not_renewed(bench: &impl Bench) {
    let limit = bench.concurrency(slots("renew", 1)).await;
    let permit = take(&limit, "a", SECOND).await;
    for _ in 0..5 {
        bench.advance(900).await;
        assert!(permit.renew(SECOND).await.unwrap());
    }
    assert_eq!(denied(&limit, "a").await, 1_000);
    bench.advance(1_000).await;
    assert!(!permit.renew(SECOND).await.unwrap(), "also when nobody else has taken the slot");
    assert_eq!(limit.in_use("a").await.unwrap(), 0);
    drop(permit);
    // For less time than it had.
    let permit = take(&limit, "a", 60 * SECOND).await;
    assert!(permit.renew(SECOND).await.unwrap());
    bench.advance(1_000).await;
    assert!(!permit.release().await.unwrap());
}

async fn a_permit_that_is_dropped_is_given_back(bench: &impl Bench) {
    let limit = bench.concurrency(slots("drop", 1)).await;
    let permit = take(&limit, "a", SECOND).await;
    drop(permit);
    until_in_use(&limit, "a", 0).await;
    // Also by a task that is cut off.
    let cut = limit.clone();
    let (held, holds) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        let _permit = take(&cut, "a", SECOND).await;
        held.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    holds.await.unwrap();
    assert_eq!(limit.in_use("a").await.unwrap(), 1);
    task.abort();
    until_in_use(&limit, "a", 0).await;
}

async fn a_permit_that_is_kept_is_given_back_by_whoever_has_its_grant(bench: &impl Bench) {
    let limit = bench.concurrency(slots("keep", 1)).await;
    let grant = take(&limit, "a", SECOND).await.keep();
    assert_eq!(limit.in_use("a").await.unwrap(), 1);
    assert!(limit.permit(grant.clone()).release().await.unwrap());
    assert!(!limit.permit(grant).release().await.unwrap());
}

async fn keys_and_limits_do_not_meet(bench: &impl Bench) {
    let limit = bench.concurrency(slots("meet1", 1)).await;
    let other = bench.concurrency(slots("meet2", 1)).await;
    let mut permits = Vec::new();
    for key in ["a", "A", " a", "ä", "{a}", "}a{", "*", "'; DROP TABLE", "a:b", &"x".repeat(512)] {
        permits.push(take(&limit, key, SECOND).await);
        permits.push(take(&other, key, SECOND).await);
        assert_eq!(denied(&limit, key).await, 1_000, "{key}");
    }
    for permit in permits {
        assert!(permit.release().await.unwrap());
    }
}

async fn with_fewer_slots_than_are_taken_enough_must_leave(bench: &impl Bench) {
    let many = bench.concurrency(slots("fewer", 3)).await;
    for seconds in 1..=3 {
        take(&many, "a", seconds * SECOND).await.keep();
    }
    let Some(one) = bench.again(slots("fewer", 1)).await else { return };
    assert_eq!(denied(&one, "a").await, 3_000);
    bench.advance(2_999).await;
    assert_eq!(denied(&one, "a").await, 1);
    bench.advance(1).await;
    assert!(take(&one, "a", SECOND).await.release().await.unwrap());
}

async fn a_clock_that_is_put_back_lets_nobody_in_and_keeps_nobody_out_for_ever(bench: &impl Bench) {
    let limit = bench.concurrency(slots("back", 1)).await;
    take(&limit, "a", SECOND).await.keep();
    bench.advance(-3_600_000).await;
    assert_eq!(denied(&limit, "a").await, 1_000, "by the clock as it is now");
    bench.advance(999).await;
    assert_eq!(denied(&limit, "a").await, 1);
    bench.advance(1).await;
    let permit = take(&limit, "a", SECOND).await;
    bench.advance(-500).await;
    assert!(denied(&limit, "a").await <= 1_500, "a clock that wobbles is no clock that was put back");
    assert!(permit.release().await.unwrap());
}

async fn what_is_taken_outlives_the_process(bench: &impl Bench) {
    let limit = bench.concurrency(slots("restart", 1)).await;
    let permit = take(&limit, "a", SECOND).await;
    let Some(again) = bench.again(slots("restart", 1)).await else { return };
    assert_eq!(denied(&again, "a").await, 1_000);
    assert!(again.permit(permit.keep()).release().await.unwrap(), "also by another process");
    let permit = take(&again, "a", SECOND).await;
    assert_eq!(denied(&limit, "a").await, 1_000);
    assert!(permit.release().await.unwrap());
}

async fn what_cannot_be_taken_is_refused(bench: &impl Bench) {
    let limit = bench.concurrency(slots("refuse", 1)).await;
    let day = Duration::from_millis(MAX_TTL_MS);
    for (key, ttl) in [
        ("", SECOND),
        ("a\nb", SECOND),
        (&"x".repeat(513), SECOND),
        ("a", Duration::ZERO),
        ("a", day + Duration::from_millis(1)),
    ] {
        let error = limit.acquire(key, ttl).await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("GUARD_INVALID", false), "{key:?} {ttl:?}");
    }
    assert_eq!(limit.in_use("a").await.unwrap(), 0);
    let permit = take(&limit, "a", day).await;
    assert!(permit.renew(Duration::ZERO).await.is_err());
    assert_eq!(denied(&limit, "a").await, MAX_TTL_MS);
    assert!(permit.release().await.unwrap());
    for count in [0, 1_001] {
        assert_eq!(Slots::new(count).unwrap_err().code(), "GUARD_INVALID");
    }
    assert!(Claim::Look.only_looks());
}

async fn all_slots_of_a_key_can_be_taken(bench: &impl Bench) {
    let limit = bench.concurrency(slots("all", 200)).await;
    let mut permits = Vec::new();
    for number in 1..=200 {
        permits.push(take(&limit, "a", number * SECOND).await);
    }
    assert_eq!(denied(&limit, "a").await, 1_000);
    bench.advance(100_000).await;
    assert_eq!(limit.in_use("a").await.unwrap(), 100);
    permits.drain(..100).for_each(|permit| drop(permit.keep()));
    for permit in permits {
        assert!(permit.release().await.unwrap());
    }
}
