//! How often and how fast something is tried again.

use crate::error::{Error, Result};
use mainstay_core::retry::RetryPolicy;
use serde::{Deserialize, Serialize};

/// Most retries: who has failed so often fails for another reason.
const MAX_RETRIES: u32 = 1_000;

/// How often and how fast something is tried again. There is no default: whoever delivers knows how long that may take
/// (item 280).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Retries {
    /// Retries after the first try: 5 means at most six executions (decision C1).
    pub max_retries: u32,
    /// How long the first wait is.
    pub initial_backoff_ms: u64,
    /// What each wait is multiplied with.
    pub base: f64,
}

impl Retries {
    /// So many retries, with waits that begin at `initial_backoff_ms` and are multiplied with `base`.
    pub fn new(max_retries: u32, initial_backoff_ms: u64, base: f64) -> Result<Self> {
        let retries = Self { max_retries, initial_backoff_ms, base };
        retries.policy().map(|_| retries)
    }

    /// The same as work counts it: in executions.
    pub(crate) fn policy(&self) -> Result<RetryPolicy> {
        if self.max_retries > MAX_RETRIES {
            return Err(Error::invalid("retry.maxRetries", format!("must be at most {MAX_RETRIES}")));
        }
        let longest = RetryPolicy::default().max_backoff_ms();
        RetryPolicy::new(self.max_retries + 1, self.initial_backoff_ms, self.base, longest)
            .map_err(|error| Error::invalid("retry", error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_001_retries_are_counted_after_the_first_try() {
        let policy = Retries::new(5, 100, 2.0).and_then(|retries| retries.policy()).unwrap();
        assert_eq!((policy.max_attempts(), policy.initial_backoff_ms(), policy.base()), (6, 100, 2.0));
    }

    #[test]
    fn b_280_numbers_that_make_no_sense_are_refused() {
        for (max_retries, initial_backoff_ms, base) in
            [(5, 0, 2.0), (5, 100, 0.0), (5, 100, f64::NAN), (1_001, 100, 2.0), (u32::MAX, 100, 2.0)]
        {
            let refused = Retries::new(max_retries, initial_backoff_ms, base).unwrap_err();
            assert_eq!(refused.code(), "FLOW_INVALID");
        }
    }
}
