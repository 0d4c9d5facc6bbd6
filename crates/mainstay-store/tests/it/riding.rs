//! What goes along with a transaction that somebody else makes.

use crate::notes::{ids, insert, with_table};
use mainstay_store::{Ending, Epilogue, Error, Store, Tx, riding};
use mainstay_testkit::stores::for_each_store;
use std::sync::Arc;

/// Writes a note at the end of the transaction that it goes along with.
struct Note(i64);

impl Epilogue for Note {
    fn conclude(self: Arc<Self>, tx: Tx) -> Ending {
        Box::pin(async move { insert(&tx, self.0).await.map(drop) })
    }
}

async fn write(store: &Store, id: i64) {
    store.transact_with(id, async |tx: Tx, id: i64| insert(&tx, id).await).await.unwrap();
}

#[test]
fn the_first_transaction_that_commits_takes_it_along() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let work = async {
            let undone = async |tx: Tx| {
                insert(&tx, 1).await?;
                Err::<(), _>(Error::application("no"))
            };
            assert!(store.transact(undone).await.is_err());
            write(&store, 2).await;
            write(&store, 3).await;
            "done"
        };
        assert_eq!(riding(Arc::new(Note(100)), work).await, ("done", true));
        assert_eq!(ids(&store).await, [2, 3, 100]);
        write(&store, 4).await;
        assert_eq!(ids(&store).await, [2, 3, 4, 100], "and nobody after that");
    });
}

#[test]
fn it_is_part_of_the_transaction() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        write(&store, 100).await;
        // The note is there already, so it cannot be written, and so what it goes along with is not either.
        let work = async { store.transact(async |tx: Tx| insert(&tx, 1).await).await.is_err() };
        assert_eq!(riding(Arc::new(Note(100)), work).await, (true, false));
        assert_eq!(ids(&store).await, [100]);
    });
}

#[test]
fn reads_and_what_is_spawned_have_no_part_in_it() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let work = async {
            assert_eq!(ids(&store).await, [] as [i64; 0]);
            let spawned = store.clone();
            tokio::spawn(async move { write(&spawned, 1).await }).await.unwrap();
        };
        assert!(!riding(Arc::new(Note(100)), work).await.1);
        assert_eq!(ids(&store).await, [1]);
    });
}

#[test]
fn a_transaction_that_does_nothing_leaves_it_for_one_that_does() {
    for_each_store(async |place| {
        let store = with_table(&place).await;
        let look = async |tx: Tx| tx.query("SELECT id FROM notes", &[]).await.map(drop);
        assert!(!riding(Arc::new(Note(100)), async { store.transact(look).await.unwrap() }).await.1);
        assert_eq!(ids(&store).await, [] as [i64; 0]);
        let both = async {
            store.transact(look).await.unwrap();
            write(&store, 1).await;
        };
        assert!(riding(Arc::new(Note(100)), both).await.1);
        assert_eq!(ids(&store).await, [1, 100]);
    });
}
