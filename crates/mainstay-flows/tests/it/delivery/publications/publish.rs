//! From publishing to delivered, failed or dead.

use super::bench::{Bench, Context, PATIENCE, at_once, targets};
use mainstay_events::{Append, NewEvent};
use mainstay_flows::delivery::publications::{
    Delivery, POOL, PublicEvent, Publication, PublicationFilter, Publisher, Retry, Status, Target, Targets,
};
use mainstay_store::{Error as StoreError, Tx, params};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{Canceled, Class, Failure, Functions, Work};
use serde_json::json;
use std::time::Duration;

fn shown(publications: &[Publication]) -> Vec<(&str, Status, u32)> {
    publications.iter().map(|one| (one.target_context.as_str(), one.status, one.attempt_count)).collect()
}

#[test]
fn b_164_the_numbers_of_a_publisher_are_given_and_checked() {
    for_each_store(async |place| {
        let bench =
            Bench::open(&place, Targets::new(Retry { max_retries: 5, initial_backoff_ms: 100, base: 2.0 }))
                .await;
        let open = async |targets: Targets| {
            let work = Work::open(&bench.store, Functions::new()).await.unwrap();
            Publisher::open(&bench.log, &work, targets).await.map(drop).map_err(|error| error.code())
        };
        let one = Context::default().target("inventory");
        for base in [0.0, -1.0, f64::NAN] {
            let retry = Retry { max_retries: 5, initial_backoff_ms: 100, base };
            assert_eq!(open(Targets::new(retry).with(one.clone())).await, Err("FLOW_INVALID"), "{base}");
        }
        let twice = Targets::new(at_once(1)).with(one.clone()).with(one.clone());
        assert_eq!(open(twice).await, Err("FLOW_INVALID"), "two of one name");
        let odd = Targets::new(at_once(1)).with(Context::default().target("in ventory"));
        assert_eq!(open(odd).await, Err("FLOW_INVALID"));
        assert_eq!(open(Targets::new(at_once(0)).with(one)).await, Ok(()));
    });
}

#[test]
fn b_165_a_publication_is_a_row_and_an_item_of_work_in_one_transaction() {
    for_each_store(async |place| {
        let inventory = Context::default();
        let bench = Bench::open(&place, targets([inventory.target("inventory")])).await;
        let event = PublicEvent::new("evt-1", "OrderSubmitted", &json!({ "orderId": "ord-1" })).unwrap();
        let publish = async |tx: Tx, (publisher, event, fails): (Publisher, PublicEvent, bool)| {
            let published = publisher.publish_in(&tx, &event, "orders", ["inventory"]).await?;
            if fails { Err(StoreError::application("no")) } else { Ok(published) }
        };
        let context = |fails| (bench.publisher.clone(), event.clone(), fails);
        bench.store.transact_with(context(true), publish).await.unwrap_err();
        assert_eq!(bench.publisher.status("evt-1").await.unwrap(), []);
        assert_eq!(bench.under_way().await, 0, "neither a row nor work is left of what was rolled back");

        let published = bench.store.transact_with(context(false), publish).await.unwrap();
        assert!(published[0].publication_id.starts_with("pub_") && !published[0].is_duplicate);
        let status = bench.publication("evt-1", "inventory").await;
        assert_eq!((status.status, status.attempt_count), (Status::Pending, 0));
        assert_eq!(bench.under_way().await, 1);
        let item = bench.work.status(&status.work_id.unwrap()).await.unwrap().unwrap();
        assert_eq!((item.pool.as_str(), item.key.as_deref()), (POOL, Some("pub:evt-1:inventory")));
        assert!(inventory.given().is_empty(), "nobody has worked yet");
    });
}

#[test]
fn b_165_an_event_is_published_in_the_transaction_that_appends_it() {
    for_each_store(async |place| {
        let inventory = Context::default();
        let bench = Bench::open(&place, targets([inventory.target("inventory")])).await;
        let _engine = bench.start().await;
        let append = async |tx: Tx, (log, publisher): (mainstay_events::Log, Publisher)| {
            let new =
                NewEvent::new("OrderSubmitted", &json!({ "orderId": "ord-1" }))?.stream("Order", "ord-1");
            let receipt = log.append_in(&tx, Append::from(new.clone()))?;
            let event_id = receipt.event_ids()[0].clone();
            publisher.publish_in(&tx, &PublicEvent::of_new(&event_id, &new), "orders", ["inventory"]).await?;
            Ok(event_id)
        };
        let context = (bench.log.clone(), bench.publisher.clone());
        let event_id = bench.store.transact_with(context, append).await.unwrap();
        bench.until(&event_id, "inventory", Status::Delivered).await;
        assert!(bench.log.find(&event_id).await.unwrap().is_some());
        assert_eq!(inventory.given()[0].event.subject.as_deref(), Some("Order/ord-1"));
    });
}

#[test]
fn b_166_two_targets_are_two_rows_and_two_jobs_and_both_are_delivered() {
    for_each_store(async |place| {
        let (inventory, notifications) = (Context::default(), Context::default());
        let both = [inventory.target("inventory"), notifications.target("notifications")];
        let bench = Bench::open(&place, targets(both)).await;
        let id = bench.event("OrderSubmitted", &json!({ "orderId": "ord-1" })).await;
        bench.publish(&id, &["inventory", "notifications"]).await;
        assert_eq!(bench.publisher.status(&id).await.unwrap().len(), 2);
        assert_eq!(bench.under_way().await, 2);
        let _engine = bench.start().await;
        for (context, target) in [(&inventory, "inventory"), (&notifications, "notifications")] {
            let publication = bench.until(&id, target, Status::Delivered).await;
            assert_eq!((publication.attempt_count, publication.error.as_deref()), (1, None));
            assert!(publication.delivered_at.is_some_and(|at| at >= publication.created_at));
            let given = context.given();
            assert_eq!(given.len(), 1, "{target}");
            assert_eq!(given[0].event.data.get(), r#"{"orderId":"ord-1"}"#);
            assert_eq!((&*given[0].source_context, &*given[0].target_context), ("orders", target));
            assert_eq!(given[0].event.correlation_id.as_deref(), Some("corr-1"));
        }
        assert_eq!(bench.under_way().await, 0);
    });
}

#[test]
fn b_167_a_delivery_is_known_by_its_event_and_target() {
    for_each_store(async |place| {
        let inventory = Context::default();
        inventory.fail_times(2, &Failure::retryable("not now"));
        let bench = Bench::open(&place, targets([inventory.target("inventory")])).await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        let _engine = bench.start().await;
        bench.publish(&id, &["inventory"]).await;
        bench.until(&id, "inventory", Status::Delivered).await;
        let given = inventory.given();
        let keys: Vec<&str> = given.iter().map(|one| one.idempotency_key.as_str()).collect();
        let expected = format!("pub:{id}:inventory");
        assert_eq!(keys, [&expected, &expected, &expected], "the same for every attempt");
        assert_eq!(given.iter().map(|one| one.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    });
}

#[test]
fn b_165_publishing_the_same_event_to_the_same_target_again_does_nothing() {
    for_each_store(async |place| {
        let (inventory, analytics) = (Context::default(), Context::default());
        let both = [inventory.target("inventory"), analytics.target("analytics")];
        let bench = Bench::open(&place, targets(both)).await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        let first = bench.publisher.publish(&id, "orders", ["inventory", "inventory"]).await.unwrap();
        assert_eq!(first.len(), 1, "a name twice is one target");
        let again = bench.publisher.publish(&id, "orders", ["inventory", "analytics"]).await.unwrap();
        assert_eq!(again.iter().map(|one| one.is_duplicate).collect::<Vec<_>>(), [true, false]);
        assert_eq!(again[0].publication_id, first[0].publication_id);
        let _engine = bench.start().await;
        bench.until(&id, "inventory", Status::Delivered).await;
        bench.until(&id, "analytics", Status::Delivered).await;
        bench.publish(&id, &["inventory", "analytics"]).await;
        assert_eq!(bench.under_way().await, 0);
        assert_eq!((inventory.given().len(), analytics.given().len()), (1, 1));
    });
}

#[test]
fn b_165_many_who_publish_the_same_at_once_publish_it_once() {
    for_each_store(async |place| {
        let inventory = Context::default();
        let bench = Bench::open(&place, targets([inventory.target("inventory")])).await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        let _engine = bench.start().await;
        let callers = (0..16).map(|_| bench.publisher.publish(&id, "orders", ["inventory"]));
        let answers = futures_util::future::join_all(callers).await;
        let fresh = answers.iter().filter(|one| !one.as_ref().unwrap()[0].is_duplicate).count();
        assert_eq!(fresh, 1);
        bench.until(&id, "inventory", Status::Delivered).await;
        assert_eq!(inventory.given().len(), 1);
    });
}

#[test]
fn b_169_a_failed_attempt_is_counted_and_the_publication_stays_pending() {
    for_each_store(async |place| {
        let inventory = Context::failing(Failure::retryable("not now"));
        let retry = Retry { max_retries: 5, initial_backoff_ms: 60_000, base: 2.0 };
        let bench = Bench::open(&place, Targets::new(retry).with(inventory.target("inventory"))).await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        let _engine = bench.start().await;
        bench.publish(&id, &["inventory"]).await;
        let counted = async {
            while bench.publication(&id, "inventory").await.attempt_count == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, counted).await.expect("it is tried");
        let publication = bench.publication(&id, "inventory").await;
        assert_eq!((publication.status, publication.attempt_count), (Status::Pending, 1));
        assert_eq!(publication.error.as_deref(), Some("temporaryServiceUnavailable: not now"));
        let item = bench.work.status(&publication.work_id.unwrap()).await.unwrap().unwrap();
        let wait_ms = item.due_at.unwrap() - item.enqueued_at;
        assert!((29_000..100_000).contains(&wait_ms), "waits with backoff and jitter: {wait_ms} ms");
        assert_eq!(bench.letters("inventory").await.len(), 0);
        let pending = PublicationFilter { status: Some(Status::Pending), ..PublicationFilter::default() };
        assert_eq!(
            shown(&bench.publisher.list(pending, 10).await.unwrap()),
            [("inventory", Status::Pending, 1)]
        );
    });
}

#[test]
fn b_170_the_sixth_failure_is_the_last_and_makes_a_dead_letter() {
    for_each_store(async |place| {
        let inventory = Context::failing(Failure::retryable("down"));
        let bench = Bench::open(&place, targets([inventory.target("inventory")])).await;
        let id = bench.event("OrderSubmitted", &json!({ "orderId": "ord-1" })).await;
        let _engine = bench.start().await;
        bench.publish(&id, &["inventory"]).await;
        let dead = bench.until(&id, "inventory", Status::DeadLetter).await;
        assert_eq!((inventory.given().len(), dead.attempt_count), (6, 6), "5 retries are 6 executions");
        assert_eq!(dead.error.as_deref(), Some("temporaryServiceUnavailable: down"));
        assert_eq!(bench.under_way().await, 0, "no more jobs");
        let letters = bench.letters("inventory").await;
        assert_eq!(letters.len(), 1);
        assert_eq!(
            (letters[0].event_id.as_str(), letters[0].error.as_str()),
            (&*id, "temporaryServiceUnavailable: down")
        );
        assert_eq!((letters[0].attempt_count, letters[0].retry_count), (6, 0));
        let history = bench.publisher.attempts_of(&letters[0].publication_id).await.unwrap();
        let numbers: Vec<u32> = history.iter().map(|one| one.attempt).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6], "every failure is kept");
        assert!(
            history.iter().all(|one| one.work_id == letters[0].work_id && one.failure.message() == "down")
        );
    });
}

#[test]
fn b_170_a_target_without_retries_has_one_execution() {
    for_each_store(async |place| {
        let (once, thrice) =
            (Context::failing(Failure::retryable("x")), Context::failing(Failure::retryable("x")));
        let registered = Targets::new(at_once(0))
            .with(once.target("once"))
            .with(thrice.target("thrice").retry(at_once(2)));
        let bench = Bench::open(&place, registered).await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        let _engine = bench.start().await;
        bench.publish(&id, &["once", "thrice"]).await;
        bench.until(&id, "once", Status::DeadLetter).await;
        bench.until(&id, "thrice", Status::DeadLetter).await;
        assert_eq!((once.given().len(), thrice.given().len()), (1, 3));
    });
}

#[test]
fn b_171_b_175_a_status_tells_of_each_target_and_one_that_fails_affects_no_other() {
    for_each_store(async |place| {
        let (inventory, notifications) = (Context::default(), Context::default());
        let analytics = Context::failing(Failure::new(Class::ValidationError, "not like this"));
        let three = [
            inventory.target("inventory"),
            notifications.target("notifications"),
            analytics.target("analytics"),
        ];
        let bench = Bench::open(&place, targets(three)).await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        let _engine = bench.start().await;
        bench.publish(&id, &["inventory", "notifications", "analytics"]).await;
        for (target, status) in [
            ("inventory", Status::Delivered),
            ("notifications", Status::Delivered),
            ("analytics", Status::Failed),
        ] {
            bench.until(&id, target, status).await;
        }
        let status = bench.publisher.status(&id).await.unwrap();
        assert_eq!(
            shown(&status),
            [
                ("analytics", Status::Failed, 1),
                ("inventory", Status::Delivered, 1),
                ("notifications", Status::Delivered, 1)
            ]
        );
        assert_eq!(analytics.given().len(), 1, "what fails for good is not tried again");
        assert_eq!(bench.publisher.status("evt-unknown").await.unwrap(), []);
    });
}

#[test]
fn b_168_a_cancelled_delivery_is_failed_and_can_be_tried_again() {
    for_each_store(async |place| {
        let inventory = Context::default();
        let bench = Bench::open(&place, targets([inventory.target("inventory")])).await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        bench.publish(&id, &["inventory"]).await;
        let work_id = bench.publication(&id, "inventory").await.work_id.unwrap();
        assert_eq!(bench.work.cancel(&work_id).await.unwrap(), Canceled::AtOnce);
        let failed = bench.publication(&id, "inventory").await;
        assert_eq!((failed.status, failed.error.as_deref()), (Status::Failed, Some("canceled")));
        let _engine = bench.start().await;
        bench.publisher.retry_letter(&id, "inventory").await.unwrap();
        bench.until(&id, "inventory", Status::Delivered).await;
    });
}

#[test]
fn b_172_a_retry_needs_nothing_but_the_row() {
    for_each_store(async |place| {
        let inventory = Context::failing(Failure::permanent("no"));
        let bench = Bench::open(&place, targets([inventory.target("inventory")])).await;
        let id = bench.event("OrderSubmitted", &json!({ "secret": "s" })).await;
        let _engine = bench.start().await;
        bench.publish(&id, &["inventory"]).await;
        bench.until(&id, "inventory", Status::Failed).await;
        bench.log.erase(mainstay_events::Erasure::of_event(&id).by("test").because("asked")).await.unwrap();
        bench.work.purge_letters(i64::MAX).await.unwrap();
        inventory.fail(None);
        bench.publisher.retry_letter(&id, "inventory").await.unwrap();
        bench.until(&id, "inventory", Status::Delivered).await;
        assert_eq!(inventory.given().last().unwrap().event.data.get(), r#"{"secret":"s"}"#);
    });
}

#[test]
fn a_handler_of_this_process_is_given_an_event_exactly_once() {
    for_each_store(async |place| {
        let handler = Target::handler("inventory", async |tx: Tx, delivery: Delivery| {
            let sql = "INSERT INTO reserved (event_id) VALUES ($1)";
            tx.execute(sql, params![&delivery.event.event_id]).await?;
            match delivery.attempt {
                1 => Err(StoreError::application("not yet")),
                _ => Ok(()),
            }
        });
        let bench = Bench::open(&place, targets([handler])).await;
        let create = async |tx: Tx| tx.execute("CREATE TABLE reserved (event_id TEXT NOT NULL)", &[]).await;
        bench.store.transact(create).await.unwrap();
        let _engine = bench.start().await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        bench.publish(&id, &["inventory"]).await;
        let delivered = bench.until(&id, "inventory", Status::Delivered).await;
        assert_eq!(delivered.attempt_count, 2);
        let count = async |tx: Tx| tx.query_one("SELECT count(*) FROM reserved", &[]).await?.get::<u64>(0);
        assert_eq!(bench.store.read(count).await.unwrap(), 1, "the first one's row is gone with it");
    });
}

#[test]
fn unknown_targets_and_events_are_refused_and_change_nothing() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, targets([Context::default().target("inventory")])).await;
        let id = bench.event("OrderSubmitted", &json!(1)).await;
        let code = async |id: &str, source: &str, targets: &[&str]| {
            bench.publisher.publish(id, source, targets).await.unwrap_err().code()
        };
        assert_eq!(code(&id, "orders", &["inventory", "nowhere"]).await, "UNKNOWN_TARGET");
        assert_eq!(code("evt-unknown", "orders", &["inventory"]).await, "EVENT_NOT_FOUND");
        assert_eq!(code(&id, "orders", &[]).await, "FLOW_INVALID");
        assert_eq!(code(&id, "or ders", &["inventory"]).await, "FLOW_INVALID");
        assert_eq!(code(&id, "", &["inventory"]).await, "FLOW_INVALID");
        let large = PublicEvent::new("evt", "Large", &"x".repeat(70_000)).unwrap();
        let large = bench.publisher.publish_event(large, "orders", ["inventory"]).await;
        assert_eq!(large.unwrap_err().code(), "FLOW_INVALID");
        bench.log.erase(mainstay_events::Erasure::of_event(&id).by("test").because("asked")).await.unwrap();
        assert_eq!(code(&id, "orders", &["inventory"]).await, "FLOW_INVALID", "it has nothing to say");
        assert_eq!(bench.publisher.list(PublicationFilter::default(), 10).await.unwrap(), []);
        assert_eq!(bench.under_way().await, 0);
    });
}

#[test]
fn publications_are_listed_by_target_and_status_in_pages() {
    for_each_store(async |place| {
        let (inventory, analytics) = (Context::default(), Context::failing(Failure::permanent("no")));
        let both = [inventory.target("inventory"), analytics.target("analytics")];
        let bench = Bench::open(&place, targets(both)).await;
        let _engine = bench.start().await;
        for number in 0..7 {
            let id = bench.event("OrderSubmitted", &json!(number)).await;
            bench.publish(&id, &["inventory", "analytics"]).await;
            bench.until(&id, "inventory", Status::Delivered).await;
            bench.until(&id, "analytics", Status::Failed).await;
        }
        let count = async |target: Option<&str>, status: Option<Status>| {
            let (mut count, mut after) = (0, None);
            loop {
                let filter = PublicationFilter { target: target.map(str::to_owned), status, after };
                let page = bench.publisher.list(filter, 3).await.unwrap();
                count += page.len();
                after = page.last().map(|last| last.publication_id.clone());
                if page.len() < 3 {
                    return count;
                }
            }
        };
        assert_eq!(count(None, None).await, 14);
        assert_eq!(count(Some("inventory"), None).await, 7);
        assert_eq!(count(None, Some(Status::Failed)).await, 7);
        assert_eq!(count(Some("inventory"), Some(Status::Failed)).await, 0);
        assert_eq!(count(Some("analytics"), Some(Status::Failed)).await, 7);
    });
}
