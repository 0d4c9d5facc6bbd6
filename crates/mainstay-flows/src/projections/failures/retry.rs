//! Trying one event again, as work: `mainstay.projection.apply` in a transaction, `mainstay.projection.reapply` through
//! the retrier, and `mainstay.projection.retried` which is told how either ended.

use super::listing;
use super::poison::Quarantined;
use super::record::RESOLVE;
use crate::attempts::{self, Attempt};
use crate::error::Error;
use crate::projections::checkpoints;
use crate::projections::definition::Projection;
use crate::projections::lanes::hash;
use crate::projections::opened::{PROJECTION_POOL, Shared};
use crate::projections::registry::{Slot, opened};
use crate::projections::{apply, apply::Stage, status};
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
    let args = Again { projection: projection.name.clone(), event_id: event.id().to_owned() };
    let item = NewWork::new(PROJECTION_POOL, APPLY, &args)?.key(key).retry(policy).tell(RETRIED).unlisted();
    let mut item = item.correlated(event.correlation_id());
    if let Some(trace) = event.trace() {
        item = item.trace(trace);
    }
    Ok(item)
}

/// Adds the functions.
pub(crate) fn functions(functions: Functions, slot: &Slot) -> Functions {
    let (applying, reapplying, retried) = (slot.clone(), slot.clone(), slot.clone());
    functions
        .mutation(APPLY, move |tx: Tx, call: Call, again: Again| {
            let slot = applying.clone();
            async move { apply_again(&tx, &*opened(&slot)?, &again, &call.work_id).await }
        })
        .action(REAPPLY, move |call: Call, again: Again| {
            let slot = reapplying.clone();
            async move {
                let failed = |error: mainstay_store::Error| Failure::retryable(error.to_string());
                let shared = opened(&slot).map_err(failed)?;
                let store = shared.store.clone();
                let run = async |tx: Tx, (shared, again, run_id): (Arc<Shared>, Again, String)| {
                    apply_again(&tx, &shared, &again, &run_id).await
                };
                store.transact_with((shared, again, call.work_id), run).await.map_err(failed)
            }
        })
        .mutation(RETRIED, move |tx: Tx, _: Call, told: OnComplete<Box<RawValue>>| {
            let slot = retried.clone();
            async move { ended(&tx, &*opened(&slot)?, &told).await }
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

/// Applies one event again, if that is still this run's to do; whether it was.
async fn apply_again(tx: &Tx, shared: &Shared, again: &Again, run_id: &str) -> mainstay_store::Result<bool> {
    let projection = shared.find(&again.projection)?;
    let Some(row) = tx.query_optional(BY_RUN, params![run_id]).await? else { return Ok(false) };
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
    let event_id = event.id().to_owned();
    let is_poison = row.get::<i64>(2)? == 1;
    let sql = if is_poison { FORGET } else { RESOLVE };
    tx.execute(sql, params![&projection.name, &event_id, generation]).await?;
    if !is_poison {
        listing::list(tx, &projection.name, &event_id).await?;
    }
    let taken = apply::give(tx, &projection, generation, &Arc::from([event]), &Stage::default()).await?;
    shared.store.failpoints().hit("projections.retried")?;
    checkpoints::set(tx, &projection.name, number, lane.position, None, (taken, 0)).await?;
    Ok(true)
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
    let (name, event_id): (String, String) = (row.get(4)?, row.get(5)?);
    let Err(error) = result else {
        let sql = if is_poison { FORGET } else { RESOLVE };
        tx.execute(sql, params![&name, &event_id, generation]).await?;
        if !is_poison {
            listing::list(tx, &name, &event_id).await?;
        }
        return Ok(true);
    };
    let projection = shared.find(&name).ok();
    let attempts = projection.as_ref().map_or(1, |projection| projection.max_attempts());
    let status = if is_poison { "quarantined" } else { "pending" };
    let history = attempts::write(failed)?;
    tx.execute(&BACK, params![&name, &event_id, generation, status, &error, attempts, history]).await?;
    if !is_poison {
        listing::list(tx, &name, &event_id).await?;
    }
    if let Some(poison) = projection.and_then(|projection| projection.poison.clone()).filter(|_| is_poison) {
        let quarantined = Quarantined { event_id, projection_name: name, attempts, error };
        tx.after_commit(Arc::new(move || poison.alert(quarantined.clone())))?;
    }
    Ok(true)
}
