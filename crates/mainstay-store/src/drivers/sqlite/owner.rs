//! The lock that gives a database file one owning process.
//!
//! SQLite itself lets many processes write one file, but then commits cannot be shared, wake-ups would have to
//! cross processes, and two engines would run the same work. The lock is on a file of its own beside the database,
//! because closing *any* descriptor of the database drops SQLite's locks in this process.

use crate::{Error, Result, files};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Held for as long as the store is open; the operating system lets go when the process dies.
#[derive(Debug)]
pub(super) struct Owner {
    lock: File,
    path: PathBuf,
}

impl Owner {
    /// Takes the lock, or says who has it.
    pub(super) fn take(database: &Path) -> Result<Self> {
        // A link to a database is that database.
        let real = std::fs::canonicalize(database).unwrap_or_else(|_| database.to_owned());
        let mut path = real.into_os_string();
        path.push("-owner");
        let path = PathBuf::from(path);
        let failed =
            |error: io::Error| Error::Open { what: path.display().to_string(), reason: error.to_string() };
        loop {
            let mut options = files::options();
            let mut lock =
                options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
            match lock.try_lock() {
                // The previous owner may have removed the file between our open and our lock.
                Ok(()) if !is_same_file(&lock, &path) => {}
                Ok(()) => {
                    let who = format!("process {} since {}", std::process::id(), jiff::Timestamp::now());
                    // The note is for people; a full disk must not keep a store from being opened and looked at.
                    drop(lock.set_len(0).and_then(|()| lock.write_all(who.as_bytes())));
                    return Ok(Self { lock, path });
                }
                Err(TryLockError::WouldBlock) => {
                    let holder = read_holder(&mut lock).unwrap_or_else(|| "another process".to_owned());
                    return Err(Error::Owned { file: database.display().to_string(), holder });
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Removed while still locked, so that nobody can lock a file that is about to vanish unnoticed.
        drop(std::fs::remove_file(&self.path));
        drop(self.lock.unlock());
    }
}

#[cfg(unix)]
fn is_same_file(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity =
        |metadata: io::Result<std::fs::Metadata>| metadata.map(|found| (found.dev(), found.ino())).ok();
    identity(open.metadata()) == identity(std::fs::metadata(path))
}

/// Elsewhere an open file cannot be removed.
#[cfg(not(unix))]
fn is_same_file(_open: &File, _path: &Path) -> bool {
    true
}

fn read_holder(file: &mut File) -> Option<String> {
    let mut who = String::new();
    file.take(256).read_to_string(&mut who).ok()?;
    (!who.is_empty()).then_some(who)
}
