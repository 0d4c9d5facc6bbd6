//! The handle that callers go through.

use super::local::{Core, word};
use super::shared::Shared;
use super::{CLAIM_LIMIT, Status};
use crate::Error;
use mainstay_core::circuit::window::Outcome;
use mainstay_core::circuit::{self, Admission, Admitted, Answer, Ended, Event, Gate, Hook, Permit, Rejected};
use mainstay_core::failure::Failure;
use mainstay_core::trace::TraceContext;
use mainstay_store::Tx;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

/// How long whoever could not ask the database is told to wait.
const ASK_AGAIN_MS: u64 = 1_000;

/// A circuit. Clones are the same; cheap to clone and to share.
#[derive(Clone)]
pub struct Circuit {
    pub(super) shared: Arc<Shared>,
    pub(super) core: Arc<Core>,
}

impl Circuit {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Makes a call if it may be made, and tells how it ended. `operation` is given the trace that it belongs to: a child
    /// of `trace`, or a new one.
    ///
    /// A call whose future is dropped tells nothing of the service; a probe so given up makes room for another.
    pub async fn call<T, Fut>(
        &self,
        trace: Option<&TraceContext>,
        operation: impl FnOnce(TraceContext) -> Fut,
    ) -> Result<T, Failure>
    where
        Fut: Future<Output = Result<T, Failure>>,
    {
        let admitted = match self.admit_at_once() {
            Some(permit) => Admitted::with(self, permit),
            None => Admitted::by(self).await?,
        };
        let random = &**self.shared.store.random();
        let trace = trace.map_or_else(|| TraceContext::root(random), |trace| trace.child(random));
        let ended = operation(trace).await;
        admitted.record((&ended).into());
        ended
    }

    /// Asks before a call: ready at once, unless the call may be the probe. An admitted call is followed by exactly one
    /// [`record`](Self::record).
    #[inline]
    pub fn admit(&self) -> Admission<'_> {
        match self.admit_at_once() {
            Some(permit) => Admission::now(Ok(permit)),
            None => self.ask(),
        }
    }

    /// Asks before a call, without a future: the permit while the circuit is closed and nothing about the call needs to be
    /// measured. Whoever gets none goes on to [`admit`](Self::admit), which decides.
    #[inline]
    pub fn admit_at_once(&self) -> Option<Permit> {
        self.shared.asked();
        matches!(self.core.word(), word::FREE | word::TOLD).then(Permit::default)
    }

    /// Tells how an admitted call ended.
    #[inline]
    pub fn record(&self, permit: Permit, ended: Ended<'_>) {
        if matches!(ended, Ended::Success) && permit.probe().is_none() && self.core.word() == word::FREE {
            return;
        }
        self.hear_of(permit, ended);
    }

    /// Tells how a call ended that was made elsewhere, and gives the circuit once the database knows: how long it took, and
    /// the id of the probe if it was that. The end of a probe that was given up meanwhile says nothing any more.
    pub async fn report(&self, ended: Ended<'_>, took_ms: u64, probe: Option<&str>) -> crate::Result<Status> {
        self.hear(probe.map(Into::into), ended, took_ms);
        self.shared.flush().await?;
        self.status().await
    }

    /// Asks for a call that is made elsewhere: the id of the probe, if it is that.
    pub async fn ask_for(&self) -> Result<Option<Box<str>>, Rejected> {
        Ok(self.admit().await?.into_probe())
    }

    /// Whether calls would be let through at this moment, as far as is known here.
    pub fn gate(&self) -> Gate {
        self.shared.asked();
        if self.core.word() == word::ASK { self.core.gate(self.shared.now_ms()) } else { Gate::Open }
    }

    /// The circuit as the database has it.
    pub async fn status(&self) -> crate::Result<Status> {
        self.shared.status(self.name()).await
    }

    #[cold]
    fn ask(&self) -> Admission<'_> {
        let now_ms = self.shared.now_ms();
        let mut local = self.core.local();
        let retry_after_ms = match local.answer(now_ms) {
            Answer::Admit => {
                let began_ms = self.shared.measured_ms().unsigned_abs();
                return Admission::now(Ok(Permit::measured_from(began_ms)));
            }
            Answer::Refuse { retry_after_ms } => retry_after_ms,
            Answer::Probe if local.is_claiming => ASK_AGAIN_MS,
            Answer::Probe => {
                local.is_claiming = true;
                drop(local);
                let claim = Claim { circuit: self, run_id: Some(self.shared.new_run_id()) };
                return Admission::Later(Box::pin(claim.make()));
            }
        };
        drop(local);
        Admission::now(Err(self.rejected(retry_after_ms)))
    }

    fn rejected(&self, retry_after_ms: u64) -> Rejected {
        self.shared.figures.rejected.increment();
        Rejected { name: self.core.name.clone(), retry_after_ms }
    }

    #[cold]
    fn hear_of(&self, permit: Permit, ended: Ended<'_>) {
        self.core.own();
        let measured_ms = self.shared.measured_ms().unsigned_abs();
        let took_ms = permit.began_ms().map_or(0, |began| measured_ms.saturating_sub(began));
        self.hear(permit.into_probe(), ended, took_ms);
    }

    fn hear(&self, probe: Option<Box<str>>, ended: Ended<'_>, took_ms: u64) {
        let is_failure = match ended {
            Ended::Success => false,
            Ended::Failed(failure) => failure.is_retryable(),
            Ended::GivenUp => {
                if let Some(run_id) = probe {
                    self.tell(Event::ProbeGivenUp { run_id: run_id.into() });
                }
                return;
            }
        };
        if let Some(run_id) = probe {
            let run_id = run_id.into();
            return self.tell(match is_failure {
                true => Event::ProbeFailure { run_id },
                false => Event::ProbeSuccess { run_id },
            });
        }
        let (now_ms, measured_ms) = (self.shared.now_ms(), self.shared.measured_ms());
        let heard = self.core.hear(Outcome { is_failure, took_ms }, now_ms, measured_ms);
        if heard.is_news {
            self.shared.tell(&self.core);
        }
        if heard.is_turned {
            tracing::debug!(circuit = self.name(), "a circuit turned here; the database is told");
        }
    }

    fn tell(&self, event: Event) {
        if self.core.note(event) {
            self.shared.tell(&self.core);
        }
    }
}

impl circuit::Circuit for Circuit {
    fn gate(&self) -> Gate {
        self.gate()
    }

    fn admit(&self) -> Admission<'_> {
        self.admit()
    }

    fn record(&self, permit: Permit, ended: Ended<'_>) {
        self.record(permit, ended);
    }

    fn on_change(&self, hook: Hook) {
        self.core.on_change(hook);
    }
}

impl fmt::Debug for Circuit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Circuit").field("name", &self.core.name).field("gate", &self.gate()).finish()
    }
}

/// A call that asks to be the probe. When it is dropped before it knows, the probe that may have been given to it is given
/// up.
struct Claim<'a> {
    circuit: &'a Circuit,
    run_id: Option<Box<str>>,
}

impl Claim<'_> {
    async fn make(mut self) -> Result<Permit, Rejected> {
        let Circuit { shared, core } = self.circuit;
        let run_id: String = self.run_id.as_deref().unwrap_or_default().to_owned();
        let claim = async |tx: Tx, (shared, core, run_id): (Arc<Shared>, Arc<Core>, String)| {
            shared.ask_in(&tx, &core, &run_id).await
        };
        let asking = async {
            // Whoever opened it here may not have told the database yet.
            shared.flush().await?;
            let context = (shared.clone(), core.clone(), run_id);
            let (answer, record) = shared.store.transact_with(context, claim).await?;
            shared.adopt(core, record.as_ref());
            Ok::<_, Error>(answer)
        };
        let retry_after_ms = match tokio::time::timeout(CLAIM_LIMIT, asking).await {
            Ok(Ok(Answer::Probe)) => {
                return Ok(self.run_id.take().map_or_else(Permit::default, Permit::of_probe));
            }
            Ok(Ok(Answer::Admit)) => {
                self.run_id = None;
                return Ok(Permit::default());
            }
            Ok(Ok(Answer::Refuse { retry_after_ms })) => {
                self.run_id = None;
                retry_after_ms
            }
            Ok(Err(error)) => {
                tracing::warn!(circuit = self.circuit.name(), %error, "the database could not be asked for a probe");
                ASK_AGAIN_MS
            }
            Err(_elapsed) => {
                tracing::warn!(
                    circuit = self.circuit.name(),
                    "the database was too slow to be asked for a probe"
                );
                ASK_AGAIN_MS
            }
        };
        Err(self.circuit.rejected(retry_after_ms))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.circuit.core.local().is_claiming = false;
        if let Some(run_id) = self.run_id.take() {
            self.circuit.tell(Event::ProbeGivenUp { run_id: run_id.into() });
        }
    }
}
