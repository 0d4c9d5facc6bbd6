//! Moves sealed segments from memory into the table, in its order, a little at a time.

use super::recent::{Recent, Shared, last_of, sorted};
use super::sql::insert_terms;
use mainstay_core::failpoints::Point;
use mainstay_store::{Error, Result, Store, Tx, Value};
use std::sync::Arc;

/// Entries of one transaction: a fraction of a millisecond of the writer.
const ENTRIES: usize = 256;

/// Far more than the writer needs from a commit to its end.
const YIELDS: usize = 10_000;

const MOVE: &str = "UPDATE mainstay_log SET indexed = $1 WHERE name = 'events'";

/// Merges in the background what is due, if it is and nobody does.
pub(crate) fn merge_if_due(store: &Store, recent: &Recent) {
    if recent.is_merge_due()
        && let Ok(runtime) = tokio::runtime::Handle::try_current()
    {
        runtime.spawn(merge(store.clone(), recent.clone()));
    }
}

async fn merge(store: Store, recent: Recent) {
    while let Some(segment) = recent.begin_merge() {
        let _leaving = Leaving(recent.clone());
        if let Err(error) = merge_segment(&store, &recent, segment).await {
            return tracing::warn!(%error, "a segment of the log's index waits in memory");
        }
    }
}

/// Merges everything that is in memory; then the table is whole up to `head`, which somebody has seen committed.
pub(crate) async fn merge_all(store: &Store, recent: &Recent, head: u64) -> Result<()> {
    // A commit is seen by others a moment before it is taken up here. A head that was damaged never is.
    for _ in 0..YIELDS {
        if recent.view().head >= head {
            break;
        }
        tokio::task::yield_now().await;
    }
    recent.seal();
    loop {
        let ended = recent.merge_ended();
        let Some(segment) = recent.begin_merge() else {
            if recent.is_merge_under_way() {
                ended.await;
                continue;
            }
            return Ok(());
        };
        let _leaving = Leaving(recent.clone());
        merge_segment(store, recent, segment).await?;
    }
}

async fn merge_segment(store: &Store, recent: &Recent, segment: Shared) -> Result<()> {
    let up_to = last_of(&segment);
    // Sorting takes milliseconds, and a thread of the runtime has other things to do.
    let sorting = tokio::task::spawn_blocking(move || sorted(&segment)).await;
    let entries = sorting.map_err(|lost| Error::Panicked(lost.to_string()))?;
    for chunk in entries.chunks(ENTRIES) {
        let values = chunk.iter().flat_map(|(term, position)| [*term, *position as i64]).map(Value::Int);
        let rows: Arc<Vec<Value>> = Arc::new(values.collect());
        let insert = async |tx: Tx, rows: Arc<Vec<Value>>| insert_terms(&tx, &rows).await;
        store.failpoints().hit(Point::EventsMerge)?;
        store.transact_with(rows, insert).await?;
    }
    let finish = async |tx: Tx, (recent, up_to): (Recent, u64)| {
        tx.execute(MOVE, &[Value::Int(up_to as i64)]).await?;
        tx.after_commit(Arc::new(move || recent.merged(up_to)))
    };
    store.failpoints().hit(Point::EventsMerged)?;
    store.transact_with((recent.clone(), up_to), finish).await
}

/// Whatever ends the merger, the next one may begin.
struct Leaving(Recent);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.end_merge();
    }
}
