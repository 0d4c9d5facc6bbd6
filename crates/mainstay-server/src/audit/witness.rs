//! What is written down goes along with what is done: in its own transaction, or right after it.

use super::entry::{Entry, Outcome};
use super::{Audit, table};
use mainstay_store::{Ending, Epilogue, Store, Tx, riding};
use std::future::Future;
use std::sync::Arc;

/// What an entry says, once it is written down: a body, for instance, is heard only while it is read.
struct Rider<F>(F);

impl<F: Fn() -> Entry + Send + Sync + 'static> Epilogue for Rider<F> {
    fn conclude(self: Arc<Self>, tx: Tx) -> Ending {
        Box::pin(async move { table::append(&tx, &self.0()).await })
    }
}

/// Does something, and says what is still to be written down of it. That it was done is part of the first transaction that it
/// commits; what changed nothing, or was not done, needs an entry of its own afterwards.
pub(super) async fn witness<T>(
    told: impl Fn() -> Entry + Send + Sync + 'static,
    work: impl Future<Output = T>,
    judge: impl FnOnce(&T) -> (Outcome, Option<String>),
) -> (T, Option<Entry>) {
    let rider = Arc::new(Rider(told));
    let (came, is_written) = riding(rider.clone(), work).await;
    let (outcome, code) = judge(&came);
    let is_left = !is_written || outcome != Outcome::Done;
    (came, is_left.then(|| Entry { outcome, code, ..rider.0() }))
}

/// Writes an entry down by itself. Whoever is watched is not stopped when that fails: it was done, or refused, already.
pub(super) async fn write(store: &Store, entry: Entry) {
    let action = entry.action.clone();
    if let Err(error) = Audit::new(store.clone()).write(entry).await {
        tracing::error!(%error, action, "an admin call was not written down");
    }
}
