//! A disk that fails at the k-th write or sync, for a while or for ever.
//!
//! What a call says must be true afterwards: done, not done, or unknown. When the disk is well again, the store goes
//! on by itself.

use crate::pairs::{self, Found, block_on, is_long};
use mainstay_store::{Error, Options, Result, Store};
use mainstay_testkit::crash::{self, Child, Running};
use mainstay_testkit::disk::{self, Acknowledgements, Counts, Disk, Fault, Operation, PowerLoss, trace};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);
const DATABASE: &str = "store.db";
/// How often a child tries what must succeed once the fault has passed.
const ATTEMPTS: i64 = 50;
/// Writes or syncs that fail before the disk is well again.
const FAILURES: u64 = 3;
/// CI has time for this many different moments; of more it tries a spread.
const MOMENTS: u64 = 200;
const SPREAD: u64 = 60;

const ROUNDS: &str = "TEST_ROUNDS";
const ALONE_PER_ROUND: i64 = 8;
const TOGETHER_PER_ROUND: i64 = 12;
const NUMBERS_PER_ROUND: i64 = 1_000;
const FIRST_OF_THE_END: i64 = 1_000_000;

// --- the program on the disk ------------------------------------------------------------------------------------

/// Works on a disk that fails for a while, and must come through it.
#[test]
fn child_outlives_a_fault() {
    if !crash::is_child() {
        return;
    }
    die_of_any_panic();
    block_on(async {
        let store = open_in_the_end().await;
        tell("tables", "created", &in_the_end(|_| pairs::create_tables(&store)).await);
        work(&store).await;
        let inserted = in_the_end(|attempt| insert_and_tell(&store, FIRST_OF_THE_END + attempt)).await;
        inserted.unwrap_or_else(|error| panic!("the store does not recover: {error}"));
        store.close().await;
    });
}

/// Works on a disk that fails for ever: every call ends, and what was written before can be read.
#[test]
fn child_lives_with_a_fault() {
    if !crash::is_child() {
        return;
    }
    die_of_any_panic();
    block_on(async {
        let store = match open().await {
            Ok(store) => store,
            Err(error) => return tell_of_opening(&error),
        };
        let created = pairs::create_tables(&store).await;
        tell("tables", "created", &created);
        let done = work(&store).await;
        if created.is_ok() {
            Found::load(&store, 0).await.unwrap().check(&done).unwrap();
            crash::say("read");
        }
        store.close().await;
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

async fn open() -> Result<Store> {
    let file = disk::root().unwrap().join(DATABASE);
    Options::new(format!("sqlite:{}", file.display())).readers(1).open().await
}

async fn open_in_the_end() -> Store {
    let opened = in_the_end(async |_| open().await.inspect_err(tell_of_opening)).await;
    opened.unwrap_or_else(|error| panic!("the store does not open: {error}"))
}

fn tell_of_opening(error: &Error) {
    let left = std::fs::read_dir(disk::root().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    crash::say(format_args!("unopened {} {:?}", error.code(), Vec::from_iter(left)));
}

/// Tries until it succeeds, for as long as a fault may last.
async fn in_the_end<T>(attempt: impl AsyncFn(i64) -> Result<T>) -> Result<T> {
    for number in 0..ATTEMPTS {
        if let Ok(value) = attempt(number).await {
            return Ok(value);
        }
    }
    attempt(ATTEMPTS).await
}

/// Transactions alone and together. Returns the numbers that are in.
async fn work(store: &Store) -> Vec<i64> {
    let rounds: i64 = std::env::var(ROUNDS).unwrap().parse().unwrap();
    let mut done = Vec::new();
    for first in (0..rounds).map(|round| round * NUMBERS_PER_ROUND) {
        for id in first..first + ALONE_PER_ROUND {
            done.extend(insert_and_tell(store, id).await.ok());
        }
        let mut together = tokio::task::JoinSet::new();
        for id in first + 100..first + 100 + TOGETHER_PER_ROUND {
            let store = store.clone();
            together.spawn(async move { insert_and_tell(&store, id).await.ok() });
        }
        done.extend(together.join_all().await.into_iter().flatten());
    }
    done
}

async fn insert_and_tell(store: &Store, id: i64) -> Result<i64> {
    let inserted = pairs::insert(store, id, &"x".repeat(200)).await;
    tell("number", &id.to_string(), &inserted);
    inserted.map(|()| id)
}

/// Tells the test, and notes it down in order with what is asked of the disk.
fn tell(what: &str, which: &str, result: &Result<()>) {
    let line = match result {
        Ok(()) => format!("{what} done {which}"),
        Err(error) if error.is_outcome_unknown() => format!("{what} unknown {which}"),
        Err(error) => format!("{what} failed {which} {} {error}", error.code()),
    };
    Acknowledgements::open().unwrap().push(&line).unwrap();
    crash::say(line);
}

// --- what the test makes of it ----------------------------------------------------------------------------------

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

    fn disk(&self) -> Disk {
        Disk::new(self.path("root"))
    }

    /// Runs a child to its end, which must be a good one.
    fn run(&self, test: &str, disk: &Disk, rounds: u32) -> Running {
        let child = Child::of(format!("disk_faults::{test}")).env(ROUNDS, rounds.to_string()).disk(disk);
        let mut running = child.spawn().unwrap();
        running.wait_for_success(PATIENCE).unwrap();
        running
    }

    fn check(&self, child: &Running) -> std::result::Result<(), String> {
        check(&self.path("root").join(DATABASE), &child.said())
    }
}

/// Compares what the program said with what is there.
fn check(file: &Path, said: &[String]) -> std::result::Result<(), String> {
    let found = block_on(Found::in_file(file)).map_err(|error| format!("it does not open: {error}"))?;
    found.check(&numbers(said, "done"))?;
    pairs::check_integrity(file)?;
    match numbers(said, "failed").into_iter().find(|id| found.contains(*id)) {
        Some(id) => Err(format!("{id} failed for certain and is there")),
        None => Ok(()),
    }
}

fn numbers(said: &[String], outcome: &str) -> Vec<i64> {
    let prefix = format!("number {outcome} ");
    let numbers = said.iter().filter_map(|said| said.strip_prefix(&prefix));
    numbers.map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// How much an undisturbed run asks of the disk.
fn undisturbed() -> Counts {
    let workspace = Workspace::new();
    let child = workspace.run("child_outlives_a_fault", &workspace.disk().count(workspace.path("count")), 1);
    assert_eq!(numbers(&child.said(), "done").len() as i64, ALONE_PER_ROUND + TOGETHER_PER_ROUND + 1);
    workspace.check(&child).unwrap();
    disk::counts(workspace.path("count")).unwrap()
}

/// All moments up to `last`, or a spread of them when there are many and little time.
fn moments(last: u64) -> impl Iterator<Item = u64> {
    let step = if is_long() || last <= MOMENTS { 1 } else { last.div_ceil(SPREAD) };
    (1..=last).step_by(step as usize)
}

#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    unopened: usize,
    done: usize,
    failed: usize,
    unknown: usize,
}

impl Tally {
    fn add(&mut self, fault: Fault, child: &Running) {
        let said = child.said();
        let unopened: Vec<_> = said.iter().filter_map(|said| said.strip_prefix("unopened ")).collect();
        for said in &unopened {
            assert!(said.ends_with("[]"), "{fault}: a failed opening leaves files: {said}");
            assert!(said.starts_with("STORE_"), "{fault}: {said}");
        }
        self.runs += 1;
        self.unopened += unopened.len();
        self.done += numbers(&said, "done").len();
        self.failed += numbers(&said, "failed").len();
        self.unknown += numbers(&said, "unknown").len();
    }
}

/// Runs the program with each of the faults, and checks what it said each time.
fn strike(test: &str, faults: impl Iterator<Item = Fault>, rounds: u32) -> Tally {
    let mut tally = Tally::default();
    for fault in faults {
        let workspace = Workspace::new();
        let child = workspace.run(test, &workspace.disk().fault(fault), rounds);
        if let Err(wrong) = workspace.check(&child) {
            panic!("{fault}: {wrong}\n{:#?}", child.said());
        }
        tally.add(fault, &child);
    }
    tally
}

#[test]
fn an_io_error_at_any_write_is_outlived() {
    let writes = undisturbed().writes;
    let faults = moments(writes).map(|first| Fault::eio(first).times(FAILURES));
    let tally = strike("child_outlives_a_fault", faults, 1);
    println!("EIO at any of {writes} writes: {tally:?}");
    assert!(tally.unopened > 0 && tally.failed > 0, "{tally:?}");
}

#[test]
fn a_full_disk_at_any_write_is_outlived() {
    let writes = undisturbed().writes;
    let faults = moments(writes).map(|first| Fault::enospc(first).times(FAILURES));
    let tally = strike("child_outlives_a_fault", faults, 1);
    println!("ENOSPC at any of {writes} writes: {tally:?}");
    assert!(tally.unopened > 0 && tally.failed > 0, "{tally:?}");
}

#[test]
fn a_short_write_anywhere_is_outlived() {
    let writes = undisturbed().writes;
    let tally = strike("child_outlives_a_fault", moments(writes).map(Fault::short), 1);
    println!("a short write at any of {writes} writes: {tally:?}");
    assert!(tally.unopened > 0 && tally.failed > 0, "{tally:?}");
}

/// The frames of a commit whose sync fails are in the log; only overwriting them makes the failure certain.
#[test]
fn a_failed_sync_anywhere_is_outlived() {
    let syncs = undisturbed().syncs;
    let once = strike("child_outlives_a_fault", moments(syncs).map(Fault::eio_sync), 1);
    println!("EIO at any of {syncs} syncs: {once:?}");
    let faults = moments(syncs).map(|first| Fault::eio_sync(first).times(FAILURES));
    let again = strike("child_outlives_a_fault", faults, 1);
    println!("EIO at any of {syncs} syncs and the next: {again:?}");
    assert!(once.failed > 0 && again.unknown > 0, "{once:?} {again:?}");
}

/// A kind of fault, which strikes at a moment.
type Strike = fn(u64) -> Fault;

/// Every kind of fault, and how many moments there are for it.
fn kinds(Counts { writes, syncs }: Counts) -> [(&'static str, Strike, u64); 4] {
    [
        ("EIO", Fault::eio, writes),
        ("ENOSPC", Fault::enospc, writes),
        ("a short write", Fault::short, writes),
        ("EIO at a sync", Fault::eio_sync, syncs),
    ]
}

#[test]
fn a_fault_without_end_is_an_error_and_reads_go_on() {
    for (name, fault, last) in kinds(undisturbed()) {
        // A quarter of them: there are four kinds.
        let step = if is_long() { 1 } else { 4 };
        let faults = moments(last).step_by(step).map(|first| fault(first).for_ever());
        let tally = strike("child_lives_with_a_fault", faults, 1);
        println!("{name} without end: {tally:?}");
        assert!(tally.failed > 0, "{tally:?}");
    }
}

// --- on a database that is there already ------------------------------------------------------------------------

const FROM_BEFORE: i64 = -1;
/// More than opening a database takes.
const OPENING: u64 = 16;

#[test]
fn a_fault_while_a_database_is_opened_leaves_it_as_it_was() {
    let (mut unopened, mut runs) = (0, 0);
    for (_, fault, _) in kinds(Counts { writes: OPENING, syncs: OPENING }) {
        for fault in (1..=OPENING).map(|first| fault(first).for_ever()) {
            let workspace = Workspace::new();
            let file = workspace.path("root").join(DATABASE);
            block_on(make_database(&file));
            let child = workspace.run("child_lives_with_a_fault", &workspace.disk().fault(fault), 1);
            let mut said = child.said();
            unopened += usize::from(said.iter().any(|said| said.starts_with("unopened STORE_")));
            runs += 1;
            said.push(format!("number done {FROM_BEFORE}"));
            check(&file, &said).unwrap_or_else(|wrong| panic!("{fault}: {wrong}\n{said:#?}"));
        }
    }
    println!("{unopened} of {runs} openings failed");
    assert!(unopened > 0);
}

async fn make_database(file: &Path) {
    let store = Store::open(&format!("sqlite:{}", file.display())).await.unwrap();
    pairs::create_tables(&store).await.unwrap();
    pairs::insert(&store, FROM_BEFORE, "").await.unwrap();
    store.close().await;
}

// --- while the log is copied into the database ------------------------------------------------------------------

/// Enough for the write-ahead log to be copied once or twice.
const CHECKPOINTED_ROUNDS: u32 = 40;
/// Long enough that the writer cannot take all of the failures upon itself.
const CHECKPOINT_FAILURES: u64 = 40;

/// The writes to the database file in an undisturbed run, counted as faults are.
fn writes_to_the_database() -> Vec<u64> {
    let workspace = Workspace::new();
    let trace = workspace.path("trace");
    workspace.run("child_outlives_a_fault", &workspace.disk().trace(&trace), CHECKPOINTED_ROUNDS);
    let written = |operation: Operation| match operation {
        Operation::Write { path, .. } if path != Path::new("ack") => Some(path),
        _ => None,
    };
    let writes = (1..).zip(trace::read(trace).unwrap().into_iter().filter_map(written));
    writes.filter(|(_, path)| path == Path::new(DATABASE)).map(|(number, _)| number).collect()
}

#[test]
fn a_fault_while_the_log_is_copied_is_outlived() {
    let writes = writes_to_the_database();
    assert!(writes.len() > 20, "the log is copied: {writes:?}");
    let step = if is_long() { 1 } else { writes.len().div_ceil(10) };
    for (name, fault, _) in &kinds(Counts { writes: 0, syncs: 0 })[..2] {
        let faults = writes.iter().step_by(step).map(|first| fault(*first).times(CHECKPOINT_FAILURES));
        let tally = strike("child_outlives_a_fault", faults, CHECKPOINTED_ROUNDS);
        println!("{name} while the log is copied: {tally:?}");
    }
}

// --- and then the power goes ------------------------------------------------------------------------------------

/// What was said about a commit whose sync failed must be true also when nothing but synced bytes are left.
#[test]
fn what_was_said_during_a_fault_is_true_after_a_power_loss() {
    let syncs = undisturbed().syncs;
    let mut tally = Tally::default();
    let mut images = 0;
    for times in [1, FAILURES] {
        for fault in (1..=syncs).map(|first| Fault::eio_sync(first).times(times)) {
            let workspace = Workspace::new();
            let trace = workspace.path("trace");
            let disk = workspace.disk().fault(fault).trace(&trace);
            tally.add(fault, &workspace.run("child_outlives_a_fault", &disk, 1));
            images += lose_power(&workspace, &trace::read(trace).unwrap(), fault);
        }
    }
    println!("EIO at any of {syncs} syncs and then a power loss: {images} images, {tally:?}");
    assert!(tally.failed > 0 && tally.unknown > 0, "{tally:?}");
}

/// Compares what the program had said with what is left, when the power goes at some moment and right after each
/// failure.
fn lose_power(workspace: &Workspace, trace: &[Operation], fault: Fault) -> usize {
    let mut power_loss = PowerLoss::new(trace, 42);
    let is_failure = |operation: &Operation| match operation {
        Operation::Write { path, bytes, .. } => {
            path == Path::new("ack") && bytes.starts_with(b"number failed")
        }
        _ => false,
    };
    let after_failures =
        (1..).zip(trace).filter(|(_, operation)| is_failure(operation)).map(|(cut, _)| Some(cut));
    let at_some_moment = std::iter::repeat_n(None, if is_long() { 100 } else { 4 });
    let cuts: Vec<Option<usize>> = after_failures.chain(at_some_moment).collect();
    let into = workspace.path("image");
    for cut in &cuts {
        let image = match cut {
            Some(cut) => power_loss.image_at(*cut, &into).unwrap(),
            None => power_loss.image(&into).unwrap(),
        };
        let said = image.acknowledged_lines();
        if let Err(wrong) = check(&into.join(DATABASE), &said) {
            panic!("{fault}, the power goes after {} operations: {wrong}\n{said:#?}", image.cut);
        }
        std::fs::remove_dir_all(&into).unwrap();
    }
    cuts.len()
}
