//! A limit and the keys that it is for.

use crate::{Error, Result};
use mainstay_core::limits::{Limit, LimitError};
use std::sync::Arc;

/// Longest prefix of keys.
pub const MAX_PREFIX_BYTES: usize = 128;

/// What a limiter is made from: a limit, and what stands in front of every key, so that limiters over one backend do
/// not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    limit: Limit,
    prefix: Arc<str>,
}

impl Policy {
    /// A policy without a prefix.
    pub fn new(limit: Limit) -> Self {
        Self { limit, prefix: "".into() }
    }

    /// A token bucket of `capacity`, to which `tokens_per_second` come back.
    pub fn bucket(capacity: f64, tokens_per_second: f64) -> Result<Self> {
        Ok(Self::new(Limit::bucket(capacity, tokens_per_second)?))
    }

    /// The same with a prefix.
    pub fn with_prefix(self, prefix: &str) -> Result<Self> {
        if prefix.len() > MAX_PREFIX_BYTES || prefix.contains(char::is_control) {
            let reason = format!("has at most {MAX_PREFIX_BYTES} bytes and no control characters");
            return Err(Error::invalid("prefix", reason));
        }
        Ok(Self { prefix: prefix.into(), ..self })
    }

    /// The same with another limit.
    pub fn with_limit(&self, limit: Limit) -> Self {
        Self { limit, prefix: self.prefix.clone() }
    }

    /// The limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// What stands in front of every key.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl From<LimitError> for Error {
    fn from(error: LimitError) -> Self {
        Self::BadLimit(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_018_a_policy_that_makes_no_sense_is_refused_with_a_code() {
        let error = Policy::bucket(0.0, 1.0).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("LIMIT_INVALID", "Rate limit capacity must be ≥ 1")
        );
        let error = Policy::bucket(1.0, 0.0).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("LIMIT_INVALID", "tokensPerSecond must be > 0")
        );
        let policy = Policy::bucket(1.0, 1.0).unwrap();
        for bad in ["a\nb", &"x".repeat(129)] {
            assert_eq!(policy.clone().with_prefix(bad).unwrap_err().code(), "GUARD_INVALID");
        }
    }
}
