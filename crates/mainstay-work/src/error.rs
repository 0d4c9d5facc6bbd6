//! What can go wrong with work, and the register of its codes.

use mainstay_core::circuit::Rejected;
use mainstay_core::codes::ErrorCode;
use std::sync::Arc;

/// The result of an operation on work.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of the workshop itself; what a function fails with is a
/// [`Failure`](mainstay_core::failure::Failure). [`code`](Error::code) is stable; the text is for people.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(Arc<mainstay_store::Error>),
    /// Something that was given cannot be taken.
    #[error("{field}: {reason}")]
    Invalid {
        /// Where it is: `items[2].key`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Args, context or a return value is too long.
    #[error("{field}: {bytes} bytes are more than {most}", most = crate::MAX_VALUE_BYTES)]
    TooLarge {
        /// Where it is.
        field: String,
        /// Its length.
        bytes: usize,
    },
    /// Too many items at once.
    #[error("items: {count} items are more than {most}", most = crate::MAX_BATCH)]
    TooMany {
        /// How many there were.
        count: usize,
    },
    /// No such pool was declared.
    #[error("there is no pool {0:?}")]
    UnknownPool(String),
    /// No node and no worker has declared such a function.
    #[error("there is no function {0:?}")]
    UnknownFunction(String),
    /// The args do not fit the function's type.
    #[error("{field}: do not fit {function}: {reason}")]
    BadArgs {
        /// Where they are.
        field: String,
        /// The function.
        function: String,
        /// Why they do not fit.
        reason: String,
    },
    /// A completion enqueued work whose completion enqueued work, and so on.
    #[error("an onComplete led to another one {} times over", crate::MAX_DEPTH)]
    Recursion,
    /// No such item is known, or not any more.
    #[error("there is no work {0:?}")]
    NotFound(String),
    /// The item did not end in the time that was waited for it.
    #[error("work {id} has not ended within {waited_ms} ms")]
    NotEnded {
        /// The item.
        id: String,
        /// How long was waited.
        waited_ms: u64,
    },
    /// The item does not wait, so it cannot start sooner.
    #[error("work {id} does not wait: it {state}")]
    NotWaiting {
        /// The item.
        id: String,
        /// What it does instead.
        state: &'static str,
    },
    /// No such dead letter is known, or it was dealt with.
    #[error("Dead letter not found: {0}")]
    LetterNotFound(String),
    /// The lease ran out, or was taken away, so what was done under it does not count.
    #[error("the lease {0} is over; what was done under it does not count")]
    LeaseLost(i64),
    /// The item is not, or no longer, part of the lease.
    #[error("work {id} is not held under the lease {lease}")]
    NotHeld {
        /// The item.
        id: String,
        /// The lease.
        lease: i64,
    },
    /// No such cron was declared.
    #[error("there is no cron {0:?}")]
    UnknownCron(String),
    /// The circuit that the run was to be behind is open.
    #[error(transparent)]
    CircuitOpen(Rejected),
}

impl Error {
    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }

    /// The entry of this kind of failure in the register of codes.
    pub fn entry(&self) -> &'static ErrorCode {
        match self {
            Self::Store(error) => error.entry(),
            Self::Invalid { .. } => &WORK_INVALID,
            Self::TooLarge { .. } => &WORK_TOO_LARGE,
            Self::TooMany { .. } => &WORK_TOO_MANY,
            Self::UnknownPool(_) => &UNKNOWN_POOL,
            Self::UnknownFunction(_) => &UNKNOWN_FUNCTION,
            Self::BadArgs { .. } => &WORK_ARGS_INVALID,
            Self::Recursion => &WORK_RECURSION,
            Self::NotFound(_) => &WORK_NOT_FOUND,
            Self::NotEnded { .. } => &WORK_NOT_ENDED,
            Self::NotWaiting { .. } => &WORK_NOT_WAITING,
            Self::LetterNotFound(_) => &DEAD_LETTER_NOT_FOUND,
            Self::LeaseLost(_) => &LEASE_LOST,
            Self::NotHeld { .. } => &WORK_NOT_HELD,
            Self::UnknownCron(_) => &UNKNOWN_CRON,
            Self::CircuitOpen(_) => mainstay_guards::circuits::open_code(),
        }
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        self.entry().code
    }

    /// Whether the same call may succeed later without anything being changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            other => other.entry().retryable,
        }
    }
}

impl From<mainstay_store::Error> for Error {
    /// An error of work that went through a transaction comes out as it was.
    fn from(error: mainstay_store::Error) -> Self {
        match error {
            mainstay_store::Error::Application(reason) => match reason.downcast::<Self>() {
                Ok(own) => *own,
                Err(other) => Self::Store(Arc::new(mainstay_store::Error::Application(other))),
            },
            other => Self::Store(Arc::new(other)),
        }
    }
}

impl From<Error> for mainstay_store::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(inner) => {
                Arc::try_unwrap(inner).unwrap_or_else(|shared| Self::application(Error::Store(shared)))
            }
            other => Self::application(other),
        }
    }
}

mainstay_core::codes! {
    /// Every code that work can answer with.
    pub static CODES:
    WORK_INVALID "WORK_INVALID" 400 false
        "A field of an item, a pool, a cron or a filter cannot be taken."
        "Correct the field that the error names; the limits are in docs/concepts/work.md.";
    WORK_TOO_LARGE "WORK_TOO_LARGE" 413 false
        "Args, context or a return value is longer than 64 KiB."
        "Keep large content elsewhere and its address in the value.";
    WORK_TOO_MANY "WORK_TOO_MANY" 400 false
        "More than 10,000 items at once."
        "Enqueue them in several calls, or in one transaction of several calls.";
    UNKNOWN_POOL "UNKNOWN_POOL" 404 false
        "No pool of this name was declared."
        "Declare it in mainstay.toml under [pools], or with Work::pool.";
    UNKNOWN_FUNCTION "UNKNOWN_FUNCTION" 422 false
        "No node and no worker has declared this function, so nobody would ever run it. Nothing was enqueued."
        "Register it in a node, declare it in mainstay.toml under [functions], or let a pull worker declare it first.";
    WORK_ARGS_INVALID "WORK_ARGS_INVALID" 422 false
        "The args do not fit the type that the function takes. Nothing was enqueued."
        "Correct the args; the error names the place.";
    WORK_RECURSION "WORK_RECURSION" 409 false
        "An onComplete enqueued work whose onComplete enqueued work, and so on, 32 times over."
        "End the chain: let an onComplete enqueue work only when there is something left to do.";
    WORK_NOT_FOUND "WORK_NOT_FOUND" 404 false
        "No item of this id is known. Finished items are forgotten after their retention."
        "Check the id; raise the retention to keep results longer.";
    WORK_NOT_ENDED "WORK_NOT_ENDED" 504 true
        "The item did not end in the time that was waited for it. It goes on."
        "Wait again, or look at its status: it may wait for its time, its key, its pool or a retry.";
    WORK_NOT_WAITING "WORK_NOT_WAITING" 409 false
        "The item runs or has ended, so there is nothing that it could be spared. Nothing was changed."
        "Look at its status; one that ended failed can be retried as a dead letter.";
    DEAD_LETTER_NOT_FOUND "DEAD_LETTER_NOT_FOUND" 404 false
        "No pending dead letter of this id is known."
        "List the letters; it may have been retried, ignored or purged.";
    LEASE_LOST "LEASE_LOST" 409 false
        "The lease ran out before it was extended, so somebody else may do the work. Nothing was changed."
        "Drop the result and claim anew. Extend the lease more often, or ask for a longer one.";
    WORK_NOT_HELD "WORK_NOT_HELD" 409 false
        "The item is not part of this lease, or has ended under it already. Nothing was changed."
        "Complete every claimed item once, with the lease it was claimed under.";
    UNKNOWN_CRON "UNKNOWN_CRON" 404 false
        "No cron of this name was declared."
        "List the crons; names are exact.";
}
