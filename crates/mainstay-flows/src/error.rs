//! What can go wrong with commands and projections, and the register of their codes.

use crate::commands::Unreadable;
use mainstay_core::codes::ErrorCode;
use std::sync::Arc;

/// The result of an operation on commands or projections.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of the offices themselves; what a command comes to is its outcome. [`code`](Error::code) is stable; the text
/// is for people.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(Arc<mainstay_store::Error>),
    /// The log failed, or refused.
    #[error(transparent)]
    Events(Arc<mainstay_events::Error>),
    /// Work failed, or refused.
    #[error(transparent)]
    Work(mainstay_work::Error),
    /// Something that was given cannot be taken.
    #[error("{field}: {reason}")]
    Invalid {
        /// Where it is: `payload`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An event of the log cannot be read as one of the application's.
    #[error("the event {event_type} at position {position} {reason}")]
    Unreadable {
        /// Where it is.
        position: u64,
        /// What it is called.
        event_type: String,
        /// Why it cannot.
        reason: Unreadable,
    },
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
            Self::Events(error) => error.entry(),
            Self::Work(error) => error.entry(),
            Self::Invalid { .. } => &FLOW_INVALID,
            Self::Unreadable { reason, .. } => reason.entry(),
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
            Self::Events(error) => error.is_retryable(),
            Self::Work(error) => error.is_retryable(),
            other => other.entry().retryable,
        }
    }
}

impl From<mainstay_store::Error> for Error {
    /// An error of ours, or of the rooms below, that went through a transaction comes out as it was.
    fn from(error: mainstay_store::Error) -> Self {
        let mainstay_store::Error::Application(reason) = error else { return Self::Store(Arc::new(error)) };
        let reason = match reason.downcast::<Self>() {
            Ok(own) => return *own,
            Err(reason) => reason,
        };
        let reason = match reason.downcast::<mainstay_events::Error>() {
            Ok(events) => return Self::Events(Arc::new(*events)),
            Err(reason) => reason,
        };
        match reason.downcast::<mainstay_work::Error>() {
            Ok(work) => Self::Work(*work),
            Err(other) => Self::Store(Arc::new(mainstay_store::Error::Application(other))),
        }
    }
}

impl From<mainstay_events::Error> for Error {
    fn from(error: mainstay_events::Error) -> Self {
        match error {
            mainstay_events::Error::Store(error) => Self::Store(error),
            other => Self::Events(Arc::new(other)),
        }
    }
}

impl From<mainstay_work::Error> for Error {
    fn from(error: mainstay_work::Error) -> Self {
        match error {
            mainstay_work::Error::Store(error) => Self::Store(error),
            other => Self::Work(other),
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
    /// Every code that commands and projections can answer with.
    pub static CODES:
    FLOW_INVALID "FLOW_INVALID" 400 false
        "A field of a command, a projection or a replay cannot be taken."
        "Correct the field that the error names.";
    UNKNOWN_EVENT_TYPE "UNKNOWN_EVENT_TYPE" 500 false
        "A decision rests on an event whose type the application does not know."
        "Give the application's enum a variant of that name, or narrow the decision's boundary.";
    MISSING_MIGRATION "MISSING_MIGRATION" 500 false
        "An event has data of an older version, and an upcaster is missing on the way to today's."
        "Register the upcaster from the version that the error names.";
    INVALID_EVENT "INVALID_EVENT" 500 false
        "An event's data do not fit what the application takes them for."
        "Give the changed shape a new version and an upcaster from the old one.";
    FUTURE_VERSION "FUTURE_VERSION" 500 false
        "An event has data of a version that this program does not know yet."
        "Bring this program up to date with the one that wrote the event.";
    EVENT_ERASED "EVENT_ERASED" 500 false
        "A decision rests on an event whose data were erased."
        "Say in DomainEvent::erased what such an event is taken for.";
}
