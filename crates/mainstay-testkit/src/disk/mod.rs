//! A disk that lies, for a child process: it fails chosen writes, and it writes down what was asked of it so that
//! the state after a power loss can be made from that.
//!
//! - `shim.c`: a small C library between the process and its disk, loaded with `LD_PRELOAD`
//! - [`fault`]: which writes or syncs fail
//! - [`trace`]: what the process did, in order
//! - [`power_loss`]: folders as they could be found after the power went
//! - [`acknowledge`]: how the process marks, in the same order, what it has promised to keep
//!
//! Only processes that load the C library dynamically can be watched, which SQLite inside a Rust test binary does
//! on Linux with glibc.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::shim::{library, preload};
use anyhow::Context;

pub mod acknowledge;
pub mod fault;
pub mod power_loss;
mod random;
pub mod trace;
mod volume;

pub use acknowledge::{Acknowledgements, root};
pub use fault::Fault;
pub use power_loss::{Image, PowerLoss};
pub use trace::Operation;

const SHIM: &str = include_str!("shim.c");
const ROOT: &str = "MAINSTAY_DISK_ROOT";
const TRACE: &str = "MAINSTAY_DISK_TRACE";
const FAULT: &str = "MAINSTAY_DISK_FAULT";
const COUNT: &str = "MAINSTAY_DISK_COUNT";

/// What a child process will have for a disk.
///
/// ```no_run
/// # use mainstay_testkit::disk::{Disk, Fault};
/// # let mut command = std::process::Command::new("true");
/// Disk::new("/tmp/data").trace("/tmp/trace").fault(Fault::enospc(7).for_ever()).apply(&mut command)?;
/// # anyhow::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Disk {
    root: PathBuf,
    trace: Option<PathBuf>,
    fault: Option<Fault>,
    count: Option<PathBuf>,
}

/// How much a process has asked of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Writes to watched files.
    pub writes: u64,
    /// Syncs of watched files and folders.
    pub syncs: u64,
}

impl Disk {
    /// Watches the files below the folder `root`, which has to exist when the process starts.
    pub fn new(root: impl Into<PathBuf>) -> Disk {
        Disk { root: root.into(), trace: None, fault: None, count: None }
    }

    /// Appends every operation to the file at `path`, which should lie outside the root; [`trace::read`] reads it.
    ///
    /// Give each process its own file: one that was killed may leave half a record at the end.
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Disk {
        self.trace = Some(path.into());
        self
    }

    /// Lets writes or syncs fail.
    pub fn fault(mut self, fault: Fault) -> Disk {
        self.fault = Some(fault);
        self
    }

    /// Keeps the number of writes and syncs so far in the file at `path`; [`counts`] reads it. A first run that
    /// counts tells where a second one can fail.
    pub fn count(mut self, path: impl Into<PathBuf>) -> Disk {
        self.count = Some(path.into());
        self
    }

    /// Puts `command` onto this disk.
    pub fn apply(&self, command: &mut Command) -> anyhow::Result<()> {
        // SQLite resolves links before it opens a file, and the shim compares text.
        let root = self.root.canonicalize();
        let root = root.with_context(|| format!("the watched folder {} must exist", self.root.display()))?;
        command.env("LD_PRELOAD", preload(&library("disk", SHIM)?)).env(ROOT, root);
        for (variable, path) in [(TRACE, &self.trace), (COUNT, &self.count)] {
            match path {
                Some(path) => command.env(variable, std::path::absolute(path)?),
                None => command.env_remove(variable),
            };
        }
        match self.fault {
            Some(fault) => command.env(FAULT, fault.to_string()),
            None => command.env_remove(FAULT),
        };
        Ok(())
    }
}

/// Reads what [`Disk::count`] has kept.
pub fn counts(path: impl AsRef<Path>) -> anyhow::Result<Counts> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{}: was the process started on a disk that counts?", path.display()))?;
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || numbers.next().unwrap_or(Ok(0));
    Ok(Counts { writes: next()?, syncs: next()? })
}
