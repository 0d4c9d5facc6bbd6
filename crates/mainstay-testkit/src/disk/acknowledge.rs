//! The process on the disk marks what it has promised.
//!
//! It writes to a file of a special name below the root. In the trace this stands in order with everything else,
//! so of each moment at which the power may go it is known what had been promised by then.

use std::{
    fmt::Display,
    fs::File,
    io::{self, Write},
    path::PathBuf,
};

/// The file's name, below the root; known to the shim, which never lets it fail.
pub(super) const NAME: &str = "ack";

/// The folder that the disk of this process watches, when it has one.
pub fn root() -> Option<PathBuf> {
    std::env::var_os(super::ROOT).map(PathBuf::from)
}

/// Where a process writes down what it has acknowledged, one line each.
#[derive(Debug)]
pub struct Acknowledgements(File);

impl Acknowledgements {
    /// Opens the file of this process's disk.
    pub fn open() -> io::Result<Acknowledgements> {
        let root =
            root().ok_or_else(|| io::Error::other("this process was not started on a watched disk"))?;
        File::options().create(true).append(true).open(root.join(NAME)).map(Acknowledgements)
    }

    /// Adds one line, in a single write so that it is in the trace as a whole or not at all.
    pub fn push(&mut self, what: impl Display) -> io::Result<()> {
        self.0.write_all(format!("{what}\n").as_bytes())
    }
}
