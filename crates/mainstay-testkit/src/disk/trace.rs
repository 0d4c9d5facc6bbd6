//! What a process asked of its disk, in order.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

/// One operation that succeeded. Paths are relative to the watched root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A file came into being.
    Create {
        /// The new file.
        path: PathBuf,
    },
    /// A file that was there already was opened for writing.
    Open {
        /// The file.
        path: PathBuf,
    },
    /// Bytes were written.
    Write {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What was written.
        bytes: Vec<u8>,
    },
    /// The file was cut or stretched.
    Truncate {
        /// The file.
        path: PathBuf,
        /// Its length since.
        length: u64,
    },
    /// An fsync or fdatasync of a file returned.
    Sync {
        /// The file.
        path: PathBuf,
    },
    /// An fsync of a folder returned.
    SyncFolder {
        /// The folder; the root itself is the empty path.
        path: PathBuf,
    },
    /// A name was removed.
    Unlink {
        /// The file.
        path: PathBuf,
    },
    /// A file got another name, and whatever had that name lost it.
    Rename {
        /// The name it had.
        from: PathBuf,
        /// The name it has since.
        to: PathBuf,
    },
}

/// Reads the trace that [`Disk::trace`](super::Disk::trace) asked for.
pub fn read(path: impl AsRef<Path>) -> anyhow::Result<Vec<Operation>> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).with_context(|| {
        format!("no trace at {}: was the process started on a disk that traces?", path.display())
    })?;
    parse(&bytes).with_context(|| format!("{} is not a trace", path.display()))
}

/// A record that stops in the middle ends the trace: its process was killed while writing it.
fn parse(mut rest: &[u8]) -> anyhow::Result<Vec<Operation>> {
    let mut operations = Vec::new();
    while let Some((operation, after)) = parse_one(rest)? {
        operations.push(operation);
        rest = after;
    }
    Ok(operations)
}

fn parse_one(bytes: &[u8]) -> anyhow::Result<Option<(Operation, &[u8])>> {
    let Some((kind, rest)) = number::<4>(bytes) else { return Ok(None) };
    let Some((name_length, rest)) = number::<4>(rest) else { return Ok(None) };
    let Some((offset, rest)) = number::<8>(rest) else { return Ok(None) };
    let Some((length, rest)) = number::<8>(rest) else { return Ok(None) };
    let Some((name, rest)) = split(rest, name_length) else { return Ok(None) };
    let Some((bytes, rest)) = split(rest, length) else { return Ok(None) };
    let path = PathBuf::from(OsStr::from_bytes(name));
    // The numbers are those of `enum operation` in shim.c.
    let operation = match kind {
        1 => Operation::Create { path },
        2 => Operation::Open { path },
        3 => Operation::Write { path, offset, bytes: bytes.to_vec() },
        4 => Operation::Truncate { path, length: offset },
        5 => Operation::Sync { path },
        6 => Operation::SyncFolder { path },
        7 => Operation::Unlink { path },
        8 => Operation::Rename { from: path, to: PathBuf::from(OsStr::from_bytes(bytes)) },
        unknown => bail!("there is no operation {unknown}"),
    };
    Ok(Some((operation, rest)))
}

/// As the shim's processor stores it, which is this one.
fn number<const BYTES: usize>(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<BYTES>()?;
    let mut wide = [0; 8];
    let at = if cfg!(target_endian = "little") { 0 } else { 8 - BYTES };
    wide[at..at + BYTES].copy_from_slice(number);
    Some((u64::from_ne_bytes(wide), rest))
}

fn split(bytes: &[u8], length: u64) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(usize::try_from(length).ok()?)
}
