//! What is kept for a key, and what may be done to it.

use super::{Decision, Limit, State};

/// What is done to a key's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Takes so many tokens if they are there.
    Consume(u64),
    /// Tells what taking so many would come to.
    Peek(u64),
    /// Gives so many back.
    Refund(u64),
    /// Takes so many whether they are there or not.
    Penalize(u64),
    /// Lets the key have nothing for so many milliseconds; 0 lifts a block.
    Block(u64),
    /// Makes the key as if nobody had used it.
    Reset,
}

impl Verb {
    /// Whether it leaves everything as it was.
    pub fn only_looks(self) -> bool {
        matches!(self, Self::Peek(_))
    }
}

/// A key's budget, and how long it may not be used at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// The budget.
    pub state: State,
    /// Until when the key is blocked; in the past when it is not.
    pub blocked_until_ms: i64,
}

impl Account {
    /// The account of a key that nobody has used.
    pub fn fresh(limit: &Limit, now_ms: i64) -> Self {
        Self { state: limit.fresh(now_ms), blocked_until_ms: i64::MIN }
    }

    /// Does it, and tells how things then stand: for a consumption or a peek whether so many tokens may be had, and
    /// otherwise whether one may. What remains is what is there when it is done.
    pub fn act(&mut self, limit: &Limit, verb: Verb, now_ms: i64) -> Decision {
        match verb {
            Verb::Consume(cost) if !self.is_blocked(now_ms) => {
                return limit.consume(&mut self.state, now_ms, cost);
            }
            Verb::Consume(cost) | Verb::Peek(cost) => return self.look(limit, cost, now_ms),
            Verb::Refund(amount) => limit.refund(&mut self.state, now_ms, amount),
            Verb::Penalize(amount) => limit.penalize(&mut self.state, now_ms, amount),
            Verb::Block(for_ms) => {
                limit.refresh(&mut self.state, now_ms);
                self.blocked_until_ms = now_ms.saturating_add(i64::try_from(for_ms).unwrap_or(i64::MAX));
            }
            Verb::Reset => *self = Self::fresh(limit, now_ms),
        }
        self.look(limit, 1, now_ms)
    }

    /// Whether nothing would be lost if the account were forgotten.
    pub fn is_idle(&self, limit: &Limit, now_ms: i64) -> bool {
        !self.is_blocked(now_ms) && limit.is_full(&self.state, now_ms)
    }

    fn is_blocked(&self, now_ms: i64) -> bool {
        self.blocked_until_ms > now_ms
    }

    fn look(&self, limit: &Limit, cost: u64, now_ms: i64) -> Decision {
        let remaining = limit.value(&self.state, now_ms).max(0) as u64;
        let decision = Decision { remaining, ..limit.check(&self.state, now_ms, cost) };
        if !self.is_blocked(now_ms) || decision.is_impossible() {
            return decision;
        }
        // The budget comes back while the block lasts.
        let blocked_ms = self.blocked_until_ms.saturating_sub(now_ms) as u64;
        Decision::denied(remaining, blocked_ms.max(decision.retry_after_ms.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_key_has_nothing_until_its_time_and_then_what_came_back() {
        let limit = Limit::bucket(10.0, 1.0).unwrap();
        let mut account = Account::fresh(&limit, 0);
        account.act(&limit, Verb::Consume(10), 0);
        assert_eq!(account.act(&limit, Verb::Block(3_000), 0), Decision::denied(0, 3_000));
        assert_eq!(account.act(&limit, Verb::Consume(5), 0), Decision::denied(0, 5_000));
        assert_eq!(account.act(&limit, Verb::Consume(1), 2_999), Decision::denied(2, 1));
        assert_eq!(account.act(&limit, Verb::Consume(1), 3_000), Decision::allowed(2));
        account.act(&limit, Verb::Block(1_000), 3_000);
        assert!(!account.is_idle(&limit, 3_500));
        assert_eq!(account.act(&limit, Verb::Block(0), 3_500), Decision::allowed(2), "a block is lifted");
    }

    #[test]
    fn looking_takes_nothing_and_a_reset_forgets_everything() {
        let limit = Limit::bucket(10.0, 1.0).unwrap();
        let mut account = Account::fresh(&limit, 0);
        assert_eq!(account.act(&limit, Verb::Peek(4), 0), Decision::allowed(10));
        assert!(account.is_idle(&limit, 0));
        account.act(&limit, Verb::Penalize(15), 0);
        assert_eq!(account.act(&limit, Verb::Peek(1), 0), Decision::denied(0, 6_000));
        assert_eq!(account.act(&limit, Verb::Refund(8), 0), Decision::allowed(3));
        account.act(&limit, Verb::Block(u64::MAX), 0);
        assert_eq!(account.act(&limit, Verb::Reset, 0), Decision::allowed(10));
        assert!(account.is_idle(&limit, 0));
    }
}
