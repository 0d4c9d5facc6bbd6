//! What is done at the end of a transaction, after its author's closure and before the commit.
//!
//! The log's positions are the reason: they are given out in the order of commits, under a lock that must not be held
//! while an author's code runs. So an append is only noted while the closure runs, and done here.

use crate::tx::Link;
use crate::{Result, Tx};
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The future of an [`Epilogue`].
pub type Ending = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Work that is left for the end of a transaction. It obeys the same rules as the closure, and its failure is the
/// transaction's.
pub trait Epilogue: Any + Send + Sync {
    /// Does it.
    fn conclude(self: Arc<Self>, tx: Tx) -> Ending;
}

/// What is called on this node once a transaction has committed, before anybody hears of it.
pub type AfterCommit = Arc<dyn Fn() + Send + Sync>;

/// The epilogues of one transaction.
#[derive(Clone, Default)]
pub(crate) struct Epilogues(Arc<Mutex<List>>);

#[derive(Default)]
struct List {
    all: Vec<Arc<dyn Epilogue>>,
    /// How often something was added, perhaps to one that was there.
    additions: u64,
}

impl List {
    fn find<E: Epilogue>(&self) -> Option<Arc<E>> {
        self.all.iter().find_map(|one| {
            let any: Arc<dyn Any + Send + Sync> = one.clone();
            any.downcast::<E>().ok()
        })
    }
}

impl Epilogues {
    fn get_or_add<E: Epilogue>(&self, make: impl FnOnce() -> E) -> Arc<E> {
        let mut list = self.list();
        list.additions += 1;
        list.find().unwrap_or_else(|| {
            let made = Arc::new(make());
            list.all.push(made.clone());
            made
        })
    }

    pub(crate) fn extend(&self, more: Option<Arc<dyn Epilogue>>) {
        self.list().all.extend(more);
    }

    fn take(&self) -> Vec<Arc<dyn Epilogue>> {
        std::mem::take(&mut self.list().all)
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Epilogues {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Epilogues")
    }
}

impl Tx {
    /// The `E` that concludes this transaction: the one that is there already, or the one that `make` makes.
    pub fn epilogue<E: Epilogue>(&self, make: impl FnOnce() -> E) -> Arc<E> {
        self.epilogues.get_or_add(make)
    }

    /// The `E` that concludes this transaction, if there is one already.
    pub fn find_epilogue<E: Epilogue>(&self) -> Option<Arc<E>> {
        self.epilogues.list().find()
    }

    /// How much there is to take back so far: statements that may have written, and what was left for the end. While it
    /// stays the same, nothing came of what was done in between. A SELECT reads, if it calls no function of the author's.
    pub fn marks(&self) -> u64 {
        let writes = match &self.link {
            #[cfg(feature = "sqlite")]
            Link::Sqlite(handle) => handle.writes(),
            #[cfg(feature = "postgres")]
            Link::Postgres(handle) => handle.writes(),
        };
        writes + self.epilogues.list().additions
    }

    /// Calls `hook` on this node once the transaction has committed, before its caller or anybody else hears of it.
    /// It must be quick and may not fail: the next transaction waits for it.
    pub fn after_commit(&self, hook: AfterCommit) -> Result<()> {
        self.epilogues.list().additions += 1;
        match &self.link {
            #[cfg(feature = "sqlite")]
            Link::Sqlite(handle) => handle.after_commit(hook),
            #[cfg(feature = "postgres")]
            Link::Postgres(handle) => handle.after_commit(hook),
        }
    }

    /// Which of the one writer's transactions this is part of. Transactions that share a commit share the number; a
    /// new one means that all before have been committed or undone. Nothing for a read, and where there are many writers.
    pub fn serial(&self) -> Option<u64> {
        match &self.link {
            #[cfg(feature = "sqlite")]
            Link::Sqlite(handle) => handle.serial(),
            #[cfg(feature = "postgres")]
            Link::Postgres(_) => None,
        }
    }
}

/// Runs the epilogues of a transaction.
pub(crate) async fn conclude(tx: &Tx) -> Result<()> {
    for epilogue in tx.epilogues.take() {
        epilogue.conclude(tx.clone()).await?;
    }
    Ok(())
}
