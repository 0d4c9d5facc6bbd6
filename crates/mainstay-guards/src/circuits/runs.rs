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
        let probe = Record::name_of_probe(tx, run_id).await?;
        let run_id = run_id.to_owned();
        let (name, event) = match (&probe, ended) {
            (Some(name), RunEnded::Success) => (name.as_str(), Event::ProbeSuccess { run_id }),
            (Some(name), RunEnded::Failed) => (name.as_str(), Event::ProbeFailure { run_id }),
            (Some(name), RunEnded::Canceled) => (name.as_str(), Event::ProbeGivenUp { run_id }),
            (None, RunEnded::Success) => (name, Event::Success),
            (None, RunEnded::Failed) => (name, Event::Failure),
            (None, RunEnded::Canceled) => return Ok(()),
        };
        check_name(name)?;
        self.shared.change_in(tx, &self.shared.core(name), vec![event]).await.map(drop)
    }
}
