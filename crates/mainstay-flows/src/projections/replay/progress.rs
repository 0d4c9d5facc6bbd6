//! How far a replay is (items 204 to 207).

use super::row::{self, Replay, ReplayStatus};
use crate::error::Result;
use crate::projections::changes_topic;
use crate::projections::opened::Projections;
use mainstay_store::Tx;
use serde::Serialize;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a wait goes on without hearing of a change before it looks: not every end is told.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How far a replay is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The replay.
    pub replay_id: String,
    /// The projection.
    pub projection_name: String,
    /// What it does.
    pub status: ReplayStatus,
    /// How many events it has gone through.
    pub events_processed: u64,
    /// How many it goes through in all.
    pub total_events: u64,
    /// Of a hundred, to a tenth.
    pub percent_complete: f64,
    /// How many chunks are done.
    pub chunks_completed: u64,
    /// When it began.
    pub started_at: i64,
    /// When it last moved.
    pub updated_at: i64,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<i64>,
    /// How much longer it takes, if it goes on as so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_remaining_ms: Option<u64>,
    /// Why it cannot go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Progress {
    pub(super) fn of(replay: Replay, now_ms: i64) -> Self {
        let (processed, total) = (replay.events_processed, replay.total_events);
        let is_done = replay.status == ReplayStatus::Completed || total == 0;
        let percent =
            if is_done { 100.0 } else { (processed as f64 / total as f64 * 1_000.0).round() / 10.0 };
        let remaining = total.saturating_sub(processed) as f64;
        let elapsed = now_ms.saturating_sub(replay.started_at).max(0) as f64;
        let is_known = replay.status == ReplayStatus::Running && processed > 0;
        Self {
            replay_id: replay.replay_id,
            projection_name: replay.projection,
            status: replay.status,
            events_processed: processed,
            total_events: total,
            percent_complete: percent.min(100.0),
            chunks_completed: replay.chunks_completed,
            started_at: replay.started_at,
            updated_at: replay.updated_at,
            completed_at: replay.completed_at,
            estimated_remaining_ms: is_known.then(|| (remaining * elapsed / processed as f64).round() as u64),
            error: replay.error,
        }
    }
}

impl Projections {
    /// How far a replay is.
    pub async fn rebuild_status(&self, replay_id: &str) -> Result<Progress> {
        let read = async |tx: Tx, replay_id: String| {
            let replay = row::look(&tx, &replay_id).await?;
            Ok(Progress::of(replay, tx.now_ms().await?))
        };
        Ok(self.shared.store.read_with(replay_id.to_owned(), read).await?)
    }

    /// Waits while a replay runs, for at most `patience`; how far it is then.
    pub async fn wait_for_rebuild(&self, replay_id: &str, patience: Duration) -> Result<Progress> {
        let deadline = Instant::now() + patience;
        let mut listener = self.shared.store.listen(changes_topic());
        loop {
            let progress = self.rebuild_status(replay_id).await?;
            let left = deadline.saturating_duration_since(Instant::now());
            if progress.status != ReplayStatus::Running || left.is_zero() {
                return Ok(progress);
            }
            listener.woken(left.min(LOOK_AGAIN)).await;
        }
    }

    /// A replay as it is kept.
    pub async fn replay(&self, replay_id: &str) -> Result<Replay> {
        let read = async |tx: Tx, replay_id: String| row::look(&tx, &replay_id).await;
        Ok(self.shared.store.read_with(replay_id.to_owned(), read).await?)
    }

    /// Replays that run or are paused, and how far they are.
    pub async fn active_rebuilds(&self) -> Result<Vec<Progress>> {
        let read = async |tx: Tx| {
            let now_ms = tx.now_ms().await?;
            let all = row::active(&tx).await?;
            Ok(all.into_iter().map(|replay| Progress::of(replay, now_ms)).collect())
        };
        Ok(self.shared.store.read(read).await?)
    }

    /// Replays of this program's projections that have ended, completed, failed or cancelled: at most so many, those that
    /// ended last first.
    pub async fn ended_rebuilds(&self, most: usize) -> Result<Vec<Progress>> {
        let names: Arc<[String]> = self.definitions().map(|one| one.name().to_owned()).collect();
        let read = async |tx: Tx, (names, most): (Arc<[String]>, i64)| {
            let (now_ms, mut all) = (tx.now_ms().await?, Vec::new());
            for name in names.iter() {
                all.extend(row::ended(&tx, name, most).await?);
            }
            Ok(all.into_iter().map(|replay| Progress::of(replay, now_ms)).collect::<Vec<_>>())
        };
        let context = (names, i64::try_from(most).unwrap_or(i64::MAX));
        let mut all = self.shared.store.read_with(context, read).await?;
        all.sort_by_key(|replay| Reverse(replay.completed_at));
        all.truncate(most);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(status: ReplayStatus, processed: u64, chunks: u64) -> Replay {
        Replay {
            replay_id: "replay_1".to_owned(),
            projection: "orderSummary".to_owned(),
            status,
            generation: None,
            shape: String::new(),
            start_position: 0,
            last_position: processed,
            target_position: 10_000,
            chunk_size: 100,
            total_events: 10_000,
            events_processed: processed,
            chunks_completed: chunks,
            step: 1,
            item: None,
            error: None,
            started_at: 1_000,
            updated_at: 10_000,
            completed_at: None,
        }
    }

    #[test]
    fn b_204_205_progress_is_a_share_and_an_estimate() {
        let progress = Progress::of(replay(ReplayStatus::Running, 4_500, 45), 10_000);
        assert_eq!((progress.percent_complete, progress.chunks_completed), (45.0, 45));
        // 4,500 events in 9 s: 5,500 more take 11 s.
        assert_eq!(progress.estimated_remaining_ms, Some(11_000));
        assert_eq!(Progress::of(replay(ReplayStatus::Running, 1, 0), 10_000).percent_complete, 0.0);
        assert_eq!(Progress::of(replay(ReplayStatus::Running, 0, 0), 10_000).estimated_remaining_ms, None);
        assert_eq!(
            Progress::of(replay(ReplayStatus::Paused, 4_500, 45), 10_000).estimated_remaining_ms,
            None
        );
    }

    #[test]
    fn b_206_what_is_completed_is_a_hundred_without_an_estimate() {
        let progress = Progress::of(replay(ReplayStatus::Completed, 10_000, 100), 10_000);
        assert_eq!((progress.percent_complete, progress.estimated_remaining_ms), (100.0, None));
    }
}
