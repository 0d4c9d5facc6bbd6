//! The folder that holds all servers of one user, and how processes agree on the shared one.
//!
//! ```text
//! <temp>/mainstay-testkit-<uid>/
//!   lock              held exclusively to make, join or remove a server
//!   shared            the record: port and folder of the shared server
//!   server-<unique>/  data, log, socket, and `users`: a lock held in common by every process that uses it
//! ```
//!
//! The locks are the kernel's, so they vanish with their holders however these end. Whoever finds `users` free
//! for long enough removes the server (see `watchdog`); the last one out removes the whole folder.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::server::{Server, Syncing};
use super::{sql, url, watchdog};

const RECORD: &str = "shared";

/// The folder, locked: as long as this lives, nobody else makes, joins or removes a server.
pub(super) struct Home {
    folder: PathBuf,
    _lock: File,
}

/// Joins the recorded server if it answers, else starts one; the file is the lock that marks us as its user.
pub(super) fn join_shared() -> Result<(u16, File)> {
    let home = Home::lock()?;
    if let Some((port, folder)) = home.record()
        && let Ok(users) = File::open(folder.join("users"))
        && is_alive(port, &folder)
    {
        users.lock_shared()?;
        return Ok((port, users));
    }
    let (folder, users) = home.new_folder()?;
    watchdog::spawn(&folder, watchdog::linger())?;
    let server = Server::create(&folder, Syncing::Off)?;
    fs::write(home.folder.join(RECORD), format!("{}\n{}\n", server.port(), folder.display()))?;
    Ok((server.port(), users))
}

impl Home {
    pub(super) fn lock() -> Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        let folder = std::env::temp_dir().join(format!("mainstay-testkit-{user}"));
        loop {
            make_folder(&folder, user)?;
            let path = folder.join("lock");
            let lock = match File::options().create(true).append(true).open(&path) {
                Ok(lock) => lock,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            };
            lock.lock()?;
            // The folder may have been removed while we waited; then this is the lock of a folder that is gone.
            if fs::metadata(&path).is_ok_and(|now| lock.metadata().is_ok_and(|ours| now.ino() == ours.ino()))
            {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    /// A folder for a server, already marked as in use by this process.
    pub(super) fn new_folder(&self) -> Result<(PathBuf, File)> {
        let folder = self.folder.join(format!("server-{:016x}", super::unique()));
        fs::DirBuilder::new().mode(0o700).create(&folder).with_context(|| folder.display().to_string())?;
        let users = File::create_new(folder.join("users"))?;
        users.lock_shared()?;
        Ok((folder, users))
    }

    fn record(&self) -> Option<(u16, PathBuf)> {
        let text = fs::read_to_string(self.folder.join(RECORD)).ok()?;
        let (port, folder) = text.trim_end().split_once('\n')?;
        Some((port.parse().ok()?, PathBuf::from(folder)))
    }
}

/// Everyone may pass, as the server may run as another user; only the owner may write.
fn make_folder(folder: &Path, user: u32) -> Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("creating {}", folder.display()));
        }
        _ => {}
    }
    match fs::symlink_metadata(folder) {
        Ok(meta) if meta.is_dir() && meta.uid() == user => Ok(()),
        Ok(_) => bail!("{} belongs to someone else; set TMPDIR to another folder", folder.display()),
        // Removed in this moment; the caller looks again.
        Err(_) => Ok(()),
    }
}

/// Whether it is really our server that answers there: ports are used again.
fn is_alive(port: u16, folder: &Path) -> bool {
    let data = folder.join("data");
    match sql::run(&url::local(port), &["SHOW data_directory"]) {
        Ok(rows) => rows.first().is_some_and(|found| Path::new(found) == data),
        Err(error) => error.downcast_ref().is_some_and(sql::is_busy),
    }
}
