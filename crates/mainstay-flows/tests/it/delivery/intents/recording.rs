//! Beginning and completing.

use super::house::{House, MINUTE, submission};
use crate::delivery::support::data;
use mainstay_flows::delivery::intents::{
    Completion, EventNames, IntentStatus, Intents, NewIntent, OnTimeout, Recorded,
};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::{START_MS, VirtualTime};
use serde_json::json;

#[test]
fn b_176_b_177_b_178_an_intent_is_an_event_a_row_and_a_timer_in_one_transaction() {
    for_each_store(async |place| {
        let options = super::house::components(place.options());
        let (store, _time) = VirtualTime::open_with(&place, options).await.unwrap();
        let house = House::on(store).await;
        let new = submission("ord-1", OnTimeout::abandon()).correlation("corr-7").causation("cmd-1");
        let new = new.metadata(&json!({ "total": 7 })).unwrap();
        let fails = async |tx: Tx, (intents, new): (Intents, NewIntent)| {
            intents.record_in(&tx, new).await?;
            Err::<Recorded, _>(mainstay_store::Error::application("no"))
        };
        house.store.transact_with((house.intents.clone(), new.clone()), fails).await.unwrap_err();
        assert_eq!((house.timers().await, house.log.head().await.unwrap()), (0, 0));
        let recorded = house.intents.record(new).await.unwrap();
        assert_eq!(recorded.intent_key, format!("OrderSubmission:Order:ord-1:{START_MS}"));
        assert_eq!(recorded.timeout_at, START_MS + 300_000);
        assert_eq!(house.timers().await, 1);
        let events = house.events().await;
        assert_eq!(events.len(), 1);
        let (event, stream) = (&events[0], events[0].stream().unwrap());
        assert_eq!(event.event_type(), "OrderSubmissionStarted");
        assert_eq!((stream.stream_type, stream.id), ("Order", "ord-1"));
        assert_eq!(event.id(), recorded.intent_event_id);
        assert_eq!(event.idempotency_key(), Some(&*format!("intent:{}", recorded.intent_key)));
        assert_eq!((event.context(), event.correlation_id()), (Some("orders"), "corr-7"));
        assert_eq!(event.causation_id(), Some("cmd-1"));
        assert_eq!(
            data(event),
            json!({
                "intentKey": recorded.intent_key, "operationType": "OrderSubmission", "timeoutMs": 300_000,
                "onTimeout": { "policy": "abandon" }, "metadata": { "total": 7 }
            })
        );
        let intent = house.intents.get(&recorded.intent_key).await.unwrap();
        assert_eq!((intent.status, intent.time_since_intent), (IntentStatus::Pending, 0));
    });
}

#[test]
fn b_179_b_180_a_completion_is_an_event_that_names_its_intent() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        let begin = async |operation: &str, order: &str| {
            let new = NewIntent::new(operation, ("Order", order), "orders", MINUTE, OnTimeout::alert());
            house.intents.record(new).await.unwrap()
        };
        let order = begin("OrderSubmission", "1").await;
        let completion = Completion::success(&order.intent_key).result(&json!({ "total": 7 })).unwrap();
        let completed = house.intents.complete(completion.clone()).await.unwrap();
        assert_eq!((completed.status, completed.is_duplicate), (IntentStatus::Completed, false));
        let event = house.events().await.pop().unwrap();
        assert_eq!(event.event_type(), "OrderSubmitted");
        assert_eq!(
            (event.id(), event.causation_id()),
            (&*completed.completion_event_id, Some(&*order.intent_event_id))
        );
        assert_eq!(event.correlation_id(), order.correlation_id);
        assert_eq!(event.idempotency_key(), Some(&*format!("completion:{}:success", order.intent_key)));
        let expected = json!({
            "intentKey": order.intent_key, "operationType": "OrderSubmission", "status": "success", "result": { "total": 7 }
        });
        assert_eq!(data(&event), expected);
        let intent = house.intents.get(&order.intent_key).await.unwrap();
        assert_eq!(intent.completion_event_id, Some(completed.completion_event_id.clone()));
        assert!(intent.ended_at.is_some());
        // Completing it again in the same way changes nothing.
        let again = house.intents.complete(completion).await.unwrap();
        assert_eq!((again.is_duplicate, again.completion_event_id), (true, completed.completion_event_id));
        // The other ends, under the names of their operations.
        let payment = begin("PaymentProcessing", "2").await;
        house.intents.complete(Completion::failure(payment.intent_key, "declined")).await.unwrap();
        let stock = begin("StockReservation", "3").await;
        house.intents.complete(Completion::abandoned(stock.intent_key, "nobody wants it")).await.unwrap();
        let types = [
            "OrderSubmissionStarted",
            "OrderSubmitted",
            "PaymentProcessingStarted",
            "PaymentFailed",
            "ReservationRequested",
            "StockReservationAbandoned",
        ];
        assert_eq!(house.types().await, types);
        let named = submission("4", OnTimeout::alert()).names(EventNames::new("Begun", "Done", "Broken"));
        let key = house.intents.record(named).await.unwrap().intent_key;
        house.intents.complete(Completion::failure(key, "no")).await.unwrap();
        assert_eq!(house.types().await[6..], ["Begun", "Broken"]);
    });
}

#[test]
fn b_179_what_ended_otherwise_stays_and_whoever_is_late_is_told() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        let key = house.intents.record(submission("1", OnTimeout::abandon())).await.unwrap().intent_key;
        house.intents.complete(Completion::abandoned(&key, "gave up")).await.unwrap();
        for late in
            [Completion::success(&key), Completion::failure(&key, "x"), Completion::abandoned(&key, "y")]
        {
            let refused = house.intents.complete(late).await.unwrap_err();
            assert_eq!(refused.code(), "INTENT_ALREADY_ENDED", "{refused}");
            assert!(refused.to_string().contains("abandoned"), "{refused}");
        }
        assert_eq!(house.types().await, ["OrderSubmissionStarted", "OrderSubmissionAbandoned"]);
        for unknown in ["", "OrderSubmission:Order:1:7", "\0", &"x".repeat(600)] {
            let refused = house.intents.complete(Completion::success(unknown)).await.unwrap_err();
            assert_eq!(refused.code(), "INTENT_NOT_FOUND", "{refused}");
            assert_eq!(house.intents.get(unknown).await.unwrap_err().code(), "INTENT_NOT_FOUND");
        }
    });
}

#[test]
fn b_177_intents_of_one_moment_have_keys_of_their_own_and_one_that_says_when_it_began_is_recorded_once() {
    for_each_store(async |place| {
        let options = super::house::components(place.options());
        let (store, _time) = VirtualTime::open_with(&place, options).await.unwrap();
        let house = House::on(store).await;
        for number in 0..3 {
            let key = house.intents.record(submission("1", OnTimeout::alert())).await.unwrap().intent_key;
            assert_eq!(key, format!("OrderSubmission:Order:1:{}", START_MS + number));
        }
        let known = submission("2", OnTimeout::alert()).started_at_ms(1_000);
        let first = house.intents.record(known.clone()).await.unwrap();
        assert_eq!(first.intent_key, "OrderSubmission:Order:2:1000");
        let again = house.intents.record(known.clone()).await.unwrap();
        assert_eq!(again, Recorded { is_duplicate: true, ..first });
        let other = known.metadata("something else").unwrap();
        assert_eq!(house.intents.record(other).await.unwrap_err().code(), "INTENT_KEY_TAKEN");
        assert_eq!((house.log.head().await.unwrap(), house.timers().await), (4, 4));
    });
}

#[test]
fn b_280_an_intent_that_cannot_be_kept_is_refused_and_nothing_is_recorded() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        let new = |operation: &str, order: &str, timeout, on_timeout| {
            NewIntent::new(operation, ("Order", order), "orders", timeout, on_timeout)
        };
        let alert = OnTimeout::alert;
        let raw = |text: String| serde_json::value::RawValue::from_string(text).unwrap();
        let bad = [
            (new("", "1", MINUTE, alert()), "FLOW_INVALID"),
            (new("a\nb", "1", MINUTE, alert()), "FLOW_INVALID"),
            (new("Op", "", MINUTE, alert()), "FLOW_INVALID"),
            (new("Op", &"x".repeat(470), MINUTE, alert()), "FLOW_INVALID"),
            (new("Op", "1", std::time::Duration::ZERO, alert()), "FLOW_INVALID"),
            (new("Op", "1", MINUTE * 60 * 24 * 365 * 11, alert()), "FLOW_INVALID"),
            (new("Op", "1", MINUTE, OnTimeout { max_retries: Some(3), ..alert() }), "FLOW_INVALID"),
            (
                new("Op", "1", MINUTE, OnTimeout { max_retries: None, ..OnTimeout::retry("handle", 1) }),
                "FLOW_INVALID",
            ),
            (
                new("Op", "1", MINUTE, OnTimeout { handler: None, ..OnTimeout::retry("handle", 1) }),
                "FLOW_INVALID",
            ),
            (new("Op", "1", MINUTE, OnTimeout::retry("handle", 0)), "FLOW_INVALID"),
            (new("Op", "1", MINUTE, OnTimeout::retry("handle", 1_001)), "FLOW_INVALID"),
            (new("Op", "1", MINUTE, alert().handler("nobody")), "UNKNOWN_FUNCTION"),
            (new("Op", "1", MINUTE, alert()).started_at_ms(-1), "FLOW_INVALID"),
            (new("Op", "1", MINUTE, alert()).metadata(&"x".repeat(40_000)).unwrap(), "FLOW_INVALID"),
            (
                new("Op", "1", MINUTE, alert())
                    .metadata(&raw("[".repeat(30_000) + &"]".repeat(30_000)))
                    .unwrap(),
                "FLOW_INVALID",
            ),
            (
                new("Op", "1", MINUTE, alert()).metadata(&raw(r#""\u0000""#.to_owned())).unwrap(),
                "FLOW_INVALID",
            ),
            (new("Op", "1", MINUTE, alert()).correlation("x".repeat(300)), "FLOW_INVALID"),
        ];
        for (intent, code) in bad {
            let shown = format!("{intent:?}");
            let refused = house.intents.record(intent).await.expect_err(&shown);
            assert_eq!(refused.code(), code, "{shown}: {refused}");
        }
        assert_eq!((house.log.head().await.unwrap(), house.timers().await), (0, 0));
        let key = house.intents.record(new("Op", "1", MINUTE, alert())).await.unwrap().intent_key;
        let large = Completion::success(&key).result(&"x".repeat(70_000)).unwrap();
        assert_eq!(house.intents.complete(large).await.unwrap_err().code(), "PAYLOAD_TOO_LARGE");
        assert_eq!(house.intents.get(&key).await.unwrap().status, IntentStatus::Pending);
    });
}
