//! A budget of retries, so that they cannot multiply an outage.
//!
//! Tokens, as in a bucket. A retry costs some, one after throttling costs less: the service is well, and only busy. What
//! a retry cost comes back when it succeeds, a call that succeeds at once earns a little, and time does too, so that
//! somebody always tries. Without tokens nothing is tried again.

use crate::failure::{Class, Failure};

/// How a budget is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetSettings {
    /// Most tokens, and how many there are at first.
    pub capacity: u32,
    /// What a retry costs.
    pub retry_cost: u32,
    /// What a retry after throttling costs.
    pub throttled_cost: u32,
    /// What a call earns that succeeds at once.
    pub success_gain: u32,
    /// What a second earns.
    pub gain_per_second: u32,
}

impl Default for BudgetSettings {
    /// The AWS SDKs' figures: 500 tokens, 14 a retry, 5 when throttled, 1 back for a success; and one retry a second for
    /// whoever has none left, which they do without.
    fn default() -> Self {
        Self { capacity: 500, retry_cost: 14, throttled_cost: 5, success_gain: 1, gain_per_second: 14 }
    }
}

/// The tokens that are left.
#[derive(Debug, Clone)]
pub struct Budget {
    settings: BudgetSettings,
    tokens: u32,
    /// Up to when time has been paid for.
    paid_until_ms: Option<i64>,
    /// What it has earned of the next token.
    thousandths: u64,
}

impl Budget {
    /// A full budget.
    pub fn new(settings: BudgetSettings) -> Self {
        Self { settings, tokens: settings.capacity, paid_until_ms: None, thousandths: 0 }
    }

    /// Pays for a retry after this failure, and tells what it cost; nothing when there is not enough.
    pub fn spend(&mut self, failure: &Failure, now_ms: i64) -> Option<u32> {
        self.earn_time(now_ms);
        let is_throttled = matches!(
            failure.class(),
            Class::RateLimitExceeded
                | Class::ProviderThrottling
                | Class::ThrottlingException
                | Class::QuotaExceeded
        );
        let cost = if is_throttled { self.settings.throttled_cost } else { self.settings.retry_cost };
        self.tokens = self.tokens.checked_sub(cost)?;
        Some(cost)
    }

    /// A call succeeded whose last retry cost this; 0 when there was none.
    pub fn succeed(&mut self, cost: u32, now_ms: i64) {
        self.earn_time(now_ms);
        self.earn(if cost > 0 { cost } else { self.settings.success_gain });
    }

    /// The tokens that are left.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    fn earn(&mut self, tokens: u32) {
        self.tokens = self.tokens.saturating_add(tokens).min(self.settings.capacity);
    }

    /// Whole tokens; the part of one is kept for the next call.
    fn earn_time(&mut self, now_ms: i64) {
        let since = self.paid_until_ms.replace(now_ms).unwrap_or(now_ms);
        let elapsed = u64::try_from(now_ms.saturating_sub(since)).unwrap_or(0);
        let thousandths =
            elapsed.saturating_mul(self.settings.gain_per_second.into()).saturating_add(self.thousandths);
        self.thousandths = if self.tokens == self.settings.capacity { 0 } else { thousandths % 1_000 };
        self.earn(u32::try_from(thousandths / 1_000).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timeless() -> BudgetSettings {
        BudgetSettings { gain_per_second: 0, ..BudgetSettings::default() }
    }

    fn busy() -> Failure {
        Failure::retryable("busy")
    }

    #[test]
    fn an_outage_uses_it_up_and_throttling_does_so_later() {
        let retries = |failure: Failure| {
            let mut budget = Budget::new(timeless());
            std::iter::from_fn(|| budget.spend(&failure, 0)).count()
        };
        assert_eq!(retries(busy()), 35);
        assert_eq!(retries(Failure::new(Class::RateLimitExceeded, "slow down")), 100);
        assert_eq!(retries(Failure::new(Class::ProviderThrottling, "slow down")), 100);
    }

    #[test]
    fn a_success_gives_back_what_it_cost() {
        let mut budget = Budget::new(timeless());
        let cost = budget.spend(&busy(), 0).unwrap();
        assert_eq!(budget.tokens(), 486);
        budget.succeed(cost, 0);
        assert_eq!(budget.tokens(), 500);
        budget.spend(&busy(), 0).unwrap();
        budget.succeed(0, 0);
        assert_eq!(budget.tokens(), 487);
    }

    #[test]
    fn time_earns_whole_tokens_however_often_it_is_asked() {
        for step in [1, 7, 100, 333, 1_000] {
            let settings =
                BudgetSettings { capacity: 1_000, gain_per_second: 3, ..BudgetSettings::default() };
            let mut budget = Budget { tokens: 0, ..Budget::new(settings) };
            (0..=60_000).step_by(step).for_each(|now| budget.earn_time(now));
            budget.earn_time(60_000);
            assert_eq!(budget.tokens(), 180, "every {step} ms");
        }
    }

    proptest! {
        #[test]
        fn there_are_never_more_retries_than_were_paid_for(
            calls in prop::collection::vec((0_u32..3, 0_i64..200), 0..400),
        ) {
            let settings = BudgetSettings { capacity: 50, ..BudgetSettings::default() };
            let (mut budget, mut now, mut spent, mut earned) = (Budget::new(settings), 0, 0, 0);
            for (kind, step) in calls {
                now += step;
                match kind {
                    0 => { budget.succeed(0, now); earned += 1; }
                    _ => spent += budget.spend(&busy(), now).unwrap_or(0),
                }
                prop_assert!(budget.tokens() <= 50);
                prop_assert!(i64::from(spent) <= 50 + earned + now * 14 / 1_000 + 1);
            }
        }
    }
}
