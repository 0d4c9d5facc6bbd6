//! Rate limits: how much of something a key may have.
//!
//! One trait, [`RateLimiter`], and an adapter for each place that budgets are kept in: [`memory`], for one process;
//! [`store`], for limits with a name that all nodes share and restarts keep; `redis` (a feature), for many decisions that
//! all nodes share and that may be lost. All adapters decide by the same arithmetic, that of [`mainstay_core::limits`], and
//! pass one suite of tests.
//!
//! [`Concurrency`] is how many may be at something at once, in the same three places.
//!
//! ```
//! use mainstay_guards::limits::{Policy, RateLimiter, memory};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> mainstay_guards::Result<()> {
//! let limiter = memory::limiter(Policy::bucket(10.0, 1.0)?);
//! let decision = limiter.consume("user:alice", 3).await?;
//! assert_eq!((decision.allowed, decision.remaining), (true, 7));
//! # Ok(()) }
//! ```

mod checker;
mod concurrency;
mod definition;
mod key;
pub mod keys;
mod layer;
mod limiter;
mod many;
pub mod memory;
mod policy;
#[cfg(feature = "redis")]
pub mod redis;
mod shadow;
pub mod store;
mod watched;

pub use checker::{RateLimitChecker, RateLimitResult};
pub use concurrency::{Acquired, Concurrency, ConcurrencyLimiter, Grant, Permit, Slots};
pub use definition::{Definition, MAX_LIMITS, MAX_NAME_BYTES, MAX_SHARDS};
pub use key::{MAX_KEY_BYTES, check_key};
pub use layer::{Limited, Limiting, MAX_RULES, RateLimitLayer, Rule, WhenAway, fields};
pub use limiter::{Answer, RateLimiter};
pub use mainstay_core::limits::leases::{Claim, Claimed, MAX_SLOTS, MAX_TTL_MS, Token};
pub use mainstay_core::limits::{Decision, Kind, Limit, LimitError, Verb};
pub use many::{Want, consume_many};
pub use policy::{MAX_PREFIX_BYTES, Policy};
pub use shadow::Shadow;
pub use watched::{Figures, MostDenied, Watched};

pub(crate) use concurrency::check_claim;
pub(crate) use limiter::check;

/// The entry in the register of codes for what was too much.
pub fn limited_code() -> &'static mainstay_core::codes::ErrorCode {
    &crate::error::RATE_LIMITED
}
