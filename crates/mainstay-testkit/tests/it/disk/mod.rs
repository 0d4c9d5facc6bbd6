//! SQLite on a disk that lies.
//!
//! - [`model`]: what a power loss leaves, on traces made by hand
//! - [`power_loss`]: what it leaves of a database
//! - [`faults`]: writes and syncs that fail
//! - [`traces`]: what is written down

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use mainstay_testkit::{
    crash::{self, Child, Running},
    disk::{self, Acknowledgements, Counts, Disk},
};
use rusqlite::Connection;
use tempfile::TempDir;

mod faults;
mod model;
mod power_loss;
mod traces;

const PATIENCE: Duration = Duration::from_secs(60);
const DATABASE: &str = "test.db";
const LOG: &str = "test.db-wal";
const SYNCHRONOUS: &str = "TEST_SYNCHRONOUS";
const ROWS: i64 = 40;

/// Inserts pairs of rows, a transaction each, and acknowledges every pair. Ends at the first error, and without
/// closing the database: the checkpoint at closing hides its errors.
#[test]
fn child_inserts_pairs() {
    if !crash::is_child() {
        return;
    }
    let database = disk::root().unwrap().join(DATABASE);
    let mut acknowledgements = Acknowledgements::open().unwrap();
    if let Err(error) = insert_pairs(&database, &mut acknowledgements) {
        crash::say(format_args!("error {error}"));
    }
    crash::say("done");
}

fn insert_pairs(database: &Path, acknowledgements: &mut Acknowledgements) -> rusqlite::Result<()> {
    let connection = std::mem::ManuallyDrop::new(Connection::open(database)?);
    // When the disk fails here, SQLite may stay in the mode it had, which is as durable.
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", std::env::var(SYNCHRONOUS).unwrap_or("full".to_owned()))?;
    // Often enough that the database file itself is written while the test runs.
    connection.pragma_update(None, "wal_autocheckpoint", 20)?;
    connection.execute_batch("CREATE TABLE pairs (id INTEGER, half INTEGER, filling BLOB) STRICT")?;
    for id in 0..ROWS {
        let transaction = connection.unchecked_transaction()?;
        for half in 0..2 {
            // Over several pages, so that a transaction can be torn.
            let insert = "INSERT INTO pairs VALUES (?1, ?2, zeroblob(3000))";
            transaction.execute(insert, (id, half))?;
        }
        transaction.commit()?;
        acknowledgements.push(id).unwrap();
    }
    Ok(())
}

struct Workspace {
    folder: TempDir,
}

impl Workspace {
    fn new() -> Workspace {
        let workspace = Workspace { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(workspace.root()).unwrap();
        workspace
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn disk(&self) -> Disk {
        Disk::new(self.root()).trace(self.path("trace")).count(self.path("count"))
    }

    fn run(&self, disk: &Disk, synchronous: &str) -> Running {
        let child = Child::of("disk::child_inserts_pairs").env(SYNCHRONOUS, synchronous).disk(disk);
        let mut running = child.spawn().unwrap();
        running.wait_for_success(PATIENCE).unwrap();
        running
    }

    fn counts(&self) -> Counts {
        disk::counts(self.path("count")).unwrap()
    }

    fn acknowledged(&self) -> Vec<i64> {
        let text = std::fs::read_to_string(self.root().join("ack")).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}

/// The ids in the database, after checking that the database is sound and every pair whole.
fn stored(folder: &Path) -> Vec<i64> {
    let connection = Connection::open(folder.join(DATABASE)).unwrap();
    let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let Ok(mut statement) = connection.prepare("SELECT id, count(*) FROM pairs GROUP BY id ORDER BY id")
    else {
        return Vec::new();
    };
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let pairs: Vec<(i64, i64)> = rows.map(Result::unwrap).collect();
    assert!(pairs.iter().all(|&(_, halves)| halves == 2), "a transaction is there as a whole: {pairs:?}");
    pairs.into_iter().map(|(id, _)| id).collect()
}
