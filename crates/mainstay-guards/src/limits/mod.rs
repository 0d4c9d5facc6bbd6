//! Rate limits: how much of something a key may have.

mod key;

pub use key::{MAX_KEY_BYTES, check_key};
