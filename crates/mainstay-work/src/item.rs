//! An item of work: as it is given, as it is kept, and what came of it.

use crate::error::{Error, Result};
use crate::functions::Completes;
use crate::inbox::Kind;
use crate::{MAX_ID_BYTES, MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_VALUE_BYTES};
use mainstay_core::failure::Failure;
use mainstay_core::json::{self, Bounds};
use mainstay_core::keys::has_control;
use mainstay_core::names::{Reserved, check_unreserved, is_reserved};
use mainstay_core::retry::RetryPolicy;
use mainstay_core::trace::TraceContext;
use mainstay_store::{Cause, Inherited};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use std::time::Duration;

/// An item of work that is to be enqueued.
#[derive(Debug, Clone)]
pub struct NewWork {
    pub(crate) pool: String,
    pub(crate) function: String,
    pub(crate) args: Box<RawValue>,
    pub(crate) key: Option<String>,
    pub(crate) start: Start,
    pub(crate) priority: i16,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) on_complete: Option<String>,
    pub(crate) context: Option<Box<RawValue>>,
    pub(crate) dedupe: Option<(String, Duration)>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) retry_of: Option<String>,
    pub(crate) letter_kind: Option<Kind>,
    pub(crate) letter: Option<i64>,
    pub(crate) is_unlisted: bool,
    pub(crate) correlation: Option<String>,
    pub(crate) causation: Option<String>,
    pub(crate) tenant: Option<String>,
    /// Whether the function is the platform's own.
    pub(crate) is_platform: bool,
    /// Whether the function that is told of the end is the platform's own.
    pub(crate) is_told_to_platform: bool,
    /// Whether the platform owes it: no bound refuses it, and one that cannot be enqueued is a dead letter.
    pub(crate) is_owed: bool,
    /// The ended item that this one reports on. Only the engine sets it.
    pub(crate) completes: Option<Completes>,
}

/// When an item may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    AfterMs(i64),
    AtMs(i64),
}

impl NewWork {
    /// An item of `pool` that calls `function` with `args`.
    pub fn new(
        pool: impl Into<String>,
        function: impl Into<String>,
        args: &(impl Serialize + ?Sized),
    ) -> Result<Self> {
        Ok(Self {
            pool: pool.into(),
            function: function.into(),
            args: raw("args", args)?,
            key: None,
            start: Start::Now,
            priority: 0,
            retry: None,
            on_complete: None,
            context: None,
            dedupe: None,
            deadline: None,
            trace: None,
            retry_of: None,
            letter_kind: None,
            letter: None,
            is_unlisted: false,
            correlation: None,
            causation: None,
            tenant: None,
            is_platform: false,
            is_told_to_platform: false,
            is_owed: false,
            completes: None,
        })
    }

    /// An item that calls a function of the platform. Only for code of the platform: its args hold ids, and the function
    /// reads everything else from its own tables.
    #[doc(hidden)]
    pub fn platform(
        pool: impl Into<String>,
        function: impl Into<String>,
        args: &(impl Serialize + ?Sized),
    ) -> Result<Self> {
        Ok(Self { is_platform: true, ..Self::new(pool, function, args)? })
    }

    /// An item that the platform owes to an earlier caller. No bound of names refuses it. When it cannot be enqueued, because
    /// its function was deleted, it is a dead letter instead of an error. Only for code of the platform.
    #[doc(hidden)]
    pub fn owed(self) -> Self {
        Self { is_owed: true, ..self }
    }

    /// Items of one key run one at a time, in the order they were enqueued, also across retries.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Not before so much time has passed.
    pub fn run_after(mut self, delay: Duration) -> Self {
        self.start = Start::AfterMs(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
        self
    }

    /// Not before this moment, in milliseconds since the epoch.
    pub fn run_at_ms(mut self, at_ms: i64) -> Self {
        self.start = Start::AtMs(at_ms);
        self
    }

    /// Lower numbers first; 0 unless given.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// How often and how fast to try again, instead of the pool's own way.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// The function that is told how it ended, with `context`; see [`OnComplete`].
    pub fn on_complete(
        self,
        function: impl Into<String>,
        context: &(impl Serialize + ?Sized),
    ) -> Result<Self> {
        self.tell(function).context(context)
    }

    /// The function that is told how it ended, with the context that the item has, if any.
    pub fn tell(mut self, function: impl Into<String>) -> Self {
        self.on_complete = Some(function.into());
        self.is_told_to_platform = false;
        self
    }

    /// As [`tell`](Self::tell), for a function of the platform. Only for code of the platform.
    #[doc(hidden)]
    pub fn tell_platform(self, function: impl Into<String>) -> Self {
        Self { is_told_to_platform: true, ..self.tell(function) }
    }

    /// What is kept beside the item, for whoever looks at it, and handed to `on_complete`.
    pub fn context(mut self, context: &(impl Serialize + ?Sized)) -> Result<Self> {
        self.context = Some(raw("context", context)?);
        Ok(self)
    }

    /// For so long, another item of the same pool, tenant and dedupe key is not enqueued but answered with this one.
    pub fn dedupe(mut self, key: impl Into<String>, window: Duration) -> Self {
        self.dedupe = Some((key.into(), window));
        self
    }

    /// Not started any more once so much time has passed: it ends failed instead.
    pub fn deadline(mut self, within: Duration) -> Self {
        self.deadline = Some(within);
        self
    }

    /// The step of a trace that causes the item: each execution is a step below it.
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }

    /// The step of a trace that causes the item, unless it has one.
    pub fn or_trace(mut self, trace: TraceContext) -> Self {
        self.trace.get_or_insert(trace);
        self
    }

    /// What it belongs together with, unless that was said.
    pub fn or_correlated(mut self, id: &str) -> Self {
        self.correlation.get_or_insert_with(|| id.to_owned());
        self
    }

    /// The kind of the dead letter that it becomes if it ends failed, instead of `work`. Kinds that other sources keep, such
    /// as `projection`, are refused.
    pub fn letter_kind(mut self, kind: impl Into<Kind>) -> Self {
        self.letter_kind = Some(kind.into());
        self
    }

    /// If it ends failed it is not listed among dead letters, because whoever enqueues it keeps a letter of its own.
    pub fn unlisted(mut self) -> Self {
        self.is_unlisted = true;
        self
    }

    /// What it belongs together with, so that its dead letter is found by it.
    pub fn correlated(mut self, id: impl Into<String>) -> Self {
        self.correlation = Some(id.into());
        self
    }

    /// The id of the command or event that caused it. Records of its execution and of its end have the same causation.
    pub fn causation(mut self, id: impl Into<String>) -> Self {
        self.causation = Some(id.into());
        self
    }

    /// The tenant of the item, and of the records of its execution and of its end.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Takes from `cause` what the item does not say: correlation, causation, tenant and trace.
    pub fn caused_by(mut self, cause: &Cause) -> Self {
        cause.fill(Inherited {
            correlation_id: &mut self.correlation,
            causation_id: &mut self.causation,
            tenant_id: &mut self.tenant,
            trace: &mut self.trace,
        });
        self
    }

    /// Checks what needs no database; `field` names a field for the error.
    pub(crate) fn check(&self, field: &dyn Fn(&str) -> String) -> Result<()> {
        let given = [
            ("pool", Some(&self.pool)),
            // What the platform owes becomes a dead letter instead.
            ("function", Some(&self.function).filter(|_| !self.is_platform && !self.is_owed)),
            ("onComplete", self.on_complete.as_ref().filter(|_| !self.is_told_to_platform)),
        ];
        for (what, name) in given {
            if name.is_some_and(|name| is_reserved(name)) {
                return Err(Reserved { field: field(what) }.into());
            }
        }
        name(&field("pool"), &self.pool)?;
        name(&field("function"), &self.function)?;
        if let Some(kind) = &self.letter_kind {
            kind.check_of_work(&field("letterKind"))?;
        }
        if let Some(on_complete) = &self.on_complete {
            name(&field("onComplete"), on_complete)?;
        }
        let keys = [
            ("key", self.key.as_deref(), MAX_KEY_BYTES),
            ("dedupe.key", self.dedupe.as_ref().map(|(key, _)| &**key), MAX_KEY_BYTES),
            // Events and commands inherit these, and take no longer ones.
            ("correlationId", self.correlation.as_deref(), MAX_ID_BYTES),
            ("causationId", self.causation.as_deref(), MAX_ID_BYTES),
            ("tenantId", self.tenant.as_deref(), MAX_ID_BYTES),
        ];
        for (what, key, most) in keys {
            if key.is_some_and(|key| !(1..=most).contains(&key.len()) || has_control(key)) {
                let reason = format!("must be 1 to {most} bytes without control characters");
                return Err(Error::invalid(field(what), reason));
            }
        }
        let start = match self.start {
            Start::Now => None,
            Start::AfterMs(ms) => Some(("runAfterMs", ms)),
            Start::AtMs(ms) => Some(("runAtMs", ms)),
        };
        if let Some((what, _)) = start.filter(|(_, ms)| !(0..=MAX_MS).contains(ms)) {
            return Err(Error::invalid(field(what), "must be neither negative nor millennia away"));
        }
        // The program's own items wrap values from outside in theirs.
        let bounds = Bounds { bytes: MAX_VALUE_BYTES, depth: json::MAX_WRAPPED_DEPTH };
        for (what, value) in [("args", Some(&self.args)), ("context", self.context.as_ref())] {
            value.map_or(Ok(()), |value| check_value(field(what), value, bounds))?;
        }
        if let Some(trace) = &self.trace {
            trace.validate().map_err(|error| Error::invalid(field("trace"), error.to_string()))?;
        }
        Ok(())
    }
}

/// The year 9999, which is the last that other programs can print.
const MAX_MS: i64 = 253_402_300_799_999;

pub(crate) fn name(field: &str, text: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte);
    if (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(plain) {
        Ok(())
    } else {
        let reason = format!("must be 1 to {MAX_NAME_BYTES} letters, digits or . _ - : /");
        Err(Error::invalid(field, reason))
    }
}

/// Checks a name that a caller gives: its form, and that it is not one of the platform's.
pub(crate) fn own_name(field: &str, text: &str) -> Result<()> {
    check_unreserved(field, text)?;
    name(field, text)
}

/// Checks a value that is kept as it was given.
pub(crate) fn check_value(field: impl Into<String>, value: &RawValue, bounds: Bounds) -> Result<()> {
    json::check(value.get().as_bytes(), bounds).map_err(|error| match error {
        json::Error::TooLarge { bytes, .. } => Error::TooLarge { field: field.into(), bytes },
        error => Error::invalid(field, error.to_string()),
    })
}

pub(crate) fn raw(field: &str, value: &(impl Serialize + ?Sized)) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(value).map_err(|error| Error::invalid(field, error.to_string()))
}

/// An item as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Item {
    pub(crate) function: String,
    pub(crate) args: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) priority: i16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<RetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) on_complete: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<TraceContext>,
    pub(crate) enqueued_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_at: Option<i64>,
    /// Executions that count (decision C1).
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub(crate) attempts: u32,
    /// The failures so far, the newest last; only so many are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<Attempted>,
    /// How many completions led to this one.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub(crate) depth: u32,
    /// The item that this one tries again, for an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry_of: Option<String>,
    /// The id of the ended item that this one tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) completes: Option<String>,
    /// The function of the ended item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) completes_function: Option<String>,
    /// The dead letter that the ended item tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) completes_retry_of: Option<String>,
    /// The kind of the dead letter that it may become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) letter_kind: Option<Kind>,
    /// The letter that it tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) letter: Option<i64>,
    /// Whether its letter is somebody else's to list.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_unlisted: bool,
    /// Whether code of the platform has enqueued it as a call of one of its own functions. No caller can set it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_platform: bool,
    /// What it belongs together with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) correlation: Option<String>,
    /// The command or event that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) causation: Option<String>,
    /// The tenant that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde hands over")]
fn is_false(is: &bool) -> bool {
    !is
}

fn is_zero(number: &i16) -> bool {
    *number == 0
}

fn is_none_yet(number: &u32) -> bool {
    *number == 0
}

/// The function of an item that cannot be read. No function can have this name.
pub(crate) const UNREADABLE: &str = "(unreadable)";

/// How many failures of an item are kept.
const MAX_ERRORS: usize = 10;

impl Item {
    /// Reads an item as it is kept. One that cannot be read is an item too, of a function that nobody has, so that it
    /// ends and is told of; its text is not lost.
    pub(crate) fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|error| {
            tracing::error!(%error, "an item cannot be read");
            Self::unreadable(text)
        })
    }

    fn unreadable(text: &str) -> Self {
        Self {
            function: UNREADABLE.to_owned(),
            args: serde_json::value::to_raw_value(text).unwrap_or_else(|_| RawValue::NULL.to_owned()),
            context: None,
            key: None,
            priority: 0,
            retry: None,
            on_complete: None,
            trace: None,
            enqueued_at: 0,
            deadline_at: None,
            attempts: 0,
            errors: Vec::new(),
            depth: 0,
            retry_of: None,
            completes: None,
            completes_function: None,
            completes_retry_of: None,
            letter_kind: None,
            letter: None,
            is_unlisted: false,
            is_platform: false,
            correlation: None,
            causation: None,
            tenant: None,
        }
    }

    /// The cause of all records that this item's executions and its end write. An item without a correlation begins one.
    pub(crate) fn cause(&self, work_id: &str, trace: Option<TraceContext>) -> Cause {
        Cause {
            correlation_id: Some(self.correlation.clone().unwrap_or_else(|| work_id.to_owned())),
            causation_id: self.causation.clone(),
            tenant_id: self.tenant.clone(),
            trace,
        }
    }

    /// The ended item that this one reports on.
    pub(crate) fn completes(&self) -> Option<Completes> {
        let work_id = self.completes.clone()?;
        let (function, retry_of) = (self.completes_function.clone(), self.completes_retry_of.clone());
        Some(Completes { work_id, function, retry_of })
    }

    /// Whether somebody else keeps the letter that it becomes, with all that has failed. One that tries a letter of work
    /// again does not: the letter before it is here.
    pub(crate) fn has_keeper(&self) -> bool {
        self.is_unlisted && self.retry_of.is_none()
    }

    /// Notes a failure.
    pub(crate) fn note(&mut self, at_ms: i64, failure: &Failure) {
        if self.errors.len() >= MAX_ERRORS {
            self.errors.remove(0);
        }
        self.errors.push(Attempted { attempt: self.attempts, at_ms, failure: failure.clone() });
    }
}

/// A failure of one execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempted {
    /// Which execution it was, from 1.
    pub attempt: u32,
    /// When it failed.
    pub at_ms: i64,
    /// What happened.
    pub failure: Failure,
}

/// What came of an item (item 148).
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Written")]
pub enum WorkResult {
    /// It returned.
    Success {
        /// What it returned.
        return_value: Box<RawValue>,
    },
    /// It failed for good.
    Failed {
        /// What happened.
        error: String,
    },
    /// It was cancelled.
    Canceled,
}

impl WorkResult {
    /// The name of the kind, as it stands in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Success { .. } => "success",
            Self::Failed { .. } => "failed",
            Self::Canceled => "canceled",
        }
    }
}

impl Serialize for WorkResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", self.kind())?;
        match self {
            Self::Success { return_value } => map.serialize_entry("returnValue", return_value)?,
            Self::Failed { error } => map.serialize_entry("error", error)?,
            Self::Canceled => {}
        }
        map.end()
    }
}

/// A result as JSON. (serde cannot keep a raw value inside of a tagged enum.)
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    kind: String,
    #[serde(default)]
    return_value: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<String>,
}

impl TryFrom<Written> for WorkResult {
    type Error = String;

    fn try_from(written: Written) -> std::result::Result<Self, String> {
        match (&*written.kind, written.return_value, written.error) {
            // A return value of null is read as none at all.
            ("success", value, _) => {
                Ok(Self::Success { return_value: value.unwrap_or_else(|| RawValue::NULL.to_owned()) })
            }
            ("failed", _, error) => Ok(Self::Failed { error: error.unwrap_or_default() }),
            ("canceled", _, _) => Ok(Self::Canceled),
            (kind, _, _) => Err(format!("{kind:?} is no kind of result: success, failed, canceled")),
        }
    }
}

/// What an `onComplete` function is called with.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OnComplete<C = Box<RawValue>> {
    /// The item that ended.
    pub work_id: String,
    /// What it was enqueued with.
    pub context: Option<C>,
    /// How it ended.
    pub result: WorkResult,
    /// How many executions of it count.
    #[serde(default)]
    pub attempts: u32,
    /// The failures of its executions, the newest last; only of an [unlisted](NewWork::unlisted) item that has not
    /// succeeded, whose failures are kept by whoever is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Attempted>,
    /// The item that this one tried again, as an operator asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
}
