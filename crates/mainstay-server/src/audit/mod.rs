//! Who did what, where nobody can change it unseen.
//!
//! - [`Entry`]: what is written down of a call
//! - `chain`: every entry holds a hash of itself and of the one before
//! - `table`: the rows, `mainstay_audit`; nobody else touches them
//! - `args`: what a call was given, without secrets and bounded
//! - `witness`: writes the entry in the action's own transaction
//! - `wrapper`: the one way to every admin route
//! - `seldom`: what is written down only so often

mod args;
mod chain;
mod entry;
mod seldom;
mod table;
mod witness;
mod wrapper;

pub use chain::{Break, Chain};
pub use entry::{Entry, Outcome};
pub use table::{COMPONENT, Filter, Head};
pub(crate) use wrapper::{Auditor, Deed, LIMIT, audited, note, refused};

use mainstay_store::{Result, Store, Tx};
use std::future::Future;

/// The audit of a store. Clones are the same.
#[derive(Clone)]
pub struct Audit {
    store: Store,
}

impl Audit {
    /// The audit of `store`, which was opened with [`COMPONENT`].
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// A page of entries: the newest first, or from an entry on when the filter says after which.
    pub async fn list(&self, filter: Filter, limit: usize) -> Result<Vec<Entry>> {
        let read = async |tx: Tx, (filter, limit): (Filter, usize)| table::list(&tx, &filter, limit).await;
        self.store.read_with((filter, limit), read).await
    }

    /// The last entry's number and hash. Whoever keeps them elsewhere notices when the end is cut off.
    pub async fn head(&self) -> Result<Head> {
        self.store.read(async |tx| table::head(&tx).await).await
    }

    /// Does something to the store where no server is asked, and writes it down as a server does: that it was done is part of
    /// the first transaction that `work` commits, and `judge` says what a failure came to, with its code.
    pub async fn witness<T, E>(
        &self,
        entry: Entry,
        work: impl Future<Output = std::result::Result<T, E>>,
        judge: impl FnOnce(&E) -> (Outcome, String),
    ) -> std::result::Result<T, E> {
        let judge = |came: &std::result::Result<T, E>| match came {
            Ok(_) => (Outcome::Done, None),
            Err(error) => {
                let (outcome, code) = judge(error);
                (outcome, Some(code))
            }
        };
        let (came, left) = witness::witness(move || entry.clone(), work, judge).await;
        if let Some(entry) = left {
            witness::write(&self.store, entry).await;
        }
        came
    }

    /// Writes an entry down, in a transaction of its own.
    pub(crate) async fn write(&self, entry: Entry) -> Result<()> {
        self.store.transact_with(entry, async |tx: Tx, entry: Entry| table::append(&tx, &entry).await).await
    }
}
