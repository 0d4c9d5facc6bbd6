//! Durable runs behind a circuit: asked for and told of in the transactions of whoever runs them.

use super::circuits::{Circuits, check_name};
use super::record::Record;
use mainstay_core::circuit::{Answer, Event};
use mainstay_store::Tx;

/// How a durable run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnded {
    /// It returned.
    Success,
    /// It failed as often as it was tried.
    Failed,
    /// Nobody wanted it any more.
    Canceled,
}

impl Circuits {
    /// Asks, in a transaction, whether a durable run may be started: `Answer::Probe` when it is the probe, which is then
    /// recognised by `run_id`.
    pub async fn admit_in(&self, tx: &Tx, name: &str, run_id: &str) -> mainstay_store::Result<Answer> {
        check_name(name)?;
        Ok(self.shared.ask_in(tx, &self.shared.core(name), run_id).await?.0)
    }

    /// Tells, in a transaction, how a durable run ended. `run_id` finds the circuit whose probe it was; a run that was
    /// no probe counts for the circuit of this name.
    pub async fn record_in(
        &self,
        tx: &Tx,
        name: &str,
        run_id: &str,
        ended: RunEnded,
    ) -> mainstay_store::Result<()> {
        if self.record_probe(tx, run_id, ended).await? {
            return Ok(());
        }
        let event = match ended {
            RunEnded::Success => Event::Success,
            RunEnded::Failed => Event::Failure,
            RunEnded::Canceled => return Ok(()),
        };
        self.record(tx, name, event).await
    }

    /// Tells, in a transaction, how a durable run ended that counts only if it is the probe of a circuit.
    pub async fn record_probe_in(
        &self,
        tx: &Tx,
        run_id: &str,
        ended: RunEnded,
    ) -> mainstay_store::Result<()> {
        self.record_probe(tx, run_id, ended).await.map(drop)
    }

    /// Records the end of a probe; false when no circuit has this run as its probe.
    async fn record_probe(&self, tx: &Tx, run_id: &str, ended: RunEnded) -> mainstay_store::Result<bool> {
        let Some(name) = Record::name_of_probe(tx, run_id).await? else { return Ok(false) };
        let run_id = run_id.to_owned();
        let event = match ended {
            RunEnded::Success => Event::ProbeSuccess { run_id },
            RunEnded::Failed => Event::ProbeFailure { run_id },
            RunEnded::Canceled => Event::ProbeGivenUp { run_id },
        };
        self.record(tx, &name, event).await.map(|()| true)
    }

    async fn record(&self, tx: &Tx, name: &str, event: Event) -> mainstay_store::Result<()> {
        check_name(name)?;
        let core = self.shared.core(name);
        core.own();
        self.shared.change_in(tx, &core, vec![event]).await.map(drop)
    }
}
