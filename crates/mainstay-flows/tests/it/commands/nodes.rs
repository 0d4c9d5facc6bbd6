//! Two nodes on one PostgreSQL, one of them paused past its lease while it decides: nothing is there twice.

use crate::projections::support::{PATIENCE, until};
use mainstay_events::{Condition, Log, NewEvent, Selection};
use mainstay_flows::commands::pipeline::{Flow, Middleware, Step};
use mainstay_flows::commands::{
    self, Command, Commands, ConflictRetry, Decision, Dispatched, Dispatcher, Ended, Handling, Issued,
    Outcome, State,
};
use mainstay_store::{Options, Store, Tx, params};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, for_each_kind};
use mainstay_work::{Call, Functions, NewWork, Pool, Work};
use std::time::Duration;

const URL: &str = "TEST_URL";
const SCOPE: &str = "tenant:t1:stock:lamp";
const LEASE: Duration = Duration::from_millis(600);
/// Long enough to be paused in; much longer than a signal takes.
const MOMENT: Duration = Duration::from_secs(1);
const ROUNDS: u64 = 2;

struct Node {
    store: Store,
    log: Log,
    work: Work,
    dispatcher: Dispatcher,
}

async fn note(tx: &Tx, what: &str, id: &str) -> mainstay_store::Result<u64> {
    tx.execute("INSERT INTO notes (what, id) VALUES ($1, $2)", params![what, id]).await
}

/// Tells that a node is at this command, and stays there for a moment.
fn tell(place: &str, issued: &Issued) {
    crash::say(format!("{place} {}.", issued.command_id));
    std::thread::sleep(MOMENT);
}

/// A step before the transaction.
struct Before;

impl Middleware for Before {
    fn name(&self) -> &str {
        "before"
    }

    fn order(&self) -> u16 {
        1
    }

    fn before<'a>(&'a self, issued: &'a Issued) -> Step<'a, Flow> {
        tell("before", issued);
        Box::pin(async { Ok(Flow::Continue) })
    }
}

/// `Sell` writes a row and an event and starts work; `SellLate` is always overtaken at first. A node that tells says where
/// it is, before its transaction and inside.
fn stock(is_telling: bool) -> Commands {
    let sell = move |handling: Handling, number: u64| async move {
        let is_first = handling.issued().attempt == 0;
        if is_first && handling.issued().command_type == "SellLate" {
            handling.unless(Condition::no_tag("item:lamp")?);
        }
        let id = handling.issued().command_id.clone();
        note(handling.tx(), "row", &id).await?;
        if is_telling {
            tell("inside", handling.issued());
        }
        handling.start(NewWork::new("shop", "ship", &id)?)?;
        Ok(Decision::success(number, [NewEvent::new("Sold", &id)?.tenant("t1").tag("item:lamp")]))
    };
    let commands = Commands::new().on("Sell", sell).on("SellLate", sell);
    if is_telling { commands.with(Before) } else { commands }
}

async fn node(url: &str, is_telling: bool) -> Node {
    let options = Options::new(url).connections(4);
    let components = [mainstay_events::COMPONENT, mainstay_work::COMPONENT, commands::COMPONENT];
    let store = components.into_iter().fold(options, Options::component).open().await.unwrap();
    let create = async |tx: Tx| {
        tx.lock("notes").await?;
        tx.execute("CREATE TABLE IF NOT EXISTS notes (what TEXT NOT NULL, id TEXT NOT NULL)", &[]).await
    };
    store.transact(create).await.unwrap();
    let functions = Functions::new()
        .mutation("ship", async |tx: Tx, _: Call, id: String| note(&tx, "shipped", &id).await)
        .mutation("told", async |tx: Tx, _: Call, ended: Ended<String>| {
            note(&tx, &format!("told {}", ended.result.status), &ended.command_id).await
        });
    let (log, stock) = (Log::open(&store).await.unwrap(), stock(is_telling));
    let work = Work::open_with_lease(&store, functions, LEASE).await.unwrap();
    work.pool(Pool::new("shop")).await.unwrap();
    let dispatcher = Dispatcher::open(&log, &work, stock).await.unwrap();
    Node { store, log, work, dispatcher }
}

impl Node {
    /// Sends a command until there is an answer: a transaction is taken from whoever is paused for too long.
    async fn send(&self, round: u64) -> Dispatched {
        loop {
            match self.dispatcher.dispatch(sell(round)).await {
                Ok(dispatched) => return dispatched,
                Err(error) if error.is_retryable() || error.code() == "STORE_TIMEOUT" => {}
                Err(error) => panic!("{}: {error}", error.code()),
            }
        }
    }

    /// How many leases are not over.
    async fn leases(&self) -> i64 {
        let read = async |tx: Tx| {
            let sql = "SELECT count(*) FROM mainstay_leases WHERE until_ms > mainstay_now()";
            tx.query_one(sql, &[]).await?.get(0)
        };
        self.store.read(read).await.unwrap()
    }
}

fn sell(round: u64) -> Command {
    command("Sell", round)
}

fn command(name: &str, round: u64) -> Command {
    let retry = ConflictRetry { initial_backoff_ms: 1, max_backoff_ms: 4, ..ConflictRetry::default() };
    let retry = retry.on_complete("told", "context").unwrap();
    Command::new(name, &round).unwrap().id(format!("cmd-{round}")).retrying(retry)
}

/// A node that sends each command at once, and says what it hears.
#[test]
fn child_dispatches() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let node = node(&std::env::var(URL).unwrap(), true).await;
        let _engine = node.work.start().await.unwrap();
        for round in 0..ROUNDS * 2 {
            let answer = node.send(round).await;
            crash::say(format!("heard {round} {} {}", answer.outcome.status(), answer.is_duplicate));
        }
        std::future::pending::<()>().await;
    });
}

/// A node that decides again what was deferred.
#[test]
fn child_decides_again() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let node = node(&std::env::var(URL).unwrap(), true).await;
        let _engine = node.work.start().await.unwrap();
        crash::say("works");
        std::future::pending::<()>().await;
    });
}

/// Lets all work end, and looks whether there is one of everything for each of so many commands.
async fn check(node: &Node, commands: u64, others: usize) {
    let engine = node.work.start().await.unwrap();
    for pool in ["dcbRetryPool", "shop"] {
        until("everything ends", async || {
            let depth = node.work.depth(pool).await.unwrap();
            depth.pending + depth.running == 0
        })
        .await;
    }
    engine.stop(PATIENCE).await.unwrap();
    let read = async |tx: Tx| {
        let rows = tx.query("SELECT what || ' ' || id FROM notes ORDER BY 1", &[]).await?;
        rows.iter().map(|row| row.get(0)).collect::<mainstay_store::Result<Vec<String>>>()
    };
    let ids = (0..commands).map(|round| format!("cmd-{round}"));
    let mut expected: Vec<String> = ids
        .clone()
        .flat_map(|id| ["row", "shipped", "told success"].map(|what| format!("{what} {id}")))
        .collect();
    expected.sort();
    let mut found = node.store.read(read).await.unwrap();
    found.sort();
    assert_eq!(found, expected, "one row, one item of work and one end of each");
    let events = node.log.read(&Selection::all().of_type("Sold").unwrap(), 1_000).await.unwrap().events;
    let mut caused: Vec<&str> = events.iter().filter_map(|event| event.causation_id()).collect();
    caused.sort_unstable();
    assert_eq!(caused, ids.collect::<Vec<_>>(), "one event of each");
    assert_eq!(node.log.head().await.unwrap() as usize, caused.len() + others);
}

#[test]
fn a_node_paused_while_it_decides_doubles_nothing() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let node = node(place.url(), false).await;
        let child = Child::of("commands::nodes::child_dispatches").env(URL, place.url()).spawn().unwrap();
        for round in 0..ROUNDS * 2 {
            // Before its transaction, and in the middle of it.
            let at = if round % 2 == 0 { "before" } else { "inside" };
            child.wait_for(&format!("{at} cmd-{round}."), PATIENCE).unwrap();
            child.stop().unwrap();
            // Whoever sent it loses patience, and sends it here.
            let answer = node.send(round).await;
            assert_eq!((answer.outcome.status(), answer.is_duplicate), ("success", false), "round {round}");
            until("its lease is over", async || node.leases().await == 0).await;
            child.cont().unwrap();
            child.wait_for(&format!("heard {round} success true"), PATIENCE).unwrap();
        }
        drop(child);
        check(&node, ROUNDS * 2, 0).await;
    });
}

#[test]
fn a_node_paused_while_it_decides_again_doubles_nothing() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let node = node(place.url(), false).await;
        let moved = NewEvent::new("StockAdded", &1).unwrap().tenant("t1").tag("item:lamp");
        node.log.append(moved.scope(SCOPE, 0)).await.unwrap();
        let child = Child::of("commands::nodes::child_decides_again").env(URL, place.url()).spawn().unwrap();
        child.wait_for("works", PATIENCE).unwrap();
        for round in 0..ROUNDS * 2 {
            // A version that has gone by, or a condition that does not hold.
            let command = match round % 2 {
                0 => sell(round).within(SCOPE, 0),
                _ => command("SellLate", round),
            };
            let sent = node.dispatcher.dispatch(command).await.unwrap();
            assert!(matches!(sent.outcome, Outcome::Deferred(_)), "{sent:?}");
            child.wait_for(&format!("inside cmd-{round}."), PATIENCE).unwrap();
            child.stop().unwrap();
            // Its lease runs out, and this node takes the item up.
            let engine = node.work.start().await.unwrap();
            let ended = node.dispatcher.wait_for(&format!("cmd-{round}"), PATIENCE).await.unwrap();
            assert_eq!((ended.state, ended.outcome.status()), (State::Executed, "success"), "{ended:?}");
            child.cont().unwrap();
            engine.stop(PATIENCE).await.unwrap();
        }
        drop(child);
        check(&node, ROUNDS * 2, 1).await;
    });
}
