//! A limit as a command's pipeline sees it: a yes, or a no with a time (items 4 and 5).

use super::RateLimiter;
use crate::Result;
use serde::Serialize;
use std::sync::Arc;

/// Whether a command may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitResult {
    /// Whether it may.
    pub allowed: bool,
    /// When it may, if not now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// Asks a limiter for one token.
#[derive(Clone)]
pub struct RateLimitChecker(Arc<dyn RateLimiter>);

impl RateLimitChecker {
    /// A checker over a limiter.
    pub fn new(limiter: Arc<dyn RateLimiter>) -> Self {
        Self(limiter)
    }

    /// Takes one token of `key`, if there is one.
    pub async fn check(&self, key: &str) -> Result<RateLimitResult> {
        let decision = self.0.consume(key, 1).await?;
        Ok(RateLimitResult { allowed: decision.allowed, retry_after_ms: decision.retry_after_ms })
    }
}
