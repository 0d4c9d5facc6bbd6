//! One test body, every kind of store.

use crate::postgres::{Database, Postgres};
use mainstay_store::{Options, Store};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The kinds of store that a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// SQLite in a file.
    SqliteFile,
    /// SQLite in memory.
    SqliteMemory,
    /// PostgreSQL, in a database of its own.
    Postgres,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::SqliteFile => "SQLite in a file",
            Self::SqliteMemory => "SQLite in memory",
            Self::Postgres => "PostgreSQL",
        })
    }
}

/// A place for a store that nobody else uses. It is gone when the last clone is dropped.
#[derive(Clone)]
pub struct Place {
    kind: Kind,
    url: String,
    home: Arc<Home>,
}

enum Home {
    Folder(TempDir),
    Memory,
    Database(Database),
}

impl Place {
    /// Makes a place of this kind.
    pub fn new(kind: Kind) -> Self {
        let (url, home) = match kind {
            Kind::SqliteFile => {
                let folder = tempfile::tempdir().expect("a folder for the test's database");
                (format!("sqlite:{}", folder.path().join("store.db").display()), Home::Folder(folder))
            }
            Kind::SqliteMemory => ("sqlite::memory:".to_owned(), Home::Memory),
            Kind::Postgres => {
                let server = Postgres::shared().expect("a PostgreSQL server for tests");
                let database = server.database().expect("a database for the test");
                (database.url().to_owned(), Home::Database(database))
            }
        };
        Self { kind, url, home: Arc::new(home) }
    }

    /// What kind of store this is a place for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The store's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The folder of a SQLite file.
    pub fn folder(&self) -> Option<&Path> {
        match &*self.home {
            Home::Folder(folder) => Some(folder.path()),
            Home::Memory | Home::Database(_) => None,
        }
    }

    /// The SQLite file.
    pub fn file(&self) -> Option<PathBuf> {
        self.folder().map(|folder| folder.join("store.db"))
    }

    /// The PostgreSQL database.
    pub fn database(&self) -> Option<&Database> {
        match &*self.home {
            Home::Database(database) => Some(database),
            Home::Folder(_) | Home::Memory => None,
        }
    }

    /// Settings for a store here. Few connections, so that many tests fit on one server.
    pub fn options(&self) -> Options {
        Options::new(&self.url).connections(4)
    }

    /// Opens a store here.
    pub async fn open(&self) -> Store {
        self.options().open().await.unwrap_or_else(|error| panic!("opening {}: {error}", self.kind))
    }
}

/// Opens a store that waits so shortly that a busy machine may be too slow for it: it is asked again.
pub async fn open_at_last(options: Options) -> Store {
    let began = Instant::now();
    loop {
        match options.clone().open().await {
            Ok(store) => return store,
            Err(error) => {
                let goes_on = error.is_retryable() && began.elapsed() < Duration::from_secs(30);
                assert!(goes_on, "opening a store: {error}");
            }
        }
    }
}

/// Runs `body` on SQLite in a file, on SQLite in memory and on PostgreSQL, one after another.
pub fn for_each_store(body: impl AsyncFn(Place)) {
    for_each_kind(&[Kind::SqliteFile, Kind::SqliteMemory, Kind::Postgres], body);
}

/// Runs `body` on the kinds of store that outlive a process: SQLite in a file and PostgreSQL.
pub fn for_each_lasting_store(body: impl AsyncFn(Place)) {
    for_each_kind(&[Kind::SqliteFile, Kind::Postgres], body);
}

/// Runs `body` on each of `kinds`, in a runtime of its own with several threads.
pub fn for_each_kind(kinds: &[Kind], body: impl AsyncFn(Place)) {
    for kind in kinds {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime for the test");
        let run = catch_unwind(AssertUnwindSafe(|| runtime.block_on(body(Place::new(*kind)))));
        if let Err(panic) = run {
            eprintln!("the test above failed on {kind}");
            resume_unwind(panic);
        }
    }
}
