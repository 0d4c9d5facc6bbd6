//! What came of a command.

use mainstay_events::AppendedEvent;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A command that was dispatched, and what came of it.
#[derive(Debug, Clone)]
pub struct Dispatched {
    /// The command.
    pub command_id: String,
    /// What it belongs together with.
    pub correlation_id: String,
    /// Whether it was decided before, and this is what came of it then.
    pub is_duplicate: bool,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a command.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It happened.
    Success {
        /// What the handler says.
        data: Box<RawValue>,
        /// Where its events are.
        events: Vec<AppendedEvent>,
    },
    /// It did not.
    Rejected {
        /// Why, for programs.
        code: String,
        /// Why, for people.
        reason: String,
        /// What else there is to know.
        context: Option<Value>,
    },
    /// It failed, and its events say so.
    Failed {
        /// Why.
        reason: String,
        /// Where its events are.
        events: Vec<AppendedEvent>,
    },
    /// Somebody else decided first; it is decided again later.
    Deferred(Deferred),
}

impl Outcome {
    /// The name, as it stands in JSON.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Success { .. } => "success",
            Self::Rejected { .. } => "rejected",
            Self::Failed { .. } => "failed",
            Self::Deferred(_) => "deferred",
        }
    }

    /// Its events, if it has any.
    pub fn events(&self) -> &[AppendedEvent] {
        match self {
            Self::Success { events, .. } | Self::Failed { events, .. } => events,
            Self::Rejected { .. } | Self::Deferred(_) => &[],
        }
    }
}

/// When a command is decided again (item 65).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deferred {
    /// Retries of one key take turns.
    pub retry_key: String,
    /// When it is tried again, in milliseconds since the epoch.
    pub scheduled_at: i64,
    /// The item of work that does it.
    pub work_id: String,
    /// Which retry it is, from 1.
    pub retry_attempt: u32,
    /// How long that is from now.
    pub scheduled_after_ms: u64,
}

/// A result as it is kept, and as an `onComplete` is told. (serde cannot keep a raw value inside of a tagged enum.) Where
/// events are is not known before the commit, so only their ids are kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandResult {
    /// `success`, `rejected`, `failed` or `deferred`.
    pub status: String,
    /// What the handler said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// The ids of its events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_ids: Vec<String>,
    /// Why it was rejected, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why it was rejected or failed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What else there is to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
    /// When it is decided again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred: Option<Deferred>,
}

impl CommandResult {
    fn of(status: &str) -> Self {
        let (data, code, reason, context, deferred) = (None, None, None, None, None);
        Self { status: status.into(), data, event_ids: Vec::new(), code, reason, context, deferred }
    }

    pub(super) fn success(data: Box<RawValue>, event_ids: Vec<String>) -> Self {
        Self { data: Some(data), event_ids, ..Self::of("success") }
    }

    pub(super) fn rejected(code: String, reason: String, context: Option<Value>) -> Self {
        Self { code: Some(code), reason: Some(reason), context, ..Self::of("rejected") }
    }

    pub(super) fn failed(reason: String, event_ids: Vec<String>) -> Self {
        Self { reason: Some(reason), event_ids, ..Self::of("failed") }
    }

    pub(super) fn deferred(deferred: Deferred) -> Self {
        Self { deferred: Some(deferred), ..Self::of("deferred") }
    }

    /// The outcome, with the events that have these ids.
    pub(super) fn outcome(self, events: Vec<AppendedEvent>) -> Outcome {
        let reason = self.reason.unwrap_or_default();
        match (&*self.status, self.deferred) {
            ("success", _) => {
                Outcome::Success { data: self.data.unwrap_or_else(|| RawValue::NULL.to_owned()), events }
            }
            ("deferred", Some(deferred)) => Outcome::Deferred(deferred),
            ("rejected", _) => {
                Outcome::Rejected { code: self.code.unwrap_or_default(), reason, context: self.context }
            }
            _ => Outcome::Failed { reason, events },
        }
    }
}
