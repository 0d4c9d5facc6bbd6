//! Lets items be ready when their time has come, and crons fire.

use super::Shared;
use crate::crons;
use crate::directory::{pool_topic, time_topic};
use crate::enqueue::INSERT_WORK;
use crate::error::{Error, Result};
use crate::schema::waiting;
use crate::work::Ground;
use mainstay_store::{Tx, Value, params};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait at most before looking by oneself.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

const NEXT: &str = "SELECT min(due_at) FROM mainstay_work WHERE state = 1";
const DUE: &str =
    "SELECT place FROM mainstay_work WHERE state = 1 AND due_at <= $1 ORDER BY due_at LIMIT 1000";
const COLUMNS: &str = "place, id, pool, lane, due_at, work_key, item";

/// Watches the clock until the engine stops.
pub(super) async fn watch(shared: Arc<Shared>) {
    let mut changed = shared.ground.store.listen(time_topic());
    let mut look = shared.look.subscribe();
    while !shared.is_stopping() {
        let next = async |tx: Tx| {
            let item: Option<i64> = tx.query_one(NEXT, &[]).await?.get(0)?;
            let tick: Option<i64> = tx.query_one(crons::NEXT, &[]).await?.get(0)?;
            let now_ms = tx.now_ms().await?;
            Ok(item.into_iter().chain(tick).min().map(|next| next - now_ms))
        };
        let wait_ms = match shared.ground.store.read(next).await {
            Ok(wait_ms) => wait_ms,
            Err(error) => {
                shared.endure(&error.into(), "looking at the clock").await;
                continue;
            }
        };
        if wait_ms.is_some_and(|wait_ms| wait_ms <= 0) {
            // Apart, so that neither keeps the other from its time.
            let ready = async |tx: Tx, ground: Arc<Ground>| make_ready(&ground, &tx).await;
            if let Err(error) = shared.ground.store.transact_with(shared.ground.clone(), ready).await {
                shared.endure(&error.into(), "letting items be ready").await;
            }
            if let Err(error) = fire_crons(&shared.ground).await {
                shared.endure(&error, "firing crons").await;
            }
            continue;
        }
        let wait = wait_ms.map_or(LOOK_AGAIN, |wait_ms| Duration::from_millis(wait_ms.unsigned_abs()));
        tokio::select! {
            _ = changed.woken(wait.min(LOOK_AGAIN)) => {}
            () = shared.stopped() => {}
            _ = look.changed() => {}
        }
    }
}

/// Fires the crons that are due, each in a transaction of its own: one that cannot be fired is passed over.
async fn fire_crons(ground: &Arc<Ground>) -> Result<()> {
    let store = &ground.store;
    for cron in store.read(async |tx: Tx| crons::due(&tx).await).await? {
        let fire =
            async |tx: Tx, (ground, cron): (Arc<Ground>, String)| crons::fire(&ground, &tx, &cron).await;
        let Err(error) = store.transact_with((ground.clone(), cron.clone()), fire).await else { continue };
        let (is_unknown, error) = (error.is_outcome_unknown(), Error::from(error));
        // What may have happened is looked at again.
        if is_unknown || error.is_retryable() {
            return Err(error);
        }
        tracing::error!(cron, code = error.code(), %error, "a cron cannot be fired");
        let pass = async |tx: Tx, (cron, error): (String, Error)| crons::pass_over(&tx, &cron, &error).await;
        store.transact_with((cron, error), pass).await?;
    }
    Ok(())
}

/// Lets what is due be ready, in the order of its time.
pub(crate) async fn make_ready(ground: &Ground, tx: &Tx) -> mainstay_store::Result<()> {
    tx.lock("mainstay.work.time").await?;
    let now_ms = tx.now_ms().await?;
    let mut due = Vec::new();
    let take = format!("DELETE FROM mainstay_work WHERE {} RETURNING {COLUMNS}", ground.among("place", DUE));
    for row in tx.query(&take, params![now_ms]).await? {
        due.push((row.get::<i64>(4)?, row.get::<i64>(0)?, row));
    }
    due.sort_unstable_by_key(|(due_at, place, _)| (*due_at, *place));
    let (mut rows, mut pools) = (Vec::with_capacity(due.len() * 7), BTreeSet::new());
    for (due_at, _, row) in due {
        let pool: i64 = row.get(2)?;
        pools.insert(pool);
        rows.extend([
            Value::Blob(row.get(1)?),
            Value::Int(pool),
            Value::Int(row.get(3)?),
            Value::Int(waiting::READY),
            Value::Int(due_at),
            Value::from(row.get::<Option<String>>(5)?),
            Value::Text(row.get(6)?),
        ]);
    }
    INSERT_WORK.execute(tx, &rows).await?;
    pools.into_iter().try_for_each(|pool| tx.wake(&pool_topic(pool)))
}
