//! Processes that die while they decide about commands: by `kill -9` under load, and at each step of a commit.
//!
//! Afterwards a process that lives does what is left. Whatever a command was told, it and everything about it is there
//! once: its row, its event, the work that it started, and whoever wanted to hear of its end.

use mainstay_core::random::{Random, SeededRandom};
use mainstay_events::{Log, NewEvent, Selection};
use mainstay_flows::commands::{
    self, Command, Commands, ConflictRetry, Decision, Dispatcher, Ended, Handling, Outcome, Rejection,
};
use mainstay_store::{Options, Store, Tx, params};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::{Call, Functions, NewWork, Pool, Work};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const SIGABRT: i32 = 6;
const PATIENCE: Duration = Duration::from_secs(90);
/// On PostgreSQL nobody takes up what a dead node had before this is over.
const LEASE: Duration = Duration::from_millis(400);
const WRITERS: u64 = 4;
const SCOPE: &str = "tenant:t1:stock:lamp";

const URL: &str = "TEST_URL";
const CYCLE: &str = "TEST_CYCLE";
const FAILPOINTS: &str = "MAINSTAY_FAILPOINTS";

fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(work)
}

async fn note(tx: &Tx, what: &str, id: &str) -> mainstay_store::Result<u64> {
    tx.execute("INSERT INTO notes (what, id) VALUES ($1, $2)", params![what, id]).await
}

/// `Sell` writes a row and an event and starts work; every seventh is rejected after it has written its row.
fn stock() -> Commands {
    Commands::new().on("Sell", async |handling: Handling, number: u64| {
        let id = handling.issued().command_id.clone();
        note(handling.tx(), "row", &id).await?;
        if number % 7 == 3 {
            return Err(Rejection::new("SEVENTH", "every seventh").into());
        }
        handling.start(NewWork::new("shop", "ship", &id)?)?;
        Ok(Decision::success(number, [NewEvent::new("Sold", &id)?.tenant("t1").tag("item:lamp")]))
    })
}

fn functions() -> Functions {
    Functions::new()
        .mutation("ship", async |tx: Tx, _: Call, id: String| note(&tx, "shipped", &id).await)
        .mutation("told", async |tx: Tx, _: Call, ended: Ended<String>| {
            note(&tx, &format!("told {}", ended.result.status), &ended.command_id).await
        })
}

async fn open(options: Options) -> (Store, Work, Dispatcher) {
    let components = [mainstay_events::COMPONENT, mainstay_work::COMPONENT, commands::COMPONENT];
    let store = components.into_iter().fold(options, Options::component).open().await.unwrap();
    let table = "CREATE TABLE IF NOT EXISTS notes (what TEXT NOT NULL, id TEXT NOT NULL)";
    store.transact(async move |tx| tx.execute(table, &[]).await).await.unwrap();
    let (log, stock) = (Log::open(&store).await.unwrap(), stock());
    let work = Work::open_with_lease(&store, stock.functions(functions()), LEASE).await.unwrap();
    work.pool(Pool::new("shop")).await.unwrap();
    let dispatcher = Dispatcher::open(&log, &work, stock).await.unwrap();
    (store, work, dispatcher)
}

#[test]
fn child_dispatches() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let cycle: u64 = std::env::var(CYCLE).unwrap().parse().unwrap();
        let (_, work, dispatcher) = open(Options::new(std::env::var(URL).unwrap()).connections(4)).await;
        let _engine = work.start().await.unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let dispatcher = dispatcher.clone();
            writers.spawn(async move {
                let random = SeededRandom::new(cycle * WRITERS + writer);
                let retry =
                    ConflictRetry { initial_backoff_ms: 1, max_backoff_ms: 4, ..ConflictRetry::default() };
                for number in 0_u64.. {
                    let id = format!("{cycle}-{writer}-{number}");
                    let command = || {
                        let retry = retry.clone().on_complete("told", "context").unwrap();
                        let command = Command::new("Sell", &number).unwrap().id(&id).retrying(retry);
                        // Nearly always a version that has gone by: such commands are decided again.
                        if number % 3 == 0 { command.within(SCOPE, number) } else { command }
                    };
                    let mut answer = dispatcher.dispatch(command()).await;
                    if random.below(4) == 0 {
                        answer = dispatcher.dispatch(command()).await;
                    }
                    if let Ok(dispatched) = answer {
                        crash::ack(format!("{id} {}", dispatched.outcome.status()));
                    }
                }
            });
        }
        writers.join_next().await.unwrap().unwrap();
    });
}

struct Home {
    place: Place,
    acknowledged: Vec<(String, String)>,
}

impl Home {
    fn new(kind: Kind) -> Self {
        let home = Self { place: Place::new(kind), acknowledged: Vec::new() };
        block_on(async { open(home.place.options()).await.0.close().await });
        home
    }

    fn child(&self, cycle: u64) -> Child {
        let child = Child::of("commands::crash::child_dispatches");
        child.env(URL, self.place.url()).env(CYCLE, cycle.to_string())
    }

    fn note(&mut self, child: &crash::Running) {
        let acknowledged = child.acknowledged();
        self.acknowledged.extend(acknowledged.iter().map(|text| {
            let (id, status) = text.split_once(' ').unwrap();
            (id.to_owned(), status.to_owned())
        }));
    }

    /// Lets a process that lives do what is left, and looks for what is wrong.
    fn check(&self) {
        block_on(async {
            let (store, work, dispatcher) = open(self.place.options()).await;
            let engine = work.start().await.unwrap();
            let draining = async {
                for pool in ["dcbRetryPool", "shop", "dcbRetryPool"] {
                    while !work.depth(pool).await.is_ok_and(|depth| (depth.pending, depth.running) == (0, 0))
                    {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
            };
            tokio::time::timeout(PATIENCE, draining).await.expect("everything ends");
            engine.stop(PATIENCE).await.unwrap();
            let found = Found::load(&store).await;
            for (id, told) in &self.acknowledged {
                let status =
                    dispatcher.status(id).await.unwrap_or_else(|error| panic!("{id} {told}: {error}"));
                if told != "deferred" {
                    assert_eq!(status.outcome.status(), told, "{id}");
                }
            }
            found.check(&dispatcher).await;
            println!("{}: {} acknowledged", self.place.kind(), self.acknowledged.len());
            store.close().await;
        });
    }
}

/// What is there of every command.
struct Found {
    commands: Vec<String>,
    notes: BTreeMap<(String, String), usize>,
    events: BTreeMap<String, usize>,
}

impl Found {
    async fn load(store: &Store) -> Self {
        let read = async |tx: Tx| {
            let commands =
                tx.query("SELECT command_id FROM mainstay_commands ORDER BY command_id", &[]).await?;
            let commands =
                commands.iter().map(|row| row.get(0)).collect::<mainstay_store::Result<Vec<String>>>()?;
            let mut notes = BTreeMap::new();
            for row in tx.query("SELECT what, id FROM notes", &[]).await? {
                *notes.entry((row.get(0)?, row.get(1)?)).or_default() += 1;
            }
            Ok((commands, notes))
        };
        let (commands, notes) = store.read(read).await.unwrap();
        let (log, mut events) = (Log::open(store).await.unwrap(), BTreeMap::new());
        let mut selection = Selection::all();
        loop {
            let page = log.read(&selection, 1_000).await.unwrap();
            for event in &page.events {
                *events.entry(event.causation_id().unwrap().to_owned()).or_default() += 1;
            }
            let Some(next) = page.next else { return Self { commands, notes, events } };
            selection.after = next;
        }
    }

    async fn check(self, dispatcher: &Dispatcher) {
        let (mut rows, mut shipped, mut told) = (0, 0, 0);
        for id in &self.commands {
            let status = dispatcher.status(id).await.unwrap();
            let count = |what: &str| self.notes.get(&(what.to_owned(), id.clone())).copied().unwrap_or(0);
            let expected = match &status.outcome {
                Outcome::Success { events, .. } => {
                    assert_eq!(events.len(), 1, "{id}");
                    1
                }
                Outcome::Rejected { code, .. } => {
                    assert!(["SEVENTH", "DCB_MAX_RETRIES_EXCEEDED"].contains(&&**code), "{id}: {code}");
                    0
                }
                other => panic!("{id} has not ended well: {other:?}"),
            };
            let is = (count("row"), self.events.get(id).copied().unwrap_or(0), count("shipped"));
            assert_eq!(is, (expected, expected, expected), "{id}: row, event, work");
            assert_eq!(count(&format!("told {}", status.outcome.status())), 1, "{id} is told once");
            (rows, shipped, told) = (rows + is.0, shipped + is.2, told + 1);
        }
        let all = |what: &str| {
            self.notes.iter().filter(|((key, _), _)| key.starts_with(what)).map(|(_, n)| n).sum()
        };
        assert_eq!(
            (rows, shipped, told),
            (all("row"), all("shipped"), all("told")),
            "and nothing else is there"
        );
        assert_eq!(rows, self.events.values().sum::<usize>());
    }
}

fn survive_kills(kind: Kind, cycles: u64) {
    let (mut home, random) = (Home::new(kind), SeededRandom::new(cycles));
    for cycle in 0..cycles {
        let mut child = home.child(cycle).spawn().unwrap();
        let several = random.below(5);
        match several {
            0 => drop(child.wait_for("started", PATIENCE).unwrap()),
            _ => child.wait_for_acks(1 + random.below(several * several * 10) as usize, PATIENCE).unwrap(),
        }
        child.kill9().unwrap();
        home.note(&child);
    }
    home.check();
}

#[test]
fn kill_9_under_load_loses_and_doubles_no_command_on_sqlite() {
    survive_kills(Kind::SqliteFile, if is_long() { 300 } else { 12 });
}

#[test]
fn kill_9_under_load_loses_and_doubles_no_command_on_postgres() {
    survive_kills(Kind::Postgres, if is_long() { 300 } else { 12 });
}

#[test]
fn a_death_at_any_commit_loses_and_doubles_no_command() {
    let passings: Vec<u64> = if is_long() { (1..=200).collect() } else { vec![12, 19, 34, 61] };
    for kind in [Kind::SqliteFile, Kind::Postgres] {
        let (mut home, mut cycle) = (Home::new(kind), 0);
        for point in ["store.commit", "store.committed"] {
            for nth in &passings {
                let failpoint = format!("{point}=abort@{nth}");
                let mut child = home.child(cycle).env(FAILPOINTS, &failpoint).spawn().unwrap();
                let status = child.wait(PATIENCE).unwrap();
                assert_eq!(status.signal(), Some(SIGABRT), "{failpoint} strikes: {:?}", child.said());
                home.note(&child);
                cycle += 1;
            }
        }
        home.check();
    }
}
