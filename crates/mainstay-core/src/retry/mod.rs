//! When what failed is tried again, if at all.
//!
//! - [`RetryPolicy`]: how a pool goes about its items; it counts executions
//! - [`Policy`]: how an executor of calls does; such policies count retries
//! - [`RetryConfig`]: such a policy as it is written down
//! - [`Budget`]: how many retries there may be in all, so that they do not multiply an outage

mod breaker;
mod budget;
mod config;
mod policy;
mod pool;

pub use breaker::{Breaker, BreakerSettings};
pub use budget::{Budget, BudgetSettings};
pub use config::{PolicyType, RetryConfig, RetryConfigError};
pub use policy::{ExponentialBackoff, FixedInterval, Jitter, LinearBackoff, NoRetry, Policy};
pub use pool::{RetryPolicy, RetryPolicyError};
