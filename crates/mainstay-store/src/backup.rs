//! Copies of a whole store, made while it is in use, and stores made from them.
//!
//! A copy appears under its name only once it is complete and on the disk, and never takes the place of a file that is
//! there. On SQLite it is a database of its own; on PostgreSQL it is what `pg_dump` writes.
//!
//! A copy has every token that worked when it was made, so nobody may serve it as it is: a copy on SQLite, and a database into
//! which a restore is under way, have a table that marks them, and a marked database is not opened. [`Restoring::finish`]
//! removes the mark, after the restored store was made ready.

use crate::{Error, Location, Options, Result, Store, Tx, files};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Marks a database that is no store until it was restored.
pub(crate) const MARK: &str =
    "CREATE TABLE IF NOT EXISTS mainstay_restore_pending (marked_at BIGINT NOT NULL)";
pub(crate) const UNMARK: &str = "DROP TABLE IF EXISTS mainstay_restore_pending";
const IS_MARKED_SQLITE: &str =
    "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'mainstay_restore_pending'";
const IS_MARKED_POSTGRES: &str =
    "SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('mainstay_restore_pending')";

/// Whether a database is marked.
pub(crate) async fn is_marked(store: &Store) -> Result<bool> {
    let sql = if store.is_postgres() { IS_MARKED_POSTGRES } else { IS_MARKED_SQLITE };
    store.read_with(sql, async |tx: Tx, sql| Ok(tx.query_one(sql, &[]).await?.get::<i64>(0)? > 0)).await
}

/// Copies the store at `url` to a new file and returns its size. The store is not opened: on SQLite another process may
/// own it and go on writing.
pub async fn backup(url: &str, target: &Path) -> Result<u64> {
    let draft = Draft::begin(target)?;
    match Location::parse(url)? {
        Location::Memory => Err(Error::Open {
            what: url.to_owned(),
            reason: "a store in memory can be copied only by its own process".to_owned(),
        }),
        #[cfg(feature = "sqlite")]
        Location::File(path) => {
            blocking(move || {
                crate::drivers::sqlite::copy_into(&path, draft.path())?;
                draft.finish()
            })
            .await
        }
        #[cfg(feature = "postgres")]
        Location::Postgres(url) => {
            blocking(move || {
                crate::drivers::postgres::dump(&url, draft.path())?;
                draft.finish()
            })
            .await
        }
        #[cfg(not(all(feature = "sqlite", feature = "postgres")))]
        other => Err(no_driver(&other)),
    }
}

/// Makes a new store from a backup: a SQLite file that does not exist yet, or an empty PostgreSQL database.
pub async fn restore(backup: &Path, options: Options) -> Result<Restoring> {
    if !backup.is_file() {
        let reason = if backup.exists() { "it is not a file" } else { "it does not exist" };
        return Err(Error::Open { what: backup.display().to_string(), reason: reason.to_owned() });
    }
    let backup = backup.to_owned();
    match Location::parse(&options.url)? {
        Location::Memory => Err(Error::Open {
            what: options.url,
            reason: "a store in memory would be gone at once".to_owned(),
        }),
        #[cfg(feature = "sqlite")]
        Location::File(path) => {
            let draft = Draft::begin(&path)?;
            let draft = blocking(move || {
                crate::drivers::sqlite::copy_into(&backup, draft.path())?;
                Ok(draft)
            })
            .await?;
            let url = format!("sqlite:{}", draft.path().display());
            Ok(Restoring { options: Options { url, is_restoring: true, ..options }, draft: Some(draft) })
        }
        #[cfg(feature = "postgres")]
        Location::Postgres(url) => {
            use crate::drivers::postgres;
            postgres::check_empty(&url).await?;
            // Before there is anything that could be served.
            postgres::run(&url, MARK).await?;
            let undumped = blocking({
                let url = url.clone();
                move || postgres::undump(&url, &backup)
            });
            if let Err(error) = undumped.await {
                // It is as empty as it was, unless nobody knows.
                let _ = postgres::run(&url, UNMARK).await;
                return Err(error);
            }
            Ok(Restoring { options: Options { is_restoring: true, ..options }, draft: None })
        }
        #[cfg(not(all(feature = "sqlite", feature = "postgres")))]
        other => Err(no_driver(&other)),
    }
}

#[cfg(not(all(feature = "sqlite", feature = "postgres")))]
fn no_driver(location: &Location) -> Error {
    Error::Url {
        url: location.to_string(),
        reason: "this program was built without the driver for it".to_owned(),
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|lost| Error::Panicked(lost.to_string()))?
}

/// A store that was made from a backup and is not in its place yet. Dropped, a SQLite file is removed again; a PostgreSQL
/// database stays as it is and is not opened.
#[derive(Debug)]
pub struct Restoring {
    options: Options,
    draft: Option<Draft>,
}

impl Restoring {
    /// How to open it for what must be done before others may see it.
    pub fn options(&self) -> Options {
        self.options.clone()
    }

    /// Puts it in its place and lets it be opened; it must be closed.
    pub async fn finish(self) -> Result<()> {
        match (Location::parse(&self.options.url)?, self.draft) {
            #[cfg(feature = "sqlite")]
            (Location::File(_), Some(draft)) => {
                blocking(move || {
                    crate::drivers::sqlite::run(draft.path(), UNMARK)?;
                    draft.finish().map(drop)
                })
                .await
            }
            #[cfg(feature = "postgres")]
            (Location::Postgres(url), _) => crate::drivers::postgres::run(&url, UNMARK).await,
            (other, _) => {
                Err(Error::Url { url: other.to_string(), reason: "nothing is restored there".to_owned() })
            }
        }
    }
}

/// A file in the making, beside the name that it will have.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    target: PathBuf,
}

impl Draft {
    /// Creates an empty file that only its owner can open, and refuses a target that is taken.
    pub(crate) fn begin(target: &Path) -> Result<Self> {
        let cannot = |reason: String| Error::Open { what: target.display().to_string(), reason };
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(cannot(format!("the folder {} does not exist", folder.display())));
        }
        let Some(name) = target.file_name() else { return Err(cannot("it names no file".to_owned())) };
        if std::fs::symlink_metadata(target).is_ok() {
            return Err(Error::Exists(target.display().to_string()));
        }
        let mut part = name.to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let draft = Self { path: target.with_file_name(part), target: target.to_owned() };
        // Of a process with the same number that was killed.
        draft.remove();
        // SQLite and pg_dump write into an empty file, and leave its mode as it is.
        files::create_new(&draft.path).map_err(|error| cannot(error.to_string()))?;
        Ok(draft)
    }

    /// Where to write.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes sure of the file, and gives it its name. Returns its size.
    pub(crate) fn finish(self) -> Result<u64> {
        let failed = |what: &Path, error: std::io::Error| match error.kind() {
            ErrorKind::StorageFull => Error::DiskFull(what.display().to_string()),
            _ => Error::Io(format!("{}: {error}", what.display())),
        };
        let file = File::open(&self.path).map_err(|error| failed(&self.path, error))?;
        file.sync_all().map_err(|error| failed(&self.path, error))?;
        let bytes = file.metadata().map_err(|error| failed(&self.path, error))?.len();
        // Unlike a rename, a link never takes the place of something that has turned up meanwhile.
        match std::fs::hard_link(&self.path, &self.target) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(Error::Exists(self.target.display().to_string()));
            }
            // A file system without links.
            Err(_) => {
                std::fs::rename(&self.path, &self.target).map_err(|error| failed(&self.target, error))?;
            }
        }
        self.remove();
        sync_folder(&self.target).map_err(|error| failed(&self.target, error))?;
        Ok(bytes)
    }

    fn remove(&self) {
        for suffix in ["", "-journal", "-wal", "-shm", "-owner"] {
            let mut path = self.path.as_os_str().to_owned();
            path.push(suffix);
            // Whatever was never made cannot be removed; that is fine.
            drop(std::fs::remove_file(path));
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.remove();
    }
}

fn sync_folder(file: &Path) -> std::io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems know no such thing.
        Err(error) if !matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all_and_takes_nobodys_place() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("copy");
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        let abandoned = Draft::begin(&target).unwrap();
        std::fs::write(abandoned.path(), "half").unwrap();
        assert!(!target.exists());
        drop(abandoned);
        assert_eq!(names(), 0);

        let (first, second) = (Draft::begin(&target).unwrap(), Draft::begin(&target).unwrap());
        std::fs::write(first.path(), "whole").unwrap();
        assert_eq!(first.finish().unwrap(), 5);
        std::fs::write(second.path(), "late").unwrap();
        assert_eq!(second.finish().unwrap_err().code(), "STORE_TARGET_EXISTS");
        assert_eq!(Draft::begin(&target).unwrap_err().code(), "STORE_TARGET_EXISTS");
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "whole");
        assert_eq!(names(), 1);
        assert_eq!(Draft::begin(&folder.path().join("none/copy")).unwrap_err().code(), "STORE_OPEN_FAILED");
    }
}
