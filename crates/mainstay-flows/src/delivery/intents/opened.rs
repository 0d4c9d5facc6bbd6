//! Intents as their users see them.

use super::intent::{Completion, Intent, IntentStatus, NewIntent};
use super::names::Operations;
use super::record::{self, IntentFilter, IntentPage, Kept, OpenIntents, Orphans, Record};
use super::timeout;
use crate::error::{Error, Result};
use crate::service::ServiceRef;
use mainstay_core::ids::{Context, Ids, Kind};
use mainstay_core::keys::MAX_KEY_BYTES;
use mainstay_core::trace::TraceContext;
use mainstay_events::{IdempotencyKey, Log, NewEvent};
use mainstay_store::{Cause, Tx};
use mainstay_work::{RETRIER_POOL, Work};
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;

/// How many intents of one operation and stream may begin in the same moment before somebody is refused.
const MOMENTS: i64 = 1_000;

/// An intent that was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// Its key, by which it is completed.
    pub intent_key: String,
    /// The event that it began with.
    pub intent_event_id: String,
    /// What it belongs together with.
    pub correlation_id: String,
    /// When it began.
    pub started_at: i64,
    /// When its time is up.
    pub timeout_at: i64,
    /// Whether it was recorded before.
    pub is_duplicate: bool,
}

/// An intent that was completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Completed {
    /// Its key.
    pub intent_key: String,
    /// How far it is now.
    pub status: IntentStatus,
    /// The event that it ended with.
    pub completion_event_id: String,
    /// Whether it was completed before, in the same way.
    pub is_duplicate: bool,
}

/// What stands in an event that begins an intent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Started<'a> {
    intent_key: &'a str,
    operation_type: &'a str,
    timeout_ms: u64,
    on_timeout: &'a super::OnTimeout,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

/// What stands in an event that ends an intent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ended<'a> {
    intent_key: &'a str,
    operation_type: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Records, completes and lists intents. Clones are the same.
#[derive(Clone)]
pub struct Intents {
    shared: Arc<Shared>,
    /// Whose are seen; everybody's if there is none.
    tenant: Option<Arc<str>>,
}

pub(super) struct Shared {
    pub(super) log: Log,
    pub(super) work: Work,
    operations: Operations,
    ids: Ids,
}

impl Intents {
    /// Opens the intents of a store that was opened with [`COMPONENT`](super::COMPONENT), and registers the function of their
    /// timers. Call it before the engine starts.
    pub async fn open(log: &Log, work: &Work, operations: Operations) -> Result<Self> {
        let ids = Ids::new(log.store().clock().clone(), log.store().random().clone());
        let shared = Arc::new(Shared { log: log.clone(), work: work.clone(), operations, ids });
        work.register(timeout::functions(&ServiceRef::new("intents", &shared))).await?;
        Ok(Self { shared, tenant: None })
    }

    /// The intents as a tenant sees them: it begins its own, and those of others are not there. Keys are unique within a
    /// tenant. A view of all tenants prefers the intent without a tenant, then takes the only one; a key of several
    /// tenants is refused.
    pub fn for_tenant(&self, tenant: &str) -> Self {
        Self { shared: self.shared.clone(), tenant: Some(tenant.into()) }
    }

    /// Records an intent: its event, its row and its timer.
    pub async fn record(&self, new: NewIntent) -> Result<Recorded> {
        let record = async |tx: Tx, (intents, new): (Self, Arc<NewIntent>)| {
            Ok(intents.record_in(&tx, NewIntent::clone(&new)).await?)
        };
        Ok(self.shared.log.store().transact_with((self.clone(), Arc::new(new)), record).await?)
    }

    /// As [`record`](Self::record), in a transaction.
    pub async fn record_in(&self, tx: &Tx, new: NewIntent) -> Result<Recorded> {
        let new = match &self.tenant {
            Some(tenant) => new.tenant(&**tenant),
            None => new,
        };
        let new = Cause::current().iter().fold(new, |new, cause| new.caused_by(cause));
        new.check()?;
        let shared = &self.shared;
        if let Some(handler) = &new.on_timeout.handler {
            if !shared.work.knows_in(tx, handler).await? {
                return Err(mainstay_work::Error::UnknownFunction(handler.clone()).into());
            }
            shared.work.promise_in(tx, RETRIER_POOL, handler);
        }
        let now_ms = tx.now_ms().await?;
        let mut record = shared.drafted(&new, now_ms);
        if !record::insert(tx, &record).await? {
            if new.started_at.is_some() {
                return self.repeated(tx, record).await;
            }
            let latest = record.started_at + MOMENTS;
            loop {
                record.started_at += 1;
                record.intent_key = new.key(record.started_at);
                if record::insert(tx, &record).await? {
                    break;
                }
                if record.started_at >= latest {
                    return Err(Error::IntentKeyTaken(record.intent_key));
                }
            }
        }
        let started = shared.started(&record, &new)?;
        Cause::apart_sync(|| shared.log.append_in(tx, started))?;
        timeout::set_timer(&shared.work, tx, &record, 0, record.kept.timeout_ms)?;
        Ok(recorded(record, false))
    }

    /// What is known of an intent that was recorded before, if that was the same.
    async fn repeated(&self, tx: &Tx, drafted: Record) -> Result<Recorded> {
        let taken = || Error::IntentKeyTaken(drafted.intent_key.clone());
        let known = record::find(tx, Some(drafted.tenant()), &drafted.intent_key).await?.ok_or_else(taken)?;
        let (one, other) = (&drafted.kept, &known.kept);
        let is_same = one.tenant_id == other.tenant_id
            && one.bounded_context == other.bounded_context
            && (one.timeout_ms, &one.on_timeout) == (other.timeout_ms, &other.on_timeout)
            && one.names == other.names
            && is_same_json(one.metadata.as_deref(), other.metadata.as_deref());
        if is_same { Ok(recorded(known, true)) } else { Err(taken()) }
    }

    /// Completes an intent: its event and its row. Once for each intent: whoever is first decides.
    pub async fn complete(&self, completion: Completion) -> Result<Completed> {
        let complete = async |tx: Tx, (intents, completion): (Self, Arc<Completion>)| {
            Ok(intents.complete_in(&tx, Completion::clone(&completion)).await?)
        };
        Ok(self.shared.log.store().transact_with((self.clone(), Arc::new(completion)), complete).await?)
    }

    /// As [`complete`](Self::complete), in a transaction.
    pub async fn complete_in(&self, tx: &Tx, completion: Completion) -> Result<Completed> {
        let known = known_form(&completion.intent_key)?;
        let record = record::hold(tx, self.tenant.as_deref(), known).await?;
        let record = record.ok_or_else(|| Error::IntentNotFound(completion.intent_key.clone()))?;
        if record.status == IntentStatus::Pending {
            return self.shared.end(tx, &record, &completion).await;
        }
        let kept = &record.kept;
        let is_same = record.status == completion.status.makes()
            && kept.error == completion.error
            && is_same_json(kept.result.as_deref(), completion.result.as_deref());
        match &kept.completion_event_id {
            Some(event_id) if is_same => Ok(Completed {
                intent_key: record.intent_key,
                status: record.status,
                completion_event_id: event_id.clone(),
                is_duplicate: true,
            }),
            _ => Err(Error::IntentEnded { intent_key: record.intent_key, status: record.status.as_str() }),
        }
    }

    /// An intent.
    pub async fn get(&self, intent_key: &str) -> Result<Intent> {
        let read = async |tx: Tx, (intents, key): (Self, String)| {
            let now_ms = tx.now_ms().await?;
            let found = record::find(&tx, intents.tenant.as_deref(), &key).await?;
            Ok(found.map(|record| record.seen(now_ms)))
        };
        let which = (self.clone(), known_form(intent_key)?.to_owned());
        let found = self.shared.log.store().read_with(which, read).await?;
        found.ok_or_else(|| Error::IntentNotFound(intent_key.to_owned()))
    }

    /// A page of intents, the newest first.
    pub async fn list(&self, filter: IntentFilter, limit: usize) -> Result<IntentPage> {
        let read = async |tx: Tx, (tenant, filter, limit): (Option<Arc<str>>, IntentFilter, usize)| {
            record::list(&tx, tenant.as_deref(), &filter, limit).await
        };
        Ok(self.shared.log.store().read_with((self.tenant.clone(), filter, limit), read).await?)
    }

    /// How many intents of everybody nobody has ended, and how many of those are overdue, each counted up to `most`.
    pub async fn count_open(&self, most: u32) -> Result<OpenIntents> {
        let read = async |tx: Tx, most: u32| record::count_open(&tx, most).await;
        Ok(self.shared.log.store().read_with(most, read).await?)
    }

    /// A page of intents that nobody has completed, the oldest first.
    pub async fn orphans(&self, orphans: Orphans, limit: usize) -> Result<IntentPage> {
        let read = async |tx: Tx, (tenant, orphans, limit): (Option<Arc<str>>, Orphans, usize)| {
            record::orphans(&tx, tenant.as_deref(), &orphans, limit).await
        };
        Ok(self.shared.log.store().read_with((self.tenant.clone(), orphans, limit), read).await?)
    }
}

impl Shared {
    /// An intent before anybody knows it.
    fn drafted(&self, new: &NewIntent, now_ms: i64) -> Record {
        let context = Context::new(&new.bounded_context).or_else(|_| Context::new("app"));
        let event_kind = context.map_or(Kind::IntegrationEvent, Kind::Event);
        let correlation_id = new.correlation_id.clone();
        let started_at = new.started_at.unwrap_or(now_ms);
        let random = self.log.store().random();
        Record {
            intent_key: new.key(started_at),
            operation_type: new.operation_type.clone(),
            correlation_id: correlation_id.unwrap_or_else(|| self.ids.make(Kind::Correlation).to_string()),
            status: IntentStatus::Pending,
            started_at,
            timeout_at: now_ms.saturating_add_unsigned(new.timeout_ms),
            timeouts: 0,
            ended_at: None,
            kept: Kept {
                stream_type: new.stream_type.clone(),
                stream_id: new.stream_id.clone(),
                bounded_context: new.bounded_context.clone(),
                tenant_id: new.tenant_id.clone(),
                timeout_ms: new.timeout_ms,
                on_timeout: new.on_timeout.clone(),
                names: self.operations.of(&new.operation_type, new.names.clone()),
                trace: new.trace.clone().unwrap_or_else(|| TraceContext::root(&**random)),
                intent_event_id: self.ids.make(event_kind).to_string(),
                metadata: new.metadata.clone(),
                completion_event_id: None,
                result: None,
                error: None,
            },
        }
    }

    /// The event that begins an intent.
    fn started(&self, record: &Record, new: &NewIntent) -> Result<NewEvent> {
        let Record { intent_key, operation_type, kept, .. } = record;
        let data = Started {
            intent_key,
            operation_type,
            timeout_ms: kept.timeout_ms,
            on_timeout: &kept.on_timeout,
            metadata: kept.metadata.as_deref(),
        };
        let event = NewEvent::new(&kept.names.started, &data)?.id(&kept.intent_event_id);
        let event = self.placed(event, record, &format!("intent:{intent_key}"))?;
        Ok(new.causation_id.iter().fold(event, NewEvent::causation))
    }

    /// Where the events of an intent belong.
    fn placed(&self, event: NewEvent, record: &Record, key: &str) -> Result<NewEvent> {
        let kept = &record.kept;
        let key = IdempotencyKey::raw(key).map_err(|error| Error::invalid("intentKey", error.to_string()))?;
        let event = event
            .stream(&kept.stream_type, &kept.stream_id)
            .context(&kept.bounded_context)
            .correlation(&record.correlation_id)
            .trace(kept.trace.child(&**self.log.store().random()))
            .idempotent(&key);
        Ok(kept.tenant_id.iter().fold(event, NewEvent::tenant))
    }

    /// Ends an intent that is held and pending.
    pub(super) async fn end(&self, tx: &Tx, record: &Record, completion: &Completion) -> Result<Completed> {
        let status = completion.status;
        let data = Ended {
            intent_key: &record.intent_key,
            operation_type: &record.operation_type,
            status: status.as_str(),
            result: completion.result.as_deref(),
            error: completion.error.as_deref(),
        };
        let event = NewEvent::new(record.kept.names.of(status), &data)?;
        let key = format!("completion:{}:{}", record.intent_key, status.as_str());
        let event = self.placed(event, record, &key)?.causation(&record.kept.intent_event_id);
        // The intent's own fields count, not those of the code that ends it.
        let receipt = Cause::apart_sync(|| self.log.append_in(tx, event))?;
        let event_id = receipt.event_ids().first().cloned().unwrap_or_default();
        record::end(tx, record, completion, &event_id).await?;
        Ok(Completed {
            intent_key: record.intent_key.clone(),
            status: status.makes(),
            completion_event_id: event_id,
            is_duplicate: false,
        })
    }
}

fn recorded(record: Record, is_duplicate: bool) -> Recorded {
    Recorded {
        intent_key: record.intent_key,
        intent_event_id: record.kept.intent_event_id,
        correlation_id: record.correlation_id,
        started_at: record.started_at,
        timeout_at: record.timeout_at,
        is_duplicate,
    }
}

/// A key that an intent could have; some texts cannot even be asked for.
fn known_form(intent_key: &str) -> Result<&str> {
    if intent_key.len() <= MAX_KEY_BYTES && !intent_key.contains(char::is_control) {
        Ok(intent_key)
    } else {
        Err(Error::IntentNotFound(intent_key.to_owned()))
    }
}

/// Whether two values say the same, however they are written.
fn is_same_json(one: Option<&RawValue>, other: Option<&RawValue>) -> bool {
    let value = |raw: Option<&RawValue>| {
        raw.and_then(|raw| serde_json::from_str::<serde_json::Value>(raw.get()).ok())
    };
    one.map(RawValue::get) == other.map(RawValue::get) || value(one) == value(other)
}
