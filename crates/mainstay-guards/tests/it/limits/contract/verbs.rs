//! Everything that can be done to a budget besides taking from it.

use super::{Bench, bucket, consume, remaining};
use mainstay_guards::limits::{Decision, Kind, Limit};

pub(super) async fn hold(bench: &impl Bench) {
    a_peek_takes_nothing(bench).await;
    a_refund_gives_back_and_no_more_than_there_was(bench).await;
    a_penalty_may_owe_a_whole_capacity(bench).await;
    a_blocked_key_has_nothing_until_its_time(bench).await;
    a_reset_forgets_everything(bench).await;
    what_was_used_stays_used_when_the_limit_changes(bench).await;
}

async fn a_peek_takes_nothing(bench: &impl Bench) {
    let limiter = bucket(bench, "peek", 10.0, 1.0).await;
    for _ in 0..3 {
        assert_eq!(limiter.peek("a", 4).await.unwrap(), Decision::allowed(10));
    }
    consume(&limiter, "a", 8).await;
    assert_eq!(limiter.peek("a", 4).await.unwrap(), Decision::denied(2, 2_000));
    assert_eq!(limiter.peek("a", 11).await.unwrap(), Decision::impossible(2));
    assert_eq!(consume(&limiter, "a", 2).await, Decision::allowed(0));
}

async fn a_refund_gives_back_and_no_more_than_there_was(bench: &impl Bench) {
    let limiter = bucket(bench, "refund", 10.0, 1.0).await;
    consume(&limiter, "a", 8).await;
    assert_eq!(limiter.refund("a", 3).await.unwrap(), Decision::allowed(5));
    assert_eq!(limiter.refund("a", u64::MAX).await.unwrap(), Decision::allowed(10));
    assert_eq!(limiter.refund("unknown", 3).await.unwrap(), Decision::allowed(10));
    assert_eq!(consume(&limiter, "a", 1).await, Decision::allowed(9));
}

async fn a_penalty_may_owe_a_whole_capacity(bench: &impl Bench) {
    let limiter = bucket(bench, "penalty", 10.0, 1.0).await;
    assert_eq!(limiter.penalize("a", 4).await.unwrap(), Decision::allowed(6));
    assert_eq!(limiter.penalize("a", 8).await.unwrap(), Decision::denied(0, 3_000));
    assert_eq!(limiter.penalize("a", u64::MAX).await.unwrap(), Decision::denied(0, 11_000));
    bench.advance(11_000).await;
    assert_eq!(consume(&limiter, "a", 1).await, Decision::allowed(0));
}

async fn a_blocked_key_has_nothing_until_its_time(bench: &impl Bench) {
    let limiter = bucket(bench, "block", 10.0, 1.0).await;
    assert_eq!(limiter.block("a", 5_000).await.unwrap(), Decision::denied(10, 5_000));
    assert_eq!(consume(&limiter, "a", 1).await, Decision::denied(10, 5_000));
    assert_eq!(consume(&limiter, "b", 1).await, Decision::allowed(9));
    bench.advance(4_999).await;
    assert_eq!(consume(&limiter, "a", 1).await, Decision::denied(10, 1));
    bench.advance(1).await;
    assert_eq!(consume(&limiter, "a", 1).await, Decision::allowed(9));
    limiter.block("a", 3_600_000).await.unwrap();
    assert!(!consume(&limiter, "a", 1).await.allowed);
    assert!(limiter.block("a", 0).await.unwrap().allowed, "a block is lifted");
    assert!(consume(&limiter, "a", 1).await.allowed);
}

async fn a_reset_forgets_everything(bench: &impl Bench) {
    let limiter = bucket(bench, "reset", 10.0, 1.0).await;
    limiter.penalize("a", 20).await.unwrap();
    limiter.block("a", 3_600_000).await.unwrap();
    assert_eq!(limiter.reset("a").await.unwrap(), Decision::allowed(10));
    assert_eq!(consume(&limiter, "a", 10).await, Decision::allowed(0));
}

async fn what_was_used_stays_used_when_the_limit_changes(bench: &impl Bench) {
    let limiter = bucket(bench, "change", 10.0, 1.0).await;
    consume(&limiter, "a", 4).await;
    limiter.set_limit(Limit::bucket(100.0, 7.0).unwrap()).await.unwrap();
    assert_eq!(limiter.policy().limit().capacity(), 100);
    assert_eq!(limiter.policy().prefix(), "change:");
    assert_eq!(remaining(&limiter, "a").await, 96);
    assert_eq!(remaining(&limiter, "b").await, 100);
    consume(&limiter, "b", 60).await;
    limiter.set_limit(Limit::bucket(10.0, 1.0).unwrap()).await.unwrap();
    assert_eq!(remaining(&limiter, "a").await, 6);
    assert_eq!(consume(&limiter, "b", 1).await.remaining, 0, "at most a whole capacity is owed");
    limiter.set_limit(Limit::new(Kind::FixedWindow, 20.0, 3_600_000).unwrap()).await.unwrap();
    assert_eq!(remaining(&limiter, "a").await, 16);
    bench.advance(3_600_000).await;
    assert_eq!(remaining(&limiter, "a").await, 20);
}
