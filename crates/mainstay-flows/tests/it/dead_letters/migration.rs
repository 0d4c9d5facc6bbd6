//! Letters from before there was an inbox are in it afterwards.

use super::bench::{Bench, components};
use mainstay_flows::dead_letters::{Filter, Status};
use mainstay_flows::delivery::publications;
use mainstay_flows::projections;
use mainstay_store::Tx;
use mainstay_store::migrations::Component;
use mainstay_testkit::stores::for_each_lasting_store;

/// As programs were that knew no inbox.
fn before() -> [Component; 4] {
    let work = Component { name: "work", steps: &mainstay_work::COMPONENT.steps[..1] };
    [mainstay_events::COMPONENT, work, projections::COMPONENT, publications::COMPONENT]
}

const LETTERS: &str = "INSERT INTO mainstay_letters (id, pool, name, kind, status, failed_at, letter) VALUES \
     ($1, 1, 'charge', 'work', 0, 10, $4), ($2, 1, 'charge', 'append', 2, 20, $4), ($3, 1, 'charge', 'work', 1, 30, $4)";
const POOL: &str = "INSERT INTO mainstay_pools (number, name, settings, is_paused, started_until, changed_at) \
     VALUES (1, 'old', '{}', 0, 0, 0)";
const DELIVERY: &str = "INSERT INTO mainstay_letters (id, pool, name, kind, status, failed_at, letter) \
     VALUES ($1, 1, 'mainstay.publication.deliver:inventory', 'work', 0, 40, $2)";
const PROJECTION: &str = "INSERT INTO mainstay_projections (name, status, generation, shape, version, updated_at) \
     VALUES ('old', 'active', 2, '', 1, 0)";
const FAILURES: &str = "INSERT INTO mainstay_projection_failures (projection, event_id, generation, position, event_type, \
     correlation_id, is_poison, status, attempts, error, failed_at, retry_count) VALUES \
     ('old', 'e1', 2, 1, 'T', 'c', 0, 'pending', 3, 'cannot take 1', 10, 4), \
     ('old', 'e1', 1, 1, 'T', 'c', 0, 'pending', 3, 'another generation', 10, 0), \
     ('old', 'e2', 2, 2, 'T', 'c', 0, 'failing', 3, 'not yet', 20, 0), \
     ('old', 'e3', 2, 3, 'T', 'c', 1, 'quarantined', 3, 'poison', 30, 0)";
const PUBLICATIONS: &str = "INSERT INTO mainstay_publications (id, event_id, target, source_context, event_type, status, \
     attempts_before, attempt_count, error, created_at, letter, failed_at, retry_count, is_translated, event) VALUES \
     ('pub_1', 'e1', 'inventory', 'orders', 'T', 'failed', 0, 1, 'away', 5, 'ignored', 7, 0, 1, '{}'), \
     ('pub_2', 'e2', 'inventory', 'orders', 'T', 'delivered', 0, 1, NULL, 5, NULL, NULL, 0, 1, '{}')";

#[test]
fn letters_from_before_there_was_an_inbox_are_listed_and_grouped() {
    for_each_lasting_store(async |place| {
        let store = before().into_iter().fold(place.options(), mainstay_store::Options::component);
        let store = store.open().await.unwrap();
        let write = async |tx: Tx| {
            let letter =
                r#"{"item":{"function":"charge","args":"x","enqueuedAt":1},"error":"order 17 has no stock"}"#;
            let id = |last: u8| [&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15][..], &[last]].concat();
            tx.execute(LETTERS, mainstay_store::params![id(1), id(2), id(3), letter]).await?;
            tx.execute(DELIVERY, mainstay_store::params![id(4), letter]).await?;
            for sql in [POOL, PROJECTION, FAILURES, PUBLICATIONS] {
                tx.execute(sql, &[]).await?;
            }
            Ok(())
        };
        store.transact(write).await.unwrap();
        store.close().await;
        let store = components(place.options()).open().await.unwrap();
        let bench = Bench::on(
            store,
            std::time::Duration::from_secs(15),
            mainstay_flows::dead_letters::Upkeep::none(),
        )
        .await;
        let mut all = bench.list(Filter::default()).await;
        all.sort_by(|one, other| (&one.kind, &one.reference).cmp(&(&other.kind, &other.reference)));
        let shown: Vec<(&str, &str, &str, Status, i64, u32)> = all
            .iter()
            .map(|one| {
                (one.kind.as_str(), &*one.name, &*one.reference, one.status, one.failed_at, one.retry_count)
            })
            .collect();
        let expected = [
            ("append", "charge", "work_01020304-0506-0708-090a-0b0c0d0e0f02", Status::Ignored, 20, 0),
            ("projection", "old", "e1", Status::Pending, 10, 4),
            ("publication", "inventory", "pub_1", Status::Ignored, 7, 0),
            ("quarantinedEvent", "old", "e3", Status::Pending, 30, 0),
            ("work", "charge", "work_01020304-0506-0708-090a-0b0c0d0e0f01", Status::Pending, 10, 0),
        ];
        assert_eq!(shown, expected);
        assert_eq!(all[4].error, "order 17 has no stock");
        assert!(all.iter().all(|one| one.group == mainstay_work::inbox::group(&one.error)));
        let of_pool = bench.list(Filter { pool: Some("old".to_owned()), ..Filter::default() }).await;
        assert_eq!(of_pool.iter().map(|one| one.failed_at).collect::<Vec<_>>(), [20, 10]);
        bench.store.close().await;
    });
}
