//! A budget that callers share.

use mainstay_core::failure::Failure;
use mainstay_core::measure::{Counter, Measured, Reading};
use mainstay_core::retry::{self, BudgetSettings};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// What all retries of a program, or of its calls to one service, may cost. Clones are the same budget.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    budget: Mutex<retry::Budget>,
    began: Instant,
    spent: Counter,
    exhausted: Counter,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(BudgetSettings::default())
    }
}

impl Budget {
    /// A full budget.
    pub fn new(settings: BudgetSettings) -> Self {
        let budget = Mutex::new(retry::Budget::new(settings));
        let (spent, exhausted) = (Counter::default(), Counter::default());
        Self(Arc::new(Shared { budget, began: Instant::now(), spent, exhausted }))
    }

    /// The tokens that are left.
    pub fn tokens(&self) -> u32 {
        self.lock().tokens()
    }

    /// Pays for a retry, and tells what it cost; nothing when there is not enough.
    pub(super) fn spend(&self, failure: &Failure) -> Option<u32> {
        let now_ms = self.now_ms();
        let cost = self.lock().spend(failure, now_ms);
        match cost {
            Some(_) => self.0.spent.increment(),
            None => self.0.exhausted.increment(),
        }
        cost
    }

    /// A call succeeded whose last retry cost this.
    pub(super) fn succeed(&self, cost: u32) {
        let now_ms = self.now_ms();
        self.lock().succeed(cost, now_ms);
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, retry::Budget> {
        self.0.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Measured for Budget {
    fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading)) {
        visit("retry_budget_tokens", "Tokens left for retries.", Reading::Gauge(self.tokens().into()));
        visit("retry_budget_spent", "Retries that were paid for.", Reading::Counter(self.0.spent.get()));
        let exhausted = Reading::Counter(self.0.exhausted.get());
        visit("retry_budget_exhausted", "Retries that there was no budget for.", exhausted);
    }
}
