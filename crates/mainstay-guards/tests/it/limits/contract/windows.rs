//! Item 12: fixed and sliding windows.

use super::{Bench, consume, remaining};
use mainstay_guards::limits::{Decision, Kind, Limit, Policy, RateLimiter};
use std::sync::Arc;

pub(super) async fn hold(bench: &impl Bench) {
    b_012_a_window_brings_back_its_rate(bench).await;
    b_012_what_was_not_used_rolls_over(bench).await;
    windows_begin_when_they_are_told_to(bench).await;
    a_sliding_window_lets_use_fade(bench).await;
}

async fn limiter(bench: &impl Bench, name: &str, limit: Limit) -> Arc<dyn RateLimiter> {
    bench.limiter(Policy::new(limit).with_prefix(&format!("{name}:")).unwrap()).await
}

async fn b_012_a_window_brings_back_its_rate(bench: &impl Bench) {
    let window = limiter(bench, "window", Limit::new(Kind::FixedWindow, 10.0, 3_600_000).unwrap()).await;
    assert_eq!(consume(&window, "a", 10).await, Decision::allowed(0));
    bench.advance(600_000).await;
    assert_eq!(consume(&window, "a", 1).await, Decision::denied(0, 3_000_000));
    bench.advance(2_999_999).await;
    assert_eq!(consume(&window, "a", 1).await, Decision::denied(0, 1));
    bench.advance(1).await;
    assert_eq!(consume(&window, "a", 4).await, Decision::allowed(6));
}

async fn b_012_what_was_not_used_rolls_over(bench: &impl Bench) {
    let limit = Limit::new(Kind::FixedWindow, 10.0, 3_600_000).unwrap().with_capacity(25.0).unwrap();
    let window = limiter(bench, "rollover", limit).await;
    assert_eq!(consume(&window, "a", 25).await, Decision::allowed(0));
    assert_eq!(consume(&window, "a", 11).await, Decision::denied(0, 7_200_000));
    bench.advance(3_600_000).await;
    assert_eq!(consume(&window, "a", 1).await, Decision::allowed(9));
    bench.advance(3_600_000).await;
    assert_eq!(remaining(&window, "a").await, 19);
    bench.advance(3_600_000).await;
    assert_eq!(remaining(&window, "a").await, 25);
}

async fn windows_begin_when_they_are_told_to(bench: &impl Bench) {
    let limit = Limit::new(Kind::FixedWindow, 10.0, 3_600_000).unwrap().starting_at(900_000);
    let window = limiter(bench, "start", limit).await;
    assert_eq!(consume(&window, "a", 10).await, Decision::allowed(0));
    assert_eq!(consume(&window, "a", 1).await, Decision::denied(0, 900_000));
    bench.advance(3_600_000).await;
    assert_eq!(consume(&window, "a", 10).await, Decision::allowed(0));
}

async fn a_sliding_window_lets_use_fade(bench: &impl Bench) {
    let sliding = limiter(bench, "sliding", Limit::new(Kind::SlidingWindow, 10.0, 60_000).unwrap()).await;
    bench.advance(30_000).await;
    assert_eq!(consume(&sliding, "a", 10).await, Decision::allowed(0));
    assert_eq!(consume(&sliding, "a", 1).await, Decision::denied(0, 36_000));
    assert_eq!(consume(&sliding, "a", 11).await, Decision::impossible(0));
    bench.advance(35_999).await;
    assert_eq!(consume(&sliding, "a", 1).await, Decision::denied(0, 1));
    bench.advance(1).await;
    assert_eq!(consume(&sliding, "a", 1).await, Decision::allowed(0));
    bench.advance(24_000).await;
    assert_eq!(remaining(&sliding, "a").await, 4);
    bench.advance(30_000).await;
    assert_eq!(remaining(&sliding, "a").await, 9);
}
