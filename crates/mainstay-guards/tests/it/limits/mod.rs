//! Rate limits.
