//! Ends of actions that become events: items 149 to 156.

use super::support::{Bench, CAUGHT, PATIENCE, POOL, Payment, data, until};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{LetterFilter, NewWork, OnComplete, RunOptions, WorkResult};
use serde_json::json;

#[test]
fn b_149_b_151_a_charge_that_succeeds_is_an_event_of_its_order_when_it_has_ended() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), 3).await;
        let engine = bench.work.start().await.unwrap();
        let work_id = bench.start("charge", &Payment::of("ord-123")).await;
        bench.ended(&work_id).await;
        // No later than the end: they are one commit.
        let events = bench.events().await;
        assert_eq!(events.len(), 1);
        let (event, stream) = (&events[0], events[0].stream().unwrap());
        assert_eq!(event.event_type(), "PaymentCompleted");
        assert_eq!((stream.stream_type, stream.id, stream.version), ("Order", "ord-123", 1));
        assert_eq!(data(event), json!({ "orderId": "ord-123", "chargeId": "ch-456", "note": null }));
        assert_eq!(event.idempotency_key(), Some("payment:ord-123"));
        assert_eq!(event.context(), Some("orders"));
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_152_a_charge_that_fails_or_is_cancelled_is_an_event_too() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), 3).await;
        let engine = bench.work.start().await.unwrap();
        let failed = bench.start("decline", &Payment::of("ord-1")).await;
        bench.ended(&failed).await;
        bench.work.pause(POOL).await.unwrap();
        let canceled = bench.start("charge", &Payment::of("ord-2")).await;
        bench.work.cancel(&canceled).await.unwrap();
        bench.ended(&canceled).await;
        let caught: Vec<_> =
            bench.events().await.iter().map(|event| (event.event_type().to_owned(), data(event))).collect();
        assert_eq!(caught.len(), 2);
        assert_eq!(caught[0].0, "PaymentFailed");
        assert!(caught[0].1["error"].as_str().unwrap().contains("card declined"), "{caught:?}");
        assert_eq!(
            caught[1],
            ("PaymentFailed".to_owned(), json!({ "orderId": "ord-2", "error": "canceled", "note": null }))
        );
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_153_a_version_conflict_is_tried_again_until_the_event_is_in() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), 1_000).await;
        let engine = bench.work.start().await.unwrap();
        let waits = Payment { expected: Some(1), ..Payment::of("ord-123") };
        let work_id = bench.start("charge", &waits).await;
        // The end is not held up by it.
        bench.ended(&work_id).await;
        assert!(bench.events().await.is_empty());
        bench.place("ord-123").await;
        let events = until(async || Some(bench.events().await).filter(|events| events.len() == 2)).await;
        assert_eq!(events[1].event_type(), "PaymentCompleted");
        assert_eq!(events[1].stream().unwrap().version, 2);
        assert!(bench.work.letters(LetterFilter::default(), 10).await.unwrap().is_empty());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_154_telling_an_end_again_succeeds_and_adds_nothing() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), 1).await;
        let engine = bench.work.start().await.unwrap();
        let payment = Payment { expected: Some(1), ..Payment::of("ord-123") };
        // The first end cannot be told yet and is a letter; meanwhile a second charge tells the same.
        bench.ended(&bench.start("charge", &payment).await).await;
        let letter = bench.letter().await;
        bench.place("ord-123").await;
        bench.ended(&bench.start("charge", &payment).await).await;
        assert_eq!(bench.events().await.len(), 2);
        let again = bench.work.retry_letter(&letter.work_id).await.unwrap();
        let status = bench.work.wait_for(&again, PATIENCE).await.unwrap();
        assert_eq!(status.native, mainstay_work::Native::Success);
        assert_eq!(bench.events().await.len(), 2);
        assert!(bench.work.letters(LetterFilter::default(), 10).await.unwrap().is_empty());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_151_a_result_that_no_action_has_is_not_recorded() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), 3).await;
        let engine = bench.work.start().await.unwrap();
        let payment = Payment::of("ord-123");
        let declined = bench.start("decline", &Payment::of("ord-1")).await;
        bench.ended(&declined).await;
        // The function of the outbox, enqueued with an invented result: of no item, of one that failed, and of itself.
        let return_value = serde_json::value::to_raw_value("ch-456").unwrap();
        let told = |work_id: &str, retry_of: Option<&str>| OnComplete {
            work_id: work_id.to_owned(),
            context: Some(payment.clone()),
            result: WorkResult::Success { return_value: return_value.clone() },
            attempts: 1,
            errors: Vec::new(),
            retry_of: retry_of.map(str::to_owned),
        };
        for told in [
            told("019a0000-0000-7000-8000-000000000000", None),
            told(&declined, None),
            told(&declined, Some(&declined)),
        ] {
            let forged = NewWork::new(POOL, CAUGHT, &told).unwrap();
            let forged = bench.work.enqueue(forged).await.unwrap().work_id;
            let status = bench.work.wait_for(&forged, PATIENCE).await.unwrap();
            assert_eq!(status.native, mainstay_work::Native::Failed);
        }
        // An item whose result its caller chooses, with the outbox as `onComplete`.
        let chosen = bench.start("echo", &payment).await;
        bench.ended(&chosen).await;
        let letters = until(async || {
            let letters = bench.work.letters(LetterFilter::default(), 10).await.unwrap();
            (letters.len() == 4).then_some(letters)
        });
        for letter in letters.await {
            let (kind, error) = (letter.kind.as_str(), letter.error.as_str());
            let refused = ["has not ended in this call", "records ends of"];
            assert!(refused.iter().any(|reason| error.contains(reason)), "{kind}: {error}");
        }
        let types: Vec<_> = bench.events().await.iter().map(|event| event.event_type().to_owned()).collect();
        assert_eq!(types, ["PaymentFailed"]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_155_what_cannot_be_appended_is_a_letter_with_its_whole_context_and_can_be_recovered() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), 2).await;
        let engine = bench.work.start().await.unwrap();
        let payment =
            Payment { expected: Some(1), note: Some("all of it".to_owned()), ..Payment::of("ord-123") };
        let work_id = bench.start("charge", &payment).await;
        let letter = bench.letter().await;
        assert_eq!((letter.kind.as_str(), letter.function.as_str()), ("onComplete", CAUGHT));
        assert_eq!(letter.attempts, 3, "two retries after the first try");
        assert!(letter.error.contains("stream Order/ord-123 is at version 0, not 1"), "{}", letter.error);
        let told: OnComplete<Payment> = serde_json::from_str(letter.args.get()).unwrap();
        assert_eq!((told.work_id, told.context.as_ref()), (work_id, Some(&payment)));
        assert!(
            matches!(told.result, WorkResult::Success { return_value } if return_value.get() == "\"ch-456\"")
        );
        // An operator puts right what was in the way.
        bench.place("ord-123").await;
        let again = bench.work.retry_letter(&letter.work_id).await.unwrap();
        bench.ended(&again).await;
        assert_eq!(bench.events().await.last().unwrap().event_type(), "PaymentCompleted");
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_155_b_147_a_key_that_stands_for_something_else_is_a_letter_at_once() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), 1_000).await;
        let engine = bench.work.start().await.unwrap();
        bench.ended(&bench.start("charge", &Payment::of("ord-123")).await).await;
        let other = Payment { note: Some("another charge".to_owned()), ..Payment::of("ord-123") };
        bench.ended(&bench.start("charge", &other).await).await;
        let letter = bench.letter().await;
        assert!(letter.error.contains("IDEMPOTENCY_CONFLICT"), "{}", letter.error);
        assert_eq!(letter.attempts, 1);
        assert_eq!(bench.events().await.len(), 1, "the first event is kept");
        let audits = async || {
            let count = async |tx: Tx| {
                tx.query_one("SELECT count(*) FROM mainstay_idempotency_audits", &[]).await?.get::<i64>(0)
            };
            Some(bench.store.read(count).await.unwrap()).filter(|count| *count > 0)
        };
        until(audits).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_155_what_no_event_can_be_made_of_is_a_letter_and_the_end_stands() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), 1_000).await;
        let engine = bench.work.start().await.unwrap();
        let work_id = bench.start("charge", &Payment::of("ord-nonsense")).await;
        bench.ended(&work_id).await;
        let letter = bench.letter().await;
        assert!(letter.error.contains("no event can be made of it"), "{}", letter.error);
        assert_eq!(letter.attempts, 1);
        // A context of another shape, and none at all.
        for context in [json!(7), json!(null)] {
            let new = NewWork::new("payments", "charge", "x").unwrap().on_complete(CAUGHT, &context).unwrap();
            let id = bench.work.enqueue(new).await.unwrap().work_id;
            bench.ended(&id).await;
        }
        let letters = until(async || {
            let letters = bench.work.letters(LetterFilter::default(), 10).await.unwrap();
            (letters.len() == 3).then_some(letters)
        });
        assert!(letters.await[..2].iter().all(|letter| letter.error.contains("context: ")));
        assert!(bench.events().await.is_empty());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_156_it_is_started_with_the_retrier() {
    for_each_store(async |place| {
        let bench = Bench::open(place.options(), 3).await;
        let engine = bench.work.start().await.unwrap();
        let context = serde_json::value::to_raw_value(&Payment::of("ord-7")).unwrap();
        let options = RunOptions {
            max_failures: 2,
            initial_backoff_ms: 1,
            on_complete: Some(CAUGHT.to_owned()),
            context: Some(context),
            ..RunOptions::default()
        };
        let run_id = bench.work.run("decline", "ord-7", options).await.unwrap();
        let status = bench.work.wait_for(&run_id, PATIENCE).await.unwrap();
        assert_eq!(status.attempts, 3);
        let events = bench.events().await;
        assert_eq!((events.len(), events[0].event_type()), (1, "PaymentFailed"));
        engine.stop(PATIENCE).await.unwrap();
    });
}
