//! A PostgreSQL server that is killed, a line to it that is cut or falls silent, and commits that nobody hears of, under
//! nodes that work.
//!
//! Work goes on by itself when the server is back, and nothing is lost or done twice.

use crate::ledger::{
    Actions, Found, Load, PATIENCE, drained, is_long, open_shop, put, until_more_ended, until_ok, with_tables,
};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_store::{Options, Store, Tx};
use mainstay_testkit::postgres::{Doorman, Postgres, Private};
use mainstay_testkit::proxy::Proxy;
use mainstay_testkit::stores::{Kind, Place, for_each_kind, open_at_last};
use mainstay_work::{Engine, Native, Work};
use std::time::Duration;

/// Work goes on within this time after the server is back. Five seconds are held where nothing else runs beside this.
fn soon() -> Duration {
    Duration::from_secs(if is_long() { 5 } else { 30 })
}

/// The usual length of a lease, which no outage here outlasts.
const LONG_LEASE: Duration = Duration::from_secs(15);
/// One that every outage outlasts.
const SHORT_LEASE: Duration = Duration::from_millis(600);

struct Node {
    store: Store,
    work: Work,
    engine: Engine,
}

impl Node {
    async fn start(options: Options, lease: Duration) -> Self {
        let store = open_at_last(with_tables(options)).await;
        let work = open_shop(&store, lease).await;
        let engine = work.start().await.unwrap();
        Self { store, work, engine }
    }

    /// Lets everything end, and looks for what is wrong.
    async fn check(&self, load: Load) {
        let done = load.stop().await;
        drained(&self.work).await;
        let found = Found::load(&self.store).await;
        println!("{} calls acknowledged: {:?}", done.len(), found.tally());
        found.check(&done, Actions::Late).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

// --- a server that is killed ------------------------------------------------------------------------------------

/// Starting, killing and recovering block; the nodes go on meanwhile.
async fn with_server(
    mut server: Private,
    change: impl FnOnce(&mut Private) -> anyhow::Result<()> + Send + 'static,
) -> Private {
    let changing = move || change(&mut server).map(|()| server);
    tokio::task::spawn_blocking(changing).await.unwrap().unwrap()
}

async fn survive(kills: usize, kill: fn(&mut Private) -> anyhow::Result<()>) {
    let mut server = tokio::task::spawn_blocking(Postgres::private).await.unwrap().unwrap();
    let hasty = Options::new(server.url()).connections(4).busy_timeout(Duration::from_millis(250));
    let patient = Options::new(server.url()).connections(4);
    let (hasty, patient) = (Node::start(hasty, SHORT_LEASE).await, Node::start(patient, LONG_LEASE).await);
    let load = Load::start(&[hasty.work.clone(), patient.work.clone(), patient.work.clone()], 0);
    let mut slowest = Duration::ZERO;
    for _ in 0..kills {
        until_more_ended(&patient.store, 100).await;
        server = with_server(server, kill).await;
        server = with_server(server, Private::start).await;
        let resumed = until_more_ended(&patient.store, 20).await;
        assert!(resumed < soon(), "work went on after {resumed:?}");
        slowest = slowest.max(resumed);
    }
    patient.check(load).await;
    println!("{kills} outages, work went on after {slowest:?} at most");
    assert_eq!(patient.work.figures().lost.get(), 0, "no outage outlasted its lease");
    drop((hasty, patient));
    with_server(server, Private::stop_fast).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_and_doubles_nothing() {
    survive(if is_long() { 50 } else { 3 }, Private::kill9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restarted_under_load_loses_and_doubles_nothing() {
    survive(if is_long() { 20 } else { 1 }, Private::stop_fast).await;
}

// --- a line that fails ------------------------------------------------------------------------------------------

#[test]
fn cuts_at_any_moment_lose_and_double_nothing() {
    const DELAY: Duration = Duration::from_millis(2);
    for_each_kind(&[Kind::Postgres], async |place| {
        let (proxy, url) = Proxy::before(&place).unwrap();
        let node = Node::start(Options::new(&url).connections(6), LONG_LEASE).await;
        let (random, straight) = (SeededRandom::new(3), place.open().await);
        let load = Load::start(&[node.work.clone(), node.work.clone(), node.work.clone()], 0);
        // So that a commit is on its way at many moments.
        proxy.delay(DELAY);
        for cut in 0..if is_long() { 2_000 } else { 25 } {
            until_more_ended(&straight, random.below(30) as i64).await;
            // An end comes with a commit; the cut shall come anywhere. Round trips pace it.
            for _ in 0..random.below(24) {
                straight.read(async |tx: Tx| tx.query("SELECT 1", &[]).await).await.unwrap();
            }
            if cut % 10 == 9 {
                proxy.cut().await;
                proxy.heal().await;
                proxy.delay(DELAY);
            } else {
                proxy.cut_connections().await;
            }
        }
        proxy.heal().await;
        node.check(load).await;
    });
}

/// What a node has sent before its line fell silent arrives when others have done its work.
#[test]
fn a_node_on_a_silent_line_ends_nothing_twice() {
    const LIMIT: Duration = Duration::from_millis(500);
    for_each_kind(&[Kind::Postgres], async |place| {
        let (proxy, url) = Proxy::before(&place).unwrap();
        let options =
            |url: &str| Options::new(url).connections(4).transaction_timeout(LIMIT).read_timeout(LIMIT);
        let far = Node::start(options(&url), SHORT_LEASE).await;
        let near = Node::start(options(place.url()), SHORT_LEASE).await;
        let load = Load::start(&[near.work.clone(), near.work.clone(), near.work.clone()], 0);
        for _ in 0..if is_long() { 200 } else { 5 } {
            until_leases(&near, 2).await;
            until_more_ended(&near.store, 30).await;
            proxy.half_open();
            until_leases(&near, 1).await;
            until_more_ended(&near.store, 30).await;
            proxy.heal().await;
        }
        near.check(load).await;
        println!("the far node lost its lease {} times", far.work.figures().lost.get());
    });
}

async fn until_leases(node: &Node, wanted: i64) {
    let count = async |tx: Tx| tx.query_one("SELECT count(*) FROM mainstay_leases", &[]).await?.get::<i64>(0);
    let waiting = async {
        while until_ok(async || node.store.read(count).await).await != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("leases come and go");
}

// --- a commit of unknown outcome --------------------------------------------------------------------------------

/// What becomes of a commit that the node has lost sight of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It happens, when the node has begun to look for it.
    Late,
    /// It does not.
    Never,
}

const DOOR: i64 = 7;

/// A node whose next commit that inserts into `table` goes out of its sight.
async fn lose_sight_of_commit(place: &Place, table: &str, fate: Fate) {
    let (proxy, url) = Proxy::before(place).unwrap();
    let node = Node::start(Options::new(&url).connections(6), LONG_LEASE).await;
    let doorman = Doorman::new(place).await;
    doorman.guard_commits(table, DOOR).await;
    doorman.shut(DOOR).await;
    let (lingering, lease) = (crate::ledger::lingering_act(), node.engine.lease());
    let enqueued =
        node.work.enqueue_all(vec![lingering, put(1), put(2).key("k"), put(3).key("k")]).await.unwrap();
    doorman.until_at_door().await;
    match fate {
        Fate::Late => {
            proxy.cut_connections().await;
            // The server goes on with the commit, and the node waits for that.
            doorman.until_waiting(2).await;
        }
        Fate::Never => doorman.turn_away().await,
    }
    doorman.open(DOOR).await;
    drained(&node.work).await;
    for one in &enqueued {
        let status = node.work.status(&one.work_id).await.unwrap().unwrap();
        assert_eq!((status.native, status.attempts), (Native::Success, 1), "{fate:?}");
    }
    let found = Found::load(&node.store).await;
    found.check(&[], Actions::InOrder).unwrap_or_else(|wrong| panic!("{fate:?}: {wrong}"));
    // Nobody had a reason to give up the lease.
    assert_eq!((node.work.figures().lost.get(), node.engine.lease()), (0, lease), "{fate:?}");
}

#[test]
fn a_claim_that_nobody_hears_of_is_found() {
    for_each_kind(&[Kind::Postgres], async |place| {
        for fate in [Fate::Late, Fate::Never] {
            let place = Place::new(place.kind());
            lose_sight_of_commit(&place, "mainstay_batches", fate).await;
        }
    });
}

#[test]
fn an_end_that_nobody_hears_of_is_not_repeated() {
    for_each_kind(&[Kind::Postgres], async |place| {
        for fate in [Fate::Late, Fate::Never] {
            let place = Place::new(place.kind());
            lose_sight_of_commit(&place, "effects", fate).await;
        }
    });
}
