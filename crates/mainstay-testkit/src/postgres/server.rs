//! One data folder and the postmaster on it.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::account::Account;
use super::binaries::Binaries;
use super::process::{is_running, kill_tree};

/// Far above what a start, a recovery or a stop takes on a busy machine; only a broken server reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// Below the range from which systems take ports for outgoing connections, so that nobody takes ours while a
/// server is down between `kill9` and `start`.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// Whether commits reach the disk before they are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syncing {
    On,
    Off,
}

#[derive(Debug)]
pub(super) struct Server {
    folder: PathBuf,
    port: u16,
    binaries: Binaries,
    account: Account,
    child: Option<Child>,
}

impl Server {
    /// Makes a data folder in `folder` and starts a server on a free port.
    pub(super) fn create(folder: &Path, syncing: Syncing) -> Result<Self> {
        let (binaries, account) = (Binaries::find()?, Account::choose()?);
        account.hand_over(folder)?;
        let mut server =
            Self { folder: folder.to_owned(), port: free_port()?, binaries, account, child: None };
        server.init(syncing)?;
        // Another process may take the port between our look and the server's.
        for _ in 0..5 {
            match server.start() {
                Err(error) if error.to_string().contains("Address already in use") => {
                    server.port = free_port()?;
                }
                other => return other.map(|()| server),
            }
        }
        bail!("found no free port for PostgreSQL in five attempts")
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn init(&self, syncing: Syncing) -> Result<()> {
        let mut command = self.account.command(&self.binaries.initdb(), &self.folder);
        command.arg("-D").arg(self.data()).args(["-U", "mainstay", "-A", "trust", "-E", "UTF8"]);
        // Sorts text like a dictionary, as most servers in the field do: what only works in byte order shows.
        command.args(["--locale=C", "--locale-provider=icu", "--icu-locale=en"]);
        // Otherwise the first recovery after a kill would have all these files to sync.
        if syncing == Syncing::Off {
            command.arg("--no-sync");
        }
        let output = command.output().with_context(|| format!("starting {command:?}"))?;
        if !output.status.success() {
            bail!("initdb failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        let path = self.data().join("postgresql.conf");
        let conf = fs::read_to_string(&path)? + &settings(&self.folder, syncing);
        fs::write(&path, conf).with_context(|| path.display().to_string())
    }

    /// Starts the postmaster and waits until it accepts connections, recovery included.
    pub(super) fn start(&mut self) -> Result<()> {
        if self.child.is_some() {
            bail!("PostgreSQL on port {} is already running", self.port);
        }
        let log = File::options().create(true).append(true).open(self.log())?;
        let log_start = log.metadata()?.len();
        let mut command = self.account.command(&self.binaries.postgres(), &self.folder);
        command.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string());
        command.stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;

        let deadline = Instant::now() + PATIENCE;
        while !self.is_ready(&child) {
            if let Some(status) = child.try_wait()? {
                bail!("PostgreSQL did not start ({status}):\n{}", self.log_since(log_start));
            }
            if Instant::now() > deadline {
                kill_tree(child.id());
                child.wait()?;
                bail!("PostgreSQL was not ready after {PATIENCE:?}:\n{}", self.log_since(log_start));
            }
            std::thread::sleep(POLL);
        }
        self.child = Some(child);
        Ok(())
    }

    /// The postmaster writes its state into the eighth line of its pid file; `pg_ctl` looks there too.
    fn is_ready(&self, child: &Child) -> bool {
        let Ok(text) = fs::read_to_string(self.data().join("postmaster.pid")) else { return false };
        let mut lines = text.lines();
        lines.next() == Some(child.id().to_string().as_str())
            && lines.nth(6).is_some_and(|state| state.trim() == "ready")
    }

    fn log_since(&self, start: u64) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(log.get(start as usize..).unwrap_or_default()).into_owned()
    }

    /// Kills the postmaster and all its children at the same moment, as when the machine loses power.
    pub(super) fn kill9(&mut self) -> Result<()> {
        let mut child = self.child.take().context("PostgreSQL is not running")?;
        let children = kill_tree(child.id());
        child.wait()?;
        // They are no children of ours, so their end can only be watched; until then they hold the shared memory.
        let deadline = Instant::now() + PATIENCE;
        while children.iter().any(|child| is_running(*child)) {
            if Instant::now() > deadline {
                bail!("processes of PostgreSQL are still there {PATIENCE:?} after SIGKILL");
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Disconnects all clients, writes a checkpoint and stops.
    pub(super) fn stop_fast(&mut self) -> Result<()> {
        self.stop(Signal::INT).map(|_| ())
    }

    fn stop(&mut self, signal: Signal) -> Result<ExitStatus> {
        let mut child = self.child.take().context("PostgreSQL is not running")?;
        kill_process(Pid::from_child(&child), signal)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                kill_tree(child.id());
                return child.wait().context("waiting for PostgreSQL");
            }
            std::thread::sleep(POLL);
        }
    }

    /// Stops without saving anything and removes the folder.
    pub(super) fn destroy(&mut self) {
        if self.child.is_some() {
            // Unlike a SIGKILL, an immediate stop gives its shared memory segment back to the system.
            let _ = self.stop(Signal::QUIT);
        } else {
            self.remove_orphaned_segment();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// A killed server leaves a segment that only a restart would remove; its id is in the seventh line.
    fn remove_orphaned_segment(&self) {
        let Ok(text) = fs::read_to_string(self.data().join("postmaster.pid")) else { return };
        if let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            let _ = Command::new("ipcrm").args(["-m", id]).output();
        }
    }
}

fn settings(folder: &Path, syncing: Syncing) -> String {
    let on = if syncing == Syncing::On { "on" } else { "off" };
    // A socket's path has room for about 107 bytes.
    let sockets = if folder.as_os_str().len() < 85 { folder.display().to_string() } else { String::new() };
    format!(
        "\n\
         fsync = {on}\n\
         synchronous_commit = {on}\n\
         full_page_writes = {on}\n\
         max_connections = 400\n\
         shared_buffers = 64MB\n\
         listen_addresses = '127.0.0.1'\n\
         unix_socket_directories = '{sockets}'\n\
         dynamic_shared_memory_type = mmap\n\
         autovacuum = on\n\
         jit = off\n\
         logging_collector = off\n\
         log_line_prefix = '%m [%p] %d '\n"
    )
}

fn free_port() -> Result<u16> {
    let size = u64::from(PORTS.end - PORTS.start);
    let offset = super::unique() % size;
    (0..size)
        .map(|step| PORTS.start + ((offset + step) % size) as u16)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .with_context(|| format!("no free port in {PORTS:?} on 127.0.0.1"))
}
