//! What is done about letters by itself, if it is wanted.

use super::bench::{Bench, PATIENCE, SHOP, components, of_kind, orders, until};
use super::kinds::{KINDS, fail_once_each};
use mainstay_core::failpoints::{Action as FailpointAction, Point};
use mainstay_flows::dead_letters::{Again, CHUNK, Filter, Status, Tended, Upkeep};
use mainstay_store::Tx;
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_testkit::time::VirtualTime;
use std::time::Duration;

fn again(max_retries: u32) -> Upkeep {
    let again = Again { max_retries, initial_backoff_ms: 1_000, base: 10.0, max_backoff_ms: 50_000 };
    Upkeep { retry: [("work".into(), again)].into(), ..Upkeep::none() }
}

#[test]
fn letters_are_tried_again_by_themselves_with_growing_waits_and_no_more_often_than_that() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, Duration::from_secs(15), Upkeep::none()).await;
        let engine = bench.start().await;
        bench.charge(["o1".to_owned()]).await;
        let upkeep = again(3);
        for wait_ms in [1_000, 10_000, 50_000] {
            time.advance(wait_ms - 1).await.unwrap();
            assert_eq!(bench.letters.tend(&upkeep).await.unwrap(), Tended::default(), "before {wait_ms}");
            time.advance(1).await.unwrap();
            assert_eq!(bench.letters.tend(&upkeep).await.unwrap().retried, 1, "after {wait_ms}");
            bench.drained(SHOP).await;
        }
        time.advance(1_000_000).await.unwrap();
        assert_eq!(bench.letters.tend(&upkeep).await.unwrap(), Tended::default());
        engine.stop(PATIENCE).await.unwrap();
        let letter = bench.list(Filter::default()).await.remove(0);
        assert_eq!((letter.status, letter.retry_count), (Status::Pending, 3));
        let record = bench.letters.operations(None, None, 10).await.unwrap();
        assert_eq!(record.len(), 3);
        assert!(record.iter().all(|one| one.asked_by == "upkeep" && one.done == 1 && one.total == 1));
    });
}

#[test]
fn letters_that_were_given_up_are_not_looked_at_again() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, Duration::from_secs(15), Upkeep::none()).await;
        let engine = bench.start().await;
        bench.charge(orders(CHUNK + 1)).await;
        engine.stop(PATIENCE).await.unwrap();
        let give_up = async |tx: Tx| tx.execute("UPDATE mainstay_dead_letters SET retries = 3", &[]).await;
        bench.store.transact(give_up).await.unwrap();
        time.advance(1_000_000).await.unwrap();
        // One look for each number of retries, and none at a second chunk.
        bench.store.failpoints().arm(Point::LettersTending, FailpointAction::Error, 3, 1);
        assert_eq!(bench.letters.tend(&again(3)).await.unwrap(), Tended::default());
        assert!(bench.letters.tend(&again(3)).await.is_err(), "the point is where letters are looked at");
        assert_eq!(bench.letters.tend(&again(4)).await.unwrap().retried, CHUNK as u64 + 1);
    });
}

#[test]
fn letters_of_other_kinds_are_not_tried_again() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, Duration::from_secs(15), Upkeep::none()).await;
        let engine = bench.start().await;
        bench.append_late("o1").await;
        bench.drained(mainstay_flows::delivery::appends::APPEND_POOL).await;
        time.advance(1_000_000).await.unwrap();
        assert_eq!(bench.letters.tend(&again(3)).await.unwrap(), Tended::default());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn old_letters_are_ignored_by_themselves() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, Duration::from_secs(15), Upkeep::none()).await;
        let engine = bench.start().await;
        bench.charge(["old".to_owned()]).await;
        time.advance(5_000).await.unwrap();
        bench.charge(["new".to_owned()]).await;
        engine.stop(PATIENCE).await.unwrap();
        let upkeep = Upkeep { ignore_after: Some(Duration::from_secs(5)), ..Upkeep::none() };
        assert_eq!(bench.letters.tend(&upkeep).await.unwrap(), Tended { ignored: 1, retried: 0 });
        let ignored = bench.list(Filter { status: Some(Status::Ignored), ..Filter::default() }).await;
        assert!(ignored.len() == 1 && ignored[0].error.ends_with("order old has no stock"), "{ignored:?}");
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    for_each_store(async |place| {
        let bench = Bench::open(&place).await;
        for upkeep in [again(0), again(101), Upkeep { ignore_after: Some(Duration::ZERO), ..Upkeep::none() }]
        {
            assert_eq!(bench.letters.tend(&upkeep).await.unwrap_err().code(), "WORK_INVALID");
        }
    });
}

/// The clock is moved by days, which no lease is to notice.
const LEASE: Duration = Duration::from_secs(100 * 86_400);

/// A shop with a letter of every kind, where this is done by itself.
async fn tended_by_itself(place: &Place, upkeep: Upkeep) -> (Bench, VirtualTime) {
    let (store, time) = VirtualTime::open_with(place, components(place.options())).await.unwrap();
    let bench = Bench::on(store, LEASE, upkeep).await;
    fail_once_each(&bench).await;
    (bench, time)
}

#[test]
fn letters_of_every_kind_are_tried_again_by_a_job_once_their_wait_is_over() {
    for_each_store(async |place| {
        let again = Again { max_retries: 3, initial_backoff_ms: 60_000, base: 10.0, max_backoff_ms: 600_000 };
        let retry = KINDS.map(|kind| (kind.into(), again)).into();
        let upkeep = Upkeep { every: Duration::from_secs(10), retry, ..Upkeep::none() };
        let (bench, time) = tended_by_itself(&place, upkeep).await;
        bench.mend();
        let runs = async || {
            let cron = bench.work.crons().await.unwrap().remove(0);
            (cron.name, cron.next_at)
        };
        let engine = bench.start().await;
        // The job runs, and has nothing to do.
        let (name, first) = runs().await;
        assert_eq!(name, "mainstay.letters.upkeep");
        time.advance(30_000).await.unwrap();
        until("the job has run", async || {
            engine.look_around();
            runs().await.1 > first
        })
        .await;
        bench.drained(mainstay_flows::dead_letters::POOL).await;
        assert_eq!(bench.count(Status::Pending).await, 5);
        time.advance(30_000).await.unwrap();
        until("the job tries them again", async || {
            engine.look_around();
            bench.count(Status::Resolved).await == 4
        })
        .await;
        // The append has a conflict still, and waits for longer now.
        until("the append fails again", async || bench.count(Status::Pending).await == 1).await;
        engine.stop(PATIENCE).await.unwrap();
        for kind in KINDS {
            let letter = bench.list(of_kind(kind)).await.remove(0);
            let status = if kind == "append" { Status::Pending } else { Status::Resolved };
            assert_eq!((letter.status, letter.retry_count), (status, 1), "{kind}");
        }
        let effects = bench.effects().await;
        assert!(effects.len() == 3 && effects.values().all(|count| *count == 1), "{effects:?}");
        let record = bench.letters.operations(None, None, 10).await.unwrap();
        assert_eq!(record.iter().map(|one| one.done).sum::<u64>(), 5);
        assert!(record.iter().all(|one| one.asked_by == "upkeep"), "{record:?}");
    });
}

#[test]
fn letters_of_every_kind_are_ignored_by_a_job_when_they_are_old() {
    for_each_store(async |place| {
        let ignore_after = Some(Duration::from_secs(86_400));
        let (bench, time) = tended_by_itself(&place, Upkeep { ignore_after, ..Upkeep::none() }).await;
        time.advance(86_400_000).await.unwrap();
        let engine = bench.start().await;
        until("the job ignores them", async || {
            engine.look_around();
            bench.count(Status::Ignored).await == 5
        })
        .await;
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!(bench.letters.stats(Filter::default()).await.unwrap().total, 5);
        assert!(bench.effects().await.is_empty());
    });
}
