//! Processes that die while they decide about commands: by `kill -9` under load, and at each step of a dispatch.
//!
//! Afterwards a process that lives does what is left. Whatever a command was told, it and everything about it is there
//! once: its row, its event, the work that it started, and whoever wanted to hear of its end. And the read models that
//! followed in the same process are what the log makes of them.

use crate::projections::support::{Bench, components, noting};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_events::{Event, NewEvent, Selection};
use mainstay_flows::commands::{
    self, Command, Commands, ConflictRetry, Decision, Dispatcher, Ended, Handling, Outcome, Rejection,
};
use mainstay_flows::projections::{Category, Model, Projection, Registry};
use mainstay_store::{Options, Store, Tx, params};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place, for_each_lasting_store};
use mainstay_work::{Call, Functions, NewWork, Pool};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const SIGABRT: i32 = 6;
const PATIENCE: Duration = Duration::from_secs(90);
/// On PostgreSQL nobody takes up what a dead node had before this is over.
const LEASE: Duration = Duration::from_millis(400);
/// So many that they share transactions, also where a few are better off alone.
const WRITERS: u64 = 16;
const SCOPE: &str = "tenant:t1:stock:lamp";

const URL: &str = "TEST_URL";
const CYCLE: &str = "TEST_CYCLE";
const FAILPOINTS: &str = "MAINSTAY_FAILPOINTS";

/// The steps of a dispatch and of what follows it, and how often they are passed at the most before the process dies.
const STEPS: [(&str, u64); 10] = [
    ("store.commit", 60),
    ("store.committed", 60),
    ("dispatch.deciding", 100),
    ("dispatch.decided", 100),
    ("dispatch.appending", 100),
    // Of those who are decided alone, such as those that were deferred.
    ("dispatch.recorded", 6),
    ("dispatch.overtaken", 6),
    ("dispatch.committed", 100),
    ("projections.applied", 15),
    ("projections.checkpoint", 15),
];

fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(work)
}

/// Whether somebody wants to hear of the end of this command.
fn is_told(number: u64) -> bool {
    number.is_multiple_of(4)
}

async fn note(tx: &Tx, what: &str, id: &str) -> mainstay_store::Result<u64> {
    tx.execute("INSERT INTO notes (what, id) VALUES ($1, $2)", params![what, id]).await
}

/// `Sell` writes a row and an event and starts work; every seventh is rejected. A few have written their row by then, which
/// splits the batch: where many do, batches hardly form.
fn stock() -> Commands {
    Commands::new().on("Sell", async |handling: Handling, number: u64| {
        let id = handling.issued().command_id.clone();
        let seventh = || Rejection::new("SEVENTH", "every seventh");
        if number % 7 == 3 && number != 45 {
            return Err(seventh().into());
        }
        note(handling.tx(), "row", &id).await?;
        if number == 45 {
            return Err(seventh().into());
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

/// How many were sold in each cycle.
fn sums() -> Projection {
    let table = "CREATE TABLE {table} (cycle TEXT PRIMARY KEY, count BIGINT NOT NULL)";
    Projection::new("sums", Category::View).table("sums", &[table]).each(
        async |tx: Tx, model: Model, event: Event| {
            let table = model.table("sums")?;
            let sql = format!(
                "INSERT INTO {table} (cycle, count) VALUES ($1, 1) \
                 ON CONFLICT (cycle) DO UPDATE SET count = {table}.count + 1"
            );
            tx.execute(&sql, params![cycle(&event)]).await
        },
    )
}

fn cycle(event: &Event) -> String {
    let id = event.causation_id().unwrap();
    id.split_once('-').unwrap().0.to_owned()
}

async fn open(options: Options) -> (Bench, Dispatcher) {
    let store = components(options).component(commands::COMPONENT).open().await.unwrap();
    let table = "CREATE TABLE IF NOT EXISTS notes (what TEXT NOT NULL, id TEXT NOT NULL)";
    store.transact(async move |tx| tx.execute(table, &[]).await).await.unwrap();
    let registry = Registry::new().with(noting("noted")).with(sums());
    let stock = stock();
    let bench = Bench::of(store, registry, functions(), LEASE).await;
    bench.work.pool(Pool::new("shop")).await.unwrap();
    let dispatcher = Dispatcher::open(&bench.log, &bench.work, stock).await.unwrap();
    (bench, dispatcher)
}

#[test]
fn child_dispatches() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let cycle: u64 = std::env::var(CYCLE).unwrap().parse().unwrap();
        let (bench, dispatcher) = open(Options::new(std::env::var(URL).unwrap()).connections(4)).await;
        let _running = bench.start().await;
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
                        let command = Command::new("Sell", &number).unwrap().id(&id);
                        if !is_told(number) {
                            return command;
                        }
                        let retry = retry.clone().on_complete("told", "context").unwrap();
                        let command = command.retrying(retry);
                        // Nearly always a version that has gone by: such commands are decided again.
                        if number % 16 == 0 { command.within(SCOPE, number) } else { command }
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
        block_on(async { open(home.place.options()).await.0.store.close().await });
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
            let (bench, dispatcher) = open(self.place.options()).await;
            let (projecting, engine) = bench.start().await;
            let work = &bench.work;
            let draining = async {
                for pool in ["dcbRetryPool", "shop", "dcbRetryPool"] {
                    while !work.depth(pool).await.is_ok_and(|depth| (depth.pending, depth.running) == (0, 0))
                    {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
            };
            tokio::time::timeout(PATIENCE, draining).await.expect("everything ends");
            for model in ["noted", "sums"] {
                bench.caught_up(model).await;
            }
            projecting.stop(PATIENCE).await;
            engine.stop(PATIENCE).await.unwrap();
            let found = Found::load(&bench).await;
            for (id, told) in &self.acknowledged {
                let status =
                    dispatcher.status(id).await.unwrap_or_else(|error| panic!("{id} {told}: {error}"));
                if told != "deferred" {
                    assert_eq!(status.outcome.status(), told, "{id}");
                }
            }
            found.check(&dispatcher).await;
            println!("{}: {} acknowledged", self.place.kind(), self.acknowledged.len());
            bench.store.close().await;
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
    /// Looks for everything, and whether the read models are what the log makes of them.
    async fn load(bench: &Bench) -> Self {
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
        let (commands, notes) = bench.store.read(read).await.unwrap();
        let (mut events, mut positions, mut sums) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let mut selection = Selection::all();
        loop {
            let page = bench.log.read(&selection, 1_000).await.unwrap();
            for event in &page.events {
                *events.entry(event.causation_id().unwrap().to_owned()).or_default() += 1;
                *sums.entry(cycle(event)).or_default() += 1;
                positions.push(event.position());
            }
            let Some(next) = page.next else { break };
            selection.after = next;
        }
        assert_eq!(bench.noted("noted").await, positions, "a read model is what the log makes of it");
        assert_eq!(kept_sums(&bench.store).await, sums, "and so is the other");
        Self { commands, notes, events }
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
            let is_told = usize::from(is_told(id.rsplit_once('-').unwrap().1.parse().unwrap()));
            assert_eq!(count(&format!("told {}", status.outcome.status())), is_told, "{id} is told once");
            (rows, shipped, told) = (rows + is.0, shipped + is.2, told + is_told);
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

async fn kept_sums(store: &Store) -> BTreeMap<String, i64> {
    let read = async |tx: Tx| {
        let rows = tx.query("SELECT cycle, count FROM sums", &[]).await?;
        rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect::<mainstay_store::Result<_>>()
    };
    store.read(read).await.unwrap()
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

/// What decides when processes die. A long run is another one every time.
fn seed() -> u64 {
    let given = std::env::var("MAINSTAY_SEED").ok().map(|seed| seed.parse().unwrap());
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    given.unwrap_or_else(|| if is_long() { now() } else { 6 })
}

fn die_at_every_step(kind: Kind, rounds: u64) {
    let seed = seed();
    println!("on {kind} with MAINSTAY_SEED={seed}");
    let (mut home, random) = (Home::new(kind), SeededRandom::new(seed));
    for round in 0..rounds {
        for (number, (point, passings)) in (0..).zip(STEPS) {
            let failpoint = format!("{point}=abort@{}", 1 + random.below(passings));
            let cycle = round * STEPS.len() as u64 + number;
            let mut child = home.child(cycle).env(FAILPOINTS, &failpoint).spawn().unwrap();
            let status = child.wait(PATIENCE).unwrap();
            assert_eq!(status.signal(), Some(SIGABRT), "{failpoint} strikes: {:?}", child.said());
            home.note(&child);
        }
        home.check();
    }
}

#[test]
fn a_death_at_any_step_of_a_dispatch_loses_and_doubles_nothing_on_sqlite() {
    die_at_every_step(Kind::SqliteFile, if is_long() { 30 } else { 1 });
}

#[test]
fn a_death_at_any_step_of_a_dispatch_loses_and_doubles_nothing_on_postgres() {
    die_at_every_step(Kind::Postgres, if is_long() { 30 } else { 1 });
}

/// Otherwise the tests above would not reach the transactions that commands share.
#[test]
fn so_many_writers_share_transactions() {
    for_each_lasting_store(async |place| {
        let (bench, dispatcher) = open(place.options()).await;
        let share = async |round: usize| {
            let before = bench.store.figures().committed.get();
            let mut writers = tokio::task::JoinSet::new();
            for writer in 0..WRITERS {
                let dispatcher = dispatcher.clone();
                writers.spawn(async move {
                    for number in 0..20 {
                        let id = format!("{round}-{writer}-{number}");
                        dispatcher.dispatch(Command::new("Sell", &number).unwrap().id(id)).await.unwrap();
                    }
                });
            }
            while let Some(writer) = writers.join_next().await {
                writer.unwrap();
            }
            bench.store.figures().committed.get() - before
        };
        // A busy machine may let them come one by one, but not every time.
        let mut counts = vec![share(0).await];
        while counts.len() < 5 && counts.iter().all(|count| *count >= WRITERS * 20 * 3 / 4) {
            counts.push(share(counts.len()).await);
        }
        assert!(
            *counts.last().unwrap() < WRITERS * 20 * 3 / 4,
            "{counts:?} transactions on {}",
            place.kind()
        );
    });
}
