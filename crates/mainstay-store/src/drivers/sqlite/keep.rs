//! What is done for a database as a whole, beside the writer: a copy, SQLite's own check, an empty log.

use super::{Driver, failure};
use crate::backup::{self, blocking};
use crate::{Error, Result};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Lines of SQLite's own check that are read; where there are more, the file is beyond telling.
const MAX_FINDINGS: usize = 100;
/// How long a checkpoint waits for reads while the writer waits for it.
const HOLD: Duration = Duration::from_millis(5);
/// Between two tries, in which the writer and the reads go on.
const PAUSE: Duration = Duration::from_millis(100);
/// As long as an ordinary read of a page may keep the log from being emptied, and some more.
const PATIENCE: Duration = Duration::from_secs(10);

/// Copies the database at `path` to the new file `target`, on a connection of its own: one snapshot, while writers of
/// this and of other processes go on. What was deleted is not in the copy, which is marked as one.
pub(crate) fn copy_into(path: &Path, target: &Path) -> Result<()> {
    vacuum_into(&look_at(path)?, target).map_err(|error| match error {
        Error::Corrupt(reason) if reason.contains("not a database") => {
            Error::NotADatabase(path.display().to_string())
        }
        other => other,
    })
}

fn vacuum_into(db: &Connection, target: &Path) -> Result<()> {
    let Some(target) = target.to_str() else {
        return Err(Error::Open { what: target.display().to_string(), reason: "is not UTF-8".to_owned() });
    };
    db.execute("VACUUM INTO ?1", [target]).map_err(failure::of)?;
    run(Path::new(target), backup::MARK)
}

/// Runs a statement on a database that nobody has open.
pub(crate) fn run(path: &Path, sql: &str) -> Result<()> {
    look_at(path)?.execute_batch(sql).map_err(failure::of)
}

/// A connection that only looks, and changes nothing about the database.
fn look_at(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(|error| Error::Open {
        what: path.display().to_string(),
        reason: if path.exists() { error.to_string() } else { "it does not exist".to_owned() },
    })?;
    let patience = Duration::from_millis(super::open::FOREIGN_LOCK_PATIENCE_MS);
    db.busy_timeout(patience).map_err(failure::of)?;
    // As the store's own connections: an IO error on mapped memory would kill the process.
    db.execute_batch("PRAGMA mmap_size = 0; PRAGMA trusted_schema = OFF;").map_err(failure::of)?;
    Ok(db)
}

fn integrity(db: &Connection) -> Result<Vec<String>> {
    let check = || -> rusqlite::Result<Vec<String>> {
        let mut statement = db.prepare(&format!("PRAGMA integrity_check({MAX_FINDINGS})"))?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
        lines.collect()
    };
    let lines = match check().map_err(failure::of) {
        // Too damaged even to be checked.
        Err(Error::Corrupt(reason)) => vec![reason],
        lines => lines?,
    };
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

impl Driver {
    pub(crate) async fn backup(&self, target: PathBuf) -> Result<()> {
        self.beside(move |db| vacuum_into(db, &target)).await
    }

    /// What SQLite itself finds wrong with the file.
    pub(crate) async fn check_integrity(&self) -> Result<Vec<String>> {
        self.beside(integrity).await
    }

    /// Works on a connection beside the writer's; a database in memory has only that one.
    async fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (path, shared) = (self.files.database().map(Path::to_owned), self.shared.clone());
        blocking(move || match path {
            Some(path) => work(&look_at(&path)?),
            None => shared.lock_writer().with(|db| work(db)),
        })
        .await
    }

    /// Copies the log into the database and empties it, so that what was overwritten in the one is gone from the
    /// other too. False when reads of old snapshots did not let it happen in time.
    pub(crate) async fn empty_log(&self) -> Result<bool> {
        let Some(path) = self.files.database().map(Path::to_owned) else { return Ok(true) };
        let shared = self.shared.clone();
        blocking(move || {
            let db = look_at(&path)?;
            db.busy_timeout(HOLD).map_err(failure::of)?;
            let began = Instant::now();
            while began.elapsed() < PATIENCE {
                // Most of the way beside the writer, and only the rest while it waits.
                checkpoint(&db, "PASSIVE")?;
                let is_empty = {
                    let _writer_waits = shared.lock_writer();
                    checkpoint(&db, "TRUNCATE")?
                };
                if is_empty {
                    return Ok(true);
                }
                std::thread::sleep(PAUSE);
            }
            Ok(false)
        })
        .await
    }
}

/// Whether nobody was in the way.
fn checkpoint(db: &Connection, how: &str) -> Result<bool> {
    let busy = db.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |row| row.get::<_, i64>(0));
    busy.map(|busy| busy == 0).map_err(failure::of)
}
