//! What every limiter does, wherever it keeps its budgets.
//!
//! An adapter supplies a [`Bench`]: how to make limiters and how to let time pass. [`hold`] runs all of the contract on
//! it; there is no way to run a part.

mod buckets;
mod refusals;
mod time;
mod verbs;
mod windows;

use mainstay_guards::limits::{Decision, Policy, RateLimiter};
use std::sync::Arc;

/// A place in which limiters can be tried. Every limiter begins at [`Bench::START_MS`], and time moves only when told.
pub(crate) trait Bench {
    /// When time begins: at the start of an hour.
    const START_MS: i64 = mainstay_testkit::time::START_MS;

    /// A limiter over a backend that all limiters of this place share.
    async fn limiter(&self, policy: Policy) -> Arc<dyn RateLimiter>;

    /// A limiter as another process would have it that begins now, with the same policy over the same backend; or none,
    /// if what is kept ends with the process.
    async fn again(&self, policy: Policy) -> Option<Arc<dyn RateLimiter>>;

    /// Lets time pass, backwards if negative.
    async fn advance(&self, by_ms: i64);
}

/// Runs the whole contract.
pub(crate) async fn hold(bench: &impl Bench) {
    buckets::hold(bench).await;
    windows::hold(bench).await;
    time::hold(bench).await;
    verbs::hold(bench).await;
    refusals::hold(bench).await;
}

/// A token bucket that nobody else has.
pub(crate) async fn bucket(
    bench: &impl Bench,
    name: &str,
    capacity: f64,
    per_second: f64,
) -> Arc<dyn RateLimiter> {
    bench.limiter(bucket_policy(name, capacity, per_second)).await
}

pub(crate) fn bucket_policy(name: &str, capacity: f64, per_second: f64) -> Policy {
    Policy::bucket(capacity, per_second).unwrap().with_prefix(&format!("{name}:")).unwrap()
}

pub(crate) async fn consume(limiter: &Arc<dyn RateLimiter>, key: &str, cost: u64) -> Decision {
    limiter.consume(key, cost).await.unwrap()
}

pub(crate) async fn remaining(limiter: &Arc<dyn RateLimiter>, key: &str) -> u64 {
    limiter.peek(key, 1).await.unwrap().remaining
}
