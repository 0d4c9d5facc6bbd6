//! The time that a chunk has: item 202.

use super::{chunks_are_tried, ended};
use crate::projections::support::{Bench, PATIENCE, components, note, noting, until};
use mainstay_events::Event;
use mainstay_flows::projections::replay::{CHUNK_BUDGET, Rebuild, ReplayStatus};
use mainstay_flows::projections::{Lifecycle, Model, Projection, Registry};
use mainstay_store::Tx;
use mainstay_testkit::stores::{Kind, Place, for_each_kind, for_each_store};
use mainstay_work::Functions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Long enough for any chunk here that is not slow on purpose.
const BUDGET: Duration = Duration::from_secs(1);
/// The chunk of this event is the slow one.
const SLOW: u64 = 150;

/// How a handler comes to take too long.
#[derive(Clone, Default)]
struct Slow {
    /// It asks the database without end.
    is_asking: Arc<AtomicBool>,
    /// It holds its thread for twice the time there is, once.
    is_blocking: Arc<AtomicBool>,
    /// How often it was slow.
    times: Arc<AtomicU32>,
}

impl Slow {
    async fn pass(&self, tx: &Tx) -> mainstay_store::Result<()> {
        let is_blocking = self.is_blocking.swap(false, Ordering::SeqCst);
        if is_blocking || self.is_asking.load(Ordering::SeqCst) {
            self.times.fetch_add(1, Ordering::SeqCst);
        }
        while self.is_asking.load(Ordering::SeqCst) {
            tx.query("SELECT 1", &[]).await?;
        }
        if is_blocking {
            std::thread::sleep(2 * BUDGET);
        }
        Ok(())
    }
}

/// Notes every event, and takes its time after the slow one.
fn noting_slowly(slow: &Slow) -> Projection {
    let slow = slow.clone();
    noting("a").each(move |tx: Tx, _: Model, event: Event| {
        let slow = slow.clone();
        async move {
            note(&tx, "a", &event).await?;
            if event.position() == SLOW { slow.pass(&tx).await } else { Ok(()) }
        }
    })
}

async fn open(place: &Place, slow: &Slow) -> Bench {
    let store = components(place.options()).open().await.unwrap();
    let registry = Registry::new().with(noting_slowly(slow)).chunk_budget(BUDGET);
    let bench = Bench::of(store, registry, Functions::new(), Duration::from_secs(15)).await;
    bench.append_many(250).await;
    bench
}

#[test]
fn b_202_a_chunk_that_takes_too_long_is_ended_and_tried_again() {
    for_each_store(async |place| {
        let slow = Slow::default();
        let bench = open(&place, &slow).await;
        chunks_are_tried(&bench, 20).await;
        slow.is_asking.store(true, Ordering::SeqCst);
        let engine = bench.work.start().await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        until("it was tried again", async || slow.times.load(Ordering::SeqCst) >= 2).await;
        // Nothing of the chunk is there, and all of the one before.
        assert_eq!(bench.noted("a").await, (1..=100).collect::<Vec<u64>>());
        slow.is_asking.store(false, Ordering::SeqCst);
        let progress = ended(&bench, &begun.replay_id).await;
        assert_eq!((progress.status, progress.events_processed), (ReplayStatus::Completed, 250));
        assert_eq!(bench.noted("a").await, (1..=250).collect::<Vec<u64>>());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_202_a_chunk_that_always_takes_too_long_fails_the_replay_which_can_be_gone_on_with() {
    for_each_store(async |place| {
        let slow = Slow::default();
        let bench = open(&place, &slow).await;
        chunks_are_tried(&bench, 2).await;
        slow.is_asking.store(true, Ordering::SeqCst);
        let engine = bench.work.start().await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        let progress = ended(&bench, &begun.replay_id).await;
        assert_eq!((progress.status, progress.events_processed), (ReplayStatus::Failed, 100));
        let error = progress.error.unwrap_or_default();
        assert!(error.contains("1000 ms"), "{error}");
        assert!(slow.times.load(Ordering::SeqCst) >= 2);
        let status = bench.projections.status("a").await.unwrap();
        assert_eq!((status.status, status.last_global_position), (Lifecycle::Error, 100));
        assert_eq!(bench.noted("a").await, (1..=100).collect::<Vec<u64>>());
        slow.is_asking.store(false, Ordering::SeqCst);
        let again = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        assert_eq!(again.replay_id, begun.replay_id);
        assert_eq!(ended(&bench, &again.replay_id).await.status, ReplayStatus::Completed);
        assert_eq!(bench.noted("a").await, (1..=250).collect::<Vec<u64>>());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_202_what_a_chunk_does_after_its_time_was_up_does_not_count() {
    for_each_store(async |place| {
        let slow = Slow::default();
        let bench = open(&place, &slow).await;
        chunks_are_tried(&bench, 20).await;
        slow.is_blocking.store(true, Ordering::SeqCst);
        let engine = bench.work.start().await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("a")).await.unwrap();
        let progress = ended(&bench, &begun.replay_id).await;
        assert_eq!((progress.status, progress.events_processed), (ReplayStatus::Completed, 250));
        assert_eq!((progress.chunks_completed, slow.times.load(Ordering::SeqCst)), (3, 1));
        assert!(bench.work.figures().failed.get() > 0, "it was let go on");
        assert_eq!(bench.noted("a").await, (1..=250).collect::<Vec<u64>>());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_202_a_chunk_has_ten_seconds_and_never_more() {
    assert_eq!(CHUNK_BUDGET, Duration::from_secs(10));
    for_each_kind(&[Kind::SqliteMemory], async |place| {
        let bench = Bench::open(&place, vec![noting("a")]).await;
        for budget in [Duration::ZERO, CHUNK_BUDGET + Duration::from_millis(1)] {
            let registry = Registry::new().with(noting("b")).chunk_budget(budget);
            let opened = mainstay_flows::projections::Projections::open(
                &bench.store,
                &bench.log,
                &bench.work,
                registry,
            );
            let refused = opened.await.unwrap_err();
            assert_eq!(refused.code(), "FLOW_INVALID");
            assert!(refused.to_string().contains("at most 10 s"), "{refused}");
        }
        assert_eq!(bench.projections.status("b").await.unwrap_err().code(), "UNKNOWN_PROJECTION");
    });
}
