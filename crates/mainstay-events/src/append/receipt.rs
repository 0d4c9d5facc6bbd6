//! Appends beside an author's own writes.

use super::commit::{Ground, WRITE_AUDIT, commit_together};
use super::prepare::Prepared;
use super::{Appended, Status};
use crate::error::Error;
use crate::figures::Figures;
use crate::index::merge_if_due;
use mainstay_store::{Ending, Epilogue, Store, Tx, Value};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// What came of an append in a transaction. It is empty until the transaction has committed: positions are given out
/// in the order of commits, so nobody knows them before.
#[derive(Debug, Clone, Default)]
pub struct Receipt {
    event_ids: Arc<[String]>,
    appended: Arc<OnceLock<Appended>>,
}

impl Receipt {
    /// The ids that the events will have, known at once.
    pub fn event_ids(&self) -> &[String] {
        &self.event_ids
    }

    /// What came of it, once the transaction has committed.
    pub fn get(&self) -> Option<&Appended> {
        self.appended.get()
    }
}

/// The appends of one transaction, done at its end.
pub(crate) struct Noted {
    store: Store,
    ground: Arc<Ground>,
    figures: Arc<Figures>,
    appends: Mutex<Vec<Entry>>,
}

struct Entry {
    prepared: Prepared,
    receipt: Receipt,
    /// Whether the transaction goes on when it was applied before.
    is_repeatable: bool,
}

impl Noted {
    pub(crate) fn new(store: Store, ground: Arc<Ground>, figures: Arc<Figures>) -> Self {
        Self { store, ground, figures, appends: Mutex::default() }
    }

    /// Notes an append.
    pub(crate) fn add(
        &self,
        mut prepared: Prepared,
        is_repeatable: bool,
        mut make_id: impl FnMut(Option<&str>) -> String,
    ) -> Receipt {
        for event in &mut prepared.events {
            if event.new.event_id.is_none() {
                event.new.event_id = Some(make_id(event.new.bounded_context.as_deref()));
                event.has_made_id = true;
            }
        }
        let event_ids = prepared.events.iter().filter_map(|event| event.new.event_id.clone()).collect();
        let receipt = Receipt { event_ids, ..Receipt::default() };
        let mut appends = self.appends.lock().unwrap_or_else(PoisonError::into_inner);
        appends.push(Entry { prepared, receipt: receipt.clone(), is_repeatable });
        receipt
    }
}

impl Epilogue for Noted {
    fn conclude(self: Arc<Self>, tx: Tx) -> Ending {
        Box::pin(async move {
            let began = Instant::now();
            if let Some(recent) = &self.ground.recent {
                merge_if_due(&self.store, recent);
            }
            let noted = std::mem::take(&mut *self.appends.lock().unwrap_or_else(PoisonError::into_inner));
            let (mut prepared, mut receipts, mut repeatable) = (Vec::new(), Vec::new(), Vec::new());
            for entry in noted {
                prepared.push(Arc::new(entry.prepared));
                receipts.push(entry.receipt);
                repeatable.push(entry.is_repeatable);
            }
            let (answers, audits) = commit_together(&self.ground, &tx, &prepared, &repeatable).await?;
            self.audit_later(audits);
            let noted = prepared.into_iter().zip(receipts).zip(repeatable);
            for (answer, ((prepared, receipt), is_repeatable)) in answers.into_iter().zip(noted) {
                let appended = match answer {
                    Ok(appended) if appended.status == Status::Duplicate && !is_repeatable => {
                        self.figures.record(&prepared, &Ok(appended.clone()), began);
                        return Err(Error::AlreadyApplied(appended).into());
                    }
                    Ok(appended) => appended,
                    Err(error) => {
                        self.figures.record(&prepared, &Err(error.clone()), began);
                        return Err(error.into());
                    }
                };
                let figures = self.figures.clone();
                // Known to its author when it is true, and counted then, and not before.
                tx.after_commit(Arc::new(move || {
                    figures.record(&prepared, &Ok(appended.clone()), began);
                    drop(receipt.appended.set(appended.clone()));
                }))?;
            }
            Ok(())
        })
    }
}

impl Noted {
    /// The transaction is rolled back, and its audit rows with it: those are written by one of their own.
    fn audit_later(&self, audits: Vec<Vec<Value>>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if audits.is_empty() {
            return;
        }
        let store = self.store.clone();
        runtime.spawn(async move {
            let write = async |tx: Tx, audits: Vec<Vec<Value>>| {
                tx.wake(&crate::audits_topic())?;
                tx.execute_many(WRITE_AUDIT, &audits).await
            };
            if let Err(error) = store.transact_with(audits, write).await {
                tracing::warn!(%error, "the audit row of a refused idempotency key was not written");
            }
        });
    }
}
