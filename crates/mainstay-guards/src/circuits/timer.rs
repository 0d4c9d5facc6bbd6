//! What a circuit that opened does when its time has come.

use super::circuits::{Circuits, check_name};
use super::local::Core;
use super::record::Record;
use super::shared::Shared;
use crate::Result;
use mainstay_core::circuit::{Event, State};
use mainstay_store::Tx;
use std::sync::Arc;

/// What came of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// The circuit is half open.
    Fired,
    /// Nothing was changed.
    Skipped {
        /// Why.
        reason: &'static str,
    },
}

impl Circuits {
    /// A one-shot timer that was set when a circuit opened has run out. It acts only if nothing has changed since.
    pub async fn timer(&self, name: &str, opened_at: i64) -> Result<Timer> {
        check_name(name)?;
        self.shared.timer(self.shared.core(name), opened_at).await
    }
}

impl Shared {
    pub(super) async fn timer(self: &Arc<Self>, core: Arc<Core>, opened_at: i64) -> Result<Timer> {
        let fire = async |tx: Tx, (shared, core, opened_at): (Arc<Self>, Arc<Core>, i64)| {
            let changed = Timer::Skipped { reason: "circuit state changed" };
            let Some(record) = Record::hold(&tx, &core.name).await? else { return Ok((changed, None)) };
            let now_ms = shared.now_in(&tx).await?;
            let standing = record.standing.at(now_ms);
            let is_same = standing.state == State::Open && standing.opened_at == Some(opened_at);
            if !is_same || standing.forced.is_some() {
                return Ok((changed, Some(record)));
            }
            if standing.probe_scheduled_at.is_some_and(|at| at > now_ms) {
                return Ok((Timer::Skipped { reason: "not due yet" }, Some(record)));
            }
            let fired = shared.change_in(&tx, &core, vec![Event::Timeout { opened_at }]).await?;
            Ok((Timer::Fired, fired))
        };
        let (came, record) = self.store.transact_with((self.clone(), core.clone(), opened_at), fire).await?;
        self.adopt(&core, record.as_ref());
        Ok(came)
    }
}
