//! What can go wrong with commands and projections, and the register of their codes.

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
    /// A projection's category is missing.
    #[error("a projection needs a category: logic, view, reporting or integration")]
    CategoryRequired,
    /// A projection's category is none.
    #[error("{0:?} is no category: logic, view, reporting or integration")]
    InvalidCategory(String),
    /// No projection of this node has the name.
    #[error("there is no projection {0:?}")]
    UnknownProjection(String),
    /// The projection's lanes are not what they were, and they are not level.
    #[error("the lanes of projection {0:?} have changed while they were not level")]
    LanesChanged(String),
    /// The projection's status does not allow it.
    #[error("projection {projection:?} is {status}, which does not allow {event}")]
    Transition {
        /// The projection.
        projection: String,
        /// What it is.
        status: &'static str,
        /// What was to happen.
        event: &'static str,
    },
    /// No such event is quarantined for the projection.
    #[error("event {event_id} is not quarantined for projection {projection:?}")]
    NotQuarantined {
        /// The projection.
        projection: String,
        /// The event.
        event_id: String,
    },
    /// No such dead letter of a projection is known.
    #[error("Dead letter not found: {0}")]
    LetterNotFound(String),
    /// The dead letter was dealt with.
    #[error("the dead letter of event {event_id} is {status}")]
    LetterNotPending {
        /// The event.
        event_id: String,
        /// What was done about it.
        status: &'static str,
    },
    /// The projection has neither `reset` nor managed tables.
    #[error("projection {0:?} has neither reset nor managed tables, and cannot be filled anew")]
    NotRebuildable(String),
    /// The projection is being replayed.
    #[error("projection {projection:?} is being replayed by {replay_id}")]
    ReplayAlreadyActive {
        /// The projection.
        projection: String,
        /// The replay that runs.
        replay_id: String,
    },
    /// No such replay is known.
    #[error("there is no replay {0:?}")]
    ReplayNotFound(String),
    /// The replay does not run.
    #[error("replay {replay_id} is {current_status}")]
    ReplayNotRunning {
        /// The replay.
        replay_id: String,
        /// What it is.
        current_status: &'static str,
    },
    /// A checkpoint was to be set beyond the log.
    #[error("position {position} is beyond the head of the log, {head}")]
    BeyondHead {
        /// Where it was to be.
        position: u64,
        /// The log's last position.
        head: u64,
    },
    /// A projection did not reach a position in time.
    #[error(
        "projection {projection:?} did not reach position {position} within {waited_ms} ms; it is at {reached}"
    )]
    NotReached {
        /// The projection.
        projection: String,
        /// What was waited for.
        position: u64,
        /// For how long.
        waited_ms: u64,
        /// Its lowest checkpoint.
        reached: u64,
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
            Self::CategoryRequired => &CATEGORY_REQUIRED,
            Self::InvalidCategory(_) => &INVALID_CATEGORY,
            Self::UnknownProjection(_) => &UNKNOWN_PROJECTION,
            Self::LanesChanged(_) => &PROJECTION_LANES_CHANGED,
            Self::Transition { .. } => &PROJECTION_STATUS_CONFLICT,
            Self::NotQuarantined { .. } => &EVENT_NOT_QUARANTINED,
            Self::LetterNotFound(_) => &PROJECTION_LETTER_NOT_FOUND,
            Self::LetterNotPending { .. } => &PROJECTION_LETTER_NOT_PENDING,
            Self::NotRebuildable(_) => &PROJECTION_NOT_REBUILDABLE,
            Self::ReplayAlreadyActive { .. } => &REPLAY_ALREADY_ACTIVE,
            Self::ReplayNotFound(_) => &REPLAY_NOT_FOUND,
            Self::ReplayNotRunning { .. } => &REPLAY_NOT_RUNNING,
            Self::BeyondHead { .. } => &CHECKPOINT_BEYOND_HEAD,
            Self::NotReached { .. } => &PROJECTION_NOT_REACHED,
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
    CATEGORY_REQUIRED "CATEGORY_REQUIRED" 422 false
        "A projection was given without a category."
        "Say what it is for: logic, view, reporting or integration.";
    INVALID_CATEGORY "INVALID_CATEGORY" 422 false
        "A projection's category is none of those that exist."
        "Choose logic, view, reporting or integration.";
    UNKNOWN_PROJECTION "UNKNOWN_PROJECTION" 404 false
        "No projection of this node has this name."
        "Check the name against the list of projections, and that the program registers it.";
    PROJECTION_LANES_CHANGED "PROJECTION_LANES_CHANGED" 409 false
        "A projection has another number of lanes than before, and its lanes stand at different positions, so that events would be lost or applied twice."
        "Run the program as it was until the projection has caught up, stop it, and start again.";
    PROJECTION_STATUS_CONFLICT "PROJECTION_STATUS_CONFLICT" 409 false
        "The status of the projection does not allow what was asked."
        "Look at its status; resume, recover or rebuild it first, or wait for the rebuild to end.";
    EVENT_NOT_QUARANTINED "EVENT_NOT_QUARANTINED" 404 false
        "The event is not quarantined for this projection."
        "Look at the list of quarantined events; it may have been let out or left for good meanwhile.";
    PROJECTION_LETTER_NOT_FOUND "PROJECTION_LETTER_NOT_FOUND" 404 false
        "No dead letter of this projection and event is known."
        "Look at the list of dead letters; it may have been purged.";
    PROJECTION_LETTER_NOT_PENDING "PROJECTION_LETTER_NOT_PENDING" 409 false
        "The dead letter was dealt with already."
        "Look at its status; only pending letters can be tried again or ignored.";
    PROJECTION_NOT_REBUILDABLE "PROJECTION_NOT_REBUILDABLE" 422 false
        "The projection cannot be filled anew: nothing says how its read model is emptied."
        "Give it a reset, or let its tables be managed.";
    REPLAY_ALREADY_ACTIVE "REPLAY_ALREADY_ACTIVE" 409 false
        "The projection is being replayed already; the error names the replay."
        "Wait for it, or cancel it.";
    REPLAY_NOT_FOUND "REPLAY_NOT_FOUND" 404 false
        "There is no replay with this id."
        "Check the id against the list of replays.";
    REPLAY_NOT_RUNNING "REPLAY_NOT_RUNNING" 409 false
        "The replay has ended, or is not in the status that was expected; the error tells which it has."
        "Trigger a rebuild to begin anew.";
    CHECKPOINT_BEYOND_HEAD "CHECKPOINT_BEYOND_HEAD" 422 false
        "A checkpoint was to be set beyond the end of the log; events that come later would be skipped."
        "Give a position up to the head of the log.";
    PROJECTION_NOT_REACHED "PROJECTION_NOT_REACHED" 504 true
        "A projection did not reach the position that was waited for in time."
        "Wait again, and look at the projection's lag and status.";
}
