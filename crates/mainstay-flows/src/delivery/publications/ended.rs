//! What came of a delivery, noted in the transaction that ends its work.
//!
//! Many deliveries end in one transaction. What came of them is collected while it runs, and written with few statements
//! at its end.

use super::deliver::Which;
use super::listing;
use super::publisher::Shared;
use super::record::{self, Failed};
use super::status::{Ended, Status, next};
use super::targets::{Slot, opened};
use crate::attempts::Attempt;
use mainstay_store::{Ending, Epilogue, Tx};
use mainstay_work::{Call, Functions, OnComplete, WorkResult};
use std::sync::{Arc, Mutex, PoisonError};

/// The mutation that is told how deliveries end.
pub(super) const ENDED: &str = "mainstay.publication.ended";

/// Adds the function.
pub(super) fn functions(functions: Functions, slot: &Slot) -> Functions {
    let slot = slot.clone();
    functions.mutation(ENDED, move |tx: Tx, _: Call, told: OnComplete<Which>| {
        let slot = slot.clone();
        async move {
            let shared = opened(&slot)?;
            let noted = tx.epilogue(|| Noted { shared, ends: Mutex::default() });
            noted.ends.lock().unwrap_or_else(PoisonError::into_inner).push(told);
            Ok(())
        }
    })
}

/// The deliveries that end in one transaction.
struct Noted {
    shared: Arc<Shared>,
    ends: Mutex<Vec<OnComplete<Which>>>,
}

impl Epilogue for Noted {
    fn conclude(self: Arc<Self>, tx: Tx) -> Ending {
        let ends = std::mem::take(&mut *self.ends.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(async move { self.write(&tx, ends).await })
    }
}

impl Noted {
    async fn write(&self, tx: &Tx, ends: Vec<OnComplete<Which>>) -> mainstay_store::Result<()> {
        self.shared.pass("publications.ending")?;
        let (mut delivered, mut failed) = (Vec::new(), Vec::new());
        for told in ends {
            let Some(Which { publication_id, .. }) = told.context else { continue };
            let status = next(Status::Pending, Ended::of(&told.result));
            let error = match &told.result {
                WorkResult::Success { .. } => {
                    delivered.push((publication_id, told.attempts));
                    continue;
                }
                WorkResult::Failed { error } => error,
                WorkResult::Canceled => "canceled",
            };
            let history = told.errors.iter().map(|one| Attempt::of(&told.work_id, one.clone())).collect();
            let (status, attempts, work_id) = (status.as_str(), told.attempts, &*told.work_id);
            record::fail(tx, &publication_id, Failed { status, attempts, error, work_id, history }).await?;
            failed.push(publication_id);
        }
        listing::list(tx, failed).await?;
        record::deliver(tx, &delivered).await?;
        self.shared.pass("publications.ended")
    }
}
