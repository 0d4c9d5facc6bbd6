//! Durable append: an event that is appended as work, and tried again until it is in.
//!
//! For steps of sagas, for scheduled jobs and after actions, where nobody waits for the answer and nobody could repeat it. A
//! command that is decided now appends at once and needs none of this.
//!
//! Events of one stream are appended in the order they were asked for, those of different streams beside each other. The
//! event has an idempotency key, so that a try whose answer was lost is no second event. What could not be appended is a
//! dead letter of the kind `append`, and whoever wants to know is told.

use super::Retries;
use crate::error::{Error, Result};
use mainstay_core::failure::{Class, Failure};
use mainstay_core::retry::RetryPolicy;
use mainstay_events::{Error as EventError, Log, NewEvent, Status};
use mainstay_store::{Cause, Tx};
use mainstay_work::inbox::Kind;
use mainstay_work::{Call, Functions, Letter, LetterFilter, MAX_KEY_BYTES, NewWork, Pool, Work};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The pool that events are appended in.
pub const APPEND_POOL: &str = "eventAppendPool";
/// Appends an event.
const APPEND: &str = "mainstay.append";

/// An event that is to be appended as work.
#[derive(Debug, Clone)]
pub struct NewAppend {
    event: NewEvent,
    on_complete: Option<String>,
    context: Option<Box<RawValue>>,
    retries: Option<Retries>,
}

impl NewAppend {
    /// An event of a stream, with an idempotency key.
    pub fn new(event: NewEvent) -> Self {
        Self { event, on_complete: None, context: None, retries: None }
    }

    /// The function that is told what came of it, with `context`. Its result is an [`AppendResult`].
    pub fn on_complete(
        mut self,
        function: impl Into<String>,
        context: &(impl Serialize + ?Sized),
    ) -> Result<Self> {
        let context = serde_json::value::to_raw_value(context);
        self.context = Some(context.map_err(|error| Error::invalid("context", error.to_string()))?);
        self.on_complete = Some(function.into());
        Ok(self)
    }

    /// How often and how fast it is tried again, instead of what all appends do.
    pub fn retrying(mut self, retries: Retries) -> Self {
        self.retries = Some(retries);
        self
    }
}

/// What came of a durable append (item 140).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppendResult {
    /// Whether the event was appended now or before.
    pub status: Status,
    /// The event.
    pub event_id: String,
    /// Its version in its stream.
    pub version: Option<u64>,
}

/// Appends events as work. Clones are the same.
#[derive(Clone)]
pub struct Appends {
    log: Log,
    work: Work,
    policy: RetryPolicy,
}

/// The function that appends.
fn functions(log: &Log) -> Functions {
    let log = log.clone();
    Functions::new().platform_action(APPEND, move |_: Call, event: NewEvent| {
        let log = log.clone();
        async move {
            let appended = log.append(event).await.map_err(|error| failure(&error))?;
            let first = appended.events.into_iter().next();
            let first = first.ok_or_else(|| Failure::permanent("no event was appended"))?;
            Ok(AppendResult { status: appended.status, event_id: first.event_id, version: first.version })
        }
    })
}

/// Somebody else may be there first and the database away, which passes; what the event says does not change.
fn failure(error: &EventError) -> Failure {
    let class = match error {
        EventError::VersionConflict { .. }
        | EventError::ConditionFailed { .. }
        | EventError::AfterBeyondHead { .. }
        | EventError::Store(_) => Class::TransientDatabaseError,
        _ => Class::ValidationError,
    };
    Failure::new(class, format!("{}: {error}", error.code()))
}

impl Appends {
    /// Opens durable appends, and registers their function. Call it before the engine starts. `retries` apply to every append
    /// without its own.
    pub async fn open(log: &Log, work: &Work, retries: Retries) -> Result<Self> {
        let policy = retries.policy()?;
        work.register(functions(log)).await?;
        work.ensure_pool(Pool::platform_pool(APPEND_POOL)).await?;
        Ok(Self { log: log.clone(), work: work.clone(), policy })
    }

    /// Lets an event be appended; the id of the work that does it.
    pub async fn append(&self, new: NewAppend) -> Result<String> {
        Ok(self.work.enqueue(self.item(new)?).await?.work_id)
    }

    /// As [`append`](Self::append), at the end of a transaction.
    pub fn append_in(&self, tx: &Tx, new: NewAppend) -> Result<String> {
        let receipt = self.work.enqueue_in(tx, [self.item(new)?])?;
        Ok(receipt.work_ids().first().cloned().unwrap_or_default())
    }

    /// A page of events that could not be appended, the newest first; `before` is the number of the last one of the page
    /// before.
    pub async fn letters(&self, before: Option<i64>, limit: usize) -> Result<Vec<Letter>> {
        let kind = Some(Kind::Append);
        Ok(self.work.letters(LetterFilter { kind, before, ..LetterFilter::default() }, limit).await?)
    }

    fn item(&self, new: NewAppend) -> Result<NewWork> {
        let NewAppend { event, on_complete, context, retries } = new;
        if event.idempotency_key.is_none() {
            return Err(Error::invalid("idempotencyKey", "is missing: an append that is repeated needs one"));
        }
        let Some(stream) = &event.stream else {
            return Err(Error::invalid("stream", "is missing: events of a stream are appended in order"));
        };
        self.log.check_append(event.clone())?;
        let key = partition_key("append", &format!("{}:{}", stream.stream_type, stream.id));
        let policy = retries.map_or(Ok(self.policy), |retries| retries.policy())?;
        let mut item =
            NewWork::platform(APPEND_POOL, APPEND, &event)?.key(key).retry(policy).letter_kind(Kind::Append);
        if let Some(context) = context {
            item = item.context(&context)?;
        }
        let item = item.caused_by(&Cause {
            correlation_id: event.correlation_id,
            causation_id: event.causation_id,
            tenant_id: event.tenant_id,
            trace: event.trace,
        });
        Ok(on_complete.into_iter().fold(item, NewWork::tell))
    }
}

/// `name:value`, as keys of items are written (decision C19). What is cut off only makes more items take turns than must.
fn partition_key(name: &str, value: &str) -> String {
    let mut key = format!("{name}:{value}");
    key.truncate(key.floor_char_boundary(MAX_KEY_BYTES));
    key
}
