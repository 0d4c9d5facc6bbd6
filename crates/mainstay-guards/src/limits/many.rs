//! Several limiters at once.

use super::RateLimiter;
use crate::Result;
use mainstay_core::limits::Decision;

/// What is wanted of one limiter.
#[derive(Clone, Copy)]
pub struct Want<'a> {
    /// The limiter.
    pub limiter: &'a dyn RateLimiter,
    /// The key.
    pub key: &'a str,
    /// How many tokens.
    pub cost: u64,
}

/// Takes from all limiters, of whatever kind, or from none: they are asked one after another, and when one denies, or
/// fails, what the others gave is given back. The decisions are those of the limiters that were asked; the last one says
/// why nothing was taken, if it is a denial.
///
/// Between the two, others may find less than there will be. Limits in a store have
/// [`consume_many`](super::store::Limits::consume_many), where nobody sees anything of it.
pub async fn consume_many(wants: &[Want<'_>]) -> Result<Vec<Decision>> {
    let mut decisions = Vec::with_capacity(wants.len());
    for (number, want) in wants.iter().enumerate() {
        let answer = want.limiter.consume(want.key, want.cost).await;
        if !matches!(&answer, Ok(decision) if decision.allowed) {
            for taken in &wants[..number] {
                taken.limiter.refund(taken.key, taken.cost).await?;
            }
        }
        let decision = answer?;
        decisions.push(decision);
        if !decision.allowed {
            break;
        }
    }
    Ok(decisions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Policy, memory};

    #[tokio::test]
    async fn all_give_or_none_does() {
        let limiter = |capacity| memory::limiter(Policy::bucket(capacity, 0.001).unwrap());
        let (tenant, user) = (limiter(100.0), limiter(10.0));
        let wants = |cost| {
            [Want { limiter: &tenant, key: "acme", cost }, Want { limiter: &user, key: "alice", cost }]
        };
        let taken = consume_many(&wants(6)).await.unwrap();
        assert_eq!(taken, [Decision::allowed(94), Decision::allowed(4)]);
        let denied = consume_many(&wants(6)).await.unwrap();
        assert!(!denied[1].allowed);
        assert_eq!(tenant.peek("acme", 1).await.unwrap().remaining, 94, "what was given is given back");
        let bad =
            [Want { limiter: &tenant, key: "acme", cost: 1 }, Want { limiter: &user, key: "", cost: 1 }];
        assert!(consume_many(&bad).await.is_err());
        assert_eq!(tenant.peek("acme", 1).await.unwrap().remaining, 94);
    }
}
