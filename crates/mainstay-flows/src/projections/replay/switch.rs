//! The end of a replay: lanes are let go, or readers see another generation.

use super::row::{self, Replay};
use crate::error::Error;
use crate::projections::checkpoints::{self, LaneState};
use crate::projections::definition::Projection;
use crate::projections::lifecycle::{Lifecycle, Move};
use crate::projections::opened::{REPLAY_POOL, Shared};
use crate::projections::status::Found;
use crate::projections::{changes_topic, failures, marks, status, tables};
use crate::service::ServiceRef;
use mainstay_core::failure::Failure;
use mainstay_events::Selection;
use mainstay_store::{Tx, params};
use mainstay_work::{Call, Functions, NewWork};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

const TIDY: &str = "mainstay.replay.tidy";
/// Longer than any read may take.
const GRACE: Duration = Duration::from_secs(600);

const SET_GENERATION: &str = "UPDATE mainstay_projections SET generation = $2, shape = $3, version = version + 1, \
     updated_at = mainstay_now() WHERE name = $1";
const SET_LANES: &str = "UPDATE mainstay_projection_lanes SET generation = $2 WHERE projection = $1";

/// Lets the lanes of a projection go on that was rebuilt in place, from where the replay is. It is active at once if
/// there is nothing to catch up with.
pub(super) async fn let_go(tx: &Tx, shared: &Shared, replay: &Replay) -> mainstay_store::Result<()> {
    let name = &replay.projection;
    let found = status::hold(tx, name).await?;
    if found.status != Lifecycle::Rebuilding {
        return Ok(());
    }
    let nothing = Selection::all().after(i64::MAX as u64);
    let head = shared.log.read_in(tx, &nothing, 1).await.map_err(Error::from)?.head;
    if head > replay.last_position {
        status::catch_up(tx, name, head).await?;
        return checkpoints::set_state(tx, name, LaneState::CatchingUp).await;
    }
    status::go(tx, name, &found, Move::CompleteRebuild, None).await?;
    checkpoints::set_state(tx, name, LaneState::Following).await
}

/// Gives up what a replay has built beside. A generation that readers see, or have seen, is nobody's to give up: another
/// replay has built it since.
pub(super) async fn abandon(tx: &Tx, replay: &Replay, found: &Found) -> mainstay_store::Result<()> {
    let Some(generation) = replay.generation.filter(|generation| *generation > found.generation) else {
        return Ok(());
    };
    let built = tables::read_shape(&replay.shape)?;
    if replay.shape == found.shape {
        tables::show(tx, &replay.projection, &built, &[found.generation]).await?;
    }
    tables::remove(tx, &built, generation).await?;
    failures::forget_generation(tx, &replay.projection, generation).await
}

/// Lets readers see the generation that a replay has built, which has everything up to where the lanes are: what is
/// served, checkpoints and what is known of failures change in one transaction.
///
/// Readers that began before still read the old tables; these are removed when nobody can any more. Tables of another
/// shape cannot be in one view, and take the place of the old ones at once.
pub(super) async fn to_generation(
    tx: &Tx,
    shared: &Shared,
    projection: &Projection,
    replay: &Replay,
    generation: i64,
) -> mainstay_store::Result<()> {
    let name = &projection.name;
    let found = status::hold(tx, name).await?;
    checkpoints::hold_all(tx, name).await?;
    if replay.shape == found.shape {
        let old = Old { projection: name.clone(), generation: found.generation };
        enqueue_tidy(tx, shared, &old, GRACE)?;
    } else {
        let old = tables::read_shape(&found.shape)?;
        tables::hide(tx, &old).await?;
        tables::show(tx, name, &projection.tables, &[generation]).await?;
        tables::remove(tx, &old, found.generation).await?;
    }
    failures::take_over(tx, name, found.generation, generation).await?;
    marks::forget_skipped(tx, name).await?;
    tx.execute(SET_GENERATION, params![name, generation, &replay.shape]).await?;
    tx.execute(SET_LANES, params![name, generation]).await?;
    checkpoints::set_all(tx, name, replay.last_position, None, (0, 0)).await?;
    tx.wake(&changes_topic())
}

/// A generation that no reader is shown any more. Items of the previous version say the shape of its tables too; it is not
/// read from there.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Old {
    projection: String,
    generation: i64,
}

/// Enqueues the removal of an old generation.
fn enqueue_tidy(tx: &Tx, shared: &Shared, old: &Old, after: Duration) -> mainstay_store::Result<()> {
    let item = NewWork::platform(REPLAY_POOL, TIDY, old).map_err(Error::from)?;
    let item = item.key(format!("tidy:{}", old.projection)).run_after(after);
    shared.work.enqueue_in(tx, [item]).map_err(Error::from)?;
    Ok(())
}

/// Adds the function that removes old generations.
pub(super) fn functions(functions: Functions, service: &ServiceRef<Shared>) -> Functions {
    let service = service.clone();
    functions.platform_action(TIDY, move |_: Call, old: Old| {
        let service = service.clone();
        async move {
            let failed = |error: mainstay_store::Error| Failure::retryable(error.to_string());
            let shared = service.get().map_err(failed)?;
            let store = shared.store.clone();
            store.transact_with((shared, old), tidy).await.map_err(failed)
        }
    })
}

/// Removes an old generation. The replay that took its place says of what tables it was made, and since when
/// readers see another one.
async fn tidy(tx: Tx, (shared, old): (Arc<Shared>, Old)) -> mainstay_store::Result<()> {
    let found = status::hold(&tx, &old.projection).await?;
    let Some((shape, replaced_at)) = row::replaced(&tx, &old.projection, old.generation).await? else {
        return Ok(());
    };
    if old.generation >= found.generation {
        return Ok(());
    }
    let age_ms = u64::try_from(tx.now_ms().await?.saturating_sub(replaced_at)).unwrap_or(0);
    let left = GRACE.saturating_sub(Duration::from_millis(age_ms));
    if !left.is_zero() {
        // An item that an operator has hastened.
        return enqueue_tidy(&tx, &shared, &old, left);
    }
    if found.shape == shape {
        let current = tables::read_shape(&found.shape)?;
        let open = row::open(&tx, &old.projection).await?;
        let beside =
            open.iter().filter(|replay| replay.shape == found.shape).find_map(|replay| replay.generation);
        let mut shown = vec![found.generation];
        shown.extend(beside.filter(|generation| *generation > found.generation));
        tables::show(&tx, &old.projection, &current, &shown).await?;
    }
    tables::remove(&tx, &tables::read_shape(&shape)?, old.generation).await
}
