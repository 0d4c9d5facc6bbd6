//! The guards: what stands between an application and a bad day.
//!
//! - [`limits`]: how much of something a key may have.
//! - [`circuits`]: calls to a service that is not well are not made.
//! - [`retry`]: calls that failed are made again, within a deadline and a budget.
//! - [`once`]: requests that are sent again are carried out once.
//! - [`http`]: what a guard needs to know of HTTP: what answers mean, whose requests are.

pub mod circuits;
mod error;
pub mod http;
pub mod limits;
pub mod once;
pub mod retry;

pub use error::{CODES, Error, Result};
