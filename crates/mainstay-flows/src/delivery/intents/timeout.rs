//! What becomes of an intent when its time is up: `mainstay.intent.timeout`, a timer.

use super::intent::{Completion, IntentStatus, Policy};
use super::opened::Shared;
use super::record::{self, Record};
use crate::error::{Error, Result};
use mainstay_core::retry::RetryPolicy;
use mainstay_store::Tx;
use mainstay_work::{Call, Functions, NewWork, RETRIER_POOL, TIMER_POOL, Work};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

const TIMEOUT: &str = "mainstay.intent.timeout";
/// Intents that ended long ago and are forgotten by each timer. Every intent has one, so that there are never many.
const FORGOTTEN_AT_ONCE: u64 = 10;
/// Executions of a timer that fails, before it is a dead letter; its intent stays among the orphans.
const EXECUTIONS: u32 = 20;
/// Why an intent is abandoned whose time is up.
const TIME_IS_UP: &str = "timeout";

/// The opened intents, for functions that were registered before.
pub(super) type Slot = Arc<OnceLock<Weak<Shared>>>;

/// Which timer of which intent it is: one whose number is not the intent's is late.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timer {
    intent_key: String,
    number: u32,
}

/// What the handler of an intent is called with when its time is up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimedOut {
    /// The intent.
    pub intent_key: String,
    /// What was begun.
    pub operation_type: String,
    /// The type of the stream that its events are in.
    pub stream_type: String,
    /// Which stream.
    pub stream_id: String,
    /// The bounded context that it belongs to.
    pub bounded_context: String,
    /// What it belongs together with.
    pub correlation_id: String,
    /// What became of the intent.
    pub policy: Policy,
    /// How often its time was up, this time included.
    pub timeouts: u32,
    /// What else the intent says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<RawValue>>,
}

/// Lets an intent's timer run, at the end of a transaction.
pub(super) fn set_timer(work: &Work, tx: &Tx, record: &Record, number: u32) -> Result<()> {
    let timer = Timer { intent_key: record.intent_key.clone(), number };
    let policy = RetryPolicy::new(EXECUTIONS, 100, 2.0, 30_000);
    let policy = policy.map_err(|error| Error::invalid("retry", error.to_string()))?;
    let item = NewWork::new(TIMER_POOL, TIMEOUT, &timer)?
        .run_after(Duration::from_millis(record.kept.timeout_ms))
        .retry(policy)
        .trace(record.kept.trace.clone())
        .correlated(&record.correlation_id);
    work.enqueue_in(tx, [item])?;
    Ok(())
}

/// Adds the function.
pub(super) fn functions(functions: Functions, slot: &Slot) -> Functions {
    let slot = slot.clone();
    functions.mutation(TIMEOUT, move |tx: Tx, _: Call, timer: Timer| {
        let slot = slot.clone();
        async move {
            record::prune(&tx, FORGOTTEN_AT_ONCE).await?;
            Ok(opened(&slot)?.time_is_up(&tx, &timer).await?)
        }
    })
}

fn opened(slot: &Slot) -> mainstay_store::Result<Arc<Shared>> {
    let shared = slot.get().and_then(Weak::upgrade);
    // Another node, or this one in a moment, has them.
    shared.ok_or_else(|| mainstay_store::Error::Unavailable("the intents are not open here".to_owned()))
}

impl Shared {
    /// Does what the intent says; what it did.
    async fn time_is_up(&self, tx: &Tx, timer: &Timer) -> Result<&'static str> {
        let Some(record) = record::hold(tx, &timer.intent_key).await? else { return Ok("forgotten") };
        if record.status != IntentStatus::Pending {
            return Ok("ended before");
        }
        if record.timeouts != timer.number {
            return Ok("late");
        }
        let on_timeout = &record.kept.on_timeout;
        let Record { intent_key, operation_type, .. } = &record;
        match on_timeout.policy {
            Policy::Abandon => {
                self.abandon(tx, &record).await?;
                self.call_handler(tx, &record)?;
                Ok("abandoned")
            }
            Policy::Alert => {
                tracing::warn!(
                    intent = intent_key,
                    operation = operation_type,
                    "an intent was not completed in time"
                );
                record::timed_out(tx, &record, record.timeout_at).await?;
                self.call_handler(tx, &record)?;
                Ok("told")
            }
            Policy::Retry if record.timeouts < on_timeout.max_retries.unwrap_or_default() => {
                let timeout_at = tx.now_ms().await?.saturating_add_unsigned(record.kept.timeout_ms);
                record::timed_out(tx, &record, timeout_at).await?;
                self.call_handler(tx, &record)?;
                set_timer(&self.work, tx, &record, record.timeouts + 1)?;
                Ok("begun again")
            }
            Policy::Retry => {
                self.abandon(tx, &record).await?;
                Ok("abandoned")
            }
        }
    }

    async fn abandon(&self, tx: &Tx, record: &Record) -> Result<()> {
        let Record { intent_key, operation_type, .. } = record;
        tracing::warn!(intent = intent_key, operation = operation_type, "an intent was abandoned");
        self.end(tx, record, &Completion::abandoned(intent_key, TIME_IS_UP)).await.map(drop)
    }

    fn call_handler(&self, tx: &Tx, record: &Record) -> Result<()> {
        let kept = &record.kept;
        let Some(handler) = &kept.on_timeout.handler else { return Ok(()) };
        let args = TimedOut {
            intent_key: record.intent_key.clone(),
            operation_type: record.operation_type.clone(),
            stream_type: kept.stream_type.clone(),
            stream_id: kept.stream_id.clone(),
            bounded_context: kept.bounded_context.clone(),
            correlation_id: record.correlation_id.clone(),
            policy: kept.on_timeout.policy,
            timeouts: record.timeouts + 1,
            metadata: kept.metadata.clone(),
        };
        let item = NewWork::new(RETRIER_POOL, handler, &args)?
            .trace(kept.trace.clone())
            .correlated(&record.correlation_id);
        self.work.enqueue_in(tx, [item])?;
        Ok(())
    }
}
