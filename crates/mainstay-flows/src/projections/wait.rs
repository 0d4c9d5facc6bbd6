//! Waiting until a read model shows what was written.

use super::opened::Projections;
use crate::error::{Error, Result};
use mainstay_store::{Tx, params};
use std::time::Duration;
use tokio::time::Instant;

/// How long a wait goes on without hearing of a move on this node before it looks: another node may have made it.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

const LOWEST: &str = "SELECT min(position) FROM mainstay_projection_lanes WHERE projection = $1";

impl Projections {
    /// Waits until a projection has everything up to `position`, for at most `patience`; returns its lowest checkpoint.
    pub async fn wait_for(&self, projection: &str, position: u64, patience: Duration) -> Result<u64> {
        let projection = self.shared.find(projection)?;
        let mut moves = self.shared.moves(&projection.name);
        let deadline = Instant::now() + patience;
        loop {
            let lowest =
                async |tx: Tx, name: String| tx.query_one(LOWEST, params![name]).await?.get::<Option<u64>>(0);
            let reached = self.shared.store.read_with(projection.name.clone(), lowest).await?.unwrap_or(0);
            if reached >= position {
                return Ok(reached);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let waited_ms = patience.as_millis() as u64;
                let projection = projection.name.clone();
                return Err(Error::NotReached { projection, position, waited_ms, reached });
            }
            let moved = async {
                match &mut moves {
                    Some(moves) => drop(moves.changed().await),
                    None => std::future::pending().await,
                }
            };
            // Either way it looks again.
            let _ = tokio::time::timeout(left.min(LOOK_AGAIN), moved).await;
        }
    }
}
