//! What becomes of an intent when its time is up: `mainstay.intent.timeout`, a timer.

use super::intent::{Completion, IntentStatus, Policy};
use super::opened::Shared;
use super::record::{self, Record};
use crate::error::{Error, Result};
use crate::service::ServiceRef;
use mainstay_core::retry::RetryPolicy;
use mainstay_store::{Cause, Tx};
use mainstay_work::{Call, Functions, NewWork, RETRIER_POOL, TIMER_POOL, Work};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;

const TIMEOUT: &str = "mainstay.intent.timeout";
/// Intents that ended long ago and are forgotten by each timer. Every intent has one, so that there are never many.
const FORGOTTEN_AT_ONCE: u64 = 10;
/// Executions of a timer that fails, before it is a dead letter; its intent stays among the orphans.
const EXECUTIONS: u32 = 20;
/// Why an intent is abandoned whose time is up.
const TIME_IS_UP: &str = "timeout";

/// Which timer of which intent it is: one whose number is not the intent's is late.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timer {
    intent_key: String,
    /// Empty for an intent without a tenant; missing in timers from before keys were a tenant's own.
    #[serde(default)]
    tenant: Option<String>,
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
    /// The tenant that it belongs to; its key is unique within that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
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
pub(super) fn set_timer(work: &Work, tx: &Tx, record: &Record, number: u32, after_ms: u64) -> Result<()> {
    let tenant = Some(record.tenant().to_owned());
    let timer = Timer { intent_key: record.intent_key.clone(), tenant, number };
    let policy = RetryPolicy::new(EXECUTIONS, 100, 2.0, 30_000);
    let policy = policy.map_err(|error| Error::invalid("retry", error.to_string()))?;
    let item = NewWork::platform(TIMER_POOL, TIMEOUT, &timer)?
        .run_after(Duration::from_millis(after_ms))
        .retry(policy)
        .caused_by(&record.cause());
    Cause::apart_sync(|| work.enqueue_in(tx, [item]))?;
    Ok(())
}

/// The function of the timers.
pub(super) fn functions(service: &ServiceRef<Shared>) -> Functions {
    let service = service.clone();
    Functions::new().platform_mutation(TIMEOUT, move |tx: Tx, _: Call, timer: Timer| {
        let service = service.clone();
        async move {
            record::prune(&tx, FORGOTTEN_AT_ONCE).await?;
            Ok(service.get()?.time_is_up(&tx, &timer).await?)
        }
    })
}

impl Shared {
    /// Does what the intent says; what it did.
    async fn time_is_up(&self, tx: &Tx, timer: &Timer) -> Result<&'static str> {
        let found = record::hold(tx, timer.tenant.as_deref(), &timer.intent_key).await?;
        let Some(record) = found else { return Ok("forgotten") };
        if record.status != IntentStatus::Pending {
            return Ok("ended before");
        }
        if record.timeouts != timer.number {
            return Ok("late");
        }
        // An item that an operator has hastened: only the row says when the time is up.
        let left_ms = record.timeout_at.saturating_sub(tx.now_ms().await?);
        if let Some(left_ms) = u64::try_from(left_ms).ok().filter(|left_ms| *left_ms > 0) {
            set_timer(&self.work, tx, &record, timer.number, left_ms)?;
            return Ok("early");
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
                set_timer(&self.work, tx, &record, record.timeouts + 1, record.kept.timeout_ms)?;
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
            tenant_id: kept.tenant_id.clone(),
            correlation_id: record.correlation_id.clone(),
            policy: kept.on_timeout.policy,
            timeouts: record.timeouts + 1,
            metadata: kept.metadata.clone(),
        };
        // The intent goes on whatever became of its handler.
        let item = NewWork::new(RETRIER_POOL, handler, &args)?.caused_by(&record.cause()).owed();
        Cause::apart_sync(|| self.work.enqueue_in(tx, [item]))?;
        Ok(())
    }
}
