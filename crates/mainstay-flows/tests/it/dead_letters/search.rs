//! Searches in the inbox: each looks at a bounded number of letters in linear time, takes a share of the readers, and never holds
//! the writer.

use super::bench::{Bench, PATIENCE, components, until};
use mainstay_flows::dead_letters::{Action, Filter, OperationStatus, POOL, Status, Upkeep};
use mainstay_store::{Store, Tx, params};
use mainstay_testkit::stores::{Kind, Place, for_each_lasting_store};
use mainstay_work::inbox::{self, Entry};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Letters that one read looks at.
const ONE_READ: usize = 20_000;

fn entry<'a>(name: &'a str, reference: &'a str, error: &'a str) -> Entry<'a> {
    Entry {
        kind: "imported".into(),
        name,
        reference,
        status: Status::Pending,
        failed_at: 1,
        retries: 0,
        correlation: Some("usual"),
        error,
        pool: None,
    }
}

/// The letter of `first`, and twice as many others as `doubled` says, again and again.
async fn fill(store: &Store, first: Entry<'static>, usual: Entry<'static>, doubled: u32) {
    let fill = async |tx: Tx, (first, usual, doubled): (Entry<'static>, Entry<'static>, u32)| {
        let name = first.name;
        inbox::put(&tx, &[first]).await?;
        inbox::put(&tx, &[usual]).await?;
        for double in 0..doubled {
            let sql = "INSERT INTO mainstay_dead_letters \
                (kind, name, reference, status, error_group, failed_at, changed_at, retries, correlation, error) \
                SELECT kind, name, reference || $1, status, error_group, failed_at, changed_at, retries, correlation, \
                error FROM mainstay_dead_letters WHERE reference <> 'first'";
            tx.execute(sql, params![format!("{name}{double:x}")]).await?;
        }
        Ok(())
    };
    store.transact_with((first, usual, doubled), fill).await.unwrap();
}

fn named(name: &str) -> Filter {
    Filter { name: Some(name.to_owned()), ..Filter::default() }
}

fn with(error: &str) -> Filter {
    Filter { error: Some(error.to_owned()), ..Filter::default() }
}

/// Filters that no index answers, each of which names the oldest letter and no other.
fn filters() -> Vec<Filter> {
    let none = Filter::default;
    vec![
        named("rare"),
        with("RARE thing"),
        Filter { kind: Some("rareKind".into()), ..none() },
        Filter { failed_before: Some(1), ..none() },
        Filter { correlation_id: Some("usual".into()), ..named("rare") },
        Filter { status: Some(Status::Pending), ..named("rare") },
    ]
}

#[test]
fn a_filter_without_an_index_looks_at_so_many_letters_and_says_where_to_go_on() {
    for_each_lasting_store(async |place| {
        let bench = Bench::open(&place).await;
        let rare = Entry { kind: "rareKind".into(), failed_at: 0, ..entry("rare", "first", "a rare thing") };
        fill(&bench.store, rare, entry("usual", "", "a usual thing"), 15).await;
        for filter in filters() {
            let (mut found, mut before, mut pages) = (Vec::new(), None, 0);
            loop {
                let page = bench.letters.list(filter.clone(), before, 10).await.unwrap();
                found.extend(page.letters.into_iter().map(|letter| letter.reference));
                (before, pages) = (page.next, pages + 1);
                assert_eq!(page.is_partial, before.is_some(), "{filter:?}");
                if before.is_none() {
                    break;
                }
            }
            assert_eq!((found, pages), (vec!["first".to_owned()], 2), "{filter:?}");
        }
        // Letters that lie close together make a whole page.
        let page = bench.letters.list(named("usual"), None, 10).await.unwrap();
        assert!(page.letters.len() == 10 && !page.is_partial && page.next.is_some());
        // What is counted in an index is counted whole; with a correlation that is the newest letters.
        let stats = bench.letters.stats(named("rare")).await.unwrap();
        assert_eq!((stats.total, stats.is_partial), (1, false));
        let of_one = Filter { correlation_id: Some("usual".into()), ..Filter::default() };
        let stats = bench.letters.stats(of_one.clone()).await.unwrap();
        assert_eq!((stats.total, stats.is_partial), ((1 << 15) + 1, false));
        fill(&bench.store, entry("other", "first", "x"), entry("usual", "more", "a usual thing"), 1).await;
        let stats = bench.letters.stats(of_one.clone()).await.unwrap();
        let groups = bench.letters.groups(of_one, 10).await.unwrap();
        assert_eq!((stats.total, stats.is_partial, groups.is_partial), (50_000, true, true));
        assert_eq!(groups.groups[0].count, 49_999, "and one of the other name");
    });
}

/// A text in which a naive search begins anew at every letter took thousands of times as long as another.
#[test]
fn a_hostile_text_takes_no_longer_than_another() {
    for_each_lasting_store(async |place| {
        let bench = Bench::open(&place).await;
        static LONG: [u8; 500] = [b'a'; 500];
        let long = std::str::from_utf8(&LONG).unwrap();
        fill(&bench.store, entry("a", "first", "x"), entry("a", "", long), 14).await;
        let took = async |text: &str| {
            let began = Instant::now();
            let page = bench.letters.list(with(text), None, 10).await.unwrap();
            assert!(page.letters.is_empty());
            began.elapsed()
        };
        took("nothing").await;
        let (usual, hostile) = (took("nothing").await, took(&format!("{}b", "a".repeat(255))).await);
        assert!(hostile < usual * 5 + Duration::from_millis(200), "{}: {hostile:?}, {usual:?}", place.kind());
    });
}

/// Searches in threads of their own, which stand still until they are told to go on: as many as may run at once.
struct Held {
    going: Vec<mpsc::Sender<()>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Held {
    async fn hold(place: &Place, store: &Store) -> Self {
        type Signals = (mpsc::Sender<()>, Arc<Mutex<mpsc::Receiver<()>>>);
        let count = if place.kind() == Kind::Postgres { 2 } else { 1 };
        let (started, has_started) = mpsc::channel();
        let mut held = Self { going: Vec::new(), threads: Vec::new() };
        for _ in 0..count {
            let (go, may_go) = mpsc::channel::<()>();
            let (store, signals): (_, Signals) =
                (store.clone(), (started.clone(), Arc::new(Mutex::new(may_go))));
            held.going.push(go);
            held.threads.push(std::thread::spawn(move || {
                let stand = async |tx: Tx, (started, go): Signals| {
                    tx.query("SELECT 1", &[]).await?;
                    started.send(()).unwrap();
                    let _ = go.lock().unwrap().recv();
                    Ok(())
                };
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(store.search_with(signals, stand)).unwrap();
            }));
        }
        let all_have = move || (0..count).for_each(|_| has_started.recv().unwrap());
        tokio::task::spawn_blocking(all_have).await.unwrap();
        held
    }

    async fn release(self) {
        drop(self.going);
        let all_end = move || self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        tokio::task::spawn_blocking(all_end).await.unwrap();
    }
}

async fn quiet(place: &Place) -> Bench {
    let options = components(place.options().readers(4).connections(8));
    let bench = Bench::on(options.open().await.unwrap(), Duration::from_secs(15), Upkeep::none()).await;
    let put = async |tx: Tx| inbox::put(&tx, &[entry("a", "1", "a rare thing")]).await;
    bench.store.transact(put).await.unwrap();
    bench
}

#[test]
fn filters_without_an_index_wait_for_a_share_of_the_readers_and_others_do_not() {
    for_each_lasting_store(async |place| {
        let bench = quiet(&place).await;
        let held = Held::hold(&place, &bench.store).await;
        let letters = &bench.letters;
        let mut refused = Vec::new();
        for filter in filters() {
            let (list, stats, groups, preview) = tokio::join!(
                letters.list(filter.clone(), None, 10),
                letters.stats(filter.clone()),
                letters.groups(filter.clone(), 10),
                letters.preview(Action::Ignore, filter.clone(), "ann"),
            );
            let codes = [list.err(), stats.err(), groups.err(), preview.err()];
            refused.push(codes.map(|error| error.map(|error| error.code())));
        }
        assert_eq!(refused, vec![[Some("SEARCH_BUSY"); 4]; filters().len()]);
        let none = Filter::default;
        let group = letters.groups(none(), 1).await.unwrap().groups[0].group;
        let by_index = [
            none(),
            Filter { status: Some(Status::Pending), ..none() },
            Filter { correlation_id: Some("usual".into()), ..none() },
            Filter { group: Some(group), ..none() },
        ];
        for filter in by_index {
            assert_eq!(letters.list(filter.clone(), None, 10).await.unwrap().letters.len(), 1, "{filter:?}");
        }
        letters.stats(none()).await.unwrap();
        letters.preview(Action::Ignore, none(), "ann").await.unwrap();
        held.release().await;
        assert_eq!(letters.stats(named("a")).await.unwrap().total, 1);
    });
}

#[test]
fn an_operation_looks_for_its_letters_as_a_search_and_leaves_the_writer_to_others() {
    for_each_lasting_store(async |place| {
        let bench = quiet(&place).await;
        let operation = bench.letters.preview(Action::Ignore, with("rare"), "ann").await.unwrap();
        bench.letters.run(&operation.operation_id).await.unwrap();
        let held = Held::hold(&place, &bench.store).await;
        let engine = bench.start().await;
        until("its chunk was begun", async || bench.work.depth(POOL).await.unwrap().running == 1).await;
        for _ in 0..50 {
            bench.store.transact(async |tx: Tx| tx.execute("DELETE FROM effects", &[]).await).await.unwrap();
            let status = bench.letters.operation(&operation.operation_id).await.unwrap().status;
            assert_eq!(status, OperationStatus::Running, "it waits for other searches");
        }
        held.release().await;
        assert_eq!(bench.ended(&operation.operation_id).await.status, OperationStatus::Done);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_preview_looks_at_so_many_letters_and_says_so() {
    for_each_lasting_store(async |place| {
        let bench = Bench::open(&place).await;
        fill(&bench.store, entry("rare", "first", "a rare thing"), entry("usual", "", "a usual thing"), 17)
            .await;
        let letters = &bench.letters;
        let all = letters.preview(Action::Ignore, with("usual thing"), "ann").await.unwrap();
        assert!(all.is_partial && all.total > ONE_READ as u64 && all.total < 1 << 17, "{}", all.total);
        let kept = letters.operation(&all.operation_id).await.unwrap();
        assert!(kept.is_partial && kept.total == all.total);
        let rare = letters.preview(Action::Ignore, with("rare"), "ann").await.unwrap();
        assert_eq!((rare.total, rare.is_partial), (1, true));
        // Of the oldest letters, only those that were counted are touched.
        let oldest = letters.preview_some(Action::Ignore, with("rare"), Some(10), "ann").await.unwrap();
        assert_eq!((oldest.total, oldest.is_partial), (1, true));
        let some = letters.preview_some(Action::Ignore, named("usual"), Some(10), "ann").await.unwrap();
        assert_eq!((some.total, some.is_partial), (10, false));
        letters.run(&some.operation_id).await.unwrap();
        let engine = bench.start().await;
        let ended = bench.ended(&some.operation_id).await;
        engine.stop(PATIENCE).await.unwrap();
        let touched = ended.done + ended.skipped + ended.failed + ended.left;
        assert_eq!((ended.status, touched), (OperationStatus::Done, 10));
    });
}
