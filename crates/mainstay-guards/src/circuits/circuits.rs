//! All circuits of a store.

use super::circuit::Circuit;
use super::figures::Figures;
use super::history::{Decided, Noted};
use super::keeper;
use super::local::{Core, Report};
use super::record::{Record, Status};
use super::{MAX_CIRCUITS, MAX_NAME_BYTES, MAX_REASON_BYTES};
use crate::{Error, Result};
use mainstay_core::circuit::{Answer, Effect, Event, Forced, Settings, Standing, State, next};
use mainstay_core::ids::Ids;
use mainstay_store::{Store, Topic, Tx};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The circuits of a store. Clones are the same; when the last one and the last circuit is dropped, nothing is kept up to
/// date any more.
#[derive(Clone)]
pub struct Circuits {
    shared: Arc<Shared>,
}

/// What an operator decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Force {
    /// Open or closed.
    pub is_open: bool,
    /// Who decides.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// For how long; until it is released unless given.
    pub for_ms: Option<u64>,
}

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

/// What is decided at a moment.
type Decide = Arc<dyn Fn(i64) -> Event + Send + Sync>;

/// Longest time that a circuit is forced for: a year.
const MOST_FORCED_MS: u64 = 366 * 24 * 3_600_000;

/// What the handles, the keeper and the operators have in common.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) figures: Arc<Figures>,
    ids: Ids,
    /// Every circuit that is in the database or in use here.
    cores: Mutex<HashMap<Arc<str>, Arc<Core>>>,
    /// Those of which the database is to be told something.
    dirty: Mutex<Vec<Arc<Core>>>,
    pub(super) signal: Arc<Notify>,
    /// The database's time at a moment of ours.
    time: Mutex<(Instant, i64)>,
    began: Instant,
    /// Which of the nodes this is.
    pub(super) node: i64,
    /// Held by whoever writes reports.
    pub(super) writing: tokio::sync::Mutex<keeper::Unheard>,
    /// Held by whoever looks at the database and the clock: two at once would each act upon the other's time.
    pub(super) looking: tokio::sync::Mutex<()>,
    interest: Interest,
}

/// Whether anybody asks circuits here. While nobody does, the database need not be asked every second.
#[derive(Default)]
struct Interest(AtomicU8);

/// Somebody has asked since the last look.
const ASKED: u8 = 1;
/// Nobody has, and the keeper rests.
const RESTING: u8 = 2;

impl Interest {
    #[inline]
    fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ASKED
    }

    /// Whether the keeper rests, and does no more.
    fn show(&self) -> bool {
        self.0.swap(ASKED, Ordering::Relaxed) == RESTING
    }

    /// Whether somebody has asked since this was last called.
    fn take(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) == ASKED
    }

    /// Lets the keeper rest, unless somebody has asked meanwhile; whether it may.
    fn rest(&self) -> bool {
        self.0.compare_exchange(0, RESTING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// The topic under which nodes are told that a circuit changed.
pub(super) fn topic() -> Topic {
    Topic::new("circuits").expect("a plain name")
}

impl Circuits {
    /// Opens the circuits of a store that was opened with [`COMPONENT`](super::COMPONENT).
    pub async fn open(store: &Store) -> Result<Self> {
        let listener = store.listen(topic());
        let shared = Arc::new(Shared {
            store: store.clone(),
            figures: Arc::default(),
            ids: Ids::new(store.clock().clone(), store.random().clone()),
            cores: Mutex::default(),
            dirty: Mutex::default(),
            signal: Arc::default(),
            time: Mutex::new((Instant::now(), store.clock().now_ms())),
            began: Instant::now(),
            node: store.random().next_u64().cast_signed(),
            writing: tokio::sync::Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            interest: Interest::default(),
        });
        shared.refresh().await?;
        tokio::spawn(keeper::keep(Arc::downgrade(&shared), shared.signal.clone(), listener));
        Ok(Self { shared })
    }

    /// The circuit of this name, as the database has set it, or as services of this name usually are. Nothing is written.
    pub fn circuit(&self, name: &str) -> Result<Circuit> {
        check_name(name)?;
        let core = self.shared.core(name);
        Ok(Circuit { shared: self.shared.clone(), core })
    }

    /// The circuit of this name, set by this program.
    pub fn circuit_with(&self, name: &str, settings: Settings) -> Result<Circuit> {
        let settings = settings.checked().map_err(|error| Error::invalid("settings", error.to_string()))?;
        let circuit = self.circuit(name)?;
        circuit.core.declare(settings, self.shared.now_ms());
        Ok(circuit)
    }

    /// Sets the circuit of this name on all nodes, from now on. A program that [sets](Self::circuit_with) it itself goes by
    /// its own settings.
    pub async fn define(&self, name: &str, settings: Settings) -> Result<Status> {
        let settings = settings.checked().map_err(|error| Error::invalid("settings", error.to_string()))?;
        check_name(name)?;
        let define = async |tx: Tx, (shared, core, settings): (Arc<Shared>, Arc<Core>, Settings)| {
            shared.define_in(&tx, &core, settings).await
        };
        let context = (self.shared.clone(), self.shared.core(name), settings);
        Ok(self.shared.store.transact_with(context, define).await?)
    }

    /// A circuit as the database has it; closed, when it never counted anything.
    pub async fn status(&self, name: &str) -> Result<Status> {
        check_name(name)?;
        self.shared.status(name).await
    }

    /// Circuits that have ever counted something, in the order of names after `after`.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<Status>> {
        let limit = limit.clamp(1, MAX_CIRCUITS) as i64;
        let read = async |tx: Tx, (shared, after, limit): (Arc<Shared>, String, i64)| {
            let now_ms = shared.now_in(&tx).await?;
            let page = Record::page(&tx, &after, limit).await?;
            Ok(page.into_iter().map(|record| Status::new(record, now_ms)).collect())
        };
        let context = (self.shared.clone(), after.unwrap_or_default().to_owned(), limit);
        Ok(self.shared.store.read_with(context, read).await?)
    }

    /// What is known here of every circuit that has counted something, without asking the database: for metrics.
    pub fn states(&self) -> Vec<(String, State)> {
        let now_ms = self.shared.now_ms();
        let state = |core: &Arc<Core>| {
            let local = core.local();
            local.has_counted().then(|| (core.name.to_string(), local.standing.effective(now_ms)))
        };
        let mut states: Vec<(String, State)> = self.shared.all_cores().iter().filter_map(state).collect();
        states.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        states
    }

    /// Lets a circuit be open or closed on all nodes, whatever calls say.
    pub async fn force(&self, name: &str, force: Force) -> Result<Status> {
        let Force { is_open, actor, reason, for_ms } = force;
        check_text("actor", &actor)?;
        check_text("reason", &reason)?;
        if for_ms.is_some_and(|ms| !(1..=MOST_FORCED_MS).contains(&ms)) {
            return Err(Error::invalid("forMs", format!("must be 1 to {MOST_FORCED_MS}")));
        }
        let event = move |now_ms: i64| {
            let until_ms = for_ms.map(|ms| now_ms.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)));
            let (actor, reason) = (actor.clone(), reason.clone());
            Event::Forced(Forced { is_open, actor, reason, at_ms: now_ms, until_ms })
        };
        self.decide(name, Arc::new(event), None).await
    }

    /// Lets calls decide again about a circuit that was forced.
    pub async fn release(&self, name: &str, actor: &str, reason: &str) -> Result<Status> {
        self.decide_for(name, Event::Released, actor, reason).await
    }

    /// Lets a circuit begin anew: closed, nothing counted, not forced.
    pub async fn reset(&self, name: &str, actor: &str, reason: &str) -> Result<Status> {
        self.decide_for(name, Event::Reset, actor, reason).await
    }

    async fn decide_for(&self, name: &str, event: Event, actor: &str, reason: &str) -> Result<Status> {
        check_text("actor", actor)?;
        check_text("reason", reason)?;
        let decided = if event == Event::Reset { "reset" } else { "released" };
        let by = Decided { actor: actor.to_owned(), reason: reason.to_owned() };
        let status = self.decide(name, Arc::new(move |_| event.clone()), Some(by)).await?;
        tracing::warn!(circuit = name, actor, reason, state = %status.state, "circuit {decided}");
        Ok(status)
    }

    async fn decide(&self, name: &str, event: Decide, by: Option<Decided>) -> Result<Status> {
        check_name(name)?;
        type Decision = (Arc<Shared>, Arc<Core>, Decide, Option<Decided>);
        let decide = async |tx: Tx, (shared, core, event, by): Decision| {
            let now_ms = shared.now_in(&tx).await?;
            let changed = shared.change_by(&tx, &core, vec![event(now_ms)], by.as_ref()).await?;
            let unheard_of = || Record::unheard_of(&core.name, core.settings());
            Ok(Status::new(changed.unwrap_or_else(unheard_of), now_ms))
        };
        let status = self
            .shared
            .store
            .transact_with((self.shared.clone(), self.shared.core(name), event, by), decide)
            .await?;
        self.shared.figures.forced.increment();
        Ok(status)
    }

    /// A one-shot timer that was set when a circuit opened has run out. It acts only if nothing has changed since.
    pub async fn timer(&self, name: &str, opened_at: i64) -> Result<Timer> {
        check_name(name)?;
        self.shared.timer(self.shared.core(name), opened_at).await
    }

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

    /// How the circuit of this name is set, as far as is known here.
    pub fn settings(&self, name: &str) -> Result<Settings> {
        check_name(name)?;
        Ok(self.shared.core(name).settings())
    }

    /// Waits until the database has been told all that was heard here before.
    pub async fn flush(&self) -> Result<()> {
        self.shared.flush().await
    }

    /// Tells the database, hears from it and looks at the clock, as is done now and then: for tests that move the clock.
    #[doc(hidden)]
    pub async fn look_around(&self) -> Result<()> {
        self.flush().await?;
        let _looking = self.shared.looking.lock().await;
        self.shared.refresh().await?;
        self.shared.fire_due().await;
        Ok(())
    }

    pub(super) fn store(&self) -> &Store {
        &self.shared.store
    }

    /// What circuits measure about themselves.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.shared.figures
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The keeper finds out that there is nothing left to keep.
        self.signal.notify_one();
    }
}

impl Shared {
    fn cores(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Core>>> {
        self.cores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all_cores(&self) -> Vec<Arc<Core>> {
        self.cores().values().cloned().collect()
    }

    pub(super) fn core(&self, name: &str) -> Arc<Core> {
        let mut cores = self.cores();
        if let Some(core) = cores.get(name) {
            return core.clone();
        }
        if cores.len() >= 2 * MAX_CIRCUITS {
            // Those of which nothing is known and which nobody uses; whatever is in the database comes back by itself.
            cores.retain(|_, core| {
                Arc::strong_count(core) > 1 || core.local().standing != Standing::default()
            });
        }
        let name: Arc<str> = name.into();
        let core = Arc::new(Core::new(name.clone()));
        cores.insert(name, core.clone());
        core
    }

    /// Somebody asks a circuit.
    #[inline]
    pub(super) fn asked(&self) {
        if !self.interest.is_known() {
            self.show_interest();
        }
    }

    #[cold]
    fn show_interest(&self) {
        if self.interest.show() {
            self.signal.notify_one();
        }
    }

    /// Whether the keeper may rest: all circuits are closed, and nobody has asked since the last look.
    pub(super) fn may_rest(&self) -> bool {
        let is_closed = |core: &Arc<Core>| core.local().standing.state == State::Closed;
        !self.interest.take() && self.all_cores().iter().all(is_closed) && self.interest.rest()
    }

    pub(super) fn new_run_id(&self) -> Box<str> {
        format!("probe_{}", self.ids.uuid()).into()
    }

    /// The database has to be told something about a circuit.
    pub(super) fn tell(&self, core: &Arc<Core>) {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner).push(core.clone());
        self.signal.notify_one();
    }

    /// What the database is to be told.
    pub(super) fn take_reports(&self) -> Vec<(Arc<Core>, Vec<Report>)> {
        let mut dirty = std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner));
        // In one order on all nodes, so that they do not wait for each other in a circle.
        dirty.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        dirty.dedup_by(|one, other| one.name == other.name);
        let reports = dirty.into_iter().map(|core| {
            let reports = core.take_pending();
            (core, reports)
        });
        reports.filter(|(_, reports)| !reports.is_empty()).collect()
    }

    /// Writes what was heard, in a task of its own: what it has taken is not lost when nobody waits for it any more.
    pub(super) async fn flush(self: &Arc<Self>) -> Result<()> {
        let shared = self.clone();
        let writing = tokio::spawn(async move { shared.write_reports().await });
        writing.await.unwrap_or(Err(Error::Store(Arc::new(mainstay_store::Error::Closed))))
    }

    /// The database's time, as far as is known here. The process that owns a SQLite file is the database.
    pub(super) fn now_ms(&self) -> i64 {
        if !self.store.is_shared() {
            return self.store.clock().now_ms();
        }
        let (at, now_ms) = *self.time.lock().unwrap_or_else(PoisonError::into_inner);
        now_ms.saturating_add(i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// The database's time.
    pub(super) async fn now_in(&self, tx: &Tx) -> mainstay_store::Result<i64> {
        if !self.store.is_shared() {
            return Ok(self.store.clock().now_ms());
        }
        let now_ms = tx.now_ms().await?;
        *self.time.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), now_ms);
        Ok(now_ms)
    }

    /// Milliseconds that only go forward, by which the length of calls is measured.
    pub(super) fn measured_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    pub(super) async fn status(self: &Arc<Self>, name: &str) -> Result<Status> {
        let core = self.core(name);
        let read = async |tx: Tx, (shared, core): (Arc<Self>, Arc<Core>)| {
            let now_ms = shared.now_in(&tx).await?;
            let record = Record::find(&tx, &core.name).await?;
            Ok(Status::new(record.unwrap_or_else(|| Record::unheard_of(&core.name, core.settings())), now_ms))
        };
        Ok(self.store.read_with((self.clone(), core), read).await?)
    }

    /// Applies events in a transaction. Nothing when the circuit has no row and the events make none.
    pub(super) async fn change_in(
        self: &Arc<Self>,
        tx: &Tx,
        core: &Arc<Core>,
        events: Vec<Event>,
    ) -> mainstay_store::Result<Option<Record>> {
        self.change_by(tx, core, events, None).await
    }

    /// The same, as somebody decided it.
    async fn change_by(
        self: &Arc<Self>,
        tx: &Tx,
        core: &Arc<Core>,
        events: Vec<Event>,
        decided: Option<&Decided>,
    ) -> mainstay_store::Result<Option<Record>> {
        let counts = |event: &Event| matches!(event, Event::Failure | Event::Tripped | Event::Forced(_));
        let held = match events.iter().any(counts) {
            true => Some(Record::hold_or_begin(tx, &core.name, &core.settings(), 0).await?),
            false => Record::hold(tx, &core.name).await?,
        };
        let Some(before) = held else { return Ok(None) };
        let now_ms = self.now_in(tx).await?;
        let settings = core.declared().unwrap_or(before.settings);
        let (mut standing, mut effects) = (before.standing.at(now_ms), Vec::new());
        let mut noted = Noted::default();
        noted.over(&before.standing, &standing, now_ms);
        for event in events {
            let step = next(&standing, event.clone(), &settings, now_ms);
            noted.step(&standing, &step.standing, &event, decided, now_ms);
            standing = step.standing;
            effects.extend(step.effect);
        }
        if standing == before.standing && settings == before.settings {
            return Ok(Some(before));
        }
        let name = before.name.clone();
        let version = before.version + 1;
        let record = Record { name, standing, settings, updated_at: now_ms, version };
        record.write(tx).await?;
        noted.write(tx, &record.name, now_ms).await?;
        let shows = |standing: &Standing| (standing.state, standing.forced.clone(), standing.probe.clone());
        if shows(&before.standing) != shows(&record.standing) {
            // Counts are heard of soon enough; whoever is told of each would only be kept busy.
            tx.wake(&topic())?;
        }
        let (shared, core, after) = (self.clone(), core.clone(), record.clone());
        tx.after_commit(Arc::new(move || {
            shared.announce(&before, &after, &effects);
            core.adopt(&after, shared.now_ms());
        }))?;
        Ok(Some(record))
    }

    async fn define_in(
        self: &Arc<Self>,
        tx: &Tx,
        core: &Arc<Core>,
        settings: Settings,
    ) -> mainstay_store::Result<Status> {
        let before = Record::hold_or_begin(tx, &core.name, &settings, 0).await?;
        let now_ms = self.now_in(tx).await?;
        if before.settings == settings && before.version > 0 {
            return Ok(Status::new(before, now_ms));
        }
        let version = before.version + 1;
        let record = Record { settings, updated_at: now_ms, version, ..before };
        record.write(tx).await?;
        tx.wake(&topic())?;
        let (shared, core, after) = (self.clone(), core.clone(), record.clone());
        tx.after_commit(Arc::new(move || core.adopt(&after, shared.now_ms())))?;
        Ok(Status::new(record, now_ms))
    }

    /// Says what changed, once it is committed.
    fn announce(&self, before: &Record, after: &Record, effects: &[Effect]) {
        let (circuit, from, to) = (after.name.as_str(), before.standing.state, after.standing.state);
        let opens = effects.iter().filter(|effect| matches!(effect, Effect::ScheduleTimeout { .. })).count();
        if opens > 0 && to == State::Open {
            let Standing { failure_count, probe_scheduled_at, .. } = after.standing;
            self.figures.opened.increment();
            tracing::warn!(circuit, %from, %to, failure_count, probe_scheduled_at, "circuit opened");
        } else if from != to && to == State::HalfOpen {
            self.figures.half_opened.increment();
            tracing::info!(circuit, %from, %to, "circuit half open");
        } else if from != to {
            self.figures.closed.increment();
            tracing::info!(circuit, %from, %to, "circuit closed");
        }
        for effect in effects {
            if let Effect::ProbeStarted { run_id } = effect {
                self.figures.probes.increment();
                tracing::info!(circuit, probe = run_id, "probe started");
            }
        }
        if let Some(forced) =
            after.standing.forced.as_ref().filter(|_| before.standing.forced != after.standing.forced)
        {
            let Forced { is_open, actor, reason, until_ms, .. } = forced;
            tracing::warn!(circuit, is_open, actor, reason, until_ms, "circuit forced");
        }
    }

    /// Whether a call may be made, and what the database has; claims the probe when it may be that.
    pub(super) async fn ask_in(
        self: &Arc<Self>,
        tx: &Tx,
        core: &Arc<Core>,
        run_id: &str,
    ) -> mainstay_store::Result<(Answer, Option<Record>)> {
        let Some(record) = Record::hold(tx, &core.name).await? else { return Ok((Answer::Admit, None)) };
        let now_ms = self.now_in(tx).await?;
        let settings = core.declared().unwrap_or(record.settings);
        let answer = record.standing.answer(&settings, now_ms);
        if answer != Answer::Probe {
            return Ok((answer, Some(record)));
        }
        let mut events: Vec<Event> = Vec::new();
        if record.standing.state == State::Open
            && let Some(opened_at) = record.standing.opened_at
        {
            events.push(Event::Timeout { opened_at });
        }
        events.push(Event::ProbeClaimed { run_id: run_id.to_owned() });
        let claimed = self.change_in(tx, core, events).await?;
        Ok((Answer::Probe, claimed))
    }

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

    /// What the database has counts, whatever was thought here.
    pub(super) fn adopt(&self, core: &Core, record: Option<&Record>) {
        match record {
            Some(record) => core.adopt(record, self.now_ms()),
            None => core.adopt_nothing(self.now_ms()),
        }
    }
}

pub(super) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let reason = format!("must have 1 to {MAX_NAME_BYTES} bytes and no control characters");
        return Err(Error::invalid("circuit", reason));
    }
    Ok(())
}

fn check_text(field: &str, text: &str) -> Result<()> {
    if text.is_empty() || text.len() > MAX_REASON_BYTES || text.chars().any(char::is_control) {
        let reason = format!("must have 1 to {MAX_REASON_BYTES} bytes and no control characters");
        return Err(Error::invalid(field, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_is_heard_at_every_moment_before_and_during_a_rest() {
        let interest = Interest::default();
        assert!(!interest.show() && interest.is_known());
        assert!(interest.take() && !interest.take());
        // Just before the keeper lies down: it must not, since nobody would wake it.
        assert!(!interest.show() && !interest.rest() && interest.take());
        assert!(interest.rest() && !interest.is_known());
        assert!(interest.show(), "whoever asks a keeper that rests wakes it");
        assert!(!interest.show() && interest.is_known(), "and does so once");
    }
}
