//! Items that a caller has made up: they deliver nothing and mark nothing as delivered. They are made as the platform makes
//! its own, past the check of names, so that what is shown holds by itself.

use super::bench::{Bench, Context, PATIENCE, components, targets};
use mainstay_core::failure::Failure;
use mainstay_events::Log;
use mainstay_flows::delivery::publications::{
    MAX_TARGETS_OF_PROGRAM, Publisher, Retry, Status, Target, Targets,
};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{Call, Functions, LetterFilter, Native, NewWork, Pool, Work};
use serde_json::{Value, json};

#[test]
fn a_forged_result_marks_no_publication_as_delivered() {
    for_each_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let (inventory, analytics) = (Context::failing(Failure::retryable("away")), Context::default());
        let slowly = Retry { max_retries: 5, initial_backoff_ms: 3_600_000, base: 1.0 };
        let targets =
            Targets::new(slowly).with(inventory.target("inventory")).with(analytics.target("analytics"));
        let functions = Functions::new().action("note", async |_: Call, _: Value| Ok(()));
        let log = Log::open(&store).await.unwrap();
        let work = Work::open(&store, functions).await.unwrap();
        work.pool(Pool::new("shop")).await.unwrap();
        let publisher = Publisher::open(&log, &work, targets).await.unwrap();
        let bench = Bench { store, log, work, publisher };
        let event_id = bench.event("OrderSubmitted", &json!({})).await;
        bench.publish(&event_id, &["inventory"]).await;
        let found = bench.publication(&event_id, "inventory").await;
        let which =
            json!({ "publicationId": found.publication_id, "eventId": event_id, "target": "inventory" });
        let ended = "mainstay.publication.ended";
        let result = json!({ "kind": "success", "returnValue": null });
        let args = json!({ "workId": "work_x", "context": which, "result": result, "attempts": 1 });
        let items = vec![
            // A plain item, one that has its own end reported, and a delivery to another target.
            NewWork::platform("shop", ended, &args).unwrap(),
            NewWork::new("shop", "note", "x").unwrap().tell_platform(ended).context(&which).unwrap(),
            NewWork::platform("shop", "mainstay.publication.deliver:analytics", &which).unwrap(),
            NewWork::platform("shop", "mainstay.publication.deliver:inventory", &which).unwrap(),
        ];
        let items = bench.work.enqueue_all(items).await.unwrap();
        let engine = bench.start().await;
        for (item, native) in
            items.iter().zip([Native::Failed, Native::Success, Native::Failed, Native::Failed])
        {
            assert_eq!(bench.work.wait_for(&item.work_id, PATIENCE).await.unwrap().native, native);
        }
        let found = bench.publication(&event_id, "inventory").await;
        assert_eq!(found.status, Status::Pending);
        assert!(analytics.given().is_empty());
        let letters = bench.work.letters(LetterFilter::default(), 10).await.unwrap();
        assert_eq!(letters.len(), 3);
        assert!(letters.iter().all(|letter| letter.error.contains("validationError")), "{letters:?}");
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_name_of_the_platform_is_not_for_targets() {
    for_each_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let log = Log::open(&store).await.unwrap();
        for name in ["mainstay.x", "MAINSTAY.x", " Mainstay.x "] {
            let targets = targets([Target::subscriber(name, async |_| Ok(()))]);
            let work = Work::open(&store, Functions::new()).await.unwrap();
            let error = Publisher::open(&log, &work, targets).await.map(drop).unwrap_err();
            assert_eq!(error.code(), "NAME_RESERVED", "{name:?}: {error}");
        }
    });
}

#[test]
fn a_program_has_a_bounded_number_of_targets() {
    for_each_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let log = Log::open(&store).await.unwrap();
        let named = |number| Target::subscriber(format!("target-{number}"), async |_| Ok(()));
        let work = Work::open(&store, Functions::new()).await.unwrap();
        let many = targets((0..=MAX_TARGETS_OF_PROGRAM).map(named));
        let error = Publisher::open(&log, &work, many).await.map(drop).unwrap_err();
        assert_eq!(error.code(), "FLOW_INVALID", "{error}");
        assert!(error.to_string().contains("at most 1000"), "{error}");
    });
}
