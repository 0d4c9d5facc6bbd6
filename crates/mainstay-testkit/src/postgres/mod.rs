//! A private PostgreSQL for tests: no server of the machine is touched, no port is assumed.
//!
//! - [`Postgres::shared`]: one server for the whole test run, shared by all its processes; a test takes a
//!   [`Database`] of its own from it. It does not sync to disk, so it says nothing about power loss.
//! - [`Postgres::private`]: a server for one test, which may kill and restart it; syncs as in production.
//!
//! Both live in a folder below the temp folder and carry a watchdog, a process that outlives the tests: a run
//! that is killed leaves no server and no folder behind.
//!
//! | file | what lives there |
//! |---|---|
//! | `binaries` | finding `postgres` and `initdb` |
//! | `account` | who runs the server; never root |
//! | `server`, `process` | one data folder and the processes on it |
//! | `home` | the folder of all our servers, its lock, the record of the shared one |
//! | `watchdog` | cleaning up after processes that died |
//! | `private`, `database` | what tests hold in their hands |
//! | `doorman` | letting transactions wait, or fail, where a test wants it |
//! | `sql`, `url` | talking to a server from any context |
//!
//! | variable | meaning |
//! |---|---|
//! | `MAINSTAY_TEST_POSTGRES` | URL of a server to use as the shared one; its user creates databases and roles |
//! | `MAINSTAY_PG_BIN` | folder with `postgres` and `initdb`, version 15 or newer |
//! | `MAINSTAY_TEST_LINGER` | seconds that the shared server stays without users; 20 when unset |

mod account;
mod binaries;
mod database;
mod doorman;
mod home;
mod private;
mod process;
mod server;
mod sql;
mod url;
mod watchdog;

use std::fs::File;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

pub use database::Database;
pub use doorman::Doorman;
pub use private::Private;

/// A server that tests share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Postgres {
    url: String,
}

/// The shared server that this process uses, with the lock that keeps its watchdog quiet.
struct Lease {
    port: u16,
    _user: File,
}

static LEASE: Mutex<Option<Lease>> = Mutex::new(None);

impl Postgres {
    /// The server of this test run: joins the running one, or starts it.
    ///
    /// It stays up for as long as this process lives. A server found dead is replaced.
    pub fn shared() -> Result<Self> {
        if let Ok(url) = std::env::var("MAINSTAY_TEST_POSTGRES") {
            url::check(&url).context("MAINSTAY_TEST_POSTGRES")?;
            return Ok(Self { url });
        }
        let mut lease = LEASE.lock().unwrap_or_else(PoisonError::into_inner);
        let port = match &*lease {
            Some(held) if TcpStream::connect(("127.0.0.1", held.port)).is_ok() => held.port,
            _ => {
                let (port, user) = home::join_shared()?;
                *lease = Some(Lease { port, _user: user });
                port
            }
        };
        Ok(Self { url: url::local(port) })
    }

    /// A server for one test, with fsync on; stopped and removed when dropped.
    pub fn private() -> Result<Private> {
        Private::start_new()
    }

    /// A fresh, empty database; dropped with the returned value.
    pub fn database(&self) -> Result<Database> {
        Database::create(&self.url)
    }

    /// The URL of the maintenance database, for a user who may create databases and roles.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// A number that no other caller gets, in this process or, for all practical purposes, in another.
fn unique() -> u64 {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    nanos.wrapping_add(count) ^ u64::from(std::process::id()) << 40
}
