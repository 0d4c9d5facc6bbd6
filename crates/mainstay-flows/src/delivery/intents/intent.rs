//! An intent: as it is given, as it is seen, and how it ends.

use super::names::EventNames;
use super::{MAX_METADATA_BYTES, MAX_TIMEOUT_MS};
use crate::error::{Error, Result};
use mainstay_core::json::{self, Bounds};
use mainstay_core::keys::MAX_KEY_BYTES;
use mainstay_core::names::check_unreserved;
use mainstay_core::trace::TraceContext;
use mainstay_events::MAX_ID_BYTES;
use mainstay_store::{Cause, Inherited};
use mainstay_work::MAX_NAME_BYTES;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;

/// Most retries of one intent.
const MAX_RETRIES: u32 = 1_000;
/// What stands around an intent's key in those of its events: `completion:` and `:abandoned`.
const AROUND_KEY_BYTES: usize = 32;
/// The year 9999, which is the last that other programs can print.
const MAX_MS: i64 = 253_402_300_799_999;

/// What becomes of an intent that nobody has completed in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// It is abandoned, with an event.
    Abandon,
    /// It is told, and goes on.
    Alert,
    /// Its handler begins it again; when that was done often enough, it is abandoned.
    Retry,
}

/// What becomes of an intent that nobody has completed in time, and whom to call then (decision C21).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OnTimeout {
    /// What becomes of it.
    pub policy: Policy,
    /// The function that is called with a [`TimedOut`](super::TimedOut), as work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// How often it is begun again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
}

impl OnTimeout {
    /// It is abandoned.
    pub fn abandon() -> Self {
        Self { policy: Policy::Abandon, handler: None, max_retries: None }
    }

    /// It is told.
    pub fn alert() -> Self {
        Self { policy: Policy::Alert, handler: None, max_retries: None }
    }

    /// `handler` begins it again, at most so many times; then it is abandoned.
    pub fn retry(handler: impl Into<String>, max_retries: u32) -> Self {
        Self { policy: Policy::Retry, handler: Some(handler.into()), max_retries: Some(max_retries) }
    }

    /// The function that is called then.
    pub fn handler(self, handler: impl Into<String>) -> Self {
        Self { handler: Some(handler.into()), ..self }
    }

    fn check(&self) -> Result<()> {
        if let Some(handler) = &self.handler {
            check_unreserved("handler", handler).map_err(mainstay_work::Error::from)?;
        }
        match (self.policy, &self.handler, self.max_retries) {
            (Policy::Retry, None, _) => {
                Err(Error::invalid("handler", "is missing: somebody must begin the operation again"))
            }
            (Policy::Retry, _, None) => Err(Error::invalid("maxRetries", "is missing: retrying has an end")),
            (Policy::Retry, _, Some(retries)) if !(1..=MAX_RETRIES).contains(&retries) => {
                Err(Error::invalid("maxRetries", format!("must be 1 to {MAX_RETRIES}")))
            }
            (Policy::Abandon | Policy::Alert, _, Some(_)) => {
                Err(Error::invalid("maxRetries", "is only for the policy retry"))
            }
            _ => Ok(()),
        }
    }
}

/// A long operation that begins.
#[derive(Debug, Clone)]
pub struct NewIntent {
    pub(super) operation_type: String,
    pub(super) stream_type: String,
    pub(super) stream_id: String,
    pub(super) bounded_context: String,
    pub(super) timeout_ms: u64,
    pub(super) on_timeout: OnTimeout,
    pub(super) started_at: Option<i64>,
    pub(super) names: EventNames,
    pub(super) correlation_id: Option<String>,
    pub(super) causation_id: Option<String>,
    pub(super) tenant_id: Option<String>,
    pub(super) metadata: Option<Box<RawValue>>,
    pub(super) trace: Option<TraceContext>,
}

impl NewIntent {
    /// An operation on a stream (type and id) of a bounded context, that is to be completed within `timeout`.
    pub fn new(
        operation_type: impl Into<String>,
        (stream_type, stream_id): (impl Into<String>, impl Into<String>),
        bounded_context: impl Into<String>,
        timeout: Duration,
        on_timeout: OnTimeout,
    ) -> Self {
        Self {
            operation_type: operation_type.into(),
            stream_type: stream_type.into(),
            stream_id: stream_id.into(),
            bounded_context: bounded_context.into(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            on_timeout,
            started_at: None,
            names: EventNames::default(),
            correlation_id: None,
            causation_id: None,
            tenant_id: None,
            metadata: None,
            trace: None,
        }
    }

    /// When it began, in milliseconds since the epoch. Whoever says so may record the intent again: its key is the same, and
    /// there is one.
    pub fn started_at_ms(self, started_at: i64) -> Self {
        Self { started_at: Some(started_at), ..self }
    }

    /// What its events are called, where that is not as its operation's.
    pub fn names(self, names: EventNames) -> Self {
        Self { names, ..self }
    }

    /// What it belongs together with; one is made when there is none.
    pub fn correlation(self, id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..self }
    }

    /// The command or event that caused it.
    pub fn causation(self, id: impl Into<String>) -> Self {
        Self { causation_id: Some(id.into()), ..self }
    }

    /// Whose it is.
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        Self { tenant_id: Some(tenant.into()), ..self }
    }

    /// What else there is to know, at most 32 KiB; its handler is called with it.
    pub fn metadata(self, metadata: &(impl Serialize + ?Sized)) -> Result<Self> {
        let metadata = serde_json::value::to_raw_value(metadata);
        let metadata = metadata.map_err(|error| Error::invalid("metadata", error.to_string()))?;
        Ok(Self { metadata: Some(metadata), ..self })
    }

    /// The trace that it belongs to.
    pub fn trace(self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), ..self }
    }

    /// Takes from `cause` what the intent does not say: correlation, causation, tenant and trace.
    pub fn caused_by(mut self, cause: &Cause) -> Self {
        cause.fill(Inherited {
            correlation_id: &mut self.correlation_id,
            causation_id: &mut self.causation_id,
            tenant_id: &mut self.tenant_id,
            trace: &mut self.trace,
        });
        self
    }

    /// `{operationType}:{streamType}:{streamId}:{startMs}`.
    pub(super) fn key(&self, started_at: i64) -> String {
        format!("{}:{}:{}:{started_at}", self.operation_type, self.stream_type, self.stream_id)
    }

    pub(super) fn check(&self) -> Result<()> {
        let texts = [
            ("operationType", Some(&self.operation_type), MAX_NAME_BYTES),
            ("streamType", Some(&self.stream_type), MAX_KEY_BYTES),
            ("streamId", Some(&self.stream_id), MAX_KEY_BYTES),
            ("boundedContext", Some(&self.bounded_context), MAX_ID_BYTES),
            ("correlationId", self.correlation_id.as_ref(), MAX_ID_BYTES),
            ("causationId", self.causation_id.as_ref(), MAX_ID_BYTES),
            ("tenantId", self.tenant_id.as_ref(), MAX_ID_BYTES),
            ("events.started", self.names.started.as_ref(), MAX_NAME_BYTES),
            ("events.completed", self.names.completed.as_ref(), MAX_NAME_BYTES),
            ("events.failed", self.names.failed.as_ref(), MAX_NAME_BYTES),
            ("events.abandoned", self.names.abandoned.as_ref(), MAX_NAME_BYTES),
        ];
        for (field, text, most) in texts {
            let fits = |text: &String| (1..=most).contains(&text.len()) && !text.contains(char::is_control);
            if !text.is_none_or(fits) {
                let reason = format!("must be 1 to {most} bytes without control characters");
                return Err(Error::invalid(field, reason));
            }
        }
        if self.key(MAX_MS).len() + AROUND_KEY_BYTES > MAX_KEY_BYTES {
            let most = MAX_KEY_BYTES - AROUND_KEY_BYTES;
            let reason = format!("makes a key of more than {most} bytes, with type and id of its stream");
            return Err(Error::invalid("operationType", reason));
        }
        if !(1..=MAX_TIMEOUT_MS).contains(&self.timeout_ms) {
            return Err(Error::invalid("timeoutMs", format!("must be 1 to {MAX_TIMEOUT_MS}")));
        }
        if self.started_at.is_some_and(|at| !(0..=MAX_MS).contains(&at)) {
            return Err(Error::invalid("startedAt", "must be neither negative nor millennia away"));
        }
        if let Some(metadata) = &self.metadata {
            json::check(metadata.get().as_bytes(), Bounds::bytes(MAX_METADATA_BYTES))
                .map_err(|error| Error::invalid("metadata", error.to_string()))?;
        }
        self.on_timeout.check()
    }
}

/// How far an intent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IntentStatus {
    /// Nobody has completed it.
    Pending,
    /// It was done.
    Completed,
    /// It could not be done.
    Failed,
    /// It was given up.
    Abandoned,
}

impl IntentStatus {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::Pending, Self::Completed, Self::Failed, Self::Abandoned];

    pub(super) fn number(self) -> i64 {
        match self {
            Self::Pending => 0,
            Self::Completed => 1,
            Self::Failed => 2,
            Self::Abandoned => 3,
        }
    }

    pub(super) fn of(number: i64) -> Self {
        match number {
            0 => Self::Pending,
            1 => Self::Completed,
            2 => Self::Failed,
            _ => Self::Abandoned,
        }
    }

    /// The name, as it stands in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompletionStatus {
    /// It was done.
    Success,
    /// It could not be done.
    Failure,
    /// It was given up.
    Abandoned,
}

impl CompletionStatus {
    /// The name, as it stands in JSON and in the completion's key.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Abandoned => "abandoned",
        }
    }

    pub(super) fn makes(self) -> IntentStatus {
        match self {
            Self::Success => IntentStatus::Completed,
            Self::Failure => IntentStatus::Failed,
            Self::Abandoned => IntentStatus::Abandoned,
        }
    }
}

/// The end of a long operation.
#[derive(Debug, Clone)]
pub struct Completion {
    pub(super) intent_key: String,
    pub(super) status: CompletionStatus,
    pub(super) result: Option<Box<RawValue>>,
    pub(super) error: Option<String>,
}

impl Completion {
    /// It was done.
    pub fn success(intent_key: impl Into<String>) -> Self {
        Self::new(intent_key, CompletionStatus::Success)
    }

    /// It could not be done.
    pub fn failure(intent_key: impl Into<String>, error: impl Into<String>) -> Self {
        Self::new(intent_key, CompletionStatus::Failure).error(error)
    }

    /// It is given up.
    pub fn abandoned(intent_key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(intent_key, CompletionStatus::Abandoned).error(reason)
    }

    /// It ended in this way.
    pub fn new(intent_key: impl Into<String>, status: CompletionStatus) -> Self {
        Self { intent_key: intent_key.into(), status, result: None, error: None }
    }

    /// What came of it.
    pub fn result(self, result: &(impl Serialize + ?Sized)) -> Result<Self> {
        let result = serde_json::value::to_raw_value(result);
        let result = result.map_err(|error| Error::invalid("result", error.to_string()))?;
        Ok(Self { result: Some(result), ..self })
    }

    /// Why it was not done.
    pub fn error(self, error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..self }
    }
}

/// An intent, as it is seen.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// Its key.
    pub intent_key: String,
    /// What was begun.
    pub operation_type: String,
    /// The type of the stream that its events are in.
    pub stream_type: String,
    /// Which stream.
    pub stream_id: String,
    /// The bounded context that it belongs to.
    pub bounded_context: String,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// What it belongs together with.
    pub correlation_id: String,
    /// How far it is.
    pub status: IntentStatus,
    /// How long it may take.
    pub timeout_ms: u64,
    /// What becomes of it when nobody completes it in time.
    pub on_timeout: OnTimeout,
    /// When it began.
    pub started_at: i64,
    /// When its time is up, or was.
    pub timeout_at: i64,
    /// How often its time was up.
    pub timeouts: u32,
    /// How long ago it began.
    pub time_since_intent: i64,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<i64>,
    /// The event that it began with.
    pub intent_event_id: String,
    /// The event that it ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_event_id: Option<String>,
    /// What came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<RawValue>>,
}
