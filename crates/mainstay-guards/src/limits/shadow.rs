//! A limit that is tried out before it is enforced.

use super::{Answer, Policy, RateLimiter};
use mainstay_core::limits::{Decision, Limit, Verb};
use std::sync::atomic::{AtomicBool, Ordering};

/// Lets everything pass that its limiter would deny, and only says so in the log, until it is told to enforce.
///
/// Put a [`Watched`](super::Watched) inside to count what would be denied, and whose calls.
pub struct Shadow<L> {
    limiter: L,
    is_enforced: AtomicBool,
}

impl<L: RateLimiter> Shadow<L> {
    /// A limiter that denies nothing yet.
    pub fn new(limiter: L) -> Self {
        Self { limiter, is_enforced: AtomicBool::new(false) }
    }

    /// Whether denials count from now on.
    pub fn enforce(&self, is_enforced: bool) {
        self.is_enforced.store(is_enforced, Ordering::Relaxed);
    }

    /// The limiter inside.
    pub fn inner(&self) -> &L {
        &self.limiter
    }
}

impl<L: RateLimiter> RateLimiter for Shadow<L> {
    fn act<'a>(&'a self, key: &'a str, verb: Verb) -> Answer<'a, Decision> {
        let answer = self.limiter.act(key, verb);
        if self.is_enforced.load(Ordering::Relaxed) || !matches!(verb, Verb::Consume(_) | Verb::Peek(_)) {
            return answer;
        }
        answer.map(move |decision| {
            if !decision.allowed && matches!(verb, Verb::Consume(_)) {
                tracing::info!(key, retry_after_ms = decision.retry_after_ms, "this call would be denied");
            }
            Decision::allowed(decision.remaining)
        })
    }

    fn policy(&self) -> Policy {
        self.limiter.policy()
    }

    fn set_limit(&self, limit: Limit) -> Answer<'_, ()> {
        self.limiter.set_limit(limit)
    }

    fn dispose(&self) {
        self.limiter.dispose();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::memory;

    #[tokio::test]
    async fn a_shadow_denies_nothing_until_it_is_told_to() {
        let shadow = Shadow::new(memory::limiter(Policy::bucket(2.0, 0.001).unwrap()));
        for _ in 0..5 {
            assert!(shadow.consume("a", 1).await.unwrap().allowed);
        }
        assert!(shadow.consume("", 1).await.is_err(), "what makes no sense is refused all the same");
        shadow.enforce(true);
        assert!(!shadow.consume("a", 1).await.unwrap().allowed);
        assert_eq!(shadow.consume("b", 1).await.unwrap(), Decision::allowed(1));
    }
}
