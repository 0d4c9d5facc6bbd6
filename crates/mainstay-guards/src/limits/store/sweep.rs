//! Rows that are as good as none make room for others.
//!
//! For every new one a few others are looked at, one after another through the whole table, so that it holds little more
//! than what is in use, and nothing runs when nobody asks.

use mainstay_store::{Store, Tx};
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many are looked at for each new one.
const LOOKS_PER_NEW: usize = 4;
/// How many are looked at in one go.
pub(super) const PAGE: usize = 256;

/// A table that is looked through.
pub(super) trait Pages: Send + Sync + 'static {
    /// Looks at the rows behind `after`, up to a [`PAGE`] of them, and tells where the next page begins.
    fn page(tx: &Tx, after: &str) -> impl Future<Output = mainstay_store::Result<String>> + Send;
}

/// How far it has come.
pub(super) struct Sweep<P>(Mutex<Progress>, PhantomData<P>);

impl<P> Default for Sweep<P> {
    fn default() -> Self {
        Self(Mutex::default(), PhantomData)
    }
}

#[derive(Default)]
struct Progress {
    /// How many are owed a look.
    owed: usize,
    after: String,
    is_under_way: bool,
}

impl<P: Pages> Sweep<P> {
    /// Tells of new rows; looks at others, beside those who ask, when enough have come.
    pub(super) fn note(self: &Arc<Self>, store: &Store, new: usize) {
        let mut progress = self.progress();
        progress.owed += new * LOOKS_PER_NEW;
        if progress.owed < PAGE || progress.is_under_way {
            return;
        }
        progress.is_under_way = true;
        tokio::spawn(self.clone().run(store.clone()));
    }

    async fn run(self: Arc<Self>, store: Store) {
        let _under_way = UnderWay(&self.0);
        loop {
            let after = self.progress().after.clone();
            let look = async |tx: Tx, after: String| P::page(&tx, &after).await;
            match store.transact_with(after, look).await {
                Ok(next) => {
                    let mut progress = self.progress();
                    progress.after = next;
                    progress.owed = progress.owed.saturating_sub(PAGE);
                    if progress.owed < PAGE {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "what has recovered was not removed; that is tried again");
                    return;
                }
            }
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.0)
    }
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

struct UnderWay<'a>(&'a Mutex<Progress>);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        lock(self.0).is_under_way = false;
    }
}
