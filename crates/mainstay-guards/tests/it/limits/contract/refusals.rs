//! What cannot be taken is refused, and changes nothing.

use super::{Bench, bucket, remaining};

pub(super) async fn hold(bench: &impl Bench) {
    let limiter = bucket(bench, "refuse", 10.0, 1.0).await;
    for (key, cost, code) in [
        ("a", 0, "LIMIT_COST_INVALID"),
        ("", 1, "GUARD_INVALID"),
        ("a\nb", 1, "GUARD_INVALID"),
        ("nul\0", 1, "GUARD_INVALID"),
        (&"x".repeat(513), 1, "GUARD_INVALID"),
    ] {
        let error = limiter.consume(key, cost).await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), (code, false), "{key:?} {cost}");
    }
    let error = limiter.peek("a", 0).await.unwrap_err();
    assert_eq!(error.to_string(), "Rate limit cost must be a positive integer");
    assert_eq!(remaining(&limiter, "a").await, 10);
}
