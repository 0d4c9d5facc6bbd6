//! A child process to be killed, stopped and counted on.
//!
//! The child is the test binary itself, run again for one test function, so that a test and the program it kills
//! stand side by side in one file:
//!
//! ```no_run
//! use std::time::Duration;
//! use mainstay_testkit::crash::{self, Child};
//!
//! #[test]
//! fn workload() {
//!     if !crash::is_child() {
//!         return;
//!     }
//!     for n in 0.. {
//!         // something that must not be lost, and then:
//!         crash::ack(n);
//!     }
//! }
//!
//! #[test]
//! fn survives_kill_9() {
//!     let mut child = Child::of("workload").spawn().unwrap();
//!     child.wait_for_acks(100, Duration::from_secs(30)).unwrap();
//!     child.kill9().unwrap();
//!     assert!(child.acknowledged().len() >= 100); // and all of them are still there
//! }
//! ```
//!
//! - `child`: what the child itself calls
//! - `running`: what the test does with it
//! - `output`: what it has said so far

use std::{
    ffi::{OsStr, OsString},
    process::{Command, Stdio},
};

use anyhow::Context;

use crate::disk::Disk;

mod child;
mod output;
mod running;

pub use child::{ack, die_with_parent, is_child, say};
pub use running::Running;

/// Set for the child.
const VARIABLE: &str = "MAINSTAY_TESTKIT_CHILD";

/// Begins what a child says, among the lines that the test runner prints to the same place.
const PREFIX: &str = "mainstay-child: ";

/// The first thing a child says: without it the name given was not that of a test.
const STARTED: &str = "started";

/// A child process to be started.
#[derive(Clone, Debug)]
pub struct Child {
    test: String,
    variables: Vec<(OsString, OsString)>,
    disk: Option<Disk>,
}

impl Child {
    /// Will run the test function `test` of this test binary, with its full path below the binary's root:
    /// `"disk::workload"`.
    pub fn of(test: impl Into<String>) -> Child {
        Child { test: test.into(), variables: Vec::new(), disk: None }
    }

    /// Sets a variable of the child's environment.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Child {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Puts the child onto a disk that fails or is traced.
    pub fn disk(mut self, disk: &Disk) -> Child {
        self.disk = Some(disk.clone());
        self
    }

    /// Starts the child.
    pub fn spawn(&self) -> anyhow::Result<Running> {
        let mut command =
            Command::new(std::env::current_exe().context("cannot tell where the test binary lies")?);
        command.args(["--exact", &self.test, "--nocapture", "--test-threads=1"]);
        command.env(VARIABLE, "1").envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(disk) = &self.disk {
            disk.apply(&mut command)?;
        }
        Running::start(&self.test, &mut command)
    }
}
