//! Stopping a replay, for a while or for good.

use super::row::{self, Replay, ReplayStatus};
use super::{switch, trigger};
use crate::error::{Error, Result};
use crate::projections::opened::{Projections, Shared};
use crate::projections::status;
use mainstay_core::failpoints::Point;
use mainstay_store::Tx;
use serde::Serialize;
use std::sync::Arc;

/// A replay that was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    /// That it was.
    pub success: bool,
    /// How many events it had gone through.
    pub events_processed_before_cancel: u64,
}

/// A replay and its projection, held until the transaction ends: the projection first, as everybody does.
async fn hold(tx: &Tx, replay_id: &str) -> mainstay_store::Result<(Replay, status::Found)> {
    let known = row::look(tx, replay_id).await?;
    let found = status::hold(tx, &known.projection).await?;
    Ok((row::hold(tx, replay_id).await?, found))
}

fn not_running(replay: &Replay) -> mainstay_store::Error {
    let (replay_id, current_status) = (replay.replay_id.clone(), replay.status.as_str());
    Error::ReplayNotRunning { replay_id, current_status }.into()
}

impl Projections {
    /// Ends a replay. A chunk that is under way may end; no other begins. A projection that was rebuilt in place goes on
    /// by itself from where the replay was.
    pub async fn cancel_rebuild(&self, replay_id: &str) -> Result<Cancelled> {
        let cancel = async |tx: Tx, (shared, replay_id): (Arc<Shared>, String)| {
            let (replay, found) = hold(&tx, &replay_id).await?;
            if !matches!(replay.status, ReplayStatus::Running | ReplayStatus::Paused) {
                return Err(not_running(&replay));
            }
            row::set(&tx, &replay_id, ReplayStatus::Cancelled, None).await?;
            switch::abandon(&tx, &replay, &found).await?;
            if replay.generation.is_none() {
                switch::let_go(&tx, &shared, &replay).await?;
            }
            shared.store.failpoints().hit(Point::ReplayCancelled)?;
            Ok(Cancelled { success: true, events_processed_before_cancel: replay.events_processed })
        };
        let context = (self.shared.clone(), replay_id.to_owned());
        Ok(self.shared.store.transact_with(context, cancel).await?)
    }

    /// Stops a replay for a while, after the chunk that is under way.
    pub async fn pause_rebuild(&self, replay_id: &str) -> Result<()> {
        let pause = async |tx: Tx, replay_id: String| {
            let (replay, _) = hold(&tx, &replay_id).await?;
            if replay.status != ReplayStatus::Running {
                return Err(not_running(&replay));
            }
            row::set(&tx, &replay_id, ReplayStatus::Paused, None).await
        };
        Ok(self.shared.store.transact_with(replay_id.to_owned(), pause).await?)
    }

    /// Goes on with a replay that was paused.
    pub async fn resume_rebuild(&self, replay_id: &str) -> Result<()> {
        let resume = async |tx: Tx, (shared, replay_id): (Arc<Shared>, String)| {
            let (replay, found) = hold(&tx, &replay_id).await?;
            if replay.status != ReplayStatus::Paused {
                return Err(not_running(&replay));
            }
            trigger::go_on(&tx, &shared, replay, &found).await
        };
        let context = (self.shared.clone(), replay_id.to_owned());
        self.shared.store.transact_with(context, resume).await?;
        Ok(())
    }
}
