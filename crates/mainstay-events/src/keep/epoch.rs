//! A log that was restored says so.
//!
//! After a restore, positions beyond the backup will be given to other events than before. Whoever remembers a position
//! remembers the epoch with it, and is told when the two no longer fit.

use super::report::{Progress, Report};
use crate::error::Result;
use crate::events_topic;
use crate::index::Recent;
use crate::log::Log;
use mainstay_store::{Options, Store, Tx, backup};
use std::path::Path;
use std::sync::Arc;

const NEXT: &str = "UPDATE mainstay_log SET epoch = epoch + 1 WHERE name = 'events' RETURNING epoch";

impl Log {
    /// Begins a new epoch, and returns it: whoever follows the log in the old one ends with `LOG_EPOCH_CHANGED`.
    pub async fn begin_epoch(&self) -> Result<u64> {
        let begin = async |tx: Tx, recent: Option<Recent>| {
            tx.wake(&events_topic())?;
            let epoch = tx.query_one(NEXT, &[]).await?.get(0)?;
            if let Some(recent) = recent {
                tx.after_commit(Arc::new(move || recent.begin_epoch(epoch)))?;
            }
            Ok(epoch)
        };
        Ok(self.store().transact_with(self.ground().recent.clone(), begin).await?)
    }
}

/// What came of a restore.
#[derive(Debug)]
pub struct Restored {
    /// What was found in the restored log.
    pub report: Report,
    /// Its new epoch.
    pub epoch: u64,
}

/// Makes a new store from a backup at the place that `options` name, looks over its log, and begins a new epoch. The
/// options have [`COMPONENT`](crate::COMPONENT) among their components.
///
/// Tokens of the backup work again, those too that were revoked since: see [`restore_with`].
///
/// A SQLite file gets its name only after all of that, and a PostgreSQL database is not opened before. Problems do not stop it: a
/// damaged backup may be the only one, and what is damaged is not served.
pub async fn restore(
    from: &Path,
    options: Options,
    progress: impl FnMut(Progress) + Send,
) -> Result<Restored> {
    restore_with(from, options, progress, async |_: &Store| Ok(())).await.map(|(restored, ())| restored)
}

/// As [`restore`], and changes the store with `prepare` before it is in its place: what must hold again that was decided after
/// the backup, such as that tokens are revoked. When that fails, or the process dies, there is no SQLite file; a PostgreSQL
/// database has what was restored and is not opened (`STORE_NOT_RESTORED`): drop it, and restore into an empty one.
pub async fn restore_with<T>(
    from: &Path,
    options: Options,
    progress: impl FnMut(Progress) + Send,
    prepare: impl AsyncFnOnce(&Store) -> mainstay_store::Result<T>,
) -> Result<(Restored, T)> {
    let restoring = backup::restore(from, options).await?;
    let store = restoring.options().migrate(true).open().await?;
    let prepared = prepare(&store).await;
    let looked = match prepared {
        Ok(prepared) => look_over(&store, progress).await.map(|restored| (restored, prepared)),
        Err(error) => Err(error.into()),
    };
    store.close().await;
    let looked = looked?;
    restoring.finish().await?;
    Ok(looked)
}

async fn look_over(store: &Store, progress: impl FnMut(Progress) + Send) -> Result<Restored> {
    let log = Log::open(store).await?;
    let report = log.verify(progress).await?;
    Ok(Restored { report, epoch: log.begin_epoch().await? })
}
