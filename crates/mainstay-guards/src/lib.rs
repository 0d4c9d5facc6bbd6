//! The guards: what stands between an application and a bad day.
//!
//! - [`limits`]: how much of something a key may have.

mod error;
pub mod limits;

pub use error::{CODES, Error, Result};
