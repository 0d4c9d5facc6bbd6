//! cli lib
pub mod bench;
