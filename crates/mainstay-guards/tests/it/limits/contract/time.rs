//! What time brings, and what it does not.

use super::{Bench, bucket, bucket_policy, consume, remaining};
use mainstay_guards::limits::Decision;

pub(super) async fn hold(bench: &impl Bench) {
    b_025_c_004_polling_loses_no_token(bench).await;
    a_retry_passes_when_told_and_not_a_millisecond_earlier(bench).await;
    b_023_a_budget_is_never_more_than_full(bench).await;
    rates_from_one_a_day_to_a_million_a_second(bench).await;
    b_024_a_clock_that_goes_back_adds_nothing(bench).await;
    b_003_what_was_used_outlives_the_process(bench).await;
}

/// One token a second, for a minute: 59 by the end of it.
async fn b_025_c_004_polling_loses_no_token(bench: &impl Bench) {
    for every in [100, 700] {
        let limiter = bucket(bench, &format!("poll{every}"), 10.0, 1.0).await;
        assert!(consume(&limiter, "a", 10).await.allowed);
        let mut granted = 0;
        for _ in 1..=(59_999 / every) {
            bench.advance(every).await;
            granted += u32::from(consume(&limiter, "a", 1).await.allowed);
        }
        assert_eq!(granted, 59, "polled every {every} ms");
    }
}

async fn a_retry_passes_when_told_and_not_a_millisecond_earlier(bench: &impl Bench) {
    for (name, per_second, cost) in
        [("exact1", 3.0, 1), ("exact2", 7.0, 4), ("exact3", 0.3, 2), ("exact4", 999.0, 5)]
    {
        let limiter = bucket(bench, name, 5.0, per_second).await;
        assert!(consume(&limiter, "a", 5).await.allowed);
        bench.advance(1).await;
        for _ in 0..3 {
            let Some(wait_ms) = consume(&limiter, "a", cost).await.retry_after_ms else { continue };
            bench.advance(wait_ms as i64 - 1).await;
            assert_eq!(consume(&limiter, "a", cost).await.retry_after_ms, Some(1), "{name}");
            bench.advance(1).await;
            assert!(consume(&limiter, "a", cost).await.allowed, "{name}");
        }
    }
}

async fn b_023_a_budget_is_never_more_than_full(bench: &impl Bench) {
    let limiter = bucket(bench, "full", 10.0, 1.0).await;
    assert_eq!(remaining(&limiter, "a").await, 10);
    assert!(consume(&limiter, "a", 5).await.allowed);
    bench.advance(86_400_000).await;
    assert_eq!(remaining(&limiter, "a").await, 10);
    assert_eq!(consume(&limiter, "a", 1).await, Decision::allowed(9));
}

async fn rates_from_one_a_day_to_a_million_a_second(bench: &impl Bench) {
    let daily = bucket(bench, "daily", 1.0, 1.0 / 86_400.0).await;
    assert!(consume(&daily, "a", 1).await.allowed);
    assert_eq!(consume(&daily, "a", 1).await, Decision::denied(0, 86_400_000));
    bench.advance(86_399_999).await;
    assert_eq!(consume(&daily, "a", 1).await, Decision::denied(0, 1));
    bench.advance(1).await;
    assert!(consume(&daily, "a", 1).await.allowed);
    let fast = bucket(bench, "fast", 1_000_000_000.0, 1_000_000.0).await;
    assert_eq!(consume(&fast, "a", 1_000_000_000).await, Decision::allowed(0));
    assert_eq!(consume(&fast, "a", 1_001).await, Decision::denied(0, 2));
    bench.advance(1).await;
    assert_eq!(consume(&fast, "a", 999).await, Decision::allowed(1));
}

async fn b_024_a_clock_that_goes_back_adds_nothing(bench: &impl Bench) {
    let limiter = bucket(bench, "back", 10.0, 1.0).await;
    assert!(consume(&limiter, "a", 8).await.allowed);
    bench.advance(-500).await;
    assert_eq!(consume(&limiter, "a", 1).await, Decision::allowed(1));
    bench.advance(-3_600_000).await;
    assert_eq!(consume(&limiter, "a", 1).await, Decision::allowed(0));
    assert!(!consume(&limiter, "a", 1).await.allowed);
    // The budget comes back by the clock as it is now.
    bench.advance(2_000).await;
    assert_eq!(consume(&limiter, "a", 1).await, Decision::allowed(1));
    bench.advance(3_600_000).await;
    assert_eq!(remaining(&limiter, "a").await, 10);
}

async fn b_003_what_was_used_outlives_the_process(bench: &impl Bench) {
    let policy = bucket_policy("restart", 10.0, 1.0);
    let limiter = bench.limiter(policy.clone()).await;
    assert_eq!(consume(&limiter, "a", 10).await, Decision::allowed(0));
    let Some(again) = bench.again(policy).await else { return };
    assert_eq!(consume(&again, "a", 1).await, Decision::denied(0, 1_000));
    bench.advance(1_000).await;
    assert!(consume(&again, "a", 1).await.allowed);
    assert!(!consume(&limiter, "a", 1).await.allowed, "both processes share the budget");
}
