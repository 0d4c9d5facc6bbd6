//! Processes that die or stop while they deliver: at each step of a commit, by `kill -9`, and paused beyond their lease.
//!
//! A process charges, lets events be appended and begins operations, some of which it ends in time. Afterwards one that lives
//! does what is left. Then every charge that was asked for is an event, every append too and told once, and every intent has
//! one end, which is the one that its caller was told.

use super::support::{CAUGHT, Payment, actions, outbox, retries};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_events::{IdempotencyKey, Log, NewEvent, Selection};
use mainstay_flows::delivery::appends::{APPEND_POOL, Appends, NewAppend};
use mainstay_flows::delivery::intents::{self, Completion, Intents, NewIntent, OnTimeout, Operations};
use mainstay_store::{Options, Store, Tx, params};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::{
    Call, LetterFilter, NewWork, OnComplete, Pool, RETRIER_POOL, RetryPolicy, TIMER_POOL, Work,
};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::sync::Mutex;
use std::time::Duration;

const SIGABRT: i32 = 6;
const PATIENCE: Duration = Duration::from_secs(90);
/// On PostgreSQL nobody takes up what a dead node had before this is over.
const LEASE: Duration = Duration::from_millis(400);
/// A paused node's locks are taken from it after this long.
const LIMIT: Duration = Duration::from_secs(2);
const PAYMENTS: &str = super::support::POOL;
const CALLERS: u64 = 3;

const URL: &str = "TEST_URL";
const CYCLE: &str = "TEST_CYCLE";
const FAULTY: &str = "TEST_FAULTY";
const PAUSED: &str = "TEST_PAUSED";
const FAILPOINTS: &str = "MAINSTAY_FAILPOINTS";

fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(work)
}

struct Node {
    store: Store,
    log: Log,
    work: Work,
    appends: Appends,
    intents: Intents,
}

impl Node {
    async fn open(options: Options) -> Self {
        let components = [mainstay_events::COMPONENT, mainstay_work::COMPONENT, intents::COMPONENT];
        let options = components.into_iter().fold(options, Options::component);
        let store = options.open().await.unwrap();
        let table = "CREATE TABLE IF NOT EXISTS told (id TEXT NOT NULL)";
        store.transact(async move |tx| tx.execute(table, &[]).await).await.unwrap();
        let log = Log::open(&store).await.unwrap();
        let functions = actions().mutation("told", async |tx: Tx, _: Call, told: OnComplete<String>| {
            tx.execute("INSERT INTO told (id) VALUES ($1)", params![told.context.unwrap_or_default()]).await
        });
        let functions = if std::env::var_os(FAULTY).is_some() {
            // Catches ends beside the commit that ends them.
            let log = log.clone();
            functions.mutation(CAUGHT, move |_: Tx, _: Call, told: OnComplete<Payment>| {
                let (log, order) = (log.clone(), told.context.map(|payment| payment.order_id));
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    let order = order.unwrap_or_default();
                    let key = IdempotencyKey::action("payment", &order).unwrap();
                    log.append(NewEvent::new("PaymentCompleted", &order).unwrap().idempotent(&key)).await
                });
                async { Ok(()) }
            })
        } else {
            outbox(retries(1_000)).functions(functions, &log)
        };
        let work = Work::open_with_lease(&store, functions, LEASE).await.unwrap();
        // A node that dies costs an action an execution, and many die here.
        let often = RetryPolicy::new(10_000, 1, 1.0, 1).unwrap();
        work.pool(Pool::new(PAYMENTS).retry(often)).await.unwrap();
        let appends = Appends::open(&log, &work, retries(1_000)).await.unwrap();
        let intents = Intents::open(&log, &work, Operations::new()).await.unwrap();
        Self { store, log, work, appends, intents }
    }

    /// Asks for one of each, and tells of everything that was promised.
    async fn ask(
        &self,
        id: &str,
        timeout: Duration,
        promised: impl Fn(String),
    ) -> mainstay_flows::Result<()> {
        let charge = NewWork::new(PAYMENTS, "charge", id)?.on_complete(CAUGHT, &Payment::of(id))?;
        self.work.enqueue(charge).await?;
        promised(format!("charge {id}"));
        let key = IdempotencyKey::saga_step("Fulfillment", id, "reserve").expect("a key");
        let event = NewEvent::new("StockReserved", &id)?.stream("Order", id).idempotent(&key);
        self.appends.append(NewAppend::new(event).on_complete("told", id)?).await?;
        promised(format!("append {id}"));
        let new = NewIntent::new("Submission", ("Order", id), "orders", timeout, OnTimeout::abandon());
        let intent_key = self.intents.record(new).await?.intent_key;
        promised(format!("intent {intent_key}"));
        match self.intents.complete(Completion::success(&intent_key)).await {
            Ok(_) => promised(format!("completed {intent_key}")),
            Err(error) if error.code() == "INTENT_ALREADY_ENDED" => promised(format!("late {intent_key}")),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Lets nothing be left to do.
    async fn drain(&self) {
        let engine = self.work.start().await.unwrap();
        let draining = async {
            for pool in [PAYMENTS, APPEND_POOL, TIMER_POOL, RETRIER_POOL, PAYMENTS] {
                while !self.work.depth(pool).await.is_ok_and(|depth| (depth.pending, depth.running) == (0, 0))
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        };
        tokio::time::timeout(PATIENCE, draining).await.expect("everything ends");
        engine.stop(PATIENCE).await.unwrap();
    }
}

#[test]
fn child_delivers() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let cycle: u64 = std::env::var(CYCLE).unwrap().parse().unwrap();
        let options = Options::new(std::env::var(URL).unwrap()).connections(4);
        let node = Node::open(match std::env::var_os(PAUSED) {
            Some(_) => options.transaction_timeout(LIMIT),
            None => options,
        })
        .await;
        let _engine = node.work.start().await.unwrap();
        crash::say("delivers");
        let asking = (0..CALLERS).map(|caller| {
            let (node, random) = (&node, SeededRandom::new(cycle * CALLERS + caller));
            async move {
                for number in 0_u64.. {
                    let timeout = Duration::from_millis(1 + random.below(12));
                    // A node that was paused may be told that its transaction is over.
                    let id = format!("{cycle}-{caller}-{number}");
                    drop(node.ask(&id, timeout, crash::ack).await);
                }
            }
        });
        futures_util::future::join_all(asking).await;
    });
}

struct Home {
    place: Place,
    promised: BTreeSet<(String, String)>,
}

impl Home {
    fn new(kind: Kind) -> Self {
        let home = Self { place: Place::new(kind), promised: BTreeSet::new() };
        block_on(async { Node::open(home.place.options()).await.store.close().await });
        home
    }

    fn child(&self, cycle: u64) -> Child {
        let child = Child::of("delivery::crash::child_delivers");
        child.env(URL, self.place.url()).env(CYCLE, cycle.to_string())
    }

    fn note(&mut self, promises: &[String]) {
        self.promised.extend(promises.iter().map(|text| {
            let (what, id) = text.split_once(' ').unwrap();
            (what.to_owned(), id.to_owned())
        }));
    }

    /// Lets a process that lives do what is left; everything that is wrong then.
    fn check(&self) -> Vec<String> {
        block_on(async {
            let node = Node::open(self.place.options()).await;
            node.drain().await;
            let wrong = self.wrong(&node).await;
            println!(
                "{}: {} promises, {} events",
                self.place.kind(),
                self.promised.len(),
                node.log.head().await.unwrap()
            );
            node.store.close().await;
            wrong
        })
    }

    async fn wrong(&self, node: &Node) -> Vec<String> {
        let (found, told) = (Found::load(&node.log).await, told(&node.store).await);
        let mut wrong: Vec<String> = Vec::new();
        for (what, id) in &self.promised {
            let holds = match &**what {
                "charge" => found.keys.contains(&format!("payment:{id}")),
                "append" => {
                    found.keys.contains(&format!("Fulfillment:{id}:reserve")) && told.get(id) == Some(&1)
                }
                "intent" => found.ends.contains_key(id),
                "completed" => found.ends.get(id).is_some_and(|ends| ends == &["SubmissionCompleted"]),
                "late" => found.ends.get(id).is_some_and(|ends| ends == &["SubmissionAbandoned"]),
                other => panic!("{other} was never promised"),
            };
            if !holds {
                wrong.push(format!("{what} {id}: {:?}", found.ends.get(id)));
            }
        }
        for (intent_key, ends) in &found.ends {
            let status = node.intents.get(intent_key).await.unwrap().status.as_str();
            let is_so = matches!((status, &ends[..]), ("completed", [end]) if end == "SubmissionCompleted")
                || matches!((status, &ends[..]), ("abandoned", [end]) if end == "SubmissionAbandoned");
            if !is_so {
                wrong.push(format!("{intent_key} is {status} and has {ends:?}"));
            }
        }
        wrong.extend(
            told.iter().filter(|(_, times)| **times != 1).map(|(id, times)| format!("{id} told {times}")),
        );
        let letters = node.work.letters(LetterFilter::default(), 10).await.unwrap();
        wrong.extend(
            letters.iter().map(|letter| format!("{} is a letter: {}", letter.function, letter.error)),
        );
        wrong
    }
}

/// What is in the log: the keys of its events, and how intents have ended.
struct Found {
    keys: BTreeSet<String>,
    ends: BTreeMap<String, Vec<String>>,
}

impl Found {
    async fn load(log: &Log) -> Self {
        let mut found = Self { keys: BTreeSet::new(), ends: BTreeMap::new() };
        let mut selection = Selection::all();
        loop {
            let page = log.read(&selection, 1_000).await.unwrap();
            for event in &page.events {
                let key = event.idempotency_key().unwrap();
                assert!(found.keys.insert(key.to_owned()), "{key} is there twice");
                let Some(intent_key) = super::support::data(event)["intentKey"].as_str().map(str::to_owned)
                else {
                    continue;
                };
                let ends = found.ends.entry(intent_key).or_default();
                if event.event_type() != "SubmissionStarted" {
                    ends.push(event.event_type().to_owned());
                }
            }
            let Some(next) = page.next else { return found };
            selection.after = next;
        }
    }
}

/// How often the end of each append was told.
async fn told(store: &Store) -> BTreeMap<String, usize> {
    let read = async |tx: Tx| {
        let mut told = BTreeMap::<String, usize>::new();
        for row in tx.query("SELECT id FROM told", &[]).await? {
            *told.entry(row.get(0)?).or_default() += 1;
        }
        Ok(told)
    };
    store.read(read).await.unwrap()
}

fn nothing_is_wrong(home: &Home) {
    let wrong = home.check();
    assert!(wrong.is_empty(), "{} things are wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}

/// The passings at which a process dies: every one of a long run, some of them otherwise.
fn passings() -> Vec<u64> {
    if is_long() { (1..=120).collect() } else { vec![9, 14, 19, 23, 31, 52] }
}

fn survive_aborts(kind: Kind) {
    let (mut home, mut cycle) = (Home::new(kind), 0);
    for point in ["store.commit", "store.committed"] {
        for nth in passings() {
            let failpoint = format!("{point}=abort@{nth}");
            let mut child = home.child(cycle).env(FAILPOINTS, &failpoint).spawn().unwrap();
            let status = child.wait(PATIENCE).unwrap();
            assert_eq!(status.signal(), Some(SIGABRT), "{failpoint} strikes: {:?}", child.said());
            home.note(&child.acknowledged());
            cycle += 1;
        }
    }
    nothing_is_wrong(&home);
}

#[test]
fn b_278_a_death_at_any_commit_loses_no_end_no_append_and_no_intent_on_sqlite() {
    survive_aborts(Kind::SqliteFile);
}

#[test]
fn b_278_a_death_at_any_commit_loses_no_end_no_append_and_no_intent_on_postgres() {
    survive_aborts(Kind::Postgres);
}

fn killed(kind: Kind, cycles: u64, child: impl Fn(Child) -> Child) -> Home {
    let (mut home, random) = (Home::new(kind), SeededRandom::new(cycles));
    for cycle in 0..cycles {
        let mut child = child(home.child(cycle)).spawn().unwrap();
        child.wait_for_acks(1 + random.below(200) as usize, PATIENCE).unwrap();
        child.kill9().unwrap();
        home.note(&child.acknowledged());
    }
    home
}

#[test]
fn b_278_kill_9_under_load_loses_no_end_no_append_and_no_intent() {
    for kind in [Kind::SqliteFile, Kind::Postgres] {
        nothing_is_wrong(&killed(kind, if is_long() { 100 } else { 5 }, |child| child));
    }
}

/// The same with ends that are caught beside the commit: that must be seen.
#[test]
fn the_check_finds_an_end_that_a_faulty_program_loses() {
    let home = killed(Kind::SqliteFile, 5, |child| child.env(FAULTY, "1"));
    let wrong = home.check();
    assert!(wrong.iter().any(|what| what.starts_with("charge ")), "{wrong:?}");
}

/// Two nodes on one PostgreSQL. One is stopped again and again for longer than its lease and its transactions last, while the
/// other takes up what it had.
#[test]
fn b_278_a_node_paused_beyond_its_lease_loses_and_doubles_nothing() {
    let (mut home, random) = (Home::new(Kind::Postgres), SeededRandom::new(7));
    let mut child = home.child(0).env(PAUSED, "1").spawn().unwrap();
    child.wait_for("delivers", PATIENCE).unwrap();
    let own = Mutex::new(Vec::new());
    block_on(async {
        let node = Node::open(home.place.options()).await;
        let engine = node.work.start().await.unwrap();
        for round in 0..if is_long() { 30 } else { 4 } {
            child.wait_for_acks(round * 100 + 1 + random.below(80) as usize, PATIENCE).unwrap();
            child.stop().unwrap();
            let before = tokio::time::Instant::now();
            for number in 0.. {
                if before.elapsed() > LEASE * 3 {
                    break;
                }
                // It waits for what the other holds, and not longer than it may.
                let id = format!("own-{round}-{number}");
                let keep = |promise: String| own.lock().unwrap().push(promise);
                drop(node.ask(&id, Duration::from_millis(5), keep).await);
            }
            child.cont().unwrap();
        }
        engine.stop(PATIENCE).await.unwrap();
        node.store.close().await;
    });
    let heard = child.acknowledged().len();
    child.wait_for_acks(heard + 100, PATIENCE).unwrap();
    child.kill9().unwrap();
    home.note(&child.acknowledged());
    home.note(&own.into_inner().unwrap());
    nothing_is_wrong(&home);
}
