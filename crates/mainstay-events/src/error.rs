//! What can go wrong with the log, and the register of its codes.

use crate::append::Appended;
use mainstay_core::codes::ErrorCode;
use mainstay_core::keys::KeyError;
use std::sync::Arc;

/// The result of an operation of the log.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of the log. [`code`](Error::code) is stable; the text is for people.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(Arc<mainstay_store::Error>),
    /// Something that was given cannot be taken.
    #[error("{field}: {reason}")]
    Invalid {
        /// Where it is: `events[2].tags`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An append without events.
    #[error("events: an append needs at least one event")]
    Empty,
    /// An append of too many events.
    #[error("events: {count} events are more than {most}", most = crate::MAX_EVENTS)]
    TooMany {
        /// How many there were.
        count: usize,
    },
    /// Data or metadata is too long.
    #[error("{field}: {bytes} bytes are more than {most}", most = crate::MAX_VALUE_BYTES)]
    TooLarge {
        /// Where it is.
        field: String,
        /// Its length.
        bytes: usize,
    },
    /// A scope's key cannot be taken.
    #[error("{field}: {source}")]
    ScopeKey {
        /// Where it is.
        field: String,
        /// What is wrong with it.
        source: KeyError,
    },
    /// Another tenant's event, stream or scope.
    #[error("{field}: belongs to another tenant")]
    Tenant {
        /// Where it is named.
        field: String,
    },
    /// `after` is a position that the log has not reached, so a condition on it would check nothing.
    #[error("condition.after: {after} is beyond the head of the log, which is {head}")]
    AfterBeyondHead {
        /// What was given.
        after: u64,
        /// The log's last position.
        head: u64,
    },
    /// An event that the condition forbids is there.
    #[error("an event that the condition forbids is at position {}: {} {}", .witness.position, .witness.event_type, .witness.event_id)]
    ConditionFailed {
        /// The newest such event.
        witness: Witness,
        /// The log's last position.
        head: u64,
    },
    /// A stream or a scope has another version.
    #[error("{of} is at version {current}, not {expected}")]
    VersionConflict {
        /// What has a version.
        of: Versioned,
        /// What was expected.
        expected: u64,
        /// What it is.
        current: u64,
        /// The log's last position.
        head: u64,
    },
    /// An idempotency key was used before for something else.
    #[error("idempotency key {key:?} was used by event {existing_event_id}: {reason}")]
    IdempotencyConflict {
        /// The key.
        key: String,
        /// The event that has it.
        existing_event_id: String,
        /// Its position.
        existing_position: u64,
        /// In which way the two differ.
        reason: Reuse,
        /// The audit row of this refusal.
        audit_id: String,
    },
    /// An event of the same tenant has this id already.
    #[error("event id {event_id:?} is taken by the event at position {position}")]
    EventIdTaken {
        /// The id.
        event_id: String,
        /// Who has it.
        position: u64,
    },
    /// Several tenants have something of this id, and the caller sees all tenants.
    #[error("{what} {id:?} belongs to several tenants")]
    SeveralTenants {
        /// The kind of id: `event id`.
        what: &'static str,
        /// The id.
        id: String,
    },
    /// What a transaction was about to append is in the log already, so all of the transaction is.
    #[error("this was applied before, at position {}", .0.events.first().map_or(0, |event| event.position))]
    AlreadyApplied(Appended),
    /// There is no such event.
    #[error("there is no event {0:?}")]
    NotFound(String),
    /// A stored event is damaged.
    #[error("the event at position {position} is damaged: {reason}")]
    Corrupt {
        /// Where.
        position: u64,
        /// What is wrong.
        reason: String,
    },
    /// The log was restored from a backup: positions beyond it mean other events now.
    #[error("the log is in epoch {found}, not {expected}: it was restored from a backup")]
    EpochChanged {
        /// What the consumer knew.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// The log did not reach a position in time.
    #[error("the log did not reach position {position} within {waited_ms} ms; it is at {head}")]
    NotReached {
        /// What was waited for.
        position: u64,
        /// For how long.
        waited_ms: u64,
        /// The log's last position.
        head: u64,
    },
}

/// The event for which an append was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// Its position.
    pub position: u64,
    /// Its id.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
}

/// Something whose version can be expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Versioned {
    /// A stream.
    Stream {
        /// Its type.
        stream_type: String,
        /// Which one.
        id: String,
    },
    /// A scope.
    Scope {
        /// Its key.
        key: String,
    },
}

impl std::fmt::Display for Versioned {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stream { stream_type, id } => write!(out, "stream {stream_type}/{id}"),
            Self::Scope { key } => write!(out, "scope {key}"),
        }
    }
}

/// How an idempotency key was reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// With other content.
    DifferentPayload,
    /// In a batch of which only a part is there.
    PartialBatch,
}

impl Reuse {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DifferentPayload => "same_key_different_payload",
            Self::PartialBatch => "partial_duplicate_batch",
        }
    }
}

impl std::fmt::Display for Reuse {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.as_str())
    }
}

impl Error {
    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }

    /// The entry of this kind of failure in the register of codes.
    pub fn entry(&self) -> &'static ErrorCode {
        match self {
            Self::Store(error) => error.entry(),
            Self::Invalid { .. } => &EVENT_INVALID,
            Self::Empty => &APPEND_EMPTY,
            Self::TooMany { .. } => &APPEND_TOO_LARGE,
            Self::TooLarge { .. } => &PAYLOAD_TOO_LARGE,
            Self::ScopeKey { source: KeyError::ScopeKeyEmpty, .. } => &SCOPE_KEY_EMPTY,
            Self::ScopeKey { .. } => &INVALID_SCOPE_KEY_FORMAT,
            Self::Tenant { .. } => &TENANT_MISMATCH,
            Self::AfterBeyondHead { .. } => &AFTER_BEYOND_HEAD,
            Self::ConditionFailed { .. } => &APPEND_CONDITION_FAILED,
            Self::VersionConflict { .. } => &VERSION_CONFLICT,
            Self::IdempotencyConflict { .. } => &IDEMPOTENCY_CONFLICT,
            Self::EventIdTaken { .. } => &EVENT_ID_TAKEN,
            Self::SeveralTenants { .. } => &TENANT_REQUIRED,
            Self::AlreadyApplied(_) => &APPEND_ALREADY_APPLIED,
            Self::NotFound(_) => &EVENT_NOT_FOUND,
            Self::Corrupt { .. } => &LOG_CORRUPT,
            Self::EpochChanged { .. } => &LOG_EPOCH_CHANGED,
            Self::NotReached { .. } => &LOG_NOT_REACHED,
        }
    }

    /// Whether what was asked for may have been done all the same.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_outcome_unknown())
    }

    /// Whether the state of the log speaks against it: deciding anew on the current state may help.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::ConditionFailed { .. } | Self::VersionConflict { .. } | Self::AfterBeyondHead { .. }
        )
    }
}

mainstay_store::error_bridge!(Error);

mainstay_core::codes! {
    /// Every code that the log can answer with.
    pub static CODES:
    EVENT_INVALID "EVENT_INVALID" 400 false
        "A field of an event, a condition or a query cannot be taken."
        "Correct the field that the error names; the limits are in docs/concepts/events.md.";
    APPEND_EMPTY "APPEND_EMPTY" 400 false
        "An append has no events."
        "Give at least one event. A condition cannot be checked without appending.";
    APPEND_TOO_LARGE "APPEND_TOO_LARGE" 400 false
        "An append has more than 100 events."
        "Split it; events that must be together belong in one transaction of several appends.";
    PAYLOAD_TOO_LARGE "PAYLOAD_TOO_LARGE" 413 false
        "An event's data or metadata is longer than 64 KiB."
        "Keep large content elsewhere and its address in the event.";
    SCOPE_KEY_EMPTY "SCOPE_KEY_EMPTY" 400 false
        "A scope key is empty."
        "A scope key looks like tenant:<tenant>:<type>:<id>.";
    INVALID_SCOPE_KEY_FORMAT "INVALID_SCOPE_KEY_FORMAT" 400 false
        "A scope key has another form than tenant:<tenant>:<type>:<id>."
        "Build it with ScopeKey::new; tenant and type may not contain a colon.";
    TENANT_MISMATCH "TENANT_MISMATCH" 403 false
        "The event or scope belongs to another tenant than the caller."
        "Leave tenantId away, or use a token of that tenant.";
    AFTER_BEYOND_HEAD "AFTER_BEYOND_HEAD" 409 false
        "The condition's `after` is a position that the log has not reached. A condition on it would check nothing."
        "Use the head of the read that the decision rests on. After a restore from a backup, read again from the start.";
    APPEND_CONDITION_FAILED "APPEND_CONDITION_FAILED" 409 false
        "An event that matches failIfEventsMatch was appended after the position the decision rests on."
        "Read again, decide anew, and append with the new `after`. The answer names the newest such event.";
    VERSION_CONFLICT "VERSION_CONFLICT" 409 false
        "A stream or scope has another version than expected."
        "Read again, decide anew, and append with the current version, which the answer names.";
    IDEMPOTENCY_CONFLICT "IDEMPOTENCY_CONFLICT" 409 false
        "The idempotency key was used before for other content, or only a part of the batch is there."
        "A key names one intention: use a new key for a new one. The refusal was written to the audit.";
    EVENT_ID_TAKEN "EVENT_ID_TAKEN" 409 false
        "Another event of the same tenant has this id."
        "Leave the id away to have one made, and use an idempotency key to make repeats recognisable.";
    TENANT_REQUIRED "TENANT_REQUIRED" 409 false
        "Several tenants have something of this id. Ids are unique within a tenant."
        "Name the tenant: `?tenant=` over HTTP, `--tenant` on the command line, `for_tenant` in Rust.";
    APPEND_ALREADY_APPLIED "APPEND_ALREADY_APPLIED" 409 false
        "A transaction was about to append what is in the log already, so all of it was applied before."
        "Nothing needs to be done; the error carries the first receipt.";
    EVENT_NOT_FOUND "EVENT_NOT_FOUND" 404 false
        "There is no event with this id."
        "Check the id, and whether it belongs to another tenant.";
    LOG_CORRUPT "LOG_CORRUPT" 500 false
        "A stored event does not fit its checksum, or is missing. It is not served."
        "Run `mainstay verify`, and restore from a backup. Look at the disk.";
    LOG_EPOCH_CHANGED "LOG_EPOCH_CHANGED" 409 false
        "The log was restored from a backup; positions that were seen before may mean other events now."
        "Read again from a position before the restore, or rebuild, and go on in the new epoch.";
    LOG_NOT_REACHED "LOG_NOT_REACHED" 504 true
        "The log did not reach the position that was waited for in time."
        "Wait again, or check that the position came from this log.";
}
