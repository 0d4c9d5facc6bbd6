//! Many letters, and a generation that takes the place of another.

use super::beside::managed;
use super::ended;
use crate::projections::support::{Bad, Bench, PATIENCE, components};
use mainstay_core::failpoints::Point;
use mainstay_flows::projections::failures::{LetterFilter, LetterStatus};
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::VirtualTime;

const MANY: usize = 3_000;

/// Letters of events that are far ahead in the log, as `{status}`.
const LETTERS: &str = "INSERT INTO mainstay_projection_failures (projection, event_id, generation, position, event_type, \
     correlation_id, is_poison, status, attempts, error, failed_at, retry_count, resolved_at) \
     WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 3000) \
     SELECT 'orders', 'e' || CAST(n AS TEXT), 1, 1000000 + n, 'Noted', 'c', 0, '{status}', 3, 'no', 10, 0, \
     mainstay_now() FROM numbers";
const LISTED: &str = "INSERT INTO mainstay_dead_letters (kind, name, reference, status, error_group, failed_at, \
     changed_at, retries, correlation, error) \
     SELECT 'projection', projection, event_id, CASE WHEN status = 'pending' THEN 0 ELSE 2 END, 1, 10, 10, 0, 'c', 'no' \
     FROM mainstay_projection_failures";

async fn fill(store: &Store, status: &str) {
    let write = async |tx: Tx, letters: String| {
        tx.execute(&letters, &[]).await?;
        tx.execute(LISTED, &[]).await
    };
    store.transact_with(LETTERS.replace("{status}", status), write).await.unwrap();
}

/// How many letters the inbox lists of each status, and the sum of their numbers.
async fn listed(store: &Store) -> Vec<(i64, u64, u64)> {
    let read = async |tx: Tx| {
        let sql = "SELECT status, count(*), CAST(sum(number) AS BIGINT) FROM mainstay_dead_letters \
             GROUP BY status ORDER BY status";
        let row = |row: &mainstay_store::Row| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        tx.query(sql, &[]).await?.iter().map(row).collect::<mainstay_store::Result<Vec<_>>>()
    };
    store.read(read).await.unwrap()
}

#[test]
fn a_switch_resolves_thousands_of_letters_and_lists_those_of_the_new_model() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![managed(&bad, false)]).await;
        let ids = bench.append("Noted", &["fine", "bad"]).await;
        fill(&bench.store, "pending").await;
        let before = listed(&bench.store).await;
        assert_eq!((before.len(), before[0].1), (1, MANY as u64));
        let engine = bench.work.start().await.unwrap();
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        let after = listed(&bench.store).await;
        let counts: Vec<(i64, u64)> = after.iter().map(|(status, count, _)| (*status, *count)).collect();
        assert_eq!(counts, [(0, 1), (2, MANY as u64)], "one is pending, the others are resolved");
        assert_eq!(after[1].2, before[0].2, "and have kept their numbers");
        let stats = bench.projections.letter_stats().await.unwrap();
        assert_eq!(stats.by_projection_and_status["orders:resolved"], MANY as u64);
        let pending = LetterFilter { status: Some(LetterStatus::Pending), ..LetterFilter::default() };
        let pending = bench.projections.letters(pending, 10).await.unwrap();
        assert_eq!(pending.iter().map(|letter| &letter.event_id).collect::<Vec<_>>(), [&ids[1]]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_216_letters_are_purged_some_in_a_transaction_each() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, vec![managed(&Bad::default(), false)]).await;
        fill(&bench.store, "resolved").await;
        time.advance(8 * 86_400_000).await.unwrap();
        let points = bench.store.failpoints();
        points.arm(Point::ProjectionsPurged, mainstay_core::failpoints::Action::Error, 2, 1);
        bench.projections.purge_resolved(7).await.unwrap_err();
        let left = bench.projections.letter_stats().await.unwrap().total;
        assert_eq!(left, MANY as u64 - 1_000, "what was done before stays done");
        assert_eq!(bench.projections.purge_resolved(7).await.unwrap(), left);
        assert_eq!(bench.projections.letter_stats().await.unwrap().total, 0);
        assert!(listed(&bench.store).await.is_empty());
    });
}
