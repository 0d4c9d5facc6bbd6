//! Replay: items 192 to 213, in place and beside.

mod backwards;
mod beside;
mod budget;
mod chunks;
mod control;
mod crash;
mod forged;
mod letters;
mod live;
mod speed;

use crate::projections::support::{Bench, PATIENCE, at_once};
use mainstay_flows::projections::replay::{Progress, ReplayStatus};
use mainstay_work::Pool;

/// Lets a chunk that fails be tried again at once, so often.
pub(crate) async fn chunks_are_tried(bench: &Bench, attempts: u32) {
    bench.work.pool(Pool::new("eventReplayPool").max_parallelism(5).retry(at_once(attempts))).await.unwrap();
}

/// Waits until a replay has ended.
pub(crate) async fn ended(bench: &Bench, replay_id: &str) -> Progress {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let progress = bench.projections.rebuild_status(replay_id).await.unwrap();
        if !matches!(progress.status, ReplayStatus::Running | ReplayStatus::Paused) {
            return progress;
        }
        assert!(tokio::time::Instant::now() < deadline, "it never ends: {progress:?}");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
