//! A node that follows the log.

use super::lanes::message;
use super::opened::Shared;
use super::projector::Projector;
use super::{status, watcher};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

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

/// How often a task may die in a row before its projection stops and says why.
const DEATHS: u32 = 5;
/// A task that has run for this long has not died in a row.
const CALM: Duration = Duration::from_secs(60);
/// How long to wait before a task that has died is begun again, for the first time.
const AGAIN: Duration = Duration::from_millis(100);

/// Runs a task, and again if it dies: that is a mistake in here, and must neither stop a read model nor go unseen.
async fn keep<F: Future<Output = ()>>(
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    projection: Option<String>,
    begin: impl Fn() -> F,
) {
    let mut deaths = 0;
    loop {
        let begun = Instant::now();
        let Err(panic) = AssertUnwindSafe(begin()).catch_unwind().await else { return };
        deaths = if begun.elapsed() < CALM { deaths + 1 } else { 1 };
        let error = format!("following the log died: {}", message(&*panic));
        tracing::error!(projection, error, deaths, "a task of the projections died; it is begun again");
        if let Some(name) = projection.clone().filter(|_| deaths >= DEATHS)
            && let Err(error) = shared.store.transact_with((name, error), status::fail).await
        {
            tracing::warn!(%error, "that a projection cannot go on could not be written down");
        }
        tokio::select! {
            () = bell.stopped() => return,
            () = tokio::time::sleep(AGAIN * 2_u32.pow(deaths.min(6))) => {}
        }
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
                let (own, projection) = (shared.clone(), projection.clone());
                let (name, rings) = (projection.name.clone(), bell.clone());
                let begin =
                    move || Projector::new(own.clone(), projection.clone(), lane, rings.clone()).run();
                tasks.spawn(keep(shared.clone(), bell.clone(), Some(name), begin));
            }
        }
        let (own, rings) = (shared.clone(), bell.clone());
        tasks.spawn(keep(shared, bell.clone(), None, move || watcher::watch(own.clone(), rings.clone())));
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
