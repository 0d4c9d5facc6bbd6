//! An item of work: as it is given, as it is kept, and what came of it.

use crate::error::{Error, Result};
use crate::{MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_VALUE_BYTES};
use mainstay_core::failure::Failure;
use mainstay_core::keys::has_control;
use mainstay_core::retry::RetryPolicy;
use mainstay_core::trace::TraceContext;
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
    pub(crate) letter_kind: Option<String>,
    pub(crate) letter: Option<i64>,
    pub(crate) is_unlisted: bool,
    pub(crate) correlation: Option<String>,
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
        })
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
        self
    }

    /// What is kept beside the item, for whoever looks at it, and handed to `on_complete`.
    pub fn context(mut self, context: &(impl Serialize + ?Sized)) -> Result<Self> {
        self.context = Some(raw("context", context)?);
        Ok(self)
    }

    /// For so long, another item of the same pool and dedupe key is not enqueued but answered with this one.
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

    /// The kind of the dead letter that it becomes if it ends failed, instead of `work`.
    pub fn letter_kind(mut self, kind: impl Into<String>) -> Self {
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

    /// Checks what needs no database; `field` names a field for the error.
    pub(crate) fn check(&self, field: &dyn Fn(&str) -> String) -> Result<()> {
        name(&field("pool"), &self.pool)?;
        name(&field("function"), &self.function)?;
        if let Some(kind) = &self.letter_kind {
            name(&field("letterKind"), kind)?;
        }
        if let Some(on_complete) = &self.on_complete {
            name(&field("onComplete"), on_complete)?;
        }
        let keys = [
            ("key", self.key.as_deref()),
            ("dedupe.key", self.dedupe.as_ref().map(|(key, _)| &**key)),
            ("correlationId", self.correlation.as_deref()),
        ];
        for (what, key) in keys {
            if key.is_some_and(|key| !(1..=MAX_KEY_BYTES).contains(&key.len()) || has_control(key)) {
                let reason = format!("must be 1 to {MAX_KEY_BYTES} bytes without control characters");
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
        for (what, value) in [("args", Some(&self.args)), ("context", self.context.as_ref())] {
            if let Some(bytes) = value.map(|value| value.get().len()).filter(|bytes| *bytes > MAX_VALUE_BYTES)
            {
                return Err(Error::TooLarge { field: field(what), bytes });
            }
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
    /// The item whose end this one tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) completes: Option<String>,
    /// The kind of the dead letter that it may become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) letter_kind: Option<String>,
    /// The letter that it tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) letter: Option<i64>,
    /// Whether its letter is somebody else's to list.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_unlisted: bool,
    /// What it belongs together with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) correlation: Option<String>,
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
            letter_kind: None,
            letter: None,
            is_unlisted: false,
            correlation: None,
        }
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
}
