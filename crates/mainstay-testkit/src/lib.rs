//! testkit

pub mod postgres;
