//! Folders as they could be found after the power went, made from a trace.
//!
//! The model is a kernel that may have written back any part of what it holds in memory, in any order:
//!
//! - what happened to a file before its last completed sync is on the disk, the file's name included (as ext4 and
//!   XFS do it, though POSIX asks for a sync of the folder as well);
//! - after that, each write is on the disk, or not, or in part, in sectors of 512 bytes; a sector holds one of the
//!   states it had in memory, never a mixture;
//! - each change of a file's length is on the disk or not;
//! - creation, renames and removal of one file happened in order but perhaps not to the last; a sync of the folder
//!   makes them certain.
//!
//! Files ending in `-shm` are left out: they are no durable state, and SQLite makes them anew.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::{Operation, acknowledge, random::Random, volume::Volume};

/// Makes images from one trace; the same seed gives the same images in the same order.
#[derive(Clone, Debug)]
pub struct PowerLoss<'a> {
    trace: &'a [Operation],
    /// Numbers of operations done, at which something was just promised, or was about to be.
    turning_points: Vec<usize>,
    before: Option<PathBuf>,
    random: Random,
}

/// What is known about a folder that [`PowerLoss::image`] has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// What the process had written to its acknowledgements when the power went.
    pub acknowledged: Vec<u8>,
    /// How many operations of the trace it had done.
    pub cut: usize,
}

impl Image {
    /// The acknowledgements, line by line.
    pub fn acknowledged_lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.acknowledged).lines().map(str::to_owned).collect()
    }
}

impl<'a> PowerLoss<'a> {
    /// Prepares images of `trace`, which began on an empty folder.
    pub fn new(trace: &'a [Operation], seed: u64) -> PowerLoss<'a> {
        let turning = |(index, operation): (usize, &Operation)| match operation {
            Operation::Sync { .. } | Operation::SyncFolder { .. } => Some([index, index + 1]),
            Operation::Write { path, .. } if is_acknowledgement(path) => Some([index, index + 1]),
            _ => None,
        };
        let turning_points = trace.iter().enumerate().filter_map(turning).flatten().collect();
        PowerLoss { trace, turning_points, before: None, random: Random::new(seed) }
    }

    /// Says that the trace began on a folder with files; `before` holds a copy of them.
    pub fn over(mut self, before: impl Into<PathBuf>) -> PowerLoss<'a> {
        self.before = Some(before.into());
        self
    }

    /// Lets the power go at some moment, and writes what is found afterwards into the folder `into`, which is
    /// created or empty.
    pub fn image(&mut self, into: &Path) -> anyhow::Result<Image> {
        let cut = self.choose_cut();
        self.image_at(cut, into)
    }

    /// Lets the power go when `cut` operations were done.
    pub fn image_at(&mut self, cut: usize, into: &Path) -> anyhow::Result<Image> {
        let done = self.trace.get(..cut).context("the trace is shorter than that")?;
        let mut volume = match &self.before {
            Some(before) => Volume::load(before)?,
            None => Volume::default(),
        };
        for operation in done.iter().filter(|operation| !is_ignored(operation)) {
            volume.apply(operation)?;
        }
        std::fs::create_dir_all(into)?;
        ensure!(into.read_dir()?.next().is_none(), "{} is not empty", into.display());
        for (path, bytes) in volume.after_power_loss(&mut self.random) {
            let path = into.join(path);
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::write(path, bytes)?;
        }
        Ok(Image { acknowledged: acknowledged(done), cut })
    }

    /// Half of the cuts fall right before or after a sync or an acknowledgement, which is where mistakes show.
    fn choose_cut(&mut self) -> usize {
        if !self.turning_points.is_empty() && self.random.chance(4) {
            self.turning_points[self.random.below(self.turning_points.len())]
        } else {
            self.random.below(self.trace.len() + 1)
        }
    }
}

fn acknowledged(done: &[Operation]) -> Vec<u8> {
    let bytes = |operation: &Operation| match operation {
        Operation::Write { path, bytes, .. } if is_acknowledgement(path) => Some(bytes.clone()),
        _ => None,
    };
    done.iter().filter_map(bytes).flatten().collect()
}

fn is_acknowledgement(path: &Path) -> bool {
    path == Path::new(acknowledge::NAME)
}

fn is_ignored(operation: &Operation) -> bool {
    let path = match operation {
        Operation::Create { path }
        | Operation::Open { path }
        | Operation::Write { path, .. }
        | Operation::Truncate { path, .. }
        | Operation::Sync { path }
        | Operation::SyncFolder { path }
        | Operation::Unlink { path } => path,
        Operation::Rename { from, .. } => from,
    };
    is_acknowledgement(path) || path.as_os_str().as_encoded_bytes().ends_with(b"-shm")
}
