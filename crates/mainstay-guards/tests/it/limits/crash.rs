//! Processes that are killed while they take from budgets.
//!
//! What was acknowledged is charged, and a charge that is part of a transaction is there exactly when the rest of it is.

use super::is_long;
use mainstay_core::failpoints::{Action, Point};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_guards::limits::store::{COMPONENT, Limits};
use mainstay_guards::limits::{Definition, Kind};
use mainstay_store::{Options, Store, Tx};
use mainstay_testkit::crash::{self, Child, Running};
use mainstay_testkit::stores::{Kind as StoreKind, Place};
use std::time::Duration;

const URL: &str = "TEST_URL";
const PATIENCE: Duration = Duration::from_secs(60);
const CAPACITY: i64 = 1_000_000_000;
/// Of each kind, and so many may have been charged without having been able to say so.
const CALLERS: i64 = 3;

fn block_on<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(run)
}

async fn open(options: Options) -> Limits {
    let store = options.component(COMPONENT).open().await.unwrap();
    store
        .transact(async |tx| tx.execute("CREATE TABLE IF NOT EXISTS effects (n BIGINT)", &[]).await)
        .await
        .unwrap();
    let limits = Limits::open(store).await.unwrap();
    // Nothing comes back while the test lasts.
    let yearly = Definition::new(Kind::FixedWindow, CAPACITY as f64, 366 * 86_400_000).unwrap();
    limits.define("limit", yearly).await.unwrap();
    limits
}

#[test]
fn child_takes_from_budgets() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let limits = open(Options::new(std::env::var(URL).unwrap()).connections(4)).await;
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..CALLERS {
            let alone = limits.clone();
            callers.spawn(async move {
                loop {
                    assert!(alone.consume("limit", "alone", 1).await.unwrap().allowed);
                    crash::ack("alone");
                }
            });
            let together = limits.clone();
            callers.spawn(async move {
                loop {
                    with_effect(together.store(), &together).await;
                    crash::ack("together");
                }
            });
        }
        // They never end.
        callers.join_next().await.unwrap().unwrap();
    });
}

async fn with_effect(store: &Store, limits: &Limits) {
    let take = async |tx: Tx, limits: Limits| {
        assert!(limits.consume_in(&tx, "limit", "together", 1).await?.allowed);
        tx.execute("INSERT INTO effects (n) VALUES (1)", &[]).await
    };
    store.transact_with(limits.clone(), take).await.unwrap();
}

/// What lies in a store that outlives those who use it, and what they said about it.
struct Home {
    place: Place,
    /// Of calls alone and of those with an effect.
    acknowledged: [i64; 2],
    deaths: i64,
}

impl Home {
    fn new(kind: StoreKind) -> Self {
        let place = Place::new(kind);
        block_on(async { open(place.options()).await.store().clone().close().await });
        Self { place, acknowledged: [0; 2], deaths: 0 }
    }

    fn child(&self, test: &str) -> Child {
        Child::of(format!("limits::crash::{test}")).env(URL, self.place.url())
    }

    fn note(&mut self, dead: &Running) {
        self.deaths += 1;
        for said in dead.acknowledged() {
            self.acknowledged[usize::from(said == "together")] += 1;
        }
    }

    fn check(&self) -> Result<(), String> {
        let (charged, effects) = block_on(async {
            let limits = open(self.place.options()).await;
            let mut charged = [0; 2];
            for (charged, key) in charged.iter_mut().zip(["alone", "together"]) {
                *charged = CAPACITY - limits.value("limit", key).await.unwrap().value;
            }
            let count = async |tx: Tx| tx.query_one("SELECT count(*) FROM effects", &[]).await?.get::<i64>(0);
            let effects = limits.store().read(count).await.unwrap();
            limits.store().clone().close().await;
            (charged, effects)
        });
        for (charged, acknowledged) in charged.iter().zip(self.acknowledged) {
            let most = acknowledged + self.deaths * CALLERS;
            if !(acknowledged..=most).contains(charged) {
                return Err(format!("{charged} are charged, of {acknowledged} to {most}"));
            }
        }
        match charged[1] == effects {
            true => Ok(()),
            false => Err(format!("{} are charged for {effects} effects", charged[1])),
        }
    }
}

fn survive_kills(kind: StoreKind) {
    let (mut home, random) = (Home::new(kind), SeededRandom::new(9));
    for _ in 0..if is_long() { 200 } else { 6 } {
        let mut child = home.child("child_takes_from_budgets").spawn().unwrap();
        child.wait_for_acks(1 + random.below(200) as usize, PATIENCE).unwrap();
        child.kill9().unwrap();
        home.note(&child);
        home.check().unwrap();
    }
    println!("{kind}: {:?} acknowledged", home.acknowledged);
}

#[test]
fn kill_9_loses_no_charge_that_was_acknowledged_on_sqlite() {
    survive_kills(StoreKind::SqliteFile);
}

#[test]
fn kill_9_loses_no_charge_that_was_acknowledged_on_postgres() {
    survive_kills(StoreKind::Postgres);
}

/// Promises too early: inside of the transaction.
#[test]
fn child_acknowledges_before_the_commit() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let limits = open(Options::new(std::env::var(URL).unwrap()).connections(1)).await;
        let take = async |tx: Tx, limits: Limits| {
            let decision = limits.consume_in(&tx, "limit", "together", 1).await?;
            crash::ack("together");
            Ok(decision)
        };
        limits.store().failpoints().arm(Point::StoreCommit, Action::Abort, 0, 1);
        limits.store().transact_with(limits.clone(), take).await.unwrap();
    });
}

#[test]
fn the_check_finds_a_charge_that_a_faulty_program_loses() {
    for kind in [StoreKind::SqliteFile, StoreKind::Postgres] {
        let mut home = Home::new(kind);
        let mut child = home.child("child_acknowledges_before_the_commit").spawn().unwrap();
        assert!(!child.wait(PATIENCE).unwrap().success());
        home.note(&child);
        assert_eq!(home.check().unwrap_err(), "0 are charged, of 1 to 4", "{kind}");
    }
}
