//! What a limit says to somebody who asks.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// Whether something may be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may.
    pub allowed: bool,
    /// How many whole tokens are left.
    pub remaining: u64,
    /// When the same will be allowed if nobody else asks, to the millisecond. Nothing when it is allowed now, and
    /// nothing when it never will be, because it costs more than there can ever be.
    pub retry_after_ms: Option<u64>,
}

impl Decision {
    /// It may be had, and so much is left.
    pub const fn allowed(remaining: u64) -> Self {
        Self { allowed: true, remaining, retry_after_ms: None }
    }

    /// It may not be had before so long.
    pub const fn denied(remaining: u64, retry_after_ms: u64) -> Self {
        Self { allowed: false, remaining, retry_after_ms: Some(retry_after_ms) }
    }

    /// It can never be had.
    pub const fn impossible(remaining: u64) -> Self {
        Self { allowed: false, remaining, retry_after_ms: None }
    }

    /// Whether no waiting will help.
    pub const fn is_impossible(&self) -> bool {
        !self.allowed && self.retry_after_ms.is_none()
    }
}

/// `retryAfterMs` is absent when it is allowed, and null when it never will be.
impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Decision", if self.allowed { 2 } else { 3 })?;
        fields.serialize_field("allowed", &self.allowed)?;
        fields.serialize_field("remaining", &self.remaining)?;
        if !self.allowed {
            fields.serialize_field("retryAfterMs", &self.retry_after_ms)?;
        }
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_020_retry_after_is_absent_when_allowed_and_null_when_impossible() {
        let written = |decision| serde_json::to_string(&decision).unwrap();
        assert_eq!(written(Decision::allowed(9)), r#"{"allowed":true,"remaining":9}"#);
        assert_eq!(
            written(Decision::denied(0, 250)),
            r#"{"allowed":false,"remaining":0,"retryAfterMs":250}"#
        );
        assert_eq!(
            written(Decision::impossible(10)),
            r#"{"allowed":false,"remaining":10,"retryAfterMs":null}"#
        );
    }
}
