//! A server of one test.

use std::fs::File;

use anyhow::Result;

use super::database::Database;
use super::home::Home;
use super::server::{Server, Syncing};
use super::{url, watchdog};

/// A server that belongs to one test, which may kill, stop and start it. Commits reach the disk.
///
/// Port and data stay the same over restarts. Stopped and removed when dropped; if the process dies before that,
/// a watchdog does it.
#[derive(Debug)]
pub struct Private {
    server: Server,
    url: String,
    _user: File,
}

impl Private {
    pub(super) fn start_new() -> Result<Self> {
        // Only the folder is made under the lock: starting takes a while, and others may start meanwhile.
        let (folder, user) = Home::lock()?.new_folder()?;
        watchdog::spawn(&folder, 0)?;
        let server = Server::create(&folder, Syncing::On)?;
        Ok(Self { url: url::local(server.port()), server, _user: user })
    }

    /// The URL of the maintenance database, for a superuser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A fresh, empty database; dropped with the returned value.
    pub fn database(&self) -> Result<Database> {
        Database::create(&self.url)
    }

    /// Kills the postmaster and all its children in one stroke, as a power cut would.
    pub fn kill9(&mut self) -> Result<()> {
        self.server.kill9()
    }

    /// Stops in good order, disconnecting whoever is connected.
    pub fn stop_fast(&mut self) -> Result<()> {
        self.server.stop_fast()
    }

    /// Starts again on the same port and data, and waits until recovery is done and connections are accepted.
    pub fn start(&mut self) -> Result<()> {
        self.server.start()
    }

    /// Stops in good order and starts again.
    pub fn restart(&mut self) -> Result<()> {
        self.stop_fast()?;
        self.start()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.server.destroy();
    }
}
