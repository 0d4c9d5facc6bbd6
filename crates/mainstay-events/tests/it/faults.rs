//! A disk that fails at the k-th write or sync, for a while or for ever, under a log that is appended to and merged.
//!
//! What an append says must be true afterwards, in the process that lived through it as in the next one: its events are
//! in the log and in the index, or in neither. Who follows through the fault sees exactly the log, and it stays so.

use crate::following::{Followers, catch_up, noted};
use crate::ledger::{Found, Verdict, append_of, block_on, check_integrity, heard, is_long, open_log, told};
use mainstay_events::{Log, Result};
use mainstay_store::Options;
use mainstay_testkit::crash::{self, Child, Running};
use mainstay_testkit::disk::{self, Counts, Disk, Fault};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);
const DATABASE: &str = "store.db";
/// How often a child tries what must succeed once the fault has passed.
const ATTEMPTS: u32 = 50;
/// Writes or syncs that fail before the disk is well again.
const FAILURES: u64 = 3;
/// So many different moments CI has time for.
const MOMENTS: u64 = 8;
const ROUNDS: u64 = 3;
const ALONE: u64 = 6;
const TOGETHER: u64 = 12;
/// The first operation of the test's own, after the child's.
const AFTERWARDS: u64 = 1_000_000;
/// Merged several times in a run.
const SEGMENT_EVENTS: usize = 16;

/// Begins what a child says of the events that it followed.
const SAW: &str = "saw ";

const IS_ENDLESS: &str = "TEST_IS_ENDLESS";

// --- the program on the disk ------------------------------------------------------------------------------------

#[test]
fn child_appends_on_a_faulty_disk() {
    if !crash::is_child() {
        return;
    }
    die_of_any_panic();
    block_on(async {
        let is_endless = std::env::var_os(IS_ENDLESS).is_some();
        let file = disk::root().unwrap().join(DATABASE);
        let opened =
            if is_endless { open(&file).await } else { in_the_end(async || open(&file).await).await };
        let log = match opened {
            Ok(log) => log,
            Err(_) if is_endless => return crash::say("unopened"),
            Err(error) => panic!("the log does not open: {error}"),
        };
        let followers = Followers::of(std::slice::from_ref(&log), "shared:0");
        work(&log).await;
        if !is_endless {
            let recovered = in_the_end(async || log.append(append_of(AFTERWARDS)).await).await;
            recovered.unwrap_or_else(|error| panic!("the log does not recover: {error}"));
            crash::say("recovered");
        }
        // Reads go on, whatever the disk does, and see what was acknowledged and nothing that was not.
        let said = SAID.lock().unwrap().clone();
        let found = checked(&log, &said).await.unwrap_or_else(|wrong| panic!("{said:#?}\n{wrong}"));
        let followed = followers.check_any(&found.recorded).await;
        followed[0].seen().iter().for_each(|(position, id)| crash::say(format_args!("{SAW}{position} {id}")));
        if !is_endless {
            found.check_index(&log).await.unwrap_or_else(|wrong| panic!("{said:#?}\n{wrong}"));
        }
        // As abruptly as a process ends that nobody closes.
        std::process::exit(0);
    });
}

/// A panic in a thread of the store would pass unnoticed otherwise.
fn die_of_any_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

async fn open(file: &Path) -> Result<Log> {
    let options = Options::new(format!("sqlite:{}", file.display())).readers(1);
    open_log(options, Some(SEGMENT_EVENTS)).await
}

/// Tries until it succeeds, for as long as a fault may last.
async fn in_the_end<T>(attempt: impl AsyncFn() -> Result<T>) -> Result<T> {
    for _ in 0..ATTEMPTS {
        if let Ok(value) = attempt().await {
            return Ok(value);
        }
    }
    attempt().await
}

/// Appends alone and together.
async fn work(log: &Log) {
    for first in (0..ROUNDS).map(|round| round * (ALONE + TOGETHER)) {
        for operation in first..first + ALONE {
            append_and_tell(log, operation).await;
        }
        let mut together = tokio::task::JoinSet::new();
        for operation in first + ALONE..first + ALONE + TOGETHER {
            let log = log.clone();
            together.spawn(async move { append_and_tell(&log, operation).await });
        }
        together.join_all().await;
    }
}

static SAID: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

async fn append_and_tell(log: &Log, operation: u64) {
    let line = match log.append(append_of(operation)).await {
        Ok(appended) => format!("done {}", told(operation, &appended)),
        Err(error) if error.is_outcome_unknown() => format!("unknown {operation}"),
        Err(error) => {
            assert!(error.code().starts_with("STORE_"), "a fault of the disk is one of the store: {error}");
            format!("failed {operation}")
        }
    };
    crash::say(&line);
    SAID.lock().unwrap().push(line);
}

// --- what the test makes of it ----------------------------------------------------------------------------------

/// What the program said of its operations.
fn heard_all(said: &[String], outcome: &str) -> Vec<(u64, Vec<u64>)> {
    said.iter().filter_map(|said| said.strip_prefix(outcome)).map(heard).collect()
}

fn failed(said: &[String]) -> Vec<u64> {
    heard_all(said, "failed ").into_iter().map(|(operation, _)| operation).collect()
}

/// Compares what the program said with what is in the log.
async fn checked(log: &Log, said: &[String]) -> Verdict<Found> {
    let found = Found::load(log).await?;
    found.check(&heard_all(said, "done "))?;
    found.check_absent(&failed(said))?;
    Ok(found)
}

/// Opens the file without the disk or the process that it was written with, and asks for everything.
fn reopened(file: &Path, said: &[String]) -> Verdict {
    block_on(async {
        let log = open(file).await.map_err(|error| format!("it does not open: {error}"))?;
        let found = checked(&log, said).await?;
        found.check_index(&log).await?;
        let all = 0..ROUNDS * (ALONE + TOGETHER);
        let settled = found.settle(&log, all.chain([AFTERWARDS])).await?;
        settled.check_index(&log).await?;
        let follower = noted(said.iter().filter_map(|said| said.strip_prefix(SAW)));
        catch_up(&log, follower, &settled.recorded).await?;
        log.store().clone().close().await;
        Verdict::Ok(())
    })?;
    check_integrity(file)
}

struct Workspace(TempDir);

impl Workspace {
    fn new() -> Self {
        let workspace = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(workspace.path("root")).unwrap();
        workspace
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a child to its end, which must be a good one.
    fn run(&self, disk: impl FnOnce(Disk) -> Disk, is_endless: bool) -> Running {
        let disk = disk(Disk::new(self.path("root")));
        let child = Child::of("faults::child_appends_on_a_faulty_disk").disk(&disk);
        let child = if is_endless { child.env(IS_ENDLESS, "1") } else { child };
        let mut running = child.spawn().unwrap();
        running.wait_for_success(PATIENCE).unwrap();
        running
    }
}

/// How much an undisturbed run asks of the disk.
fn undisturbed() -> Counts {
    let workspace = Workspace::new();
    let child = workspace.run(|disk| disk.count(workspace.path("count")), false);
    assert_eq!(heard_all(&child.said(), "done ").len() as u64, ROUNDS * (ALONE + TOGETHER));
    reopened(&workspace.path("root").join(DATABASE), &child.said()).unwrap();
    disk::counts(workspace.path("count")).unwrap()
}

#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    done: usize,
    failed: usize,
    unknown: usize,
    followed: usize,
}

/// Runs the program with a fault at each moment, or at a spread of them, and checks what it said each time.
fn strike(last: u64, is_endless: bool, fault: impl Fn(u64) -> Fault) -> Tally {
    let mut tally = Tally::default();
    let step = if is_long() { 1 } else { last.div_ceil(MOMENTS) };
    for fault in (1..=last).step_by(step as usize).map(fault) {
        let workspace = Workspace::new();
        let said = workspace.run(|disk| disk.fault(fault), is_endless).said();
        let verdict = reopened(&workspace.path("root").join(DATABASE), &said);
        verdict.unwrap_or_else(|wrong| panic!("{fault}: {wrong}\n{said:#?}"));
        tally.runs += 1;
        tally.done += heard_all(&said, "done ").len();
        tally.failed += failed(&said).len();
        tally.unknown += heard_all(&said, "unknown ").len();
        tally.followed += said.iter().filter(|said| said.starts_with(SAW)).count();
    }
    println!("{} of {last} moments, endless: {is_endless}: {tally:?}", tally.runs);
    assert!(tally.done > 0 && tally.followed >= tally.done, "{tally:?}");
    // A fault that passes may meet nothing but the copying of the log at the few moments of CI.
    assert!(tally.failed + tally.unknown > 0 || !(is_endless || is_long()), "{tally:?}");
    tally
}

#[test]
fn an_io_error_at_any_write_leaves_log_and_index_alike() {
    let writes = undisturbed().writes;
    strike(writes, false, |first| Fault::eio(first).times(FAILURES));
    strike(writes, true, |first| Fault::eio(first).for_ever());
}

#[test]
fn a_full_disk_at_any_write_leaves_log_and_index_alike() {
    let writes = undisturbed().writes;
    strike(writes, false, |first| Fault::enospc(first).times(FAILURES));
    strike(writes, false, Fault::short);
    strike(writes, true, |first| Fault::enospc(first).for_ever());
}

/// The frames of a commit whose sync fails are all there; it must not come back.
#[test]
fn a_failed_sync_anywhere_leaves_log_and_index_alike() {
    let syncs = undisturbed().syncs;
    strike(syncs, false, Fault::eio_sync);
    let longer = strike(syncs, false, |first| Fault::eio_sync(first).times(FAILURES));
    strike(syncs, true, |first| Fault::eio_sync(first).for_ever());
    assert!(longer.unknown > 0, "{longer:?}");
}
