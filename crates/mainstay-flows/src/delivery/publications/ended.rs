//! What came of a delivery, noted in the transaction that ends its work.
//!
//! Many deliveries end in one transaction. What came of them is collected while it runs, and written with few statements
//! at its end.

use super::deliver::Which;
use super::listing;
use super::publisher::Shared;
use super::record::{self, Failed};
use super::status::{Ended, Status, next};
use crate::attempts::Attempt;
use crate::completion;
use crate::service::ServiceRef;
use mainstay_core::failpoints::Point;
use mainstay_store::{Ending, Epilogue, Tx};
use mainstay_work::{Call, Functions, OnComplete, WorkResult};
use std::sync::{Arc, Mutex, PoisonError};

/// The mutation that is told how deliveries end.
pub(super) const ENDED: &str = "mainstay.publication.ended";

/// Adds the function.
pub(super) fn functions(functions: Functions, service: &ServiceRef<Shared>) -> Functions {
    let service = service.clone();
    functions.platform_on_complete(ENDED, move |tx: Tx, call: Call, told: OnComplete<Which>| {
        let service = service.clone();
        async move {
            let shared = service.get()?;
            let noted = tx.epilogue(|| Noted { shared, ends: Mutex::default() });
            noted.ends.lock().unwrap_or_else(PoisonError::into_inner).push((call, told));
            Ok(())
        }
    })
}

/// A call, and the end that it tells.
type End = (Call, OnComplete<Which>);

/// The deliveries that end in one transaction.
struct Noted {
    shared: Arc<Shared>,
    ends: Mutex<Vec<End>>,
}

impl Epilogue for Noted {
    fn conclude(self: Arc<Self>, tx: Tx) -> Ending {
        let ends = std::mem::take(&mut *self.ends.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(async move { self.write(&tx, ends).await })
    }
}

impl Noted {
    async fn write(&self, tx: &Tx, ends: Vec<End>) -> mainstay_store::Result<()> {
        self.shared.pass(Point::PublicationsEnding)?;
        let (mut delivered, mut failed) = (Vec::new(), Vec::new());
        let named = ends.iter().filter_map(|(_, told)| Some(&told.context.as_ref()?.publication_id));
        let work_ids = record::work_ids(tx, named).await?;
        for (call, told) in ends {
            let Some(Which { publication_id, .. }) = told.context else { continue };
            if !work_ids.get(&publication_id).is_some_and(|work_id| completion::is_of(&call, work_id)) {
                tracing::warn!(
                    publication = publication_id,
                    work = told.work_id,
                    "the end of work that does not deliver this publication changes nothing"
                );
                continue;
            }
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
        self.shared.pass(Point::PublicationsEnded)
    }
}
