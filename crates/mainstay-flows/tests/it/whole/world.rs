//! Carries steps out, opens the house again when it has died, and holds what is there against the model.

use super::Mutant;
use super::house::{Bad, House, MODELS, SCOPE};
use super::model::{Fate, Model, fate};
use super::steps::{DEADLY, Step};
use crate::projections::support::{PATIENCE, until};
use crate::replay::ended;
use mainstay_core::failpoints::Action;
use mainstay_events::{Event, Selection};
use mainstay_flows::commands::State;
use mainstay_flows::projections::Lifecycle;
use mainstay_flows::projections::failures::LetterStatus;
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;

/// What was done, to see that it was not nothing.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    pub(super) commands: usize,
    pub(super) deaths: usize,
    pub(super) deferred: usize,
    pub(super) unheard: usize,
}

pub(super) struct World {
    place: Place,
    bad: Bad,
    mutant: Mutant,
    model: Model,
    house: Option<House>,
    pub(super) tally: Tally,
}

impl World {
    pub(super) async fn open(place: Place, mutant: Mutant) -> Self {
        let bad = Bad::default();
        let house = Some(House::open(&place, &bad, mutant).await);
        Self { place, bad, mutant, model: Model::default(), house, tally: Tally::default() }
    }

    fn house(&self) -> &House {
        self.house.as_ref().unwrap()
    }

    /// Opens the house again if it has died.
    async fn revive(&mut self) {
        if !self.house().failpoints.is_dead() {
            return;
        }
        self.tally.deaths += 1;
        self.house.take().unwrap().vanish().await;
        self.house = Some(House::open(&self.place, &self.bad, self.mutant).await);
    }

    pub(super) async fn take(&mut self, step: &Step) {
        self.carry_out(step).await;
        self.revive().await;
    }

    async fn carry_out(&mut self, step: &Step) {
        let projections = &self.house.as_ref().unwrap().bench.projections;
        match step {
            Step::Send(wanted) => {
                let current = self.house().bench.log.scope_version(&SCOPE.parse().unwrap()).await;
                // Reads go on in a house that has died a moment ago.
                let current = current.unwrap();
                let mut ids = Vec::new();
                for (wanted, is_sent_twice) in wanted {
                    let id = self.model.add(wanted.clone(), current);
                    ids.extend(is_sent_twice.then(|| id.clone()));
                    ids.push(id);
                }
                self.send(ids).await;
            }
            Step::Again(index) => {
                let ids: Vec<String> = self.model.commands.keys().cloned().collect();
                if !ids.is_empty() {
                    self.send(vec![index.get(&ids).clone()]).await;
                }
            }
            Step::Spoil => self.bad.store(true, Ordering::SeqCst),
            Step::Mend => self.bad.store(false, Ordering::SeqCst),
            Step::CatchUp(index) => {
                let head = self.house().bench.log.head().await.unwrap();
                // It may be paused, rebuilt by a replay that is, or dead.
                drop(projections.wait_for(MODELS[*index].0, head, Duration::from_millis(100)).await);
            }
            Step::Rebuild(index, size) => {
                let rebuild = Rebuild::of(MODELS[*index].0).chunk_size(*size);
                drop(projections.trigger_rebuild(rebuild).await);
            }
            Step::PauseReplay(index) | Step::CancelReplay(index) => {
                let active = projections.active_rebuilds().await.unwrap();
                let Some(one) = active.iter().find(|one| one.projection_name == MODELS[*index].0) else {
                    return;
                };
                if matches!(step, Step::PauseReplay(_)) {
                    drop(projections.pause_rebuild(&one.replay_id).await);
                } else {
                    drop(projections.cancel_rebuild(&one.replay_id).await);
                }
            }
            Step::Pause(index) => drop(projections.pause(MODELS[*index].0).await),
            Step::Resume(index) => drop(projections.resume(MODELS[*index].0).await),
            Step::RetryLetters => drop(projections.retry_all(LetterStatus::Pending, Some(10)).await),
            Step::LetOut => {
                for event in projections.quarantined(None, None, 3).await.unwrap() {
                    drop(projections.unquarantine(&event.projection_name, &event.event_id).await);
                }
            }
            Step::Ignore => {
                for event in projections.quarantined(None, None, 1).await.unwrap() {
                    self.model.maybe_ignored.insert(event.position);
                    let answer =
                        projections.ignore_quarantined(&event.projection_name, &event.event_id).await;
                    if answer.is_ok() && !self.house().failpoints.is_dead() {
                        self.model.ignored.insert(event.position);
                    }
                }
            }
            Step::Fail(point, skip) => self.house().failpoints.arm(*point, Action::Error, *skip, 2),
            Step::Die(point, skip) => self.house().failpoints.arm(*point, Action::Die, *skip, 1),
            Step::Restart => {
                if !self.house().failpoints.is_dead() {
                    self.house.take().unwrap().stop().await;
                    self.house = Some(House::open(&self.place, &self.bad, self.mutant).await);
                }
            }
        }
    }

    /// Sends commands at once, and remembers what whoever lives to hear it is told.
    async fn send(&mut self, ids: Vec<String>) {
        let mut sent = JoinSet::new();
        let mut copies = BTreeMap::<String, usize>::new();
        for id in ids {
            *copies.entry(id.clone()).or_default() += 1;
            let (dispatcher, failpoints) = (self.house().dispatcher.clone(), self.house().failpoints.clone());
            let entry = &self.model.commands[&id];
            let command = entry.command.clone();
            if self.mutant == Mutant::AnswersEarly
                && entry.wanted.name == "Sell"
                && entry.wanted.lag.is_none()
            {
                self.model.commands.get_mut(&id).unwrap().fate = Fate::Ended("success".to_owned(), None);
                tokio::spawn(async move { dispatcher.dispatch(command).await });
                continue;
            }
            sent.spawn(async move {
                let answer = dispatcher.dispatch(command).await;
                (id, answer, failpoints.is_dead())
            });
        }
        while let Some(answered) = sent.join_next().await {
            let (id, answer, is_unheard) = answered.unwrap();
            self.tally.commands += 1;
            if is_unheard {
                self.tally.unheard += 1;
                self.model.unheard(&id);
                continue;
            }
            self.model.answered(&id, &answer, copies[&id] > 1);
            self.tally.deferred += usize::from(self.model.commands[&id].fate == Fate::Deferred);
        }
    }

    /// Lets everything that was begun come to its end, and sends again what nobody knows the end of.
    pub(super) async fn settle(&mut self) {
        for point in DEADLY {
            self.house().failpoints.arm(point, Action::Error, 0, 0);
        }
        self.revive().await;
        for _ in 0..100 {
            let unknown = self.model.ids(&Fate::Unknown);
            if unknown.is_empty() {
                break;
            }
            self.send(unknown).await;
        }
        assert_eq!(self.model.ids(&Fate::Unknown), [""; 0], "these cannot be decided");
        for id in self.model.ids(&Fate::Deferred) {
            let status = self.house().dispatcher.wait_for(&id, PATIENCE).await.unwrap();
            assert_ne!(status.state, State::Pending, "{id} never ends");
            self.send(vec![id]).await;
        }
        for pool in ["dcbRetryPool", "shop"] {
            self.is_idle(pool).await;
        }
        self.settle_projections().await;
    }

    async fn is_idle(&self, pool: &str) {
        until(&format!("{pool} is idle"), async || {
            let depth = self.house().bench.work.depth(pool).await.unwrap();
            depth.pending + depth.running == 0
        })
        .await;
    }

    async fn settle_projections(&self) {
        let bench = &self.house().bench;
        let projections = &bench.projections;
        for replay in projections.active_rebuilds().await.unwrap() {
            if replay.status == ReplayStatus::Paused {
                projections.resume_rebuild(&replay.replay_id).await.unwrap();
            }
            let progress = ended(bench, &replay.replay_id).await;
            assert_eq!(progress.status, ReplayStatus::Completed, "{progress:?}");
        }
        for (name, ..) in MODELS {
            drop(projections.resume(name).await);
            bench.caught_up(name).await;
        }
        self.is_idle("projectionPool").await;
        until("all are active", async || {
            let all = projections.list().await.unwrap();
            all.iter().all(|status| status.status == Lifecycle::Active)
        })
        .await;
    }

    /// Holds the store against the model.
    pub(super) async fn check(&self) {
        let events = self.events().await;
        let mut caused: Vec<(String, String)> = events
            .iter()
            .map(|event| (event.causation_id().unwrap().to_owned(), event.event_type().to_owned()))
            .collect();
        caused.sort();
        assert_eq!(caused, self.model.events(), "the log");
        let known = self.pairs("SELECT command_id, command_id FROM mainstay_commands").await;
        let known: BTreeSet<String> = known.into_iter().map(|(id, _)| id).collect();
        assert_eq!(known, self.model.known(), "the commands");
        assert_eq!(self.pairs("SELECT what, id FROM notes").await, self.model.notes(), "rows, work and ends");
        for (id, entry) in &self.model.commands {
            if matches!(entry.fate, Fate::Ended(..)) {
                let status = self.house().dispatcher.status(id).await.unwrap();
                assert_eq!(fate(&status.outcome), entry.fate, "{id}");
            }
        }
        let scoped: Vec<u64> = events.iter().filter_map(|event| Some(event.scope()?.1)).collect();
        let version = self.house().bench.log.scope_version(&SCOPE.parse().unwrap()).await.unwrap();
        assert_eq!(scoped, (1..=version).collect::<Vec<u64>>(), "each event in the scope moves it on by one");
        seats(&events);
        for (model, rows, totals) in MODELS {
            self.check_model(model, rows, totals, &events).await;
        }
    }

    /// A read model is what the log makes of it, without what is known to be missing.
    async fn check_model(&self, model: &str, rows: &str, totals: &str, events: &[Event]) {
        let sql = format!("SELECT CAST(position AS TEXT), model FROM {rows}");
        let all = self.pairs(&sql).await;
        let found = all.iter().filter(|(_, of)| of == model).map(|(position, _)| position.parse().unwrap());
        let mut found: Vec<u64> = found.collect();
        found.sort_unstable();
        let missing = self.missing(model, &["pending", "quarantined", "ignored"]).await;
        let expected = events.iter().filter(|event| !missing.contains(&event.position()));
        let positions: Vec<u64> = expected.clone().map(Event::position).collect();
        assert_eq!(found, positions, "{model}; missing are {missing:?}");
        let spoilt = events.iter().filter(|event| event.event_type() == "Spoilt").map(Event::position);
        assert!(missing.is_subset(&spoilt.collect()), "{model} misses {missing:?}");
        if model != "lettered" {
            let mut folded = BTreeMap::<String, i64>::new();
            expected.for_each(|event| *folded.entry(event.event_type().to_owned()).or_default() += 1);
            let sql = format!("SELECT kind, CAST(count AS TEXT) FROM {totals} WHERE model = '{model}'");
            let found = self.pairs(&sql).await.into_iter();
            let found: BTreeMap<String, i64> = found.map(|(kind, n)| (kind, n.parse().unwrap())).collect();
            assert_eq!(found, folded, "{model}");
        }
        let head = events.last().map_or(0, Event::position);
        let checkpoints = self.house().bench.projections.checkpoints().await.unwrap();
        let ours = checkpoints.iter().filter(|one| one.projection == model);
        assert!(ours.clone().all(|one| one.last_global_position == head), "{model} is not at {head}");
    }

    /// When read models can take everything, and are given it, nothing is missing but what was left for good.
    pub(super) async fn mend(&mut self) {
        self.bad.store(false, Ordering::SeqCst);
        let projections = self.house().bench.projections.clone();
        while projections.retry_all(LetterStatus::Pending, Some(1_000)).await.unwrap() > 0 {
            self.settle_projections().await;
        }
        for event in projections.quarantined(None, None, 1_000).await.unwrap() {
            projections.unquarantine(&event.projection_name, &event.event_id).await.unwrap();
        }
        self.settle_projections().await;
        for (model, ..) in MODELS {
            assert_eq!(self.missing(model, &["pending", "quarantined"]).await, [].into(), "{model}");
        }
        let ignored = self.missing("poisoned", &["ignored"]).await;
        let Model { ignored: surely, maybe_ignored, .. } = &self.model;
        assert!(surely.is_subset(&ignored) && ignored.is_subset(maybe_ignored), "{ignored:?}");
    }

    pub(super) async fn close(self) {
        self.house.unwrap().stop().await;
    }

    async fn events(&self) -> Vec<Event> {
        let (mut events, mut selection) = (Vec::new(), Selection::all());
        loop {
            let page = self.house().bench.log.read(&selection, 1_000).await.unwrap();
            events.extend(page.events);
            let Some(next) = page.next else { return events };
            selection.after = next;
        }
    }

    /// The rows of two columns of texts, sorted.
    async fn pairs(&self, sql: &str) -> Vec<(String, String)> {
        let read = async |tx: Tx, sql: String| {
            let rows = tx.query(&sql, &[]).await?;
            rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect::<mainstay_store::Result<Vec<_>>>()
        };
        let mut pairs = self.house().bench.store.read_with(sql.to_owned(), read).await.unwrap();
        pairs.sort();
        pairs
    }

    /// What is known not to be in a read model, as failures of these kinds.
    async fn missing(&self, model: &str, statuses: &[&str]) -> BTreeSet<u64> {
        let read = async |tx: Tx, model: String| {
            let sql = "SELECT position, status FROM mainstay_projection_failures WHERE projection = $1";
            let rows = tx.query(sql, params![model]).await?;
            rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect::<mainstay_store::Result<Vec<_>>>()
        };
        let all = self.house().bench.store.read_with(model.to_owned(), read).await.unwrap();
        let found = all.into_iter().filter(|(_, status): &(u64, String)| statuses.contains(&&**status));
        found.map(|(position, _)| position).collect()
    }
}

/// Every seat is sold once, and refused only after that.
fn seats(events: &[Event]) {
    let mut sold = BTreeSet::new();
    for event in events.iter().filter(|event| event.event_type().starts_with("Seat")) {
        let seat = event.data().unwrap().to_owned();
        let is_first = sold.insert(seat.clone());
        assert_eq!(is_first, event.event_type() == "SeatSold", "{seat} at {}", event.position());
    }
}
