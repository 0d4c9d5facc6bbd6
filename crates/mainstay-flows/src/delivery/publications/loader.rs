//! Publications that deliveries read at the same time, read together.

use super::record::{self, Found};
use mainstay_core::failure::Failure;
use mainstay_store::batch::{Batcher, Runs};
use mainstay_store::{Store, Tx};
use std::collections::HashMap;

/// Reads publications by their ids.
#[derive(Clone)]
pub(super) struct Loader(Batcher<Reads>);

struct Reads(Store);

impl Loader {
    /// A loader of a store.
    pub(super) fn new(store: Store) -> Self {
        Self(Batcher::new(Reads(store), 1))
    }

    /// A publication by its id.
    pub(super) async fn find(&self, id: String) -> Result<Option<Found>, Failure> {
        self.0.ask(id).await.map_err(Failure::retryable)
    }
}

impl Runs for Reads {
    type Ask = String;
    type Answer = Result<Option<Found>, String>;
    /// Each publication may be long.
    const MAX_BATCH: usize = 64;

    async fn run(&self, ids: Vec<String>) -> Vec<Self::Answer> {
        let read = async |tx: Tx, ids: Vec<String>| record::find_all(&tx, &ids).await;
        match self.0.read_with(ids.clone(), read).await {
            Ok(found) => {
                let mut found: HashMap<String, Found> =
                    found.into_iter().map(|found| (found.id.clone(), found)).collect();
                // One publication may be asked for twice: by a delivery that took too long, and by the next attempt.
                let is_asked_again = |number: usize, id: &String| ids[number + 1..].contains(id);
                let find = |(number, id): (usize, &String)| match is_asked_again(number, id) {
                    true => Ok(found.get(id).cloned()),
                    false => Ok(found.remove(id)),
                };
                ids.iter().enumerate().map(find).collect()
            }
            Err(error) => ids.iter().map(|_| Err(error.to_string())).collect(),
        }
    }

    fn lost(&self) -> Self::Answer {
        Err("the publication was not read".to_owned())
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
    fn one_publication_can_be_read_twice_in_a_batch() {
        for_each_store(async |place| {
            let reads = Reads(with_a_publication(place.options()).await);
            let ids = ["pub_1", "pub_2", "pub_1"].map(str::to_owned).to_vec();
            let found = reads.run(ids).await.into_iter().map(|found| found.unwrap().is_some());
            assert_eq!(found.collect::<Vec<_>>(), [true, false, true]);
        });
    }

    #[test]
    fn one_that_has_given_up_takes_nothing_from_the_next() {
        for_each_store(async |place| {
            let loader = Loader::new(with_a_publication(place.options()).await);
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
