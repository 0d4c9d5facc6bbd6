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
                let mut askers: HashMap<String, Vec<oneshot::Sender<Answer>>> = HashMap::new();
                // Whoever has gone away wants nothing any more.
                for (id, reply) in batch.drain(..).filter(|(_, reply)| !reply.is_closed()) {
                    askers.entry(id).or_default().push(reply);
                }
                if !askers.is_empty() {
                    answer(&store, askers).await;
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

/// Answers all who ask. One publication may have several askers: a delivery that took too long, and the next attempt.
async fn answer(store: &Store, mut askers: HashMap<String, Vec<oneshot::Sender<Answer>>>) {
    let read = async |tx: Tx, ids: Vec<String>| record::find_all(&tx, &ids).await;
    match store.read_with(askers.keys().cloned().collect(), read).await {
        Ok(rows) => {
            for found in rows {
                let mut replies = askers.remove(&found.id).unwrap_or_default();
                let last = replies.pop();
                for reply in replies {
                    drop(reply.send(Ok(Some(found.clone()))));
                }
                if let Some(reply) = last {
                    drop(reply.send(Ok(Some(found))));
                }
            }
            for reply in askers.into_values().flatten() {
                drop(reply.send(Ok(None)));
            }
        }
        Err(error) => {
            for reply in askers.into_values().flatten() {
                drop(reply.send(Err(error.to_string())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::publications::event::PublicEvent;
    use crate::delivery::publications::record::New;
    use mainstay_testkit::stores::for_each_store;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    async fn with_a_publication(options: mainstay_store::Options) -> Store {
        let options = options.component(mainstay_work::COMPONENT);
        let store = options.component(super::super::COMPONENT).open().await.unwrap();
        let write = async |tx: Tx| {
            let row = New {
                id: "pub_1".to_owned(),
                event_id: "evt-1",
                target: "inventory",
                tenant: "",
                source_context: "orders",
                event: PublicEvent::new("evt-1", "Ordered", "lamp").unwrap(),
                work_id: "work_1".to_owned(),
                error: None,
            };
            record::insert(&tx, &[row]).await
        };
        store.transact(write).await.unwrap();
        store
    }

    #[test]
    fn all_who_ask_for_one_publication_are_given_it() {
        for_each_store(async |place| {
            let store = with_a_publication(place.options()).await;
            let (id, is_there) = ("pub_1".to_owned(), |found: Option<Found>| found.is_some());
            let mut askers = HashMap::new();
            let (first, one) = oneshot::channel();
            let (second, other) = oneshot::channel();
            let (third, gone) = oneshot::channel();
            askers.insert(id.clone(), vec![first, second]);
            askers.insert("pub_2".to_owned(), vec![third]);
            answer(&store, askers).await;
            assert!(is_there(one.await.unwrap().unwrap()) && is_there(other.await.unwrap().unwrap()));
            assert!(!is_there(gone.await.unwrap().unwrap()), "nobody has written it");
        });
    }

    #[test]
    fn one_that_has_given_up_takes_nothing_from_the_next() {
        for_each_store(async |place| {
            let loader = Loader::start(with_a_publication(place.options()).await);
            for _ in 0..20 {
                {
                    let given_up = pin!(loader.find("pub_1".to_owned()));
                    let asked = given_up.poll(&mut Context::from_waker(Waker::noop()));
                    assert!(matches!(asked, Poll::Pending | Poll::Ready(Ok(Some(_)))));
                }
                assert!(loader.find("pub_1".to_owned()).await.unwrap().is_some());
            }
        });
    }
}
