//! Tells the database what was heard here, hears from it what others told, and looks at the clock.

use super::STALE;
use super::local::{Core, Report};
use super::record::{self, Record};
use super::shared::Shared;
use crate::{Error, Result};
use mainstay_core::circuit::State;
use mainstay_store::{Listener, Tx};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often is looked where nobody else can have changed anything.
const LOOK_ALONE: Duration = Duration::from_secs(60);
/// How often is looked while nobody asks, and all circuits are closed. Wake-ups are heard meanwhile.
const LOOK_AT_REST: Duration = Duration::from_secs(30);
/// How long to wait after the database could not be reached.
const PAUSE: Duration = Duration::from_millis(200);
/// The shortest wait for a moment that has come here and not yet in the database.
const SHORTEST: Duration = Duration::from_millis(10);

/// What is to be written about each circuit.
type Batch = Vec<(Arc<Core>, Vec<Report>)>;

/// Reports of which nobody knows whether they were committed, and the mark that was written with them.
#[derive(Default)]
pub(super) struct Unheard(Option<(i64, Batch)>);

/// Keeps until nobody uses circuits any more.
pub(super) async fn keep(shared: Weak<Shared>, signal: Arc<Notify>, mut listener: Listener) {
    let (mut look_at, mut is_resting) = (Instant::now() + STALE, false);
    loop {
        let wait = {
            let Some(shared) = shared.upgrade() else { return };
            let mut done = shared.write_reports().await;
            let _looking = shared.looking.lock().await;
            if done.is_ok() && Instant::now() >= look_at {
                done = shared.refresh().await;
                is_resting = shared.store.capabilities().many_nodes && shared.may_rest();
                look_at = Instant::now()
                    + match is_resting {
                        true => LOOK_AT_REST,
                        false if shared.store.capabilities().many_nodes => STALE,
                        false => LOOK_ALONE,
                    };
            }
            shared.fire_due().await;
            match shared.reached(&done) {
                true => look_at.saturating_duration_since(Instant::now()).min(shared.until_due()),
                false => {
                    look_at = Instant::now();
                    PAUSE
                }
            }
        };
        tokio::select! {
            // Somebody asks after a rest, or has something to tell.
            () = signal.notified() => if is_resting { look_at = Instant::now() },
            is_woken = listener.woken(wait) => if is_woken { look_at = Instant::now() },
        }
    }
}

impl Shared {
    /// Whether the database could be reached; says so when that is new.
    fn reached(&self, done: &Result<()>) -> bool {
        let was_away = self.figures.away.get() == 1;
        self.figures.away.set(done.is_err().into());
        match done {
            Ok(()) if was_away => tracing::info!("circuits reach the database again"),
            Err(error) if !was_away => {
                tracing::warn!(%error, "circuits do not reach the database; what is known here counts until they do");
            }
            _ => {}
        }
        done.is_ok()
    }

    /// Writes what was heard, all of it in one transaction, and goes on until there is nothing left.
    pub(super) async fn write_reports(self: &Arc<Self>) -> Result<()> {
        let mut unheard = self.writing.lock().await;
        self.settle(&mut unheard).await?;
        loop {
            let batch = self.take_reports();
            if batch.is_empty() {
                return Ok(());
            }
            let mark = self.store.random().next_u64().cast_signed();
            let write = async |tx: Tx, (shared, batch, mark): (Arc<Self>, Arc<Batch>, i64)| {
                record::sign(&tx, shared.node, mark).await?;
                for (core, reports) in &*batch {
                    let events = reports.iter().flat_map(Report::events).collect();
                    let written = shared.change_in(&tx, core, events).await.map_err(Error::from);
                    match written {
                        Err(Error::TooManyCircuits) => {
                            tracing::warn!(
                                circuit = &*core.name,
                                "there are too many circuits to keep this one"
                            );
                            // Nothing is kept of it here either: there may be any number of such names.
                            core.forget(shared.now_ms());
                        }
                        other => drop(other?),
                    }
                }
                Ok(())
            };
            let batch = Arc::new(batch);
            let told =
                batch.iter().flat_map(|(_, reports)| reports).map(|report| u64::from(report.times)).sum();
            match self.store.transact_with((self.clone(), batch.clone(), mark), write).await {
                Ok(()) => {
                    self.figures.writes.increment();
                    self.figures.reports.add(told);
                }
                Err(error) => {
                    let batch = Arc::unwrap_or_clone(batch);
                    match error.is_outcome_unknown() {
                        true => unheard.0 = Some((mark, batch)),
                        false => self.put_back(batch),
                    }
                    return Err(error.into());
                }
            }
        }
    }

    fn put_back(&self, batch: Batch) {
        for (core, reports) in batch {
            core.put_back(reports);
            self.tell(&core);
        }
    }

    /// Looks whether what was last written is there, when nobody said so.
    async fn settle(&self, unheard: &mut Unheard) -> Result<()> {
        let Some((mark, _)) = unheard.0 else { return Ok(()) };
        let look = async |tx: Tx, (node, mark): (i64, i64)| record::is_signed(&tx, node, mark).await;
        let is_there = self.store.transact_with((self.node, mark), look).await?;
        if let Some((_, batch)) = unheard.0.take().filter(|_| !is_there) {
            self.put_back(batch);
        }
        Ok(())
    }

    /// Takes over what the database has.
    pub(super) async fn refresh(self: &Arc<Self>) -> Result<()> {
        let read = async |tx: Tx, shared: Arc<Self>| {
            let now_ms = shared.now_in(&tx).await?;
            Ok((now_ms, Record::all(&tx).await?))
        };
        let (now_ms, records) = self.store.read_with(self.clone(), read).await?;
        let mut rest: HashMap<Arc<str>, Arc<Core>> =
            self.all_cores().into_iter().map(|core| (core.name.clone(), core)).collect();
        for record in records {
            rest.remove(record.name.as_str());
            self.core(&record.name).adopt(&record, now_ms);
        }
        rest.values().for_each(|core| core.miss(now_ms));
        Ok(())
    }

    /// Lets circuits be half open whose time has come, and ends what was forced for a while.
    pub(super) async fn fire_due(self: &Arc<Self>) {
        for core in self.all_cores() {
            let now_ms = self.now_ms();
            let (opened_at, is_forced) = {
                let local = core.local();
                if due_at(&local.standing).is_none_or(|at| at > now_ms) {
                    continue;
                }
                (local.standing.opened_at, local.standing.forced.is_some())
            };
            let done = match opened_at {
                Some(opened_at) if !is_forced => self.timer(core.clone(), opened_at).await.map(drop),
                _ => self.end_forced(core.clone()).await,
            };
            if let Err(error) = done {
                tracing::debug!(circuit = &*core.name, %error, "a timer of a circuit could not be written");
            }
            core.look(self.now_ms());
        }
    }

    async fn end_forced(self: &Arc<Self>, core: Arc<Core>) -> Result<()> {
        let end = async |tx: Tx, (shared, core): (Arc<Self>, Arc<Core>)| {
            shared.change_in(&tx, &core, Vec::new()).await.map(drop)
        };
        Ok(self.store.transact_with((self.clone(), core), end).await?)
    }

    /// How long until the next timer.
    fn until_due(&self) -> Duration {
        let now_ms = self.now_ms();
        let cores = self.all_cores();
        let next = cores.iter().filter_map(|core| due_at(&core.local().standing)).min();
        let wait = |at: i64| Duration::from_millis(u64::try_from(at.saturating_sub(now_ms)).unwrap_or(0));
        next.map_or(Duration::MAX, wait).max(SHORTEST)
    }
}

/// When a circuit changes by itself.
fn due_at(standing: &mainstay_core::circuit::Standing) -> Option<i64> {
    match &standing.forced {
        Some(forced) => forced.until_ms,
        None if standing.state == State::Open => standing.probe_scheduled_at,
        None => None,
    }
}
