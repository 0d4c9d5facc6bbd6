//! Whatever is done, in whatever order: in the end every event is in each read model once, or is known to be missing.
//!
//! Random appends, broken and mended handlers, rebuilds that are paused and cancelled, retries, restarts and failing commits
//! are held against the log, which is the model: a read model and the failures that are known of it are the log, divided in
//! two.

use super::ended;
use crate::projections::support::{Bad, Bench, PATIENCE, at_once, components, noted, noting_unless, until};
use mainstay_core::failpoints::Action;
use mainstay_events::Event;
use mainstay_flows::projections::failures::LetterStatus;
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_flows::projections::{By, Category, Lifecycle, Model, Poison, Projecting, Projection};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::{Engine, Functions, Pool};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::time::Duration;

const NAMES: [&str; 3] = ["lettered", "poisoned", "beside"];
const TABLES: [&str; 3] = ["noted", "noted", "model_rows"];

#[derive(Debug, Clone)]
enum Step {
    Append { good: usize, bad: usize },
    Break,
    Mend,
    CatchUp(usize),
    Rebuild(usize, u32),
    PauseReplay(usize),
    CancelReplay(usize),
    Pause(usize),
    Resume(usize),
    RetryLetters,
    LetOut,
    Fail(&'static str, u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let points = prop::sample::select(vec![
        "projections.applied",
        "projections.checkpoint",
        "projections.failure",
        "replay.applied",
        "replay.advanced",
        "replay.switched",
    ]);
    let step = prop_oneof![
        6 => (0..25_usize, 0..3_usize).prop_map(|(good, bad)| Step::Append { good, bad }),
        1 => Just(Step::Break),
        2 => Just(Step::Mend),
        3 => (0..3_usize).prop_map(Step::CatchUp),
        4 => (0..3_usize, 1..30_u32).prop_map(|(index, size)| Step::Rebuild(index, size)),
        1 => (0..3_usize).prop_map(Step::PauseReplay),
        1 => (0..3_usize).prop_map(Step::CancelReplay),
        1 => (0..3_usize).prop_map(Step::Pause),
        2 => (0..3_usize).prop_map(Step::Resume),
        2 => Just(Step::RetryLetters),
        2 => Just(Step::LetOut),
        2 => (points, 0..4_u64).prop_map(|(point, skip)| Step::Fail(point, skip)),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 5..30)
}

struct World {
    bench: Bench,
    bad: Bad,
    running: Option<(Projecting, Engine)>,
}

fn beside(bad: &Bad) -> Projection {
    let bad = bad.clone();
    Projection::new("beside", Category::View)
        .retry(at_once(2))
        .table("model_rows", &["CREATE TABLE {table} (model TEXT NOT NULL, position BIGINT NOT NULL)"])
        .each(move |tx: Tx, model: Model, event: Event| {
            let bad = bad.clone();
            async move {
                let table = model.table("model_rows")?;
                let sql = format!("INSERT INTO {table} (model, position) VALUES ('beside', $1)");
                tx.execute(&sql, params![event.position() as i64]).await?;
                bad.check(&event)
            }
        })
}

impl World {
    async fn open(place: &Place) -> Self {
        let bad = Bad::texts(&["bad"]);
        let definitions = vec![
            noting_unless("lettered", &bad).retry(at_once(2)).partitioned(2, By::Stream),
            noting_unless("poisoned", &bad).poison(Poison::new(2, false)),
            beside(&bad),
        ];
        let store = components(place.options()).open().await.unwrap();
        let bench = Bench::leased(store, definitions, Functions::new(), Duration::from_millis(500)).await;
        let replays = Pool::new("eventReplayPool").max_parallelism(5).retry(at_once(1_000));
        bench.work.pool(replays).await.unwrap();
        let running = Some(bench.start().await);
        Self { bench, bad, running }
    }

    async fn take(&mut self, step: &Step) {
        let projections = &self.bench.projections;
        match step {
            Step::Append { good, bad } => {
                let mut texts = vec!["fine"; *good];
                texts.extend(vec!["bad"; *bad]);
                self.bench.append("Noted", &texts).await;
            }
            Step::Break => self.bad.spoil("bad"),
            Step::Mend => self.bad.mend(),
            Step::CatchUp(index) => {
                let head = self.bench.log.head().await.unwrap();
                // It may be paused, or rebuilt by a replay that is.
                drop(projections.wait_for(NAMES[*index], head, Duration::from_millis(100)).await);
            }
            Step::Rebuild(index, size) => {
                let rebuild = Rebuild::of(NAMES[*index]).chunk_size(*size);
                drop(projections.trigger_rebuild(rebuild).await);
            }
            Step::PauseReplay(index) | Step::CancelReplay(index) => {
                let active = projections.active_rebuilds().await.unwrap();
                let Some(one) = active.iter().find(|one| one.projection_name == NAMES[*index]) else {
                    return;
                };
                if matches!(step, Step::PauseReplay(_)) {
                    drop(projections.pause_rebuild(&one.replay_id).await);
                } else {
                    drop(projections.cancel_rebuild(&one.replay_id).await);
                }
            }
            Step::Pause(index) => drop(projections.pause(NAMES[*index]).await),
            Step::Resume(index) => drop(projections.resume(NAMES[*index]).await),
            // A letter may be resolved by somebody else at this moment.
            Step::RetryLetters => drop(projections.retry_all(LetterStatus::Pending, Some(10)).await),
            Step::LetOut => {
                for event in projections.quarantined(None, None, 3).await.unwrap() {
                    drop(projections.unquarantine(&event.projection_name, &event.event_id).await);
                }
            }
            Step::Fail(point, skip) => self.bench.store.failpoints().arm(point, Action::Error, *skip, 2),
            Step::Restart => {
                let (projecting, engine) = self.running.take().unwrap();
                projecting.stop(PATIENCE).await;
                engine.stop(PATIENCE).await.unwrap();
                self.running = Some(self.bench.start().await);
            }
        }
    }

    /// Lets everything that was begun come to its end.
    async fn settle(&self) {
        let projections = &self.bench.projections;
        for replay in projections.active_rebuilds().await.unwrap() {
            if replay.status == ReplayStatus::Paused {
                projections.resume_rebuild(&replay.replay_id).await.unwrap();
            }
            let progress = ended(&self.bench, &replay.replay_id).await;
            assert_eq!(progress.status, ReplayStatus::Completed, "{progress:?}");
        }
        for name in NAMES {
            drop(projections.resume(name).await);
            self.bench.caught_up(name).await;
        }
        until("nothing is tried again any more", async || {
            let depth = self.bench.work.depth("projectionPool").await.unwrap();
            depth.pending + depth.running == 0
        })
        .await;
        until("all are active", async || {
            let all = projections.list().await.unwrap();
            all.iter().all(|status| status.status == Lifecycle::Active)
        })
        .await;
    }

    async fn check(&self) {
        let head = self.bench.log.head().await.unwrap();
        for (name, table) in NAMES.into_iter().zip(TABLES) {
            let applied = rows(&self.bench, table, name).await;
            let mut all = applied.clone();
            all.extend(missing(&self.bench, name).await);
            all.sort_unstable();
            let expected: Vec<u64> = (1..=head).collect();
            assert_eq!(all, expected, "{name}: {:?}", known(&self.bench, name).await);
        }
    }
}

async fn rows(bench: &Bench, table: &str, name: &str) -> Vec<u64> {
    if table == "noted" {
        return noted(&bench.store, name).await;
    }
    let read = async |tx: Tx| {
        let rows = tx.query("SELECT position FROM model_rows ORDER BY position", &[]).await?;
        rows.iter().map(|row| row.get::<u64>(0)).collect::<mainstay_store::Result<Vec<_>>>()
    };
    bench.store.read(read).await.unwrap()
}

/// All that is known of failures, for people.
async fn known(bench: &Bench, name: &str) -> Vec<String> {
    let read = async |tx: Tx, name: String| {
        let sql = "SELECT position, status, attempts, retry_count, coalesce(last_error, error) \
                   FROM mainstay_projection_failures WHERE projection = $1 ORDER BY position";
        Ok(tx
            .query(sql, params![name])
            .await?
            .into_iter()
            .map(|row| format!("{:?}", row.into_values()))
            .collect())
    };
    bench.store.read_with(name.to_owned(), read).await.unwrap()
}

/// What is known not to be in a read model.
async fn missing(bench: &Bench, name: &str) -> Vec<u64> {
    let read = async |tx: Tx, name: String| {
        let sql = "SELECT position FROM mainstay_projection_failures \
                   WHERE projection = $1 AND status IN ('pending', 'quarantined')";
        let rows = tx.query(sql, params![name]).await?;
        rows.iter().map(|row| row.get::<u64>(0)).collect::<mainstay_store::Result<Vec<_>>>()
    };
    bench.store.read_with(name.to_owned(), read).await.unwrap()
}

async fn live_through(place: Place, steps: Vec<Step>) {
    let mut world = World::open(&place).await;
    for step in &steps {
        world.take(step).await;
    }
    world.settle().await;
    world.check().await;
    // Mended, everything can be taken.
    world.bad.mend();
    while world.bench.projections.retry_all(LetterStatus::Pending, Some(1_000)).await.unwrap() > 0 {
        world.settle().await;
    }
    for event in world.bench.projections.quarantined(None, None, 1_000).await.unwrap() {
        world.bench.projections.unquarantine(&event.projection_name, &event.event_id).await.unwrap();
    }
    world.settle().await;
    world.check().await;
    for name in NAMES {
        assert_eq!(missing(&world.bench, name).await, [0_u64; 0], "{name}");
    }
    let (projecting, engine) = world.running.take().unwrap();
    projecting.stop(PATIENCE).await;
    engine.stop(PATIENCE).await.unwrap();
}

fn whatever_happens(kind: Kind, cases: u32) {
    let cases = if std::env::var_os("MAINSTAY_LONG").is_some() { cases * 30 } else { cases };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 30, ..Config::default() };
    let run = |steps: Vec<Step>| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(live_through(Place::new(kind), steps));
        Ok(())
    };
    TestRunner::new(config).run(&steps(), run).unwrap();
}

#[test]
fn whatever_happens_a_read_model_is_what_the_log_makes_of_it_on_sqlite() {
    whatever_happens(Kind::SqliteMemory, 12);
}

#[test]
fn whatever_happens_a_read_model_is_what_the_log_makes_of_it_on_postgres() {
    whatever_happens(Kind::Postgres, 5);
}
