//! Rows that deliveries ask for at the same time, read together.
//!
//! While one read is under way others queue, and the next one takes up all that wait. So batches form by themselves, as
//! large as the load asks for, and a lone delivery waits for nobody.

use super::record::{self, Found};
use mainstay_core::failure::Failure;
use mainstay_store::{Store, Tx};
use std::collections::HashMap;
use tokio::sync::{mpsc, oneshot};

/// Most rows of one read: each may be long.
const MAX_BATCH: usize = 64;
/// Most deliveries that may wait for their rows; those beyond wait before they ask.
const MAX_WAITING: usize = 1_024;

type Answer = Result<Option<Found>, String>;

/// Reads rows. It ends with whoever asks.
#[derive(Clone)]
pub(super) struct Loader(mpsc::Sender<(String, oneshot::Sender<Answer>)>);

impl Loader {
    /// A loader of a store, in a task of its own.
    pub(super) fn start(store: Store) -> Self {
        let (sender, mut asks) = mpsc::channel::<(String, oneshot::Sender<Answer>)>(MAX_WAITING);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while asks.recv_many(&mut batch, MAX_BATCH).await > 0 {
                let ids: Vec<String> = batch.iter().map(|(id, _)| id.clone()).collect();
                let read = async |tx: Tx, ids: Vec<String>| record::find_all(&tx, &ids).await;
                let found = store.read_with(ids, read).await.map_err(|error| error.to_string());
                let mut found: Result<HashMap<String, Found>, String> =
                    found.map(|found| found.into_iter().map(|found| (found.id.clone(), found)).collect());
                for (id, reply) in batch.drain(..) {
                    let answer = match &mut found {
                        Ok(found) => Ok(found.remove(&id)),
                        Err(error) => Err(error.clone()),
                    };
                    // Whoever has gone away wants nothing any more.
                    drop(reply.send(answer));
                }
            }
        });
        Self(sender)
    }

    /// A publication by its id.
    pub(super) async fn find(&self, id: String) -> Result<Option<Found>, Failure> {
        let gone = || Failure::retryable("publications are not open here");
        let (reply, answer) = oneshot::channel();
        self.0.send((id, reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?.map_err(Failure::retryable)
    }
}
