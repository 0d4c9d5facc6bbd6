//! What can go wrong with guards, and the register of their codes.

use mainstay_core::codes::ErrorCode;
use mainstay_core::names::Reserved;
use std::sync::Arc;

/// The result of an operation on a guard.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of a guard itself. A call that a guard does not let through is an answer and no failure.
/// [`code`](Error::code) is stable; the text is for people.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(Arc<mainstay_store::Error>),
    /// Something that was given cannot be taken.
    #[error("{field}: {reason}")]
    Invalid {
        /// Where it is: `key`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A caller used a name of the platform.
    #[error(transparent)]
    Reserved(#[from] Reserved),
    /// The store has as many circuits as it may have.
    #[error("there are {} circuits already", crate::circuits::MAX_CIRCUITS)]
    TooManyCircuits,
    /// The store has as many limits as it may have.
    #[error("there are {} limits already", crate::limits::MAX_LIMITS)]
    TooManyLimits,
    /// A limit or a circuit cannot be deleted.
    #[error("{name:?} cannot be deleted: {reason}")]
    InUse {
        /// Its name.
        name: String,
        /// Why not.
        reason: &'static str,
    },
    /// No circuit of this name has ever counted anything.
    #[error("there is no circuit {0:?}")]
    UnknownCircuit(String),
    /// A limit that makes no sense.
    #[error(transparent)]
    BadLimit(mainstay_core::limits::LimitError),
    /// Nothing was asked of a limit.
    #[error("Rate limit cost must be a positive integer")]
    BadCost,
    /// No limit of this name was defined.
    #[error("there is no limit {0:?}")]
    UnknownLimit(String),
    /// Slots of so many keys are taken at once, and there is no room for another key.
    #[error("slots of {0} keys are taken already")]
    TooManyHeld(usize),
    /// What keeps the budgets of a limiter does not answer.
    #[error("the rate limiter is away: {0}")]
    LimiterAway(Arc<str>),
    /// As many idempotency keys are remembered as may be.
    #[error("there is no room for another idempotency key")]
    TooManyKeys,
}

impl Error {
    /// Something that was given cannot be taken.
    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }

    /// The entry of this kind of failure in the register of codes.
    pub fn entry(&self) -> &'static ErrorCode {
        match self {
            Self::Store(error) => error.entry(),
            Self::Invalid { .. } => &GUARD_INVALID,
            Self::Reserved(reserved) => reserved.entry(),
            Self::TooManyCircuits => &CIRCUITS_TOO_MANY,
            Self::TooManyLimits => &LIMITS_TOO_MANY,
            Self::InUse { .. } => &GUARD_IN_USE,
            Self::UnknownCircuit(_) => &UNKNOWN_CIRCUIT,
            Self::BadLimit(_) => &LIMIT_INVALID,
            Self::BadCost => &LIMIT_COST_INVALID,
            Self::UnknownLimit(_) => &UNKNOWN_LIMIT,
            Self::TooManyHeld(_) => &LIMIT_KEYS_TOO_MANY,
            Self::LimiterAway(_) => &LIMITER_UNAVAILABLE,
            Self::TooManyKeys => &IDEMPOTENCY_KEYS_FULL,
        }
    }
}

mainstay_store::error_bridge!(Error);

mainstay_core::codes! {
    /// Every code that guards can answer with.
    pub static CODES:
    GUARD_INVALID "GUARD_INVALID" 400 false
        "A field of a limit, a circuit or a retry policy cannot be taken."
        "Correct the field that the error names.";
    CIRCUITS_TOO_MANY "CIRCUITS_TOO_MANY" 409 false
        "The store has 10,000 circuits already, and this would be another one."
        "Name circuits after services, not after requests, customers or addresses.";
    GUARD_IN_USE "GUARD_IN_USE" 409 false
        "The limit or the circuit cannot be deleted: the message says why. Nothing was deleted."
        "Change it instead; reset or release a circuit before it is deleted.";
    UNKNOWN_CIRCUIT "UNKNOWN_CIRCUIT" 404 false
        "No circuit of this name was defined, and none has counted anything."
        "List the circuits; names are exact.";
    CIRCUIT_OPEN "CIRCUIT_OPEN" 503 true
        "The circuit of the service that is to be called is open, so the call was not made."
        "Wait for as long as Retry-After says. Look at the circuit: what failed is in the log of the time it opened.";
    RETRIES_TIMED_OUT "RETRIES_TIMED_OUT" 504 true
        "A call was tried again until the time for all tries was over."
        "Look at what the tries failed with, which is in the log. Give them more time, or fewer tries.";
    LIMIT_INVALID "LIMIT_INVALID" 400 false
        "The capacity, rate or period of a rate limit is outside of its range."
        "Correct what the error names; the ranges are in docs/concepts/limits.md.";
    LIMITS_TOO_MANY "LIMITS_TOO_MANY" 409 false
        "The store has 10,000 limits already, and this would be another one."
        "Name limits after what is limited, and let keys tell apart who.";
    LIMIT_COST_INVALID "LIMIT_COST_INVALID" 400 false
        "A limit was asked for nothing, for less than nothing, or for a fraction. Nothing was taken."
        "Ask for a whole number of tokens, 1 or more; what should not be limited is not asked about.";
    UNKNOWN_LIMIT "UNKNOWN_LIMIT" 404 false
        "No rate limit of this name was defined."
        "Define it in mainstay.toml under [limits], or with Limits::define; names are exact.";
    LIMIT_KEYS_TOO_MANY "LIMIT_KEYS_TOO_MANY" 503 true
        "A concurrency limit in memory keeps slots of as many keys as it may, all of them in use. Nothing was taken."
        "Try again when somebody has left. Give the limit more keys, or its holders less time.";
    LIMITER_UNAVAILABLE "LIMITER_UNAVAILABLE" 503 true
        "What keeps the budgets or slots of this limit, Redis or the store, does not answer, and calls are set to be refused meanwhile."
        "See to it; or let a limiter in memory take over while Redis is away, or have the layer let requests through.";
    RATE_LIMITED "RATE_LIMITED" 429 true
        "More was asked for than a rate limit allows at this time. Nothing was done."
        "Wait for as long as Retry-After says; violated-policies names the limits, and RateLimit how they stand.";
    LIMIT_COST_TOO_LARGE "LIMIT_COST_TOO_LARGE" 422 false
        "The request costs more than its rate limit can ever hold, so that waiting does not help. Nothing was done."
        "Ask for less at once; or have the limit's capacity raised.";
    CALLER_UNKNOWN "CALLER_UNKNOWN" 400 false
        "What guards this route is kept for each caller, and it cannot be told whose request this is."
        "Sign in; behind a proxy, see docs/operations/trusted-proxies.md.";
    IDEMPOTENCY_KEY_INVALID "IDEMPOTENCY_KEY_INVALID" 400 false
        "The Idempotency-Key is not one text of 1 to 255 visible characters, or there are several. Nothing was done."
        "Send one key, such as a UUID, bare or between double quotes.";
    IDEMPOTENCY_KEY_MISSING "IDEMPOTENCY_KEY_MISSING" 400 false
        "This route takes only requests with an Idempotency-Key, so that they can be sent again. Nothing was done."
        "Make a key for each operation, such as a UUID, and send the same one with all of its tries.";
    IDEMPOTENCY_KEY_REUSED "IDEMPOTENCY_KEY_REUSED" 422 false
        "The Idempotency-Key was used before for another request. Nothing was done."
        "Use a new key for each operation; the same key is for the same method, path and body only.";
    IDEMPOTENCY_KEY_IN_USE "IDEMPOTENCY_KEY_IN_USE" 409 true
        "A request with this Idempotency-Key is still being carried out."
        "Wait for as long as Retry-After says and send the request again; it is answered as the first one was.";
    IDEMPOTENT_ANSWER_NOT_KEPT "IDEMPOTENT_ANSWER_NOT_KEPT" 409 false
        "The request was carried out before, but its answer was too large to be kept, or broke off."
        "Read the state that the request has left; originalStatus says how it was answered.";
    IDEMPOTENT_BODY_TOO_LARGE "IDEMPOTENT_BODY_TOO_LARGE" 413 false
        "The body of a request with an Idempotency-Key is larger than can be compared. Nothing was done."
        "Send less at once, or without a key.";
    IDEMPOTENCY_KEYS_FULL "IDEMPOTENCY_KEYS_FULL" 503 true
        "As many idempotency keys are remembered in memory as may be. Nothing was done."
        "Try again later; keep the keys in the store, or for a shorter time.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_out_of_a_transaction_as_it_went_in() {
        let error = Error::from(mainstay_store::Error::from(Error::invalid("key", "is empty")));
        assert_eq!((error.code(), error.is_retryable()), ("GUARD_INVALID", false));
        assert_eq!(error.to_string(), "key: is empty");
    }

    #[test]
    fn every_code_says_what_to_do() {
        for code in CODES {
            assert!(code.meaning.ends_with('.') && code.remedy.ends_with('.'), "{}", code.code);
        }
    }
}
