//! What is done about letters and old publications by itself.

use super::bench::{Bench, Context, components, targets};
use mainstay_flows::delivery::publications::{
    LetterStatus, PublicationFilter, Retry, Status, Tended, Upkeep,
};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::VirtualTime;
use mainstay_work::Failure;
use serde_json::json;
use std::time::Duration;

const MINUTE_MS: i64 = 60_000;

fn upkeep() -> Upkeep {
    Upkeep {
        every: Duration::from_secs(60),
        retry: Some(Retry { max_retries: 2, initial_backoff_ms: 60_000, base: 10.0 }),
        ignore_after: Some(Duration::from_secs(86_400)),
        forget_after: Some(Duration::from_secs(7 * 86_400)),
    }
}

fn tended(retried: u64, ignored: u64, forgotten: u64) -> Tended {
    Tended { retried, ignored, forgotten }
}

#[test]
fn b_174_letters_are_retried_with_backoff_and_ignored_when_they_are_old() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let (analytics, inventory) = (Context::failing(Failure::permanent("no")), Context::default());
        let both = [analytics.target("analytics"), inventory.target("inventory")];
        // The clock is moved by days, which no lease is to notice.
        let bench = Bench::leased(store, targets(both), Duration::from_secs(100 * 86_400)).await;
        let _engine = bench.start().await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        bench.publish(&id, &["analytics", "inventory"]).await;
        bench.until(&id, "analytics", Status::Failed).await;
        bench.until(&id, "inventory", Status::Delivered).await;
        let tend = async || bench.publisher.tend(&upkeep()).await.unwrap();

        time.advance(MINUTE_MS - 1).await.unwrap();
        assert_eq!(tend().await, tended(0, 0, 0), "not yet");
        time.advance(1).await.unwrap();
        assert_eq!(tend().await, tended(1, 0, 0));
        assert_eq!(bench.until(&id, "analytics", Status::Failed).await.attempt_count, 2);
        time.advance(10 * MINUTE_MS - 1).await.unwrap();
        assert_eq!(tend().await, tended(0, 0, 0), "ten times as long");
        time.advance(1).await.unwrap();
        assert_eq!(tend().await, tended(1, 0, 0));
        assert_eq!(bench.until(&id, "analytics", Status::Failed).await.attempt_count, 3);
        time.advance(200 * MINUTE_MS).await.unwrap();
        assert_eq!(tend().await, tended(0, 0, 0), "two retries are all");

        time.advance(86_400_000).await.unwrap();
        assert_eq!(tend().await, tended(0, 1, 0));
        assert_eq!(bench.letters("analytics").await[0].status, LetterStatus::Ignored);
        time.advance(7 * 86_400_000).await.unwrap();
        assert_eq!(tend().await, tended(0, 0, 1), "what was delivered is forgotten, and what failed is not");
        let left = bench.publisher.list(PublicationFilter::default(), 10).await.unwrap();
        assert_eq!(left.iter().map(|one| one.target_context.as_str()).collect::<Vec<_>>(), ["analytics"]);
    });
}

#[test]
fn b_174_upkeep_is_a_job_that_runs_by_itself_if_asked_for() {
    for_each_store(async |place| {
        let analytics = Context::default();
        analytics.fail_times(1, &Failure::permanent("once"));
        let soon = Upkeep {
            every: Duration::from_millis(20),
            retry: Some(Retry { max_retries: 5, initial_backoff_ms: 1, base: 1.0 }),
            ignore_after: None,
            forget_after: None,
        };
        let bench = Bench::open(&place, targets([analytics.target("analytics")]).upkeep(soon)).await;
        let _engine = bench.start().await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        bench.publish(&id, &["analytics"]).await;
        bench.until(&id, "analytics", Status::Delivered).await;
        assert_eq!(bench.letters("analytics").await[0].retry_count, 1);
        assert_eq!(bench.work.crons().await.unwrap().len(), 1);
    });
}
