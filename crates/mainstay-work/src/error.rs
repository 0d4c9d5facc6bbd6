//! What can go wrong with work, and the register of its codes.

use crate::inbox::Refused;
use mainstay_core::circuit::Rejected;
use mainstay_core::codes::ErrorCode;
use mainstay_core::names::Reserved;
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
    /// A caller used a name of the platform.
    #[error(transparent)]
    Reserved(#[from] Reserved),
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
    /// A set of names that callers choose is full.
    #[error("there are {most} {what} already")]
    TooManyNames {
        /// The set: `pools`.
        what: &'static str,
        /// Its bound.
        most: usize,
    },
    /// A pool or a function cannot be deleted.
    #[error("{what} {name:?} cannot be deleted: {reason}")]
    InUse {
        /// Its kind: `pool`.
        what: &'static str,
        /// Its name.
        name: String,
        /// The use that keeps it.
        reason: &'static str,
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
    /// The dead letter was dealt with, or is being tried again.
    #[error("the dead letter {letter_id} is {status}")]
    DeadLetterNotPending {
        /// The letter.
        letter_id: String,
        /// What was done about it.
        status: &'static str,
    },
    /// No such operation on dead letters is known.
    #[error("there is no operation {0:?} on dead letters")]
    LetterOperationNotFound(String),
    /// The operation's status does not allow it.
    #[error("operation {operation_id} is {current_status}")]
    LetterOperationStatus {
        /// The operation.
        operation_id: String,
        /// How far it is.
        current_status: &'static str,
    },
    /// It was previewed long ago.
    #[error("the preview of operation {0} has expired")]
    LetterPreviewExpired(String),
    /// A source of dead letters left a letter as it is.
    #[error("{}", .0.error)]
    Refused(Arc<Refused>),
    /// The failure is recorded for good, so that trying the item again would contradict the record.
    #[error("the failure of work {0} is recorded; trying it again would contradict the record")]
    FailureRecorded(String),
    /// The failure is to be recorded before the item may be tried again.
    #[error("the failure of work {0} is not recorded yet; until then it cannot be tried again")]
    FailureUnrecorded(String),
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
            Self::Reserved(reserved) => reserved.entry(),
            Self::TooLarge { .. } => &WORK_TOO_LARGE,
            Self::TooMany { .. } => &WORK_TOO_MANY,
            Self::TooManyNames { .. } => &WORK_NAMES_TOO_MANY,
            Self::InUse { .. } => &WORK_NAME_IN_USE,
            Self::UnknownPool(_) => &UNKNOWN_POOL,
            Self::UnknownFunction(_) => &UNKNOWN_FUNCTION,
            Self::BadArgs { .. } => &WORK_ARGS_INVALID,
            Self::Recursion => &WORK_RECURSION,
            Self::NotFound(_) => &WORK_NOT_FOUND,
            Self::NotEnded { .. } => &WORK_NOT_ENDED,
            Self::NotWaiting { .. } => &WORK_NOT_WAITING,
            Self::LetterNotFound(_) => &DEAD_LETTER_NOT_FOUND,
            Self::DeadLetterNotPending { .. } => &DEAD_LETTER_NOT_PENDING,
            Self::LetterOperationNotFound(_) => &LETTER_OPERATION_NOT_FOUND,
            Self::LetterOperationStatus { .. } => &LETTER_OPERATION_STATUS_CONFLICT,
            Self::LetterPreviewExpired(_) => &LETTER_PREVIEW_EXPIRED,
            Self::Refused(refused) => refused.entry,
            Self::FailureRecorded(_) => &WORK_FAILURE_RECORDED,
            Self::FailureUnrecorded(_) => &WORK_FAILURE_UNRECORDED,
            Self::LeaseLost(_) => &LEASE_LOST,
            Self::NotHeld { .. } => &WORK_NOT_HELD,
            Self::UnknownCron(_) => &UNKNOWN_CRON,
            Self::CircuitOpen(_) => mainstay_guards::circuits::open_code(),
        }
    }
}

mainstay_store::error_bridge!(Error);

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
    WORK_NAMES_TOO_MANY "WORK_NAMES_TOO_MANY" 409 false
        "Callers have made as many pools, functions, lanes or crons as they may, and this would be another one. Nothing was changed."
        "Delete what is not used, with `mainstay work pools delete` for pools. Name pools and functions after kinds of work, and let keys tell customers and requests apart.";
    WORK_NAME_IN_USE "WORK_NAME_IN_USE" 409 false
        "The pool or function cannot be deleted: the message says what still uses it. Nothing was deleted."
        "End or delete what uses it, then delete it again.";
    UNKNOWN_POOL "UNKNOWN_POOL" 404 false
        "No pool of this name was declared, or it was deleted."
        "Declare it in mainstay.toml under [pools], or with Work::pool.";
    UNKNOWN_FUNCTION "UNKNOWN_FUNCTION" 422 false
        "No node and no worker has declared this function, so nothing would ever run it. Nothing was enqueued or claimed."
        "Register it in a node, declare it in mainstay.toml under [functions], or let a pull worker declare it first: one with an operator's token, or with a scope that has its full name.";
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
    DEAD_LETTER_NOT_PENDING "DEAD_LETTER_NOT_PENDING" 409 false
        "The dead letter was dealt with already, or is being tried again. Nothing was done."
        "Look at its status; what is tried again will be resolved, or pending again.";
    LETTER_OPERATION_NOT_FOUND "LETTER_OPERATION_NOT_FOUND" 404 false
        "No operation on dead letters has this id, or it ended more than 90 days ago."
        "Look at the list of operations.";
    LETTER_OPERATION_STATUS_CONFLICT "LETTER_OPERATION_STATUS_CONFLICT" 409 false
        "The operation on dead letters runs already, or has ended. Nothing was done."
        "Look at its status; to do it again, preview it again.";
    LETTER_PREVIEW_EXPIRED "LETTER_PREVIEW_EXPIRED" 409 false
        "The operation on dead letters was previewed more than an hour ago, and what it would touch may be something else now. Nothing was done."
        "Preview it again, and run that.";
    WORK_FAILURE_RECORDED "WORK_FAILURE_RECORDED" 409 false
        "An outbox has recorded the failure of this item as an event. Trying it again would contradict that event. Nothing was done."
        "Ignore the letter and decide on the event, or give the outbox a correction with Outbox::retryable.";
    WORK_FAILURE_UNRECORDED "WORK_FAILURE_UNRECORDED" 409 true
        "The failure of this item is not recorded as an event yet. Until then the item cannot be tried again."
        "Try again in a moment. If the outbox has a dead letter of the kind onComplete, retry that letter first.";
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
