//! A node that follows the log.

use super::opened::Shared;
use super::projector::Projector;
use super::watcher;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the watcher has seen last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) head: u64,
    pub(crate) version: i64,
}

/// How projectors hear that there is something to do, and that they are to stop.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    seen: watch::Sender<Seen>,
    stop: watch::Sender<bool>,
}

impl Bell {
    pub(crate) fn ring(&self, head: u64, version: Option<i64>) {
        self.seen.send_if_modified(|seen| {
            let now = Seen { head, version: version.unwrap_or(seen.version) };
            std::mem::replace(seen, now) != now
        });
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Ready when the node stops.
    pub(crate) async fn stopped(&self) {
        // The sender lives as long as this.
        drop(self.stop.subscribe().wait_for(|is_stopping| *is_stopping).await);
    }
}

/// A running node. Dropping it stops it: a chunk that is under way is committed whole or not at all.
#[derive(Debug)]
pub struct Projecting {
    bell: Arc<Bell>,
    tasks: JoinSet<()>,
}

impl Projecting {
    pub(crate) fn start(shared: Arc<Shared>) -> Self {
        let (bell, mut tasks) = (Arc::new(Bell::default()), JoinSet::new());
        for projection in &shared.projections {
            for lane in 0..projection.lanes {
                let projector = Projector::new(shared.clone(), projection.clone(), lane, bell.clone());
                tasks.spawn(projector.run());
            }
        }
        tasks.spawn(watcher::watch(shared, bell.clone()));
        Self { bell, tasks }
    }

    /// Stops: begins no new chunk and waits for those that are under way, for at most `grace`.
    pub async fn stop(mut self, grace: Duration) {
        self.bell.stop.send_replace(true);
        let all_ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all_ended).await.is_err() {
            tracing::info!("projections are still at work after the grace; their chunks are dropped");
        }
        self.tasks.shutdown().await;
    }
}

impl Drop for Projecting {
    fn drop(&mut self) {
        self.bell.stop.send_replace(true);
    }
}
