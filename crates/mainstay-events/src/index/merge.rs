//! Moves sealed segments from memory into the table, in its order, a little at a time.

use super::recent::{Recent, last_of, sorted};
use mainstay_store::{Store, Tx, Value};
use std::sync::Arc;

/// Entries of one transaction: a fraction of a millisecond of the writer.
const ENTRIES: usize = 256;

const INSERT: &str =
    "INSERT INTO mainstay_event_terms (term, position) VALUES ($1, $2) ON CONFLICT DO NOTHING";
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
        let up_to = last_of(&segment);
        // Sorting takes milliseconds, and a thread of the runtime has other things to do.
        let Ok(entries) = tokio::task::spawn_blocking(move || sorted(&segment)).await else { return };
        for chunk in entries.chunks(ENTRIES) {
            let rows =
                chunk.iter().map(|(term, position)| vec![Value::Int(*term), Value::Int(*position as i64)]);
            let rows: Arc<Vec<Vec<Value>>> = Arc::new(rows.collect());
            let insert = async |tx: Tx, rows: Arc<Vec<Vec<Value>>>| tx.execute_many(INSERT, &rows).await;
            let inserted = match store.failpoints().hit("events.merge") {
                Ok(()) => store.transact_with(rows, insert).await.map(drop),
                Err(hit) => Err(hit.into()),
            };
            if let Err(error) = inserted {
                return tracing::warn!(%error, "a segment of the log's index waits in memory");
            }
        }
        let finish = async |tx: Tx, (recent, up_to): (Recent, u64)| {
            tx.execute(MOVE, &[Value::Int(up_to as i64)]).await?;
            tx.after_commit(Arc::new(move || recent.merged(up_to)))
        };
        let finished = match store.failpoints().hit("events.merged") {
            Ok(()) => store.transact_with((recent.clone(), up_to), finish).await,
            Err(hit) => Err(hit.into()),
        };
        if let Err(error) = finished {
            return tracing::warn!(%error, "a segment of the log's index waits in memory");
        }
    }
}

/// Whatever ends the merger, the next one may begin.
struct Leaving(Recent);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.end_merge();
    }
}
