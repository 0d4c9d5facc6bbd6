//! How projections are doing, and what an operator does about it.

use super::changes_topic;
use super::checkpoints::{self, LaneState};
use super::definition::{Category, Kind};
use super::lifecycle::{Lifecycle, Move};
use super::opened::Projections;
use crate::error::{Error, Result};
use mainstay_store::{Hold, Row, Tx, params};
use serde::Serialize;

/// How a projection is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its name.
    pub projection: String,
    /// What it is, for people.
    pub description: String,
    /// What it is for.
    pub category: Category,
    /// When it is rebuilt.
    pub kind: Kind,
    /// What it does.
    pub status: Lifecycle,
    /// Its lowest checkpoint.
    pub last_global_position: u64,
    /// How many events it has still to look at.
    pub lag: u64,
    /// How many lanes it has.
    pub partitions: u32,
    /// How many events its handler has taken.
    pub events_processed: u64,
    /// How many were given up.
    pub events_failed: u64,
    /// Why it cannot go on.
    pub error_message: Option<String>,
    /// Which generation readers see.
    pub generation: i64,
    /// Whether its managed tables have changed, so that it waits to be rebuilt.
    pub is_outdated: bool,
    /// When it last changed.
    pub updated_at: i64,
}

/// The row of a projection.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) status: Lifecycle,
    pub(crate) generation: i64,
    pub(crate) shape: String,
    pub(crate) catch_up_to: Option<u64>,
}

const ROW: &str = "SELECT status, generation, shape, catch_up_to FROM mainstay_projections WHERE name = $1";
const INSERT: &str = "INSERT INTO mainstay_projections (name, status, generation, shape, version, updated_at) \
     VALUES ($1, 'active', 1, $2, 1, mainstay_now())";
const CHANGED: &str =
    "UPDATE mainstay_projections SET version = version + 1, updated_at = mainstay_now() WHERE name = $1";
const SET: &str = "UPDATE mainstay_projections SET status = $2, error_message = $3, catch_up_to = $4, \
     version = version + 1, updated_at = mainstay_now() WHERE name = $1";
const LIST: &str = "SELECT p.name, p.status, p.error_message, p.generation, p.shape, p.updated_at, \
     min(l.position), count(*), CAST(sum(l.events_processed) AS BIGINT), CAST(sum(l.events_failed) AS BIGINT) \
     FROM mainstay_projections p JOIN mainstay_projection_lanes l ON l.projection = p.name \
     GROUP BY p.name, p.status, p.error_message, p.generation, p.shape, p.updated_at";

pub(crate) fn found(row: &Row) -> mainstay_store::Result<Found> {
    Ok(Found {
        status: Lifecycle::of(row.get(0)?),
        generation: row.get(1)?,
        shape: row.get(2)?,
        catch_up_to: row.get(3)?,
    })
}

/// The row of a projection.
pub(crate) async fn look(tx: &Tx, projection: &str) -> mainstay_store::Result<Option<Found>> {
    tx.query_optional(ROW, params![projection]).await?.as_ref().map(found).transpose()
}

/// The row of a projection, held until the transaction ends: it is held before its lanes are.
pub(crate) async fn hold(tx: &Tx, projection: &str) -> mainstay_store::Result<Found> {
    let rows = tx.query_holding(ROW, params![projection], Hold::Alone).await?;
    let row = rows.first().ok_or_else(|| Error::UnknownProjection(projection.to_owned()))?;
    found(row)
}

pub(crate) async fn create(tx: &Tx, projection: &str, shape: &str) -> mainstay_store::Result<()> {
    tx.execute(INSERT, params![projection, shape]).await.map(drop)
}

/// Lets others see that something has changed.
pub(crate) async fn changed(tx: &Tx, projection: &str) -> mainstay_store::Result<()> {
    tx.execute(CHANGED, params![projection]).await.map(drop)
}

/// Moves a projection, whose row is held, along its lifecycle.
pub(crate) async fn go(
    tx: &Tx,
    projection: &str,
    from: &Found,
    event: Move,
    error: Option<&str>,
) -> mainstay_store::Result<()> {
    let next = from.status.next(event).ok_or_else(|| Error::Transition {
        projection: projection.to_owned(),
        status: from.status.as_str(),
        event: event.as_str(),
    })?;
    tx.execute(SET, params![projection, next.as_str(), error, None::<i64>]).await?;
    tx.wake(&changes_topic())
}

/// Says up to where a rebuilt projection, whose row is held, must come to be active again.
pub(crate) async fn catch_up(tx: &Tx, projection: &str, position: u64) -> mainstay_store::Result<()> {
    let params = params![projection, Lifecycle::Rebuilding.as_str(), None::<&str>, position as i64];
    tx.execute(SET, params).await?;
    tx.wake(&changes_topic())
}

/// Lets a projection be active again that has caught up after a rebuild.
pub(crate) async fn caught_up(tx: Tx, projection: String) -> mainstay_store::Result<bool> {
    let found = hold(&tx, &projection).await?;
    let Some(position) = found.catch_up_to.filter(|_| found.status == Lifecycle::Rebuilding) else {
        return Ok(false);
    };
    let lanes = checkpoints::hold_all(&tx, &projection).await?;
    if lanes.iter().any(|lane| lane.position < position) {
        return Ok(false);
    }
    go(&tx, &projection, &found, Move::CompleteRebuild, None).await?;
    checkpoints::set_state(&tx, &projection, LaneState::Following).await?;
    Ok(true)
}

/// Stops a projection that cannot go on; false when it does not follow the log any more.
pub(crate) async fn fail(tx: Tx, (projection, error): (String, String)) -> mainstay_store::Result<bool> {
    let found = hold(&tx, &projection).await?;
    if found.status.next(Move::Fail).is_none() {
        return Ok(false);
    }
    checkpoints::hold_all(&tx, &projection).await?;
    go(&tx, &projection, &found, Move::Fail, Some(&error)).await?;
    checkpoints::set_state(&tx, &projection, LaneState::Held).await?;
    Ok(true)
}

impl Projections {
    /// All projections of this program, in the order of rebuilds, and how they are doing.
    pub async fn list(&self) -> Result<Vec<Status>> {
        let head = self.shared.log.head().await?;
        let rows = self.shared.store.read(async |tx| tx.query(LIST, &[]).await).await?;
        let mut all = Vec::new();
        for projection in &self.shared.projections {
            let mut named = rows.iter().filter(|row| row.get::<&str>(0).ok() == Some(&projection.name));
            let Some(row) = named.next() else { continue };
            let last_global_position: u64 = row.get(6)?;
            all.push(Status {
                projection: projection.name.clone(),
                description: projection.description.clone(),
                category: projection.category,
                kind: projection.kind,
                status: Lifecycle::of(row.get(1)?),
                last_global_position,
                lag: head.saturating_sub(last_global_position),
                partitions: row.get(7)?,
                events_processed: row.get(8)?,
                events_failed: row.get(9)?,
                error_message: row.get(2)?,
                generation: row.get(3)?,
                is_outdated: row.get::<&str>(4)? != self.shared.shape(projection),
                updated_at: row.get(5)?,
            });
        }
        Ok(all)
    }

    /// How a projection is doing.
    pub async fn status(&self, projection: &str) -> Result<Status> {
        let projection = self.shared.find(projection)?;
        let all = self.list().await?;
        let found = all.into_iter().find(|status| status.projection == projection.name);
        found.ok_or_else(|| Error::UnknownProjection(projection.name.clone()))
    }

    /// Stops a projection where it is. What is under way ends.
    pub async fn pause(&self, projection: &str) -> Result<()> {
        self.go(projection, Move::Pause, LaneState::Held).await
    }

    /// Lets a paused projection go on.
    pub async fn resume(&self, projection: &str) -> Result<()> {
        self.go(projection, Move::Resume, LaneState::Following).await
    }

    /// Lets a projection go on that could not, once what was wrong is mended.
    pub async fn recover(&self, projection: &str) -> Result<()> {
        self.go(projection, Move::Recover, LaneState::Following).await
    }

    async fn go(&self, projection: &str, event: Move, state: LaneState) -> Result<()> {
        let projection = self.shared.find(projection)?;
        let go = async |tx: Tx, (name, event, state): (String, Move, LaneState)| {
            let found = hold(&tx, &name).await?;
            checkpoints::hold_all(&tx, &name).await?;
            go(&tx, &name, &found, event, None).await?;
            checkpoints::set_state(&tx, &name, state).await
        };
        Ok(self.shared.store.transact_with((projection.name.clone(), event, state), go).await?)
    }
}
