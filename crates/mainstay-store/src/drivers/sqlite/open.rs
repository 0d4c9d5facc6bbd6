//! Opens a database: checks before it touches, and takes back what it made if it cannot finish.

use super::checkpointer::{self, WalWatch};
use super::connection::Session;
use super::owner::Owner;
use super::queue::Queue;
use super::writer::{self, Writer};
use super::{Driver, Shared, failure, readers};
use crate::figures::Figures;
use crate::gate::Gate;
use crate::wakeups::Hub;
use crate::{Durability, Error, Options, Result, files};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How long a commit waits for a program that has locked the file past our own lock, such as a database browser.
pub(super) const FOREIGN_LOCK_PATIENCE_MS: u64 = 1_000;

const HEADER: &[u8; 16] = b"SQLite format 3\0";
const JOURNAL_HEADER: &[u8; 8] = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";

/// The files of a database.
pub(super) struct Files {
    database: Option<PathBuf>,
    /// The database was made by this opening, which has not succeeded yet.
    is_half_made: AtomicBool,
    owner: Mutex<Option<Owner>>,
}

impl Files {
    fn claim(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self {
                database: None,
                is_half_made: AtomicBool::new(false),
                owner: Mutex::default(),
            });
        };
        check_place(path)?;
        // First the lock, then the look: closing a descriptor of the file, even one that only read, drops the locks
        // that SQLite has on it in this process; and until we own it, the file may still be made by another.
        let owner = Owner::take(path)?;
        check_content(path)?;
        let is_half_made = AtomicBool::new(!path.exists());
        let files = Self { database: Some(path.to_owned()), is_half_made, owner: Mutex::new(Some(owner)) };
        files.keep_from_others(path)?;
        Ok(files)
    }

    /// Creates a new database so that only its owner can open it: SQLite keeps the mode, and gives it to the log and the
    /// journal. Reports files that are there already and that other users can open,
    /// and a folder in which they can replace files.
    fn keep_from_others(&self, path: &Path) -> Result<()> {
        if self.is_half_made.load(Ordering::Relaxed) {
            let made = files::options().write(true).create(true).truncate(false).open(path);
            made.map_err(|error| cannot_open(path, &error.to_string()))?;
        }
        for suffix in ["", "-wal", "-shm", "-journal", "-owner"] {
            files::report_wider_mode(&beside(path, suffix));
        }
        files::report_open_folder(path);
        Ok(())
    }

    /// Makes sure that the files are found under their names, and that the journal which a new database is made
    /// with is gone: back after a power loss, it would take everything back. SQLite syncs the folder for this too,
    /// but does not look whether that worked.
    fn settle(&self) -> Result<()> {
        let folder = self
            .database
            .as_ref()
            .and_then(|database| database.canonicalize().ok()?.parent().map(File::open));
        // A folder that may not be read can be synced by nobody.
        let Some(Ok(folder)) = folder else { return Ok(()) };
        match folder.sync_all() {
            // Some file systems know no such thing.
            Err(error) if !matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
                Err(Error::Io(format!("the folder cannot be synced: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// The database, unless it is in memory.
    pub(super) fn database(&self) -> Option<&Path> {
        self.database.as_deref()
    }

    pub(super) fn in_memory(&self) -> bool {
        self.database.is_none()
    }

    /// Lets another process have the file.
    pub(super) fn release(&self) {
        drop(self.owner.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The opening succeeded.
    pub(super) fn keep(&self) {
        self.is_half_made.store(false, Ordering::Relaxed);
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let Some(database) = self.database.as_ref().filter(|_| self.is_half_made.load(Ordering::Relaxed))
        else {
            return;
        };
        for suffix in ["", "-journal", "-wal", "-shm"] {
            // Whatever was never made cannot be removed; that is fine.
            drop(std::fs::remove_file(beside(database, suffix)));
        }
    }
}

/// Looks whether there can be a database.
fn check_place(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(cannot_open(path, &format!("the folder {} does not exist", folder.display())));
    }
    if path.is_dir() {
        return Err(cannot_open(path, "it is a folder"));
    }
    Ok(())
}

/// Looks at what is there without changing it.
fn check_content(path: &Path) -> Result<()> {
    let failed = |error: std::io::Error| cannot_open(path, &error.to_string());
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let header = beginning(&mut file, HEADER.len()).map_err(failed)?;
    if header.is_empty() || header == HEADER || has_journal(path) {
        Ok(())
    } else {
        Err(Error::NotADatabase(path.display().to_string()))
    }
}

fn beginning(file: &mut File, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a journal tells SQLite how to take back what a power loss left of the first page. It is on the disk
/// before that page is written, and gone once the page is there.
fn has_journal(path: &Path) -> bool {
    File::open(beside(path, "-journal"))
        .and_then(|mut file| beginning(&mut file, JOURNAL_HEADER.len()))
        .is_ok_and(|bytes| bytes == JOURNAL_HEADER)
}

/// The name of a file of the database: its own, and a suffix.
fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn cannot_open(path: &Path, reason: &str) -> Error {
    Error::Open { what: path.display().to_string(), reason: reason.to_owned() }
}

/// Opens the database and starts its threads.
pub(super) fn open(
    path: Option<&Path>,
    options: &Options,
    figures: &Arc<Figures>,
    hub: Arc<Hub>,
) -> Result<Driver> {
    let files = Files::claim(path)?;
    let mut db = connect(path, options.durability, WRITER_CACHE_KIB)?;
    files.settle()?;
    let durability = describe(&db, path)?;
    let wal = Arc::new(WalWatch::new(figures.clone()));
    wal.attach(&mut db).map_err(failure::of)?;
    let session = |db, limit| Session::new(db, options.clock.clone(), limit).map_err(failure::of);

    let reader_count = if path.is_some() { options.readers } else { 0 };
    let readers: Vec<Session> = (0..reader_count)
        .map(|_| session(connect(path, options.durability, READER_CACHE_KIB)?, options.read_timeout))
        .collect::<Result<_>>()?;
    let watches: Vec<_> = readers.iter().map(Session::watch).collect();

    let writer_session = session(db, options.transaction_timeout)?;
    let shared = Arc::new(Shared {
        writer: Mutex::new(Writer::new(writer_session, figures.clone(), hub, options)),
        writes: Queue::new(figures, |figures| &figures.queued),
        reads: Queue::new(figures, |figures| &figures.queued_reads),
        write_gate: Gate::new(options.queue_limit, options.busy_timeout),
        read_gate: Gate::new(options.queue_limit, options.busy_timeout),
        figures: figures.clone(),
    });

    // From here on the driver owns the threads: whatever fails, dropping it stops them before the files go.
    let driver = Driver {
        shared: shared.clone(),
        inline_runs: AtomicU64::new(0),
        threads: Mutex::default(),
        files,
        durability,
    };
    let start = |name: &str, body: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().name(format!("mainstay-{name}")).spawn(body);
        let thread = thread
            .map_err(|error| Error::Open { what: format!("thread {name}"), reason: error.to_string() })?;
        driver.lock_threads().push(thread);
        Ok::<(), Error>(())
    };
    let runtime = tokio::runtime::Handle::current();
    start("writer", {
        let (shared, runtime, wal) = (shared.clone(), runtime.clone(), wal.clone());
        Box::new(move || writer::work(&shared, &runtime, &wal))
    })?;
    for session in readers {
        let (shared, runtime) = (shared.clone(), runtime.clone());
        start("reader", Box::new(move || readers::work(&shared, &session, &runtime)))?;
    }
    if path.is_some() {
        let db = connect(path, options.durability, READER_CACHE_KIB)?;
        let limit = options.wal_limit_bytes;
        start("checkpointer", Box::new(move || checkpointer::work(&shared, &db, &wal, &watches, limit)))?;
    }
    Ok(driver)
}

/// Pages that the writer keeps in memory: those it changes again and again.
const WRITER_CACHE_KIB: u32 = 32 << 10;
/// Pages that each reader keeps: it mostly passes by, and the system keeps the file too.
const READER_CACHE_KIB: u32 = 4 << 10;

fn connect(path: Option<&Path>, durability: Durability, cache_kib: u32) -> Result<Connection> {
    let what = path.map_or_else(|| ":memory:".to_owned(), |path| path.display().to_string());
    let failed = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => Error::NotADatabase(what.clone()),
        Some(rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::ReadOnly) => {
            Error::Open { what: what.clone(), reason: format!("{error}; is its folder writable?") }
        }
        _ => failure::of(error),
    };
    // Each connection is used by one thread at a time, which our own locks see to.
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = match path {
        Some(path) => Connection::open_with_flags(path, flags),
        None => Connection::open_in_memory_with_flags(flags),
    };
    let db = db.map_err(failed)?;
    db.busy_timeout(std::time::Duration::from_millis(FOREIGN_LOCK_PATIENCE_MS)).map_err(failed)?;
    if db.is_readonly("main").map_err(failed)? {
        return Err(Error::Open { what, reason: "the file is read-only".to_owned() });
    }
    let mode = ask_for_log(&db).map_err(failed)?;
    if path.is_some() && mode != "wal" {
        return Err(Error::Open {
            what,
            reason: "its file system does not support a write-ahead log".to_owned(),
        });
    }
    let synchronous = if durability == Durability::Full { "FULL" } else { "NORMAL" };
    // The checkpointer checkpoints, so that no commit has to. Memory mapping is off: an IO error there is a signal
    // that kills the process instead of an error code. What is deleted or erased is overwritten, not only unlinked.
    let settings = format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA fullfsync = ON; PRAGMA foreign_keys = ON;
         PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -{cache_kib};
         PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0; PRAGMA trusted_schema = OFF;
         PRAGMA secure_delete = ON;"
    );
    db.execute_batch(&settings).map_err(failed)?;
    // Otherwise a statement is prepared anew whenever a value that its plan may depend on is bound.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failed)?;
    Ok(db)
}

/// Asks for a write-ahead log and returns the journal mode that the database has then.
///
/// SQLite answers first and commits the change of the file afterwards, so the statement must be run to its end: a
/// failure there leaves a rollback journal, whose commits are not safe when the power goes.
fn ask_for_log(db: &Connection) -> rusqlite::Result<String> {
    let mut statement = db.prepare("PRAGMA journal_mode = WAL")?;
    let answers: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(answers.concat())
}

fn describe(db: &Connection, path: Option<&Path>) -> Result<String> {
    let version = rusqlite::version();
    if path.is_none() {
        return Ok(format!("SQLite {version}, in memory, nothing is kept"));
    }
    let synchronous: i64 = db.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(failure::of)?;
    let (mode, meaning) =
        if synchronous >= 2 { ("FULL", "fsync on every commit") } else { ("NORMAL", "NOT durable") };
    Ok(format!("SQLite {version}, WAL, synchronous={mode} ({meaning})"))
}
