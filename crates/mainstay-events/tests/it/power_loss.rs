//! What is found after the power went: every event that was acknowledged or followed by then, and an index that fits,
//! whatever the disk made of the rest. A follower goes on where the power stopped it, and misses nothing.

use crate::following::{catch_up, follow, note, noted};
use crate::ledger::{Found, Verdict, append_of, block_on, check_integrity, heard, is_long, open_log, told};
use mainstay_events::{Event, Log, Selection};
use mainstay_store::{Durability, Options};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::disk::{self, Acknowledgements, Disk, Image, Operation, PowerLoss, trace};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(120);
const DATABASE: &str = "store.db";
/// Begins what a follower marks as seen, among the acknowledgements of the writers.
const SAW: &str = "saw ";
const IS_RELAXED: &str = "TEST_IS_RELAXED";
const TASKS: u64 = 8;
const ROUNDS: u64 = 60;
/// Merged all the time, so that the power goes in the middle of it.
const SEGMENT_EVENTS: usize = 48;
/// After this many images the program runs anew, since no two runs ask the same of the disk.
const IMAGES_PER_RUN: usize = 1_000;

async fn open(file: &Path, durability: Durability) -> mainstay_events::Result<Log> {
    let options = Options::new(format!("sqlite:{}", file.display())).readers(1).durability(durability);
    open_log(options, Some(SEGMENT_EVENTS)).await
}

#[test]
fn child_appends_on_a_traced_disk() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let is_relaxed = std::env::var_os(IS_RELAXED).is_some();
        let durability = if is_relaxed { Durability::Relaxed } else { Durability::Full };
        let log = open(&disk::root().unwrap().join(DATABASE), durability).await.unwrap();
        let acknowledgements = Arc::new(Mutex::new(Acknowledgements::open().unwrap()));
        let end = watch::Sender::new(None);
        let following = tokio::spawn({
            let (log, acknowledgements, end) = (log.clone(), acknowledgements.clone(), end.subscribe());
            let saw = move |event: &Event| {
                acknowledgements.lock().unwrap().push(format_args!("{SAW}{}", note(event))).unwrap();
            };
            async move { follow(&log, Selection::all(), end, saw).await }
        });
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let (log, acknowledgements) = (log.clone(), acknowledgements.clone());
            tasks.spawn(async move {
                for operation in (task..ROUNDS * TASKS).step_by(TASKS as usize) {
                    let appended = log.append(append_of(operation)).await.unwrap();
                    acknowledgements.lock().unwrap().push(told(operation, &appended)).unwrap();
                }
            });
        }
        tasks.join_all().await;
        end.send_replace(Some(log.head().await.unwrap()));
        following.await.unwrap();
        log.store().clone().close().await;
    });
}

/// Runs the child on a disk that writes down what is asked of it.
fn traced_run(folder: &Path, is_relaxed: bool) -> Vec<Operation> {
    let (root, trace) = (folder.join("root"), folder.join("trace"));
    std::fs::create_dir(&root).unwrap();
    let child = Child::of("power_loss::child_appends_on_a_traced_disk").disk(&Disk::new(&root).trace(&trace));
    let child = if is_relaxed { child.env(IS_RELAXED, "1") } else { child };
    child.spawn().unwrap().wait_for_success(PATIENCE).unwrap();
    trace::read(trace).unwrap()
}

#[derive(Debug, Default)]
struct Tally {
    images: usize,
    acknowledged: usize,
    /// Images in which something acknowledged is missing.
    losing: usize,
    followed: usize,
    /// Images in which something is missing that a follower saw.
    misleading: usize,
    /// Images in which the index was between table and memory.
    merging: usize,
}

/// Lets the power go again and again, and opens what is left each time. Losses are counted; anything else that is wrong
/// panics.
fn lose_power(images: usize, is_relaxed: bool) -> Tally {
    let (began, mut tally) = (Instant::now(), Tally::default());
    while tally.images < images {
        let folder = tempfile::tempdir().unwrap();
        let trace = traced_run(folder.path(), is_relaxed);
        let mut power_loss = PowerLoss::new(&trace, 42 + tally.images as u64);
        for _ in 0..IMAGES_PER_RUN.min(images - tally.images) {
            let into = folder.path().join("image");
            let image = power_loss.image(&into).unwrap();
            if let Err(wrong) = look_at(&image, &into, &mut tally) {
                panic!(
                    "image {}, after {} operations: {wrong}; it is in {}",
                    tally.images,
                    image.cut,
                    kept(&into)
                );
            }
            std::fs::remove_dir_all(&into).unwrap();
        }
    }
    println!("relaxed: {is_relaxed}, {tally:?}, {:.1?}", began.elapsed());
    tally
}

/// Opens what a power loss left in the folder `path`, and looks for what is wrong.
fn look_at(image: &Image, path: &Path, tally: &mut Tally) -> Verdict {
    let file = path.join(DATABASE);
    let lines = image.acknowledged_lines();
    let acknowledged: Vec<(u64, Vec<u64>)> =
        lines.iter().filter(|line| !line.starts_with(SAW)).map(|line| heard(line)).collect();
    let follower = noted(lines.iter().filter_map(|line| line.strip_prefix(SAW)));
    block_on(async {
        let log =
            open(&file, Durability::Full).await.map_err(|error| format!("it does not open: {error}"))?;
        let found = Found::load(&log).await?;
        tally.images += 1;
        tally.acknowledged += acknowledged.len();
        tally.losing += usize::from(found.check(&acknowledged).is_err());
        tally.followed += follower.seen().len();
        let is_misled = follower.last() > found.recorded.len() as u64;
        tally.misleading += usize::from(is_misled);
        let indexed = "SELECT indexed, (SELECT max(position) FROM mainstay_event_terms) FROM mainstay_log";
        let row = log.store().read(async |tx| tx.query_one(indexed, &[]).await).await.unwrap();
        let (indexed, in_table): (u64, Option<u64>) = (row.get(0).unwrap(), row.get(1).unwrap());
        tally.merging += usize::from(in_table.unwrap_or(0) > indexed);
        found.check_index(&log).await?;
        let settled = found.settle(&log, 0..TASKS).await?;
        if !is_misled {
            catch_up(&log, follower, &settled.recorded).await?;
        }
        log.store().clone().close().await;
        Verdict::Ok(())
    })?;
    check_integrity(&file)
}

/// Saves an image that shows something wrong from being removed with everything else.
fn kept(image: &Path) -> String {
    let elsewhere: PathBuf = tempfile::tempdir().unwrap().keep();
    match std::fs::rename(image, elsewhere.join("image")) {
        Ok(()) => elsewhere.display().to_string(),
        Err(error) => format!("no place: {error}"),
    }
}

#[test]
fn power_loss_loses_no_acknowledged_event() {
    let tally = lose_power(if is_long() { 5_000 } else { 40 }, false);
    assert_eq!((tally.losing, tally.misleading), (0, 0), "{tally:?}");
    assert!(tally.acknowledged > 0 && tally.followed > tally.acknowledged && tally.merging > 0, "{tally:?}");
}

/// The same work with commits that do not wait for the disk must be caught, or the test above shows nothing.
#[test]
fn power_loss_with_relaxed_durability_is_caught() {
    let tally = lose_power(if is_long() { 500 } else { 30 }, true);
    assert!(tally.losing > tally.images / 20 && tally.misleading > tally.images / 20, "{tally:?}");
}
