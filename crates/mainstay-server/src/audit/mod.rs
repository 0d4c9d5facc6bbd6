//! Who did what, where nobody can change it unseen.
//!
//! - [`Entry`]: what is written down of a call
//! - `chain`: every entry holds a hash of itself and of the one before
//! - `table`: the rows, `mainstay_audit`; nobody else touches them
//! - `args`: what a call was given, without secrets and bounded
//! - `wrapper`: the one way to every admin route; it writes the entry in the action's own transaction
//! - `seldom`: what is written down only so often

mod args;
mod chain;
mod entry;
mod seldom;
mod table;
mod wrapper;

pub use chain::{Break, Chain};
pub use entry::{Entry, Outcome};
pub use table::{COMPONENT, Filter, Head};
pub(crate) use wrapper::{Auditor, Deed, LIMIT, audited, note};

use mainstay_store::{Result, Store, Tx};

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

    /// Writes an entry down, in a transaction of its own.
    pub(crate) async fn write(&self, entry: Entry) -> Result<()> {
        self.store.transact_with(entry, async |tx: Tx, entry: Entry| table::append(&tx, &entry).await).await
    }
}
