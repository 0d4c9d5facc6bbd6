//! Durable runs behind a circuit.
//!
//! A run is started in the transaction that asks the circuit, and its end is told to the circuit in the transaction that
//! ends it. So a run that is the probe is one over all nodes, whoever dies meanwhile.
//!
//! The context of a run has its circuit and its own id. A caller that enqueues an item does not know its id beforehand, so no
//! other item counts for a circuit.

use crate::completion;
use crate::enqueue::{given, noted, text};
use crate::error::{Error, Result};
use crate::functions::{Call, Functions};
use crate::item::{NewWork, OnComplete, WorkResult, raw};
use crate::letters;
use crate::retrier::RunOptions;
use crate::work::Work;
use mainstay_core::circuit::Rejected;
use mainstay_core::names::check_unreserved;
use mainstay_core::trace::TraceContext;
use mainstay_guards::circuits::{Answer, Circuits, RunEnded};
use mainstay_store::Tx;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The mutation that is told how such runs end.
const ENDED: &str = "mainstay.circuit-ended";

/// What is needed to start a run: its id, and the item for each of the two ways it may go.
type Starting = (Work, Circuits, String, (Uuid, NewWork, NewWork));

/// The context of a run.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Behind {
    /// The circuit, and the item that is the run.
    #[serde(rename_all = "camelCase")]
    Run { circuit: String, run_id: String },
    /// The circuit alone, as version 0.1 had it. Only the circuit's row can say that such a run is its probe.
    Circuit(String),
}

/// A run that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// Its id: status and cancelling are those of an item.
    pub run_id: String,
    /// Whether it is the probe of a circuit that is half open.
    pub probe_mode: bool,
}

impl Functions {
    /// Lets this node tell circuits how durable runs behind them ended; [`Work::run_behind`] needs it.
    pub fn tell_circuits(self, circuits: &Circuits) -> Self {
        let circuits = circuits.clone();
        self.platform_on_complete(ENDED, move |tx: Tx, call: Call, told: OnComplete<Behind>| {
            let circuits = circuits.clone();
            async move {
                let ended = match told.result {
                    WorkResult::Success { .. } => RunEnded::Success,
                    WorkResult::Failed { .. } => RunEnded::Failed,
                    WorkResult::Canceled => RunEnded::Canceled,
                };
                match told.context {
                    Some(Behind::Run { circuit, run_id })
                        if letters::is_retry(&tx, &call, &run_id).await? =>
                    {
                        circuits.record_in(&tx, &circuit, &told.work_id, ended).await
                    }
                    Some(Behind::Circuit(_)) => circuits.record_probe_in(&tx, &told.work_id, ended).await,
                    _ => Err(completion::foreign(&call)),
                }
            }
        })
    }
}

impl Work {
    /// Runs an action behind a circuit: again and again as the circuit is set, which counts as one failure when it is used
    /// up; once if it is the probe; not at all while the circuit is open.
    pub async fn run_behind(
        &self,
        circuits: &Circuits,
        circuit: &str,
        function: &str,
        args: &(impl Serialize + ?Sized),
        trace: Option<TraceContext>,
    ) -> Result<Started> {
        if self.ground().functions().get(ENDED).is_none() {
            return Err(Error::invalid(
                "circuit",
                "this node does not tell circuits; see Functions::tell_circuits",
            ));
        }
        check_unreserved("function", function)?;
        self.check_action(function).await?;
        let settings =
            circuits.settings(circuit).map_err(|error| Error::invalid("circuit", error.to_string()))?;
        let (id, random) = (self.ground().ids.uuid(), &*self.ground().random);
        let options = RunOptions {
            max_failures: settings.max_retries,
            initial_backoff_ms: settings.initial_backoff_ms,
            context: Some(raw("circuit", &Behind::Run { circuit: circuit.to_owned(), run_id: text(id) })?),
            trace: Some(trace.unwrap_or_else(|| TraceContext::root(random))),
            ..RunOptions::default()
        };
        let usual = self.run_item(function, args, options.clone())?.tell_platform(ENDED);
        let probe = self.run_item(function, args, RunOptions { max_failures: 0, ..options })?;
        let probe = probe.tell_platform(ENDED);
        let start = async |tx: Tx, (work, circuits, circuit, items): Starting| {
            let (id, usual, probe) = items;
            let run_id = text(id);
            let (item, probe_mode) = match circuits.admit_in(&tx, &circuit, &run_id).await? {
                Answer::Admit => (usual, false),
                Answer::Probe => (probe, true),
                Answer::Refuse { retry_after_ms } => {
                    return Ok(Err(Rejected { name: circuit.into(), retry_after_ms }));
                }
            };
            for item in given(&work.ground().functions(), [item])? {
                noted(work.ground(), &tx).add_as(item, id);
            }
            Ok(Ok(Started { run_id, probe_mode }))
        };
        let context = (self.clone(), circuits.clone(), circuit.to_owned(), (id, usual, probe));
        self.store().transact_with(context, start).await?.map_err(Error::CircuitOpen)
    }
}
