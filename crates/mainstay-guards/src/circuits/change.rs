//! Changes of a circuit, each in a transaction: what is written, and who is told of it.

use super::history::{Decided, Noted};
use super::local::Core;
use super::record::{Record, Status};
use super::shared::Shared;
use mainstay_core::circuit::{Answer, Effect, Event, Forced, Settings, Standing, State, next};
use mainstay_store::{Topic, Tx};
use std::sync::Arc;

/// The topic under which nodes are told that a circuit changed.
pub(super) fn topic() -> Topic {
    Topic::new("circuits").expect("a plain name")
}

impl Shared {
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
    pub(super) async fn change_by(
        self: &Arc<Self>,
        tx: &Tx,
        core: &Arc<Core>,
        events: Vec<Event>,
        decided: Option<&Decided>,
    ) -> mainstay_store::Result<Option<Record>> {
        let counts = |event: &Event| matches!(event, Event::Failure | Event::Tripped | Event::Forced(_));
        let held = match events.iter().any(counts) {
            true => Some(Record::hold_or_begin(tx, self, core, &core.settings()).await?),
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
        let version = before.next_version(now_ms);
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

    pub(super) async fn define_in(
        self: &Arc<Self>,
        tx: &Tx,
        core: &Arc<Core>,
        settings: Settings,
    ) -> mainstay_store::Result<Status> {
        let before = Record::hold_or_begin(tx, self, core, &settings).await?;
        let now_ms = self.now_in(tx).await?;
        if before.settings == settings && before.version > 0 {
            return Ok(Status::new(before, now_ms));
        }
        let version = before.next_version(now_ms);
        let record = Record { settings, updated_at: now_ms, version, ..before };
        record.write(tx).await?;
        tx.wake(&topic())?;
        let (shared, core, after) = (self.clone(), core.clone(), record.clone());
        tx.after_commit(Arc::new(move || core.adopt(&after, shared.now_ms())))?;
        Ok(Status::new(record, now_ms))
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
}
