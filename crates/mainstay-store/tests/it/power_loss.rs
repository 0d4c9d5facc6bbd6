//! What is found after the power went: everything that was acknowledged by then, whatever the disk made of the rest.

use crate::pairs::{self, Found, block_on, is_long};
use mainstay_store::{Durability, Options, Store};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::disk::{self, Acknowledgements, Disk, Image, Operation, PowerLoss, trace};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
const DATABASE: &str = "store.db";
const DURABILITY: &str = "TEST_DURABILITY";
const RELAXED: &str = "relaxed";

const TASKS: i64 = 8;
const ROUNDS: i64 = 120;
/// A machine with other things to do may come to copying the log late.
const MOST_ROUNDS: i64 = 100 * ROUNDS;
const CHECKPOINTS: u64 = 2;
const NUMBERS_PER_TASK: i64 = 1_000_000;
/// Several pages per transaction, so that the write-ahead log is copied and started over a few times.
const FILLING_BYTES: usize = 400;
/// After this many images the program runs anew, since no two runs ask the same of the disk.
const IMAGES_PER_RUN: usize = 1_000;

/// Makes a database, works on it in several tasks, and closes it; notes what it acknowledged.
#[test]
fn child_inserts_on_a_traced_disk() {
    if !crash::is_child() {
        return;
    }
    block_on(async {
        let is_relaxed = std::env::var(DURABILITY).is_ok_and(|durability| durability == RELAXED);
        let durability = if is_relaxed { Durability::Relaxed } else { Durability::Full };
        let file = disk::root().unwrap().join(DATABASE);
        let options = Options::new(format!("sqlite:{}", file.display())).durability(durability);
        let store = options.open().await.unwrap();
        pairs::create_tables(&store).await.unwrap();
        let acknowledgements = Arc::new(Mutex::new(Acknowledgements::open().unwrap()));
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let (store, acknowledgements) = (store.clone(), acknowledgements.clone());
            tasks.spawn(insert_and_acknowledge(store, task * NUMBERS_PER_TASK, acknowledgements));
        }
        tasks.join_all().await;
        assert!(checkpoints(&store) >= CHECKPOINTS, "the log is copied into the database and starts over");
        store.close().await;
    });
}

async fn insert_and_acknowledge(store: Store, first: i64, acknowledgements: Arc<Mutex<Acknowledgements>>) {
    let filling = "x".repeat(FILLING_BYTES);
    for round in 0..MOST_ROUNDS {
        if round >= ROUNDS && checkpoints(&store) >= CHECKPOINTS {
            break;
        }
        pairs::insert(&store, first + round, &filling).await.unwrap();
        acknowledgements.lock().unwrap().push(first + round).unwrap();
    }
}

fn checkpoints(store: &Store) -> u64 {
    store.figures().checkpoint_hold.snapshot().count
}

/// Runs the child on a disk that writes down what is asked of it.
fn traced_run(folder: &Path, durability: &str) -> Vec<Operation> {
    let (root, trace) = (folder.join("root"), folder.join("trace"));
    std::fs::create_dir(&root).unwrap();
    let mut child = Child::of("power_loss::child_inserts_on_a_traced_disk")
        .env(DURABILITY, durability)
        .disk(&Disk::new(&root).trace(&trace))
        .spawn()
        .unwrap();
    child.wait_for_success(PATIENCE).unwrap();
    trace::read(trace).unwrap()
}

#[derive(Debug, Default)]
struct Tally {
    images: usize,
    acknowledged: usize,
    /// Images in which something acknowledged is missing.
    losing: usize,
}

/// Lets the power go again and again, and opens what is left each time. Losses are counted; anything else that is
/// wrong panics.
fn lose_power(images: usize, durability: &str) -> Tally {
    let (began, mut tally) = (Instant::now(), Tally::default());
    while tally.images < images {
        let folder = tempfile::tempdir().unwrap();
        let trace = traced_run(folder.path(), durability);
        let mut power_loss = PowerLoss::new(&trace, 42 + tally.images as u64);
        block_on(async {
            for _ in 0..IMAGES_PER_RUN.min(images - tally.images) {
                let into = folder.path().join("image");
                look_at(&power_loss.image(&into).unwrap(), &into, &mut tally).await;
            }
        });
    }
    println!("{durability}: {tally:?}, {:.1?}", began.elapsed());
    tally
}

/// Opens what a power loss left in the folder `path`, looks for what is wrong, and removes it.
async fn look_at(image: &Image, path: &Path, tally: &mut Tally) {
    let describe = |wrong: String| {
        format!(
            "image {}, after {} operations: {wrong}; it is left in {}",
            tally.images,
            image.cut,
            kept(path)
        )
    };
    let file = path.join(DATABASE);
    let found = Found::in_file(&file).await;
    let found = found.unwrap_or_else(|error| panic!("{}", describe(error.to_string())));
    let checked = found.check_whole().and_then(|()| pairs::check_integrity(&file));
    checked.unwrap_or_else(|wrong| panic!("{}", describe(wrong)));
    let acknowledged: Vec<i64> =
        image.acknowledged_lines().iter().map(|line| line.parse().unwrap()).collect();
    tally.images += 1;
    tally.acknowledged += acknowledged.len();
    tally.losing += usize::from(found.missing(&acknowledged).is_some());
    std::fs::remove_dir_all(path).unwrap();
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
fn power_loss_loses_nothing_acknowledged() {
    let tally = lose_power(if is_long() { 10_000 } else { 200 }, "full");
    assert_eq!(tally.losing, 0, "{tally:?}");
}

/// The same work with commits that do not wait for the disk must be caught, or the test above shows nothing.
#[test]
fn power_loss_with_relaxed_durability_is_caught() {
    let tally = lose_power(if is_long() { 1_000 } else { 60 }, RELAXED);
    assert!(tally.losing > tally.images / 20, "{tally:?}");
}

/// Few of the moments above fall into the first and the last steps of a database's life.
#[test]
fn power_loss_while_the_database_is_made_or_closed_leaves_one_that_opens() {
    let folder = tempfile::tempdir().unwrap();
    let trace = traced_run(folder.path(), "full");
    let is_acknowledgement = |operation: &Operation| is_write_to(operation, "ack");
    let making = 0..trace.iter().position(is_acknowledgement).unwrap();
    let closing = trace.iter().rposition(is_acknowledgement).unwrap()..trace.len() + 1;
    let mut tally = Tally::default();
    for seed in 0..if is_long() { 50 } else { 3 } {
        let mut power_loss = PowerLoss::new(&trace, seed);
        block_on(async {
            for cut in making.clone().chain(closing.clone().step_by(1 + closing.len() / 50)) {
                let into = folder.path().join("image");
                look_at(&power_loss.image_at(cut, &into).unwrap(), &into, &mut tally).await;
            }
        });
    }
    println!("{} moments while making, {} while closing: {tally:?}", making.len(), closing.len());
    assert_eq!(tally.losing, 0, "{tally:?}");
}

/// The rarest of these moments: the first page of a new file is written in part, and its first sector is not.
#[test]
fn power_loss_within_the_first_page_is_not_taken_for_a_foreign_file() {
    let folder = tempfile::tempdir().unwrap();
    let trace = traced_run(folder.path(), "full");
    let cut = 1 + trace.iter().position(|operation| is_write_to(operation, DATABASE)).unwrap();
    let image = |seed: u64| {
        let into = folder.path().join(seed.to_string());
        PowerLoss::new(&trace, seed).image_at(cut, &into).unwrap();
        into.join(DATABASE)
    };
    let is_torn = |file: &PathBuf| std::fs::read(file).is_ok_and(|bytes| bytes.starts_with(&[0; 16]));
    let torn = (0..).map(image).find(is_torn).unwrap();
    block_on(Found::in_file(&torn)).unwrap();
    pairs::check_integrity(&torn).unwrap();
}

fn is_write_to(operation: &Operation, name: &str) -> bool {
    matches!(operation, Operation::Write { path, .. } if path == Path::new(name))
}
