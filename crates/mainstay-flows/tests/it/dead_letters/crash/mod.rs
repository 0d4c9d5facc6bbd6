//! Processes that die at every step of what is done about many letters: they are tried again, ignored, purged, and it is
//! cancelled half-way. Afterwards one that lives does what is left. Then no letter is lost or doubled, each is in the state
//! that its operation has counted, and what was tried again was tried once.
//!
//! - `made`: letters of every kind
//! - `look`: what is wrong

pub(super) mod look;
pub(super) mod made;

use super::bench::{Bench, PATIENCE, SHOP, components};
use look::Wrong;
use made::{letters, of};
use mainstay_core::failpoints::{Action as Fault, Point};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_flows::dead_letters::{
    Action, Filter, Listed, Operation, OperationStatus, POOL, Status, Upkeep,
};
use mainstay_flows::delivery::appends::APPEND_POOL;
use mainstay_flows::delivery::publications;
use mainstay_store::{Options, Tx, params};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::NewWork;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const SIGABRT: i32 = 6;
const URL: &str = "TEST_URL";
const OPERATION: &str = "TEST_OPERATION";
const CANCEL: &str = "TEST_CANCEL";
const POINT: &str = "TEST_POINT";
/// On PostgreSQL nobody takes up what a dead node had before this is over.
const LEASE: Duration = Duration::from_millis(400);
const BATCHES: [&str; 3] = ["retry", "ignore", "cancel"];

fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(work)
}

async fn open(options: Options) -> Bench {
    let store = components(options).open().await.unwrap();
    let bench = Bench::on(store, LEASE, Upkeep::none()).await;
    bench.mend();
    bench
}

#[test]
fn child_goes_on_with_an_operation() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let bench = open(Options::new(std::env::var(URL).unwrap()).connections(4)).await;
        let (id, point) = (std::env::var(OPERATION).unwrap(), std::env::var(POINT).unwrap());
        let (name, nth) = point.split_once('@').unwrap();
        bench.store.failpoints().arm(Point::named(name), Fault::Abort, nth.parse::<u64>().unwrap() - 1, 1);
        if std::env::var_os(CANCEL).is_some() {
            return drop(bench.letters.cancel(&id).await.unwrap());
        }
        if bench.letters.operation(&id).await.unwrap().status == OperationStatus::Previewed {
            bench.letters.run(&id).await.unwrap();
        }
        let _engine = bench.start().await;
        bench.ended(&id).await;
    });
}

/// A store with letters, and the points at which processes have died there.
struct Home {
    place: Place,
    random: SeededRandom,
    deaths: u64,
    struck: BTreeSet<String>,
    before: BTreeMap<&'static str, BTreeMap<i64, Listed>>,
}

impl Home {
    fn new(kind: Kind, seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let batches = BATCHES.map(|batch| (batch, made::sizes(&random)));
        println!("{kind}, seed {seed}: {batches:?}");
        let place = Place::new(kind);
        let before = block_on(async {
            let bench = open(place.options()).await;
            bench.spoil();
            bench.bad.spoil("bad");
            made::make(&bench, &batches).await;
            let mut before = BTreeMap::new();
            for batch in BATCHES {
                before.insert(batch, letters(&bench, batch).await);
            }
            bench.store.close().await;
            before
        });
        Self { place, random, deaths: 0, struck: BTreeSet::new(), before }
    }

    /// Looks with a process that lives, and does nothing by itself.
    fn look<T>(&self, look: impl AsyncFn(&Bench) -> T) -> T {
        block_on(async {
            let bench = open(self.place.options()).await;
            let seen = look(&bench).await;
            bench.store.close().await;
            seen
        })
    }

    fn preview(&self, action: Action, filter: Filter) -> String {
        self.look(async |bench| {
            bench.letters.preview(action, filter.clone(), "ann").await.unwrap().operation_id
        })
    }

    /// Lets a process go on with an operation; whether it died at a point.
    fn dies(&mut self, id: &str, point: &str, nth: u64, is_cancelling: bool) -> bool {
        let child = Child::of("dead_letters::crash::child_goes_on_with_an_operation");
        let child = child.env(URL, self.place.url()).env(OPERATION, id).env(POINT, format!("{point}@{nth}"));
        let child = if is_cancelling { child.env(CANCEL, "1") } else { child };
        let mut child = child.spawn().unwrap();
        let status = child.wait(2 * PATIENCE).unwrap();
        let has_died = status.signal() == Some(SIGABRT);
        self.deaths += u64::from(has_died);
        assert!(has_died || status.success(), "{point}@{nth}: {status} {:?}", child.said());
        has_died
    }

    fn must_die(&mut self, what: &str, id: &str, point: &str, nth: u64) {
        assert!(self.dies(id, point, nth, what == "cancel"), "{point}@{nth} strikes when it is to {what}");
        self.struck.insert(point.to_owned());
    }

    /// Kills whoever goes on with an operation: at its beginning, inside of a chunk and at commits. `points` are those inside.
    fn strike(&mut self, what: &str, id: &str, points: &[&str]) {
        self.must_die(what, id, "letters.begun", 1);
        // It is begun, and nobody has been told.
        self.must_die(what, id, "store.committed", 1);
        let first = self.random.below(points.len() as u64) as usize;
        // A chunk that is not committed is begun anew, so that each of them has one to strike in.
        for number in 0..points.len() {
            self.must_die(what, id, points[(first + number) % points.len()], 1);
        }
        let nth = 1 + self.random.below(2);
        self.must_die(what, id, "store.commit", nth);
        // Later ones may come too late.
        for _ in 0..if is_long() { 6 } else { 0 } {
            let all = [points, &["store.commit", "store.committed"]].concat();
            let point = all[self.random.below(all.len() as u64) as usize];
            let nth = 1 + self.random.below(9);
            self.dies(id, point, nth, false);
        }
    }

    /// Lets a process that lives do what is left of an operation.
    fn ended(&self, id: &str) -> Operation {
        self.look(async |bench| {
            let engine = bench.start().await;
            let ended = bench.ended(id).await;
            for pool in [POOL, SHOP, "projectionPool", publications::POOL, APPEND_POOL] {
                bench.drained(pool).await;
            }
            engine.stop(PATIENCE).await.unwrap();
            ended
        })
    }

    fn retry(&mut self, wrong: &mut Wrong) {
        let id = self.preview(Action::Retry, of("retry"));
        self.strike("retry", &id, &["letters.acted", "letters.advanced", "publications.retried"]);
        let ended = self.ended(&id);
        self.check_retried("retry", &ended, OperationStatus::Done, wrong);
    }

    /// Some letters are tried again, and the others stay as they were.
    fn cancel(&mut self, wrong: &mut Wrong) {
        let id = self.preview(Action::Retry, of("cancel"));
        // The first chunk is done by then, and the second is not.
        self.must_die("retry", &id, "letters.acted", 2);
        self.must_die("cancel", &id, "store.commit", 1);
        let running = self.look(async |bench| bench.letters.operation(&id).await.unwrap());
        wrong.unless(running.status == OperationStatus::Running, "a cancel that was never committed");
        self.must_die("cancel", &id, "store.committed", 1);
        let ended = self.ended(&id);
        wrong.unless(0 < ended.done && ended.done < ended.total, "it was not cancelled half-way");
        self.check_retried("cancel", &ended, OperationStatus::Cancelled, wrong);
    }

    fn check_retried(&self, batch: &str, ended: &Operation, status: OperationStatus, wrong: &mut Wrong) {
        wrong.unless(ended.status == status, format!("{ended:?}"));
        let after = self.look(async |bench| letters(bench, batch).await);
        wrong.same(&self.before[batch], &after);
        let (tried, left): (Vec<&Listed>, Vec<&Listed>) =
            after.values().partition(|letter| letter.retry_count > 0);
        tried.iter().for_each(|letter| wrong.tried_again(letter));
        wrong.counted(ended, tried.len());
        let is_left = left.iter().all(|letter| letter.status == Status::Pending);
        let is_whole = status == OperationStatus::Cancelled || left.is_empty();
        wrong.unless(is_left && is_whole, "a letter was left that was not pending, or to be left");
    }

    fn ignore(&mut self, wrong: &mut Wrong) {
        let id = self.preview(Action::Ignore, of("ignore"));
        self.strike("ignore", &id, &["letters.acted", "letters.advanced"]);
        let ended = self.ended(&id);
        let after = self.look(async |bench| letters(bench, "ignore").await);
        wrong.same(&self.before["ignore"], &after);
        wrong.counted(&ended, after.len());
        let is_so = |letter: &Listed| (letter.status, letter.retry_count) == (Status::Ignored, 0);
        wrong.unless(
            ended.status == OperationStatus::Done && after.values().all(is_so),
            format!("not ignored: {ended:?}"),
        );
    }

    /// What is ignored goes, and nothing else.
    fn purge(&mut self, wrong: &mut Wrong) {
        let id = self.preview(Action::Purge, Filter { status: Some(Status::Ignored), ..Filter::default() });
        let others = async |bench: &Bench| (letters(bench, "retry").await, letters(bench, "cancel").await);
        let before = self.look(others);
        self.strike("purge", &id, &["letters.acted", "letters.advanced"]);
        let ended = self.ended(&id);
        wrong.counted(&ended, self.before["ignore"].len());
        wrong.unless(ended.status == OperationStatus::Done, format!("{ended:?}"));
        let left = self.look(async |bench| letters(bench, "ignore").await.len());
        wrong.unless(left == 0 && self.look(others) == before, "too much or too little was purged");
    }

    /// Everything that is wrong with what has come of the letters.
    fn effects(&self, wrong: &mut Wrong) {
        self.look(async |bench| {
            let mut found = Wrong(Vec::new());
            look::effects(bench, &BATCHES, &mut found).await;
            found
        })
        .0
        .into_iter()
        .for_each(|what| wrong.unless(false, what));
    }
}

fn survive(kind: Kind) {
    for seed in 1..=if is_long() { 12 } else { 1 } {
        let (mut home, mut wrong) = (Home::new(kind, seed), Wrong(Vec::new()));
        home.retry(&mut wrong);
        home.ignore(&mut wrong);
        home.cancel(&mut wrong);
        home.effects(&mut wrong);
        home.purge(&mut wrong);
        assert_eq!(wrong.0, [""; 0], "{kind}, seed {seed}");
        println!("{kind}, seed {seed}: {} deaths, at {:?}", home.deaths, home.struck);
    }
}

#[test]
fn b_278_a_death_at_any_step_of_an_operation_loses_and_doubles_no_letter_on_sqlite() {
    survive(Kind::SqliteFile);
}

#[test]
fn b_278_a_death_at_any_step_of_an_operation_loses_and_doubles_no_letter_on_postgres() {
    survive(Kind::Postgres);
}

/// A letter that is removed while it is tried again, and a charge that is made once more: that must be seen.
#[test]
fn the_check_finds_a_letter_that_is_lost_and_an_effect_that_is_doubled() {
    let home = Home::new(Kind::SqliteFile, 1);
    let id = home.preview(Action::Retry, of("retry"));
    home.look(async |bench| {
        let lost = letters(bench, "retry").await.into_values().find(|letter| letter.kind == "work").unwrap();
        let lose = async |tx: Tx, number: i64| {
            tx.execute("DELETE FROM mainstay_dead_letters WHERE number = $1", params![number]).await
        };
        bench.store.transact_with(lost.number, lose).await.unwrap();
        bench.work.enqueue(NewWork::new(SHOP, "charge", "retry-5").unwrap()).await.unwrap();
        bench.letters.run(&id).await.unwrap();
    });
    let mut wrong = Wrong(Vec::new());
    let ended = home.ended(&id);
    home.check_retried("retry", &ended, OperationStatus::Done, &mut wrong);
    home.effects(&mut wrong);
    for what in ["a letter is lost", "an effect was had twice"] {
        assert!(wrong.0.iter().any(|one| one.starts_with(what)), "{what}: {:?}", wrong.0);
    }
}
