//! One watcher for all projections of a node: an idle node asks little, however many projections it has.

use super::changes_topic;
use super::opened::Shared;
use super::running::Bell;
use mainstay_events::events_topic;
use mainstay_store::Tx;
use std::sync::Arc;
use std::time::Duration;

/// How long it goes on without being woken before it looks by itself: a node may die between its commit and its
/// wake-up.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long to wait after the store has failed.
const PAUSE: Duration = Duration::from_millis(500);

const CHANGES: &str = "SELECT CAST(coalesce(sum(version), 0) AS BIGINT) FROM mainstay_projections";

/// Looks at the log's head and at what operators have changed, whenever there may be something new.
pub(crate) async fn watch(shared: Arc<Shared>, bell: Arc<Bell>) {
    let mut events = shared.store.listen(events_topic());
    let mut changes = shared.store.listen(changes_topic());
    // Changes that were read are compared with those that were read before; without a look nothing is known of them.
    let mut looks_at_changes = true;
    loop {
        let seen = async {
            let head = shared.log.head().await?;
            let version = if looks_at_changes {
                let read = async |tx: Tx| tx.query_one(CHANGES, &[]).await?.get::<i64>(0);
                Some(shared.store.read(read).await?)
            } else {
                None
            };
            Ok::<_, crate::Error>((head, version))
        };
        let wait = match seen.await {
            Ok((head, version)) => {
                bell.ring(head, version);
                LOOK_AGAIN
            }
            Err(error) => {
                tracing::warn!(%error, code = error.code(), "looking at the log failed; trying again");
                PAUSE
            }
        };
        looks_at_changes = tokio::select! {
            () = bell.stopped() => return,
            is_woken = events.woken(wait) => !is_woken,
            _ = changes.woken(wait) => true,
        };
    }
}
