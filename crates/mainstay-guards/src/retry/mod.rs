//! Retries: a call that failed is made again, as a policy says, within one deadline and one budget.
//!
//! - `executor`: makes the calls
//! - `budget`: what all retries of a program may cost
//! - `layer`: a tower service whose calls are made again
//! - `idempotency_key`: a tower service whose requests are recognised when they are
//!
//! Policies are in the core: [`mainstay_core::retry`].

mod budget;
mod executor;
mod idempotency_key;
mod layer;

pub use budget::Budget;
pub use executor::{RetryError, RetryExecutor};
pub use idempotency_key::{IDEMPOTENCY_KEY, IdempotencyKeyLayer, Keyed};
pub use layer::{RetryLayer, Retrying};
pub use mainstay_core::retry::{
    Breaker, BreakerSettings, BudgetSettings, ExponentialBackoff, FixedInterval, Jitter, LinearBackoff,
    NoRetry, Policy, PolicyType, RetryConfig, RetryConfigError,
};
