//! Checkpoints: up to where each lane of a projection has come.

use super::definition::Projection;
use super::lifecycle::Lifecycle;
use super::opened::{Projections, Shared};
use super::{changes_topic, marks, status};
use crate::error::{Error, Result};
use mainstay_events::Selection;
use mainstay_store::{Hold, Row, Tx, params};
use serde::Serialize;
use std::sync::Arc;

/// The place of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// The projection.
    pub projection: String,
    /// The lane, from 0.
    pub partition: u32,
    /// Everything up to here is in the read model, or was given up.
    pub last_global_position: u64,
    /// The last event that was applied.
    pub last_event_id: Option<String>,
    /// When it last moved.
    pub updated_at: i64,
}

/// What a lane does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneState {
    Following = 0,
    Held = 1,
    CatchingUp = 2,
}

/// A lane as a chunk finds it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) position: u64,
    pub(crate) generation: i64,
    pub(crate) lanes: u32,
    pub(crate) state: LaneState,
}

const COLUMNS: &str = "position, generation, lanes, state";
const INSERT: &str = "INSERT INTO mainstay_projection_lanes (projection, lane, lanes, position, generation, state, \
     events_processed, events_failed, updated_at) VALUES ($1, $2, $3, $4, $5, 0, 0, 0, mainstay_now())";
const DELETE: &str = "DELETE FROM mainstay_projection_lanes WHERE projection = $1";
const SET: &str = "UPDATE mainstay_projection_lanes SET position = $3, event_id = coalesce($4, event_id), \
     events_processed = events_processed + $5, events_failed = events_failed + $6, \
     updated_at = CASE WHEN position = $3 THEN updated_at ELSE mainstay_now() END WHERE projection = $1 AND lane = $2";
const SET_ALL: &str = "UPDATE mainstay_projection_lanes SET position = $2, event_id = $3, \
     events_processed = events_processed + CASE WHEN lane = 0 THEN CAST($4 AS BIGINT) ELSE 0 END, \
     events_failed = events_failed + CASE WHEN lane = 0 THEN CAST($5 AS BIGINT) ELSE 0 END, \
     updated_at = mainstay_now() WHERE projection = $1";
const SET_STATE: &str = "UPDATE mainstay_projection_lanes SET state = $2 WHERE projection = $1";
const LIST: &str = "SELECT projection, lane, position, event_id, updated_at FROM mainstay_projection_lanes \
     ORDER BY projection, lane";

fn lane(row: &Row) -> mainstay_store::Result<Lane> {
    let state = match row.get::<i64>(3)? {
        0 => LaneState::Following,
        2 => LaneState::CatchingUp,
        _ => LaneState::Held,
    };
    Ok(Lane { position: row.get(0)?, generation: row.get(1)?, lanes: row.get(2)?, state })
}

/// Makes the lanes of a projection, all at one place.
pub(crate) async fn create(
    tx: &Tx,
    projection: &Projection,
    position: u64,
    generation: i64,
) -> mainstay_store::Result<()> {
    tx.execute(DELETE, params![&projection.name]).await?;
    // What is known of lanes is of no use for others.
    marks::forget(tx, &projection.name).await?;
    for number in 0..projection.lanes {
        let params = params![&projection.name, number, projection.lanes, position as i64, generation];
        tx.execute(INSERT, params).await?;
    }
    Ok(())
}

/// A lane, held until the transaction ends. Whoever applies events to a read model holds its lane.
pub(crate) async fn hold(tx: &Tx, projection: &str, number: u32) -> mainstay_store::Result<Option<Lane>> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_projection_lanes WHERE projection = $1 AND lane = $2");
    let rows = tx.query_holding(&sql, params![projection, number], Hold::Alone).await?;
    rows.first().map(lane).transpose()
}

/// All lanes, held until the transaction ends.
pub(crate) async fn hold_all(tx: &Tx, projection: &str) -> mainstay_store::Result<Vec<Lane>> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_projection_lanes WHERE projection = $1 ORDER BY lane");
    let rows = tx.query_holding(&sql, params![projection], Hold::Alone).await?;
    rows.iter().map(lane).collect()
}

/// A lane as it is now.
pub(crate) async fn look(tx: &Tx, projection: &str, number: u32) -> mainstay_store::Result<Option<Lane>> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_projection_lanes WHERE projection = $1 AND lane = $2");
    tx.query_optional(&sql, params![projection, number]).await?.as_ref().map(lane).transpose()
}

/// Sets a lane that is held: where it is, the last event that was applied, how many were applied and given up.
pub(crate) async fn set(
    tx: &Tx,
    projection: &str,
    number: u32,
    position: u64,
    event_id: Option<&str>,
    (processed, failed): (u64, u64),
) -> mainstay_store::Result<()> {
    let params = params![projection, number, position as i64, event_id, processed as i64, failed as i64];
    tx.execute(SET, params).await.map(drop)
}

/// Sets all lanes, which are held; what was applied and given up is counted once.
pub(crate) async fn set_all(
    tx: &Tx,
    projection: &str,
    position: u64,
    event_id: Option<&str>,
    (processed, failed): (u64, u64),
) -> mainstay_store::Result<()> {
    let params = params![projection, position as i64, event_id, processed as i64, failed as i64];
    tx.execute(SET_ALL, params).await.map(drop)
}

/// Says what the lanes of a projection do.
pub(crate) async fn set_state(tx: &Tx, projection: &str, state: LaneState) -> mainstay_store::Result<()> {
    tx.execute(SET_STATE, params![projection, state as i64]).await.map(drop)
}

impl Projections {
    /// All checkpoints.
    pub async fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        let read = async |tx: Tx| {
            let rows = tx.query(LIST, &[]).await?;
            let checkpoint = |row: &Row| {
                Ok(Checkpoint {
                    projection: row.get(0)?,
                    partition: row.get(1)?,
                    last_global_position: row.get(2)?,
                    last_event_id: row.get(3)?,
                    updated_at: row.get(4)?,
                })
            };
            rows.iter().map(checkpoint).collect::<mainstay_store::Result<Vec<_>>>()
        };
        Ok(self.shared.store.read(read).await?)
    }

    /// Puts a lane somewhere else: back, so that events are applied again, or forward, so that they are left out. What
    /// that does to the read model is whoever's who does it. Refused beyond the head of the log and during a rebuild.
    pub async fn set_checkpoint(&self, projection: &str, partition: u32, position: u64) -> Result<()> {
        let projection = self.shared.find(projection)?;
        let set = async |tx: Tx, (shared, projection, partition, position): Setting| {
            let found = status::hold(&tx, &projection.name).await?;
            if found.status == Lifecycle::Rebuilding {
                return Err(Error::invalid("projection", "it is being rebuilt").into());
            }
            let nothing = Selection::all().after(i64::MAX as u64);
            let head = shared.log.read_in(&tx, &nothing, 1).await.map_err(Error::from)?.head;
            if position > head {
                return Err(Error::BeyondHead { position, head }.into());
            }
            let Some(lane) = hold(&tx, &projection.name, partition).await? else {
                let reason = format!("projection {:?} has no lane {partition}", projection.name);
                return Err(Error::invalid("partition", reason).into());
            };
            marks::put(&tx, &projection.name, (partition, lane.position), position).await?;
            set(&tx, &projection.name, partition, position, None, (0, 0)).await?;
            status::changed(&tx, &projection.name).await?;
            tx.wake(&changes_topic())
        };
        let context = (self.shared.clone(), projection, partition, position);
        Ok(self.shared.store.transact_with(context, set).await?)
    }
}

type Setting = (Arc<Shared>, Arc<Projection>, u32, u64);
