//! Processes that die while they append: by `kill -9` under load, at each step of a commit, and at each step of a merge
//! of the index.
//!
//! After each death the log is opened again. What was acknowledged is there once, the index that was in memory is made
//! anew from the tail of the log, and everything can be sent again with its idempotency keys. A follower dies with each
//! process; the next one goes on behind its notes, and in the end they have seen exactly the log.

use crate::following::{Notes, catch_up};
use crate::ledger::{Found, Verdict, append_of, block_on, check_integrity, heard, is_long, open_log, told};
use mainstay_events::Log;
use mainstay_store::{Options, Tx};
use mainstay_testkit::crash::{self, Child, Running};
use mainstay_testkit::stores::{Kind, Place};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(60);
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const TASKS: u64 = 16;
/// Operations that one cycle may use; the last of them is the test's own.
const PER_CYCLE: u64 = 1_000_000;
/// A few commits fill a segment, so a merge is always under way.
const SMALL: usize = 48;

const URL: &str = "TEST_URL";
const NOTES: &str = "TEST_NOTES";
const FIRST: &str = "TEST_FIRST";
const SEGMENT_EVENTS: &str = "TEST_SEGMENT_EVENTS";
const FAILPOINTS: &str = "MAINSTAY_FAILPOINTS";

/// Where a log lives, in what segments it keeps its index in memory, and where its followers keep their notes.
struct Home {
    place: Place,
    segment_events: Option<usize>,
    notes: Notes,
    _folder: TempDir,
}

impl Home {
    fn new(kind: Kind, segment_events: Option<usize>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let notes = Notes::create(folder.path().join("notes"));
        let home = Self { place: Place::new(kind), segment_events, notes, _folder: folder };
        block_on(async { home.open().await.store().clone().close().await });
        home
    }

    async fn open(&self) -> Log {
        open_log(self.place.options(), self.segment_events).await.unwrap()
    }

    fn child(&self, test: &str, first: u64) -> Child {
        let child = Child::of(format!("crash::{test}")).env(URL, self.place.url()).env(NOTES, &self.notes.0);
        let child = child.env(FIRST, first.to_string());
        match self.segment_events {
            Some(events) => child.env(SEGMENT_EVENTS, events.to_string()),
            None => child,
        }
    }

    /// Runs a child that a failpoint ends.
    fn die_at(&self, test: &str, first: u64, failpoint: &str) -> Running {
        let mut child = self.child(test, first).env(FAILPOINTS, failpoint).spawn().unwrap();
        let status = child.wait(PATIENCE).unwrap();
        assert_eq!(status.signal(), Some(SIGABRT), "{failpoint} strikes: {:?}", child.said());
        child
    }

    /// Opens the log again after a death in the cycle from `first` on, and asks for everything. Returns how many
    /// operations the child was told of.
    fn check(&self, child: &Running, first: u64) -> Verdict<usize> {
        let acknowledged: Vec<(u64, Vec<u64>)> =
            child.acknowledged().iter().map(|told| heard(told)).collect();
        block_on(async {
            let log = self.open().await;
            // It waits for what a server still has to do for the dead.
            log.append(append_of(first + PER_CYCLE - 1)).await.map_err(|error| error.to_string())?;
            let found = Found::load(&log).await?;
            found.check(&acknowledged)?;
            found.check_index_from(&log, first).await?;
            let settled = found.settle(&log, begun(&acknowledged, first)).await?;
            settled.check_index_from(&log, first).await?;
            log.store().clone().close().await;
            Verdict::Ok(())
        })?;
        self.place.file().map_or(Ok(()), |file| check_integrity(&file))?;
        Ok(acknowledged.len())
    }

    /// Opens the log a last time, asks for what all cycles left, and lets one more follower see the rest of it. Returns
    /// how many events those saw that died.
    fn check_all(&self) -> Verdict<usize> {
        block_on(async {
            let log = self.open().await;
            let found = Found::load(&log).await?;
            found.check_index(&log).await?;
            let follower = self.notes.read();
            let followed = follower.seen().len();
            if followed == 0 {
                return Err("nobody followed".to_owned());
            }
            catch_up(&log, follower, &found.recorded).await?;
            log.store().clone().close().await;
            Ok(followed)
        })
    }
}

/// What the tasks of a child have begun: what was acknowledged, and of each task one more.
fn begun(acknowledged: &[(u64, Vec<u64>)], first: u64) -> Vec<u64> {
    let mut begun: Vec<u64> = acknowledged.iter().map(|(operation, _)| *operation).collect();
    for task in 0..TASKS {
        let own = acknowledged.iter().map(|(operation, _)| *operation);
        let last = own.filter(|operation| (operation - first) % TASKS == task).max();
        begun.push(last.map_or(first + task, |last| last + TASKS));
    }
    begun
}

fn notes_in_child() -> Notes {
    Notes(std::env::var_os(NOTES).unwrap().into())
}

async fn open_in_child() -> (Log, u64) {
    let options = Options::new(std::env::var(URL).unwrap()).connections(4);
    let segment_events = std::env::var(SEGMENT_EVENTS).ok().map(|events| events.parse().unwrap());
    let log = open_log(options, segment_events).await.unwrap();
    (log, std::env::var(FIRST).unwrap().parse().unwrap())
}

// --- kill -9 under load -----------------------------------------------------------------------------------------

#[test]
fn child_appends_in_many_tasks() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let (log, first) = open_in_child().await;
        let (notes, end) = (notes_in_child(), watch::Sender::new(Some(log.head().await.unwrap())));
        // Before it appends, since the first commit may be its last.
        notes.follow(&log, notes.read().last(), end.subscribe()).await;
        let mut tasks = tokio::task::JoinSet::new();
        let following = log.clone();
        tasks.spawn(async move {
            end.send_replace(None);
            notes.follow(&following, notes.read().last(), end.subscribe()).await;
        });
        for task in 0..TASKS {
            let log = log.clone();
            tasks.spawn(async move {
                for operation in (first + task..).step_by(TASKS as usize) {
                    let appended = log.append(append_of(operation)).await.unwrap();
                    crash::ack(told(operation, &appended));
                }
            });
        }
        // They end only by failing.
        tasks.join_next().await.unwrap().unwrap();
    });
}

fn kill(child: &mut Running) {
    let status = child.kill9().unwrap();
    assert_eq!(status.signal(), Some(SIGKILL), "it ended by itself: {:?}", child.said());
}

fn survive_kills(kind: Kind, segment_events: Option<usize>, cycles: u64) {
    let (home, began, mut acknowledged) = (Home::new(kind, segment_events), Instant::now(), 0);
    for cycle in 0..cycles {
        let first = cycle * PER_CYCLE;
        let mut child = home.child("child_appends_in_many_tasks", first).spawn().unwrap();
        // At once, while it opens the log, or after more or less work: not always at the same moment.
        match cycle % 5 {
            0 => drop(child.wait_for("started", PATIENCE).unwrap()),
            several => child.wait_for_acks((several * several * 20) as usize, PATIENCE).unwrap(),
        }
        kill(&mut child);
        let checked = home.check(&child, first);
        acknowledged += checked.unwrap_or_else(|wrong| panic!("cycle {cycle}: {wrong}"));
    }
    let followed = home.check_all().unwrap_or_else(|wrong| panic!("{wrong}"));
    let figures = format!("{acknowledged} acknowledged, {followed} followed");
    println!("{kind}: {cycles} kills, {figures}, none lost or missed, {:.1?}", began.elapsed());
    // They kept up while it was written: otherwise little was shown.
    assert!(followed > acknowledged / 2, "{figures}");
}

#[test]
fn kill_9_under_load_loses_nothing_on_sqlite() {
    survive_kills(Kind::SqliteFile, None, if is_long() { 200 } else { 10 });
}

#[test]
fn kill_9_while_the_index_is_merged_loses_nothing() {
    survive_kills(Kind::SqliteFile, Some(SMALL), if is_long() { 200 } else { 10 });
}

#[test]
fn kill_9_under_load_loses_nothing_on_postgres() {
    survive_kills(Kind::Postgres, None, if is_long() { 50 } else { 3 });
}

// --- death at each step -----------------------------------------------------------------------------------------

/// Lets a child die at the nth passing of each point.
fn die_at_each(kind: Kind, segment_events: Option<usize>, points: &[&str], passings: &[u64]) {
    let (home, mut first) = (Home::new(kind, segment_events), 0);
    for point in points {
        for nth in passings {
            let failpoint = format!("{point}=abort@{nth}");
            let child = home.die_at("child_appends_in_many_tasks", first, &failpoint);
            home.check(&child, first).unwrap_or_else(|wrong| panic!("{failpoint}: {wrong}"));
            first += PER_CYCLE;
        }
    }
    home.check_all().unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[test]
fn a_death_at_any_step_of_a_commit_loses_nothing() {
    let passings: &[u64] = if is_long() { &[1, 2, 3, 5, 8, 13, 21, 34, 55, 89] } else { &[1, 5] };
    die_at_each(Kind::SqliteFile, None, &["store.begin", "store.commit", "store.committed"], passings);
    // PostgreSQL begins with the first statement.
    die_at_each(Kind::Postgres, None, &["store.commit", "store.committed"], &passings[..passings.len() / 2]);
}

#[test]
fn a_death_at_any_step_of_a_merge_loses_nothing() {
    let passings: &[u64] = if is_long() { &[1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 50] } else { &[1, 2, 7] };
    die_at_each(Kind::SqliteFile, Some(SMALL), &["events.merge", "events.merged"], passings);
}

/// The last of several deaths in a row leaves parts of a segment that was begun by each of them.
#[test]
fn deaths_in_the_same_merge_again_and_again_lose_nothing() {
    let home = Home::new(Kind::SqliteFile, Some(SMALL));
    let mut children = Vec::new();
    for (cycle, failpoint) in
        (0..).zip(["events.merge=abort@2", "events.merge=abort@3", "events.merged=abort"])
    {
        let first = cycle * PER_CYCLE;
        children.push((first, home.die_at("child_appends_in_many_tasks", first, failpoint)));
    }
    for (first, child) in children {
        home.check(&child, first).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    home.check_all().unwrap_or_else(|wrong| panic!("{wrong}"));
}

// --- faults that the check must find ----------------------------------------------------------------------------

/// Promises too early: inside of the transaction.
#[test]
fn child_acknowledges_before_the_commit() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let (log, first) = open_in_child().await;
        for operation in first.. {
            let work = move |tx: Tx, log: Log| async move {
                let receipt = log.append_in(&tx, append_of(operation))?;
                crash::ack(format_args!("{operation} 1"));
                Ok(receipt)
            };
            log.store().transact_with(log.clone(), work).await.unwrap();
        }
    });
}

#[test]
fn the_check_finds_what_a_faulty_program_loses() {
    for kind in [Kind::SqliteFile, Kind::Postgres] {
        let home = Home::new(kind, None);
        let child = home.die_at("child_acknowledges_before_the_commit", 0, "store.commit=abort");
        assert_eq!(home.check(&child, 0).unwrap_err(), "0 was acknowledged and is lost", "{kind}");
    }
}

/// Follows from the end of the log on, instead of from behind its notes.
#[test]
fn child_follows_without_its_notes() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let (log, first) = open_in_child().await;
        let head = log.head().await.unwrap();
        let appended = log.append(append_of(first)).await.unwrap();
        let end = watch::Sender::new(Some(appended.head));
        notes_in_child().follow(&log, head, end.subscribe()).await;
        crash::ack(told(first, &appended));
        std::future::pending::<()>().await;
    });
}

#[test]
fn the_check_finds_what_a_follower_misses() {
    let home = Home::new(Kind::SqliteFile, None);
    for cycle in 0..2 {
        let first = cycle * PER_CYCLE;
        let mut child = home.child("child_follows_without_its_notes", first).spawn().unwrap();
        child.wait_for_acks(1, PATIENCE).unwrap();
        kill(&mut child);
        // It appends what nobody is there to follow.
        home.check(&child, first).unwrap();
    }
    let wrong = home.check_all().unwrap_err();
    assert!(wrong.ends_with("was never seen"), "{wrong}");
}
