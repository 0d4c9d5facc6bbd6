//! Trying one event again, as work: `mainstay.projection.apply` in a transaction, `mainstay.projection.reapply` through
//! the retrier, and `mainstay.projection.retried` which is told how either ended.

use super::poison::Quarantined;
use super::record::RESOLVE;
use super::{key, listing};
use crate::attempts::{self, Attempt};
use crate::error::Error;
use crate::projections::checkpoints;
use crate::projections::definition::Projection;
use crate::projections::lanes::hash;
use crate::projections::opened::{PROJECTION_POOL, Shared};
use crate::projections::{apply, apply::Stage, status};
use crate::service::ServiceRef;
use mainstay_core::failpoints::Point;
use mainstay_core::failure::Failure;
use mainstay_core::retry::RetryPolicy;
use mainstay_events::{Event, Selection};
use mainstay_store::{Hold, Tx, params};
use mainstay_work::{Call, Functions, NewWork, OnComplete, WorkResult};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::{Arc, LazyLock};

pub(crate) const APPLY: &str = "mainstay.projection.apply";
pub(crate) const REAPPLY: &str = "mainstay.projection.reapply";
pub(crate) const RETRIED: &str = "mainstay.projection.retried";

/// Longest key of an item that is made of the event's own.
const MAX_KEY_BYTES: usize = 256;

/// Which event is tried again.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Again {
    pub(crate) projection: String,
    pub(crate) event_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant_id: Option<String>,
}

/// The item that tries an event again: `orderSummary:Order:1` is its key.
pub(crate) fn item(projection: &Projection, event: &Event) -> Result<NewWork, Error> {
    let own = projection.by.try_key(event).unwrap_or_else(|_| event.id().to_owned());
    let mut key = format!("{}:{own}", projection.name);
    if key.len() > MAX_KEY_BYTES || key.contains(char::is_control) {
        key = format!("{}:{:x}", projection.name, hash(key.as_bytes()));
    }
    let own = projection.retry;
    let policy = RetryPolicy::new(
        projection.max_attempts(),
        own.initial_backoff_ms(),
        own.base(),
        own.max_backoff_ms(),
    );
    let policy = policy.map_err(|error| Error::invalid("retry", error.to_string()))?;
    let args = Again {
        projection: projection.name.clone(),
        event_id: event.id().to_owned(),
        tenant_id: event.tenant().map(str::to_owned),
    };
    let item = NewWork::platform(PROJECTION_POOL, APPLY, &args)?.key(key).retry(policy);
    Ok(item.tell_platform(RETRIED).unlisted().caused_by(&event.cause()))
}

/// Adds the functions.
pub(crate) fn functions(functions: Functions, service: &ServiceRef<Shared>) -> Functions {
    let (applying, reapplying, retried) = (service.clone(), service.clone(), service.clone());
    functions
        .platform_mutation(APPLY, move |tx: Tx, call: Call, _: Again| {
            let service = applying.clone();
            async move { apply_again(&tx, &*service.get()?, &call.work_id).await }
        })
        .platform_action(REAPPLY, move |call: Call, _: Again| {
            let service = reapplying.clone();
            async move {
                let failed = |error: mainstay_store::Error| Failure::retryable(error.to_string());
                let shared = service.get().map_err(failed)?;
                let store = shared.store.clone();
                let run = async |tx: Tx, (shared, run_id): (Arc<Shared>, String)| {
                    apply_again(&tx, &shared, &run_id).await
                };
                store.transact_with((shared, call.work_id), run).await.map_err(failed)
            }
        })
        .platform_on_complete(RETRIED, move |tx: Tx, _: Call, told: OnComplete<Box<RawValue>>| {
            let service = retried.clone();
            async move { ended(&tx, &*service.get()?, &told).await }
        })
}

const BY_RUN: &str = "SELECT position, generation, is_poison, attempts, projection, event_id \
     FROM mainstay_projection_failures WHERE retry_run_id = $1 AND status IN ('retrying', 'replayed')";
const FORGET: &str = "DELETE FROM mainstay_projection_failures \
     WHERE projection = $1 AND event_id = $2 AND generation = $3";
static BACK: LazyLock<String> = LazyLock::new(|| {
    let history = attempts::appended("history", "$7");
    format!(
        "UPDATE mainstay_projection_failures SET status = $4, last_error = $5, failed_at = mainstay_now(), \
         attempts = $6, history = {history} WHERE projection = $1 AND event_id = $2 AND generation = $3"
    )
});

/// Applies one event again, if that is still this run's to do; whether it was. The row says which event of which
/// projection it is.
async fn apply_again(tx: &Tx, shared: &Shared, run_id: &str) -> mainstay_store::Result<bool> {
    let Some(row) = tx.query_optional(BY_RUN, params![run_id]).await? else { return Ok(false) };
    let projection = shared.find(row.get(4)?)?;
    let (position, generation): (u64, i64) = (row.get(0)?, row.get(1)?);
    let one = Selection::all().after(position - 1).until(position);
    let page = shared.log.read_in(tx, &one, 1).await.map_err(Error::from)?;
    let Some(event) = page.events.into_iter().next() else { return Ok(false) };
    // The lane first, as everybody who applies events does, and then what is known under it.
    let number = projection.by.lane(&event, projection.lanes).map_err(mainstay_store::Error::application)?;
    let lane = checkpoints::hold(tx, &projection.name, number).await?;
    let Some(row) = tx.query_holding(BY_RUN, params![run_id], Hold::Alone).await?.pop() else {
        return Ok(false);
    };
    let shape = status::look(tx, &projection.name).await?.map(|found| found.shape);
    let Some(lane) = lane.filter(|lane| {
        lane.generation == generation
            && lane.lanes == projection.lanes
            && shape.as_deref() == Some(shared.shape(&projection))
    }) else {
        return Err(mainstay_store::Error::Unavailable("another version of the projection runs".to_owned()));
    };
    if position > lane.position {
        let reason = format!("projection {:?} comes to this event by itself", projection.name);
        return Err(mainstay_store::Error::application(Failure::retryable(reason)));
    }
    let (is_poison, key): (i64, String) = (row.get(2)?, row.get(5)?);
    let is_poison = is_poison == 1;
    let sql = if is_poison { FORGET } else { RESOLVE };
    tx.execute(sql, params![&projection.name, &key, generation]).await?;
    applied(tx, &projection.name, &key, is_poison).await?;
    let taken = apply::give(tx, &projection, generation, &Arc::from([event]), &Stage::default()).await?;
    shared.store.failpoints().hit(Point::ProjectionsRetried)?;
    checkpoints::set(tx, &projection.name, number, lane.position, None, (taken, 0)).await?;
    Ok(true)
}

/// Lists a failed event that is in the read model now.
async fn applied(tx: &Tx, projection: &str, key: &str, is_poison: bool) -> mainstay_store::Result<()> {
    match is_poison {
        true => listing::resolve(tx, projection, key).await,
        false => listing::list(tx, projection, key).await,
    }
}

/// Notes how trying an event again has ended, unless that is known already.
async fn ended(tx: &Tx, shared: &Shared, told: &OnComplete<Box<RawValue>>) -> mainstay_store::Result<()> {
    let result = match &told.result {
        WorkResult::Success { .. } => Ok(()),
        WorkResult::Failed { error } => Err(error.clone()),
        WorkResult::Canceled => Err("canceled".to_owned()),
    };
    let attempts = told.errors.iter().map(|one| Attempt::of(&told.work_id, one.clone())).collect();
    conclude(tx, shared, &told.work_id, result, attempts).await.map(drop)
}

/// Notes how a run has ended, and what it has failed with; whether an event waits for it.
pub(super) async fn conclude(
    tx: &Tx,
    shared: &Shared,
    run_id: &str,
    result: Result<(), String>,
    failed: Vec<Attempt>,
) -> mainstay_store::Result<bool> {
    let rows = tx.query_holding(BY_RUN, params![run_id], Hold::Alone).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let (generation, is_poison) = (row.get::<i64>(1)?, row.get::<i64>(2)? == 1);
    let (name, key): (String, String) = (row.get(4)?, row.get(5)?);
    let Err(error) = result else {
        let sql = if is_poison { FORGET } else { RESOLVE };
        tx.execute(sql, params![&name, &key, generation]).await?;
        applied(tx, &name, &key, is_poison).await?;
        return Ok(true);
    };
    let projection = shared.find(&name).ok();
    let attempts = projection.as_ref().map_or(1, |projection| projection.max_attempts());
    let status = if is_poison { "quarantined" } else { "pending" };
    let history = attempts::write(failed)?;
    tx.execute(&BACK, params![&name, &key, generation, status, &error, attempts, history]).await?;
    listing::list(tx, &name, &key).await?;
    if let Some(poison) = projection.and_then(|projection| projection.poison.clone()).filter(|_| is_poison) {
        let event_id = key::split(&key).0.to_owned();
        let quarantined = Quarantined { event_id, projection_name: name, attempts, error };
        tx.after_commit(Arc::new(move || poison.alert(quarantined.clone())))?;
    }
    Ok(true)
}
