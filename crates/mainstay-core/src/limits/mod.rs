//! How much of something may be had, and when: the arithmetic of rate limits.
//!
//! A [`Limit`] is a token bucket, a fixed window or a sliding window. What is kept for a key is a [`State`] of two
//! numbers: what is missing from a full budget, and since when. So a key that nobody has used and a key that has
//! recovered look the same, and either may be forgotten without anybody gaining or losing by it.
//!
//! All of it is in whole numbers (decision C4). A bucket counts in parts of a token, so many to the token as its rate
//! has milliseconds to the period, so that every millisecond adds a whole number of parts: time that was not yet worth
//! a token is kept to the last bit, and polling costs nothing. Costs are whole tokens.
//!
//! ```
//! use mainstay_core::limits::Limit;
//!
//! let limit = Limit::bucket(10.0, 1.0).unwrap();
//! let mut state = limit.fresh(0);
//! assert_eq!(limit.consume(&mut state, 0, 10).remaining, 0);
//! let denied = limit.consume(&mut state, 400, 1);
//! assert_eq!((denied.allowed, denied.retry_after_ms), (false, Some(600)));
//! assert!(limit.consume(&mut state, 1_000, 1).allowed);
//! ```
//!
//! How many may be at something at once is another law, that of [`leases`].

mod account;
mod bucket;
mod decision;
pub mod leases;
mod limit;
mod period;
mod rate;
mod sliding;
#[cfg(test)]
mod tests;
mod window;

pub use account::{Account, Verb};
pub use decision::Decision;
pub use limit::{Kind, Limit, LimitError, MAX_CAPACITY, MAX_PER_SECOND, MAX_PERIOD_MS, State};
pub use period::{parse_period, show_period};
