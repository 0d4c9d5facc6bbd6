//! What can go wrong with commands and projections, and the register of their codes.

use crate::commands::Unreadable;
use mainstay_core::codes::ErrorCode;
use mainstay_work::http::SignatureError;
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
    /// A payload or a result is too long.
    #[error("{field}: {bytes} bytes are more than {most}", most = crate::commands::MAX_VALUE_BYTES)]
    TooLarge {
        /// Where it is.
        field: String,
        /// Its length.
        bytes: usize,
    },
    /// Nobody here decides about such commands.
    #[error("there is no command {0:?}")]
    UnknownCommand(String),
    /// No such command was dispatched, or it was long ago.
    #[error("there is no command with the id {0:?}")]
    CommandNotFound(String),
    /// Another command has this id.
    #[error("the command id {0:?} was used for something else")]
    CommandIdTaken(String),
    /// A handler failed, or did what it may not; nothing was done.
    #[error("the handler failed: {reason}")]
    Handler {
        /// What happened.
        reason: String,
    },
    /// A step before the handler failed; nothing was done.
    #[error("the step {name} failed: {reason}")]
    Middleware {
        /// The step.
        name: String,
        /// What happened.
        reason: String,
    },
    /// The command has moved on meanwhile; nothing was done.
    #[error("the command has moved on meanwhile")]
    Late,
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
    /// No such intent is known.
    #[error("there is no intent {0:?}")]
    IntentNotFound(String),
    /// The intent has ended in another way.
    #[error("intent {intent_key:?} is {status} already")]
    IntentEnded {
        /// The intent.
        intent_key: String,
        /// How it ended.
        status: &'static str,
    },
    /// Another intent has this key.
    #[error("another intent has the key {0:?}")]
    IntentKeyTaken(String),
    /// Nobody here delivers to such a target.
    #[error("there is no target {0:?}")]
    UnknownTarget(String),
    /// The event was not published.
    #[error("event {0:?} was not published")]
    PublicationNotFound(String),
    /// No such dead letter of a publication is known.
    #[error("Dead letter not found: event {event_id} for {target}")]
    PublicationLetterNotFound {
        /// The event.
        event_id: String,
        /// The target.
        target: String,
    },
    /// The dead letter was dealt with.
    #[error("the dead letter of event {event_id} for {target} is {status}")]
    PublicationLetterNotPending {
        /// The event.
        event_id: String,
        /// The target.
        target: String,
        /// What was done about it.
        status: &'static str,
    },
    /// Who sent an event is not known, or it was sent long ago.
    #[error(transparent)]
    Signature(SignatureError),
    /// What was sent is no event.
    #[error("{0}")]
    WebhookMalformed(String),
    /// What was sent is longer than an event may be.
    #[error("{bytes} bytes are more than {most}", most = crate::delivery::inbox::MAX_BODY_BYTES)]
    WebhookTooLarge {
        /// How long it is, as far as was read.
        bytes: usize,
    },
    /// The handler of an event that was sent failed; nothing was done.
    #[error("{reason}")]
    NotReceived {
        /// What happened.
        reason: String,
        /// Whether sending it again may help.
        is_retryable: bool,
    },
    /// A target's translator failed.
    #[error("{reason}")]
    Translation {
        /// The target.
        target: String,
        /// What happened.
        reason: String,
    },
}

impl Error {
    /// Something that was given cannot be taken.
    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }

    /// What an author's code, or the transaction it ran in, failed with. What is the fault of the code is told from what
    /// the database could not do.
    pub(crate) fn from_handler(error: mainstay_store::Error) -> Self {
        use mainstay_store::Error as Store;
        match Self::from(error) {
            Self::Store(error) => match &*error {
                Store::Application(_)
                | Store::Panicked(_)
                | Store::ForeignAwait
                | Store::Constraint { .. }
                | Store::Sql(_)
                | Store::StatementRefused(_)
                | Store::Parameters(_)
                | Store::Decode { .. }
                | Store::RowCount(_)
                | Store::ReadOnly(_)
                | Store::TransactionFailed(_)
                | Store::TransactionClosed
                | Store::TransactionEscaped => Self::Handler { reason: error.to_string() },
                _ => Self::Store(error),
            },
            other => other,
        }
    }

    /// Whether the command may have been decided all the same, by somebody else or unheard.
    pub(crate) fn may_be_decided(&self) -> bool {
        match self {
            Self::Late => true,
            Self::Store(error) => error.is_outcome_unknown(),
            _ => false,
        }
    }

    /// The entry of this kind of failure in the register of codes.
    pub fn entry(&self) -> &'static ErrorCode {
        match self {
            Self::Store(error) => error.entry(),
            Self::Events(error) => error.entry(),
            Self::Work(error) => error.entry(),
            Self::Invalid { .. } => &FLOW_INVALID,
            Self::TooLarge { .. } => &COMMAND_TOO_LARGE,
            Self::UnknownCommand(_) => &UNKNOWN_COMMAND,
            Self::CommandNotFound(_) => &COMMAND_NOT_FOUND,
            Self::CommandIdTaken(_) => &COMMAND_ID_TAKEN,
            Self::Handler { .. } => &HANDLER_ERROR,
            Self::Middleware { .. } => &MIDDLEWARE_ERROR,
            Self::Late => &COMMAND_MOVED_ON,
            Self::Unreadable { reason, .. } => reason.entry(),
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
            Self::IntentNotFound(_) => &INTENT_NOT_FOUND,
            Self::IntentEnded { .. } => &INTENT_ALREADY_ENDED,
            Self::IntentKeyTaken(_) => &INTENT_KEY_TAKEN,
            Self::UnknownTarget(_) => &UNKNOWN_TARGET,
            Self::PublicationNotFound(_) => &PUBLICATION_NOT_FOUND,
            Self::PublicationLetterNotFound { .. } => &PUBLICATION_LETTER_NOT_FOUND,
            Self::PublicationLetterNotPending { .. } => &PUBLICATION_LETTER_NOT_PENDING,
            Self::Translation { .. } => &TRANSLATION_FAILED,
            Self::Signature(SignatureError::Stale { .. }) => &WEBHOOK_SIGNATURE_STALE,
            Self::Signature(_) => &WEBHOOK_SIGNATURE_INVALID,
            Self::WebhookMalformed(_) => &WEBHOOK_MALFORMED,
            Self::WebhookTooLarge { .. } => &WEBHOOK_TOO_LARGE,
            Self::NotReceived { is_retryable: true, .. } => &WEBHOOK_NOT_HANDLED,
            Self::NotReceived { .. } => &WEBHOOK_REFUSED,
        }
    }
}

mainstay_store::error_bridge!(Error, mainstay_events::Error, mainstay_work::Error);

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

/// The entry of a command that was rejected.
pub fn rejected_code() -> &'static ErrorCode {
    &COMMAND_REJECTED
}

mainstay_core::codes! {
    /// Every code that commands and projections can answer with.
    pub static CODES:
    FLOW_INVALID "FLOW_INVALID" 400 false
        "A field of a command, a projection, a replay or an intent cannot be taken."
        "Correct the field that the error names.";
    COMMAND_TOO_LARGE "COMMAND_TOO_LARGE" 413 false
        "The payload of a command, or the result of its handler, is longer than 64 KiB. Nothing was done."
        "Keep large content elsewhere and its address in the value.";
    UNKNOWN_COMMAND "UNKNOWN_COMMAND" 422 false
        "No handler for commands of this type is registered in this process. Nothing was done."
        "Check the type; commands are registered in Rust with Commands::on.";
    COMMAND_REJECTED "COMMAND_REJECTED" 422 false
        "A command was not carried out. The code of the answer is that of the handler, or of the step before it, that rejected it. Nothing was done."
        "The code and the reason say why; VALIDATION_ERROR and DOMAIN_VALIDATION_ERROR are about the payload, DCB_MAX_RETRIES_EXCEEDED means that others were always first.";
    COMMAND_NOT_FOUND "COMMAND_NOT_FOUND" 404 false
        "No command of this id is known. Commands are forgotten seven days after they ended, and those that a step before the handler stopped are not kept."
        "Check the id.";
    COMMAND_ID_TAKEN "COMMAND_ID_TAKEN" 409 false
        "A command of this id was dispatched before with another type, tenant or payload. Nothing was done."
        "Give every command an id of its own, and repeat a command exactly.";
    HANDLER_ERROR "HANDLER_ERROR" 500 false
        "The handler of a command returned an error, panicked, or broke a rule of transactions. Nothing was done, and the command may be sent again."
        "Mend the handler; the error says what happened.";
    MIDDLEWARE_ERROR "MIDDLEWARE_ERROR" 500 true
        "A step before the handler of a command failed. Nothing was done, and the command may be sent again."
        "The error names the step and what happened: a limit that could not be asked, or a check that panicked.";
    COMMAND_MOVED_ON "COMMAND_MOVED_ON" 409 true
        "Somebody else carried on with the same command at the same time. This attempt changed nothing."
        "Ask for the command's status.";
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
    INTENT_NOT_FOUND "INTENT_NOT_FOUND" 404 false
        "No intent of this key is known. Intents are forgotten seven days after they have ended."
        "Check the key: it is the intentKey of the answer that recorded the intent.";
    INTENT_ALREADY_ENDED "INTENT_ALREADY_ENDED" 409 false
        "The intent was completed in another way, or abandoned because its time was up. Nothing was done."
        "The answer tells how it ended. Whoever is late decides what that means: undo what was done, or record it as a new intent.";
    INTENT_KEY_TAKEN "INTENT_KEY_TAKEN" 409 false
        "Another intent of this operation and stream began at the same moment, and says something else. Nothing was done."
        "Give another startedAt, or leave it away.";
    UNKNOWN_TARGET "UNKNOWN_TARGET" 422 false
        "No target of this name is registered in this process. Nothing was published."
        "Check the name; targets are declared in mainstay.toml under [targets], or with Targets::with.";
    PUBLICATION_NOT_FOUND "PUBLICATION_NOT_FOUND" 404 false
        "No publication of this event is known: it was never published, or what was delivered was forgotten since."
        "Check the event's id.";
    PUBLICATION_LETTER_NOT_FOUND "PUBLICATION_LETTER_NOT_FOUND" 404 false
        "No dead letter of this event and target is known."
        "Look at the list of dead letters, and at the status of the event's publications.";
    PUBLICATION_LETTER_NOT_PENDING "PUBLICATION_LETTER_NOT_PENDING" 409 false
        "The dead letter was dealt with already, or is being tried again."
        "Look at its status; what is retried will be delivered, or pending again.";
    TRANSLATION_FAILED "TRANSLATION_FAILED" 422 false
        "The translator of a target failed for the event, so that there is nothing to deliver. The letter stays as it is."
        "Mend the translator, and try the letter again.";
    WEBHOOK_SIGNATURE_INVALID "WEBHOOK_SIGNATURE_INVALID" 401 false
        "An event came without a signature, or with one that nobody made who knows the secret. Nothing was done."
        "Sign with the secret that the receiver knows; while it is replaced, let the receiver know both.";
    WEBHOOK_SIGNATURE_STALE "WEBHOOK_SIGNATURE_STALE" 401 false
        "An event came with a genuine signature that is too old, or from too far in the future. Nothing was done."
        "Sign anew for every attempt, and compare the clocks of both sides.";
    WEBHOOK_MALFORMED "WEBHOOK_MALFORMED" 400 false
        "What came is no event: not posted, no CloudEvents 1.0 in structured JSON, or under another key than its own."
        "The detail says what is wrong.";
    WEBHOOK_TOO_LARGE "WEBHOOK_TOO_LARGE" 413 false
        "What came is longer than 256 KiB, which no event of a publication is."
        "Keep large content elsewhere and its address in the event.";
    WEBHOOK_NOT_HANDLED "WEBHOOK_NOT_HANDLED" 503 true
        "The handler of an event failed, and what it did was undone. The event may be sent again."
        "The receiver's log has the reason.";
    WEBHOOK_REFUSED "WEBHOOK_REFUSED" 422 false
        "The handler of an event refused it for good, and what it did was undone."
        "The receiver's log has the reason.";
}
