//! Beginning a replay, and going on with one.

use super::chunk;
use super::row::{self, Replay, ReplayStatus};
use super::switch;
use crate::error::{Error, Result};
use crate::projections::checkpoints::{self, LaneState};
use crate::projections::definition::Projection;
use crate::projections::lifecycle::Move;
use crate::projections::opened::{Projections, Shared};
use crate::projections::{MAX_CHUNK, failures, marks, status, tables};
use mainstay_core::failpoints::Point;
use mainstay_events::Selection;
use mainstay_store::Tx;
use serde::Serialize;
use std::sync::Arc;

/// Which projection is to be filled anew, and how.
#[derive(Debug, Clone, Default)]
pub struct Rebuild {
    projection: String,
    from: Option<u64>,
    chunk_size: Option<u32>,
}

impl Rebuild {
    /// Goes on with the latest replay of a projection that failed or was paused, or else begins at 0.
    pub fn of(projection: impl Into<String>) -> Self {
        Self { projection: projection.into(), ..Self::default() }
    }

    /// Begins anew after a position. From 0 the read model is emptied or built beside; from anywhere else events are
    /// applied to it a second time, which its handler must be made for.
    pub fn from(mut self, position: u64) -> Self {
        self.from = Some(position);
        self
    }

    /// How many events a chunk has, instead of what the projection's complexity says.
    pub fn chunk_size(mut self, events: u32) -> Self {
        self.chunk_size = Some(events);
        self
    }
}

/// A replay that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Triggered {
    /// The replay.
    pub replay_id: String,
    /// How many events it goes through.
    pub total_events: u64,
}

type Triggering = (Arc<Shared>, Arc<Projection>, Rebuild, String);

impl Projections {
    /// Fills a projection anew.
    pub async fn trigger_rebuild(&self, rebuild: Rebuild) -> Result<Triggered> {
        if rebuild.chunk_size.is_some_and(|size| !(1..=MAX_CHUNK).contains(&size)) {
            return Err(Error::invalid("chunkSize", format!("must be 1 to {MAX_CHUNK}")));
        }
        if rebuild.from.is_some_and(|from| i64::try_from(from).is_err()) {
            return Err(Error::invalid("fromGlobalPosition", "is no position"));
        }
        let projection = self.shared.find(&rebuild.projection)?;
        let replay_id = format!("replay_{}", self.shared.ids.uuid());
        let context = (self.shared.clone(), projection, rebuild, replay_id);
        Ok(self.shared.store.transact_with(context, trigger_in).await?)
    }

    /// Fills all projections anew that can be, in the order of the registry; what came of each.
    pub async fn rebuild_all(&self, chunk_size: Option<u32>) -> Vec<(String, Result<Triggered>)> {
        let mut all = Vec::new();
        for projection in &self.shared.projections {
            let rebuild = Rebuild { projection: projection.name.clone(), from: Some(0), chunk_size };
            all.push((projection.name.clone(), self.trigger_rebuild(rebuild).await));
        }
        all
    }
}

async fn trigger_in(
    tx: Tx,
    (shared, projection, rebuild, replay_id): Triggering,
) -> mainstay_store::Result<Triggered> {
    let name = &projection.name;
    let found = status::hold(&tx, name).await?;
    for open in row::open(&tx, name).await? {
        if open.status == ReplayStatus::Running {
            let (projection, replay_id) = (name.clone(), open.replay_id);
            return Err(Error::ReplayAlreadyActive { projection, replay_id }.into());
        }
        if rebuild.from.is_none() && can_go_on(&tx, &shared, &projection, &open, &found).await? {
            return go_on(&tx, &shared, open, &found).await;
        }
        // What it had built is given up for the new one.
        switch::abandon(&tx, &open, &found).await?;
        row::give_way(&tx, &open.replay_id).await?;
    }
    let from = rebuild.from.unwrap_or(0);
    let nothing = Selection::all().after(i64::MAX as u64);
    let head = shared.log.read_in(&tx, &nothing, 1).await.map_err(Error::from)?.head;
    let is_beside = from == 0 && !projection.tables.is_empty();
    if from == 0 && !is_beside && projection.reset.is_none() {
        return Err(Error::NotRebuildable(name.clone()).into());
    }
    let shape = shared.shape(&projection).to_owned();
    if !is_beside && shape != found.shape {
        let reason = "the managed tables of the projection have changed; it is rebuilt from 0";
        return Err(Error::invalid("fromGlobalPosition", reason).into());
    }
    let is_empty = from >= head;
    let total_events = head.saturating_sub(from);
    let mut replay = Replay {
        replay_id,
        projection: name.clone(),
        status: if is_empty { ReplayStatus::Completed } else { ReplayStatus::Running },
        generation: is_beside.then_some(found.generation + 1),
        shape,
        start_position: from,
        last_position: from,
        target_position: head.max(from),
        chunk_size: rebuild.chunk_size.unwrap_or_else(|| projection.complexity.chunk_size()),
        total_events,
        events_processed: 0,
        chunks_completed: 0,
        step: 0,
        item: None,
        error: None,
        started_at: 0,
        updated_at: 0,
        completed_at: None,
    };
    if !is_empty {
        chunk::enqueue(&tx, &shared, &mut replay, 0)?;
    }
    row::insert(&tx, &replay).await?;
    row::forget_oldest(&tx, name).await?;
    if let Some(generation) = replay.generation {
        tables::create(&tx, &projection.tables, generation).await?;
        if replay.shape == found.shape {
            tables::show(&tx, name, &projection.tables, &[found.generation, generation]).await?;
        }
        if is_empty {
            switch::to_generation(&tx, &shared, &projection, &replay, generation).await?;
        }
    } else if !is_empty {
        begin_in_place(&tx, &projection, &found, from).await?;
    }
    shared.store.failpoints().hit(Point::ReplayTriggered)?;
    Ok(Triggered { replay_id: replay.replay_id, total_events })
}

/// Holds the lanes where the replay begins, and empties the read model if that is the start of the log.
async fn begin_in_place(
    tx: &Tx,
    projection: &Projection,
    found: &status::Found,
    from: u64,
) -> mainstay_store::Result<()> {
    let lanes = checkpoints::hold_all(tx, &projection.name).await?;
    if !matches!(found.status, crate::projections::Lifecycle::Rebuilding) {
        status::go(tx, &projection.name, found, Move::StartRebuild, None).await?;
    }
    for (number, lane) in (0..).zip(&lanes) {
        marks::put(tx, &projection.name, (number, lane.position), from).await?;
    }
    checkpoints::set_all(tx, &projection.name, from, None, (0, 0)).await?;
    checkpoints::set_state(tx, &projection.name, LaneState::Held).await?;
    failures::begin_anew(tx, &projection.name, from).await?;
    if let Some(reset) = projection.reset.as_ref().filter(|_| from == 0) {
        reset(tx.clone()).await?;
        tx.intact()?;
    }
    Ok(())
}

/// Whether what a replay has done is still what is there: nobody has let the projection go on by itself, and it is still
/// made of the same tables.
async fn can_go_on(
    tx: &Tx,
    shared: &Shared,
    projection: &Projection,
    replay: &Replay,
    found: &status::Found,
) -> mainstay_store::Result<bool> {
    if replay.shape != shared.shape(projection) {
        return Ok(false);
    }
    if let Some(generation) = replay.generation {
        return Ok(generation == found.generation + 1);
    }
    let lanes = checkpoints::hold_all(tx, &projection.name).await?;
    Ok(lanes.iter().all(|lane| lane.position == replay.last_position && lane.state == LaneState::Held))
}

/// Goes on with a replay that was paused or has failed.
pub(super) async fn go_on(
    tx: &Tx,
    shared: &Shared,
    mut replay: Replay,
    found: &status::Found,
) -> mainstay_store::Result<Triggered> {
    let name = &replay.projection.clone();
    if replay.generation.is_none() {
        checkpoints::hold_all(tx, name).await?;
        if found.status != crate::projections::Lifecycle::Rebuilding {
            status::go(tx, name, found, Move::StartRebuild, None).await?;
        }
        checkpoints::set_state(tx, name, LaneState::Held).await?;
    }
    chunk::enqueue(tx, shared, &mut replay, 0)?;
    row::advance(tx, &replay).await?;
    row::set(tx, &replay.replay_id, ReplayStatus::Running, None).await?;
    Ok(Triggered { replay_id: replay.replay_id, total_events: replay.total_events })
}
