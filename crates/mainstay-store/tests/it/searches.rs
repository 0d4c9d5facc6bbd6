//! Searches take a share of the readers and no more.

use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::for_each_lasting_store;
use std::sync::{Arc, Mutex, mpsc};

async fn look(tx: Tx, (): ()) -> mainstay_store::Result<()> {
    tx.query("SELECT 1", &[]).await.map(drop)
}

/// A search in a thread of its own, which stands still until it is told to go on.
fn stand_still(store: &Store) -> (mpsc::Receiver<()>, mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    type Signals = (mpsc::Sender<()>, Arc<Mutex<mpsc::Receiver<()>>>);
    let ((started, has_started), (go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
    let (store, may_go) = (store.clone(), Arc::new(Mutex::new(may_go)));
    let thread = std::thread::spawn(move || {
        let search = async |tx: Tx, (started, go): Signals| {
            look(tx, ()).await?;
            started.send(()).unwrap();
            let _ = go.lock().unwrap().recv();
            Ok(())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(store.search_with((started, may_go), search)).unwrap();
    });
    (has_started, go, thread)
}

#[test]
fn searches_leave_most_readers_to_others() {
    for_each_lasting_store(async |place| {
        let store = place.options().readers(4).connections(4).open().await.unwrap();
        let (has_started, go, thread) = stand_still(&store);
        tokio::task::spawn_blocking(move || has_started.recv().unwrap()).await.unwrap();
        let busy = store.search_with((), look).await.unwrap_err();
        assert_eq!((busy.code(), busy.is_retryable(), busy.entry().status), ("SEARCH_BUSY", true, 503));
        for _ in 0..10 {
            store.read_with((), look).await.unwrap();
        }
        go.send(()).unwrap();
        tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
        store.search_with((), look).await.unwrap();
    });
}

#[test]
fn the_only_reader_that_was_asked_for_is_not_one_for_searches() {
    for_each_lasting_store(async |place| {
        let store = place.options().readers(1).connections(1).open().await.unwrap();
        let (has_started, go, thread) = stand_still(&store);
        tokio::task::spawn_blocking(move || has_started.recv().unwrap()).await.unwrap();
        let others = async {
            for _ in 0..10 {
                store.read_with((), look).await.unwrap();
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), others).await.expect("a reader is left");
        go.send(()).unwrap();
        tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
    });
}
