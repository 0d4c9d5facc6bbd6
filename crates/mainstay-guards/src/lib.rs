//! The guards: what stands between an application and a bad day.
//!
//! - [`limits`]: how much of something a key may have.
//! - [`circuits`]: calls to a service that is not well are not made.

pub mod circuits;
mod error;
pub mod limits;

pub use error::{CODES, Error, Result};
