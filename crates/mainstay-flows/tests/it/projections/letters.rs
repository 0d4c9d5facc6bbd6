//! Dead letters of projections: items 214 to 221.

use super::support::{Bad, Bench, PATIENCE, at_once, components, noting, noting_unless, until};
use mainstay_core::trace::TraceContext;
use mainstay_events::{Erasure, Event, NewEvent};
use mainstay_flows::projections::failures::{LetterFilter, LetterStatus, MAX_PAYLOADS_BYTES};
use mainstay_flows::projections::{By, Model};
use mainstay_store::Tx;
use mainstay_testkit::stores::{Kind, for_each_kind, for_each_store};
use mainstay_testkit::time::VirtualTime;
use mainstay_work::{Call, Failure, Functions, RETRIER_POOL, State};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn pending(projection: &str) -> LetterFilter {
    LetterFilter {
        projection: Some(projection.to_owned()),
        status: Some(LetterStatus::Pending),
        ..LetterFilter::default()
    }
}

#[test]
fn b_214_215_an_event_whose_attempts_are_used_up_becomes_a_pending_letter() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![noting_unless("a", &bad)]).await;
        let trace = TraceContext::from_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .unwrap();
        let events = [
            NewEvent::new("Noted", &"fine").unwrap(),
            NewEvent::new("Noted", &"bad").unwrap().correlation("corr-123").trace(trace.clone()),
            NewEvent::new("Noted", &"fine").unwrap(),
        ];
        let appended = bench.log.append(mainstay_events::Append::new(events)).await.unwrap();
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        assert_eq!(bench.noted("a").await, [1, 3]);
        let letter = bench.projections.letter("a", &appended.events[1].event_id).await.unwrap();
        assert_eq!((letter.status, letter.error.as_str()), (LetterStatus::Pending, "cannot take bad"));
        assert_eq!((letter.position, letter.retry_count, letter.correlation_id.as_str()), (2, 0, "corr-123"));
        assert_eq!(letter.trace_context.map(|found| found.trace_id), Some(trace.trace_id));
        assert_eq!(letter.payload.map(|payload| payload.get().to_owned()), Some("\"bad\"".to_owned()));
        let filter = LetterFilter { correlation_id: Some("corr-123".to_owned()), ..LetterFilter::default() };
        let listed = bench.projections.letters(filter, 10).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].payload.as_ref().map(|payload| payload.get()), Some("\"bad\""));
        projecting.stop(PATIENCE).await;
    });
}

/// Letters with no event that can be read: for counting.
const LETTERS: &str = "INSERT INTO mainstay_projection_failures (projection, event_id, generation, position, event_type, \
     correlation_id, is_poison, status, attempts, error, failed_at, retry_count) VALUES \
     ('orderSummary', 'e1', 1, 1, 'T', 'c', 0, 'pending', 3, 'x', 10, 0), \
     ('orderSummary', 'e2', 1, 2, 'T', 'c', 0, 'pending', 3, 'x', 20, 0), \
     ('orderSummary', 'e3', 1, 3, 'T', 'c', 0, 'pending', 3, 'x', 30, 0), \
     ('orderSummary', 'e4', 1, 4, 'T', 'c', 0, 'resolved', 3, 'x', 1, 0), \
     ('orderSummary', 'e5', 1, 5, 'T', 'c', 0, 'resolved', 3, 'x', 2, 0), \
     ('productCatalog', 'e1', 1, 1, 'T', 'c', 0, 'pending', 3, 'x', 40, 0), \
     ('productCatalog', 'e2', 1, 2, 'T', 'c', 0, 'pending', 3, 'x', 50, 0), \
     ('productCatalog', 'e3', 1, 3, 'T', 'c', 0, 'pending', 3, 'x', 60, 0)";

#[test]
fn b_217_letters_are_counted_by_projection_and_status() {
    for_each_store(async |place| {
        let bad = Bad::default();
        let definitions = vec![noting_unless("orderSummary", &bad), noting_unless("productCatalog", &bad)];
        let bench = Bench::open(&place, definitions).await;
        bench.store.transact(async |tx| tx.execute(LETTERS, &[]).await).await.unwrap();
        let stats = bench.projections.letter_stats().await.unwrap();
        let by: Vec<_> =
            stats.by_projection_and_status.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        let expected =
            [("orderSummary:pending", 3), ("orderSummary:resolved", 2), ("productCatalog:pending", 3)];
        assert_eq!((stats.total, by), (8, expected.to_vec()));
        assert_eq!(stats.oldest_pending, Some(10));
        // Pages do not overlap, over all projections.
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let filter = LetterFilter { after: after.take(), ..LetterFilter::default() };
            let page = bench.projections.letters(filter, 3).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some((last.position, last.projection_name.clone()));
            seen.extend(page);
        }
        assert_eq!(seen.len(), 8);
        assert_eq!(bench.projections.bulk_ignore("productCatalog", Some(2)).await.unwrap(), 2);
        let stats = bench.projections.letter_stats().await.unwrap();
        assert_eq!(stats.by_projection_and_status["productCatalog:ignored"], 2);
    });
}

#[test]
fn b_218_bulk_retry_takes_no_more_than_its_limit() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![noting_unless("a", &bad)]).await;
        bench.append("Noted", &["bad"; 10]).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        bad.mend();
        assert_eq!(bench.projections.bulk_retry("a", Some(5)).await.unwrap(), 5);
        let stats = bench.projections.letter_stats().await.unwrap().by_projection_and_status;
        assert_eq!((stats["a:retrying"], stats["a:pending"]), (5, 5));
        assert_eq!(bench.work.depth("projectionPool").await.unwrap().pending, 5);
        let all = bench.projections.letters(LetterFilter::default(), 100).await.unwrap();
        let begun = all.iter().filter(|letter| letter.retry_started_at.is_some());
        assert_eq!(begun.count(), 5);
        let engine = bench.work.start().await.unwrap();
        until("those are applied", async || bench.noted("a").await == [1, 2, 3, 4, 5]).await;
        assert_eq!(bench.projections.retry_all(LetterStatus::Pending, None).await.unwrap(), 5);
        until("the others too", async || bench.noted("a").await.len() == 10).await;
        let stats = bench.projections.letter_stats().await.unwrap().by_projection_and_status;
        assert_eq!(stats["a:resolved"], 10);
        assert_eq!(bench.projections.retry_all(LetterStatus::Pending, None).await.unwrap(), 0);
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_216_219_221_a_letter_that_is_tried_again_is_resolved_or_pending_again() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![noting_unless("a", &bad)]).await;
        let ids = bench.append("Noted", &["bad", "fine"]).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        let work = bench.projections.retry_letter("a", &ids[0]).await.unwrap();
        assert_eq!(bench.projections.letter("a", &ids[0]).await.unwrap().status, LetterStatus::Retrying);
        let twice = bench.projections.retry_letter("a", &ids[0]).await.unwrap_err();
        assert_eq!(twice.code(), "PROJECTION_LETTER_NOT_PENDING");
        let status = bench.work.status(&work).await.unwrap().unwrap();
        assert!(status.key.is_some_and(|key| key.starts_with("a:")));
        let engine = bench.work.start().await.unwrap();
        bench.work.wait_for(&work, PATIENCE).await.unwrap();
        let letter = bench.projections.letter("a", &ids[0]).await.unwrap();
        assert_eq!(letter.status, LetterStatus::Pending);
        assert!(letter.last_error.is_some_and(|error| error.contains("cannot take bad")));
        bad.mend();
        let work = bench.projections.retry_letter("a", &ids[0]).await.unwrap();
        bench.work.wait_for(&work, PATIENCE).await.unwrap();
        let letter = bench.projections.letter("a", &ids[0]).await.unwrap();
        assert_eq!((letter.status, letter.retry_count), (LetterStatus::Resolved, 2));
        assert!(letter.resolved_at.is_some());
        assert_eq!(bench.noted("a").await, [1, 2]);
        for gone in ["nobody", &ids[1]] {
            let unknown = bench.projections.retry_letter("a", gone).await.unwrap_err();
            assert!(unknown.to_string().starts_with("Dead letter not found"), "{unknown}");
        }
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_216_letters_are_ignored_and_purged() {
    for_each_store(async |place| {
        let options = components(place.options());
        let (store, time) = VirtualTime::open_with(&place, options).await.unwrap();
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::on(store, vec![noting_unless("a", &bad)]).await;
        let ids = bench.append("Noted", &["bad", "bad"]).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        bench.projections.ignore_letter("a", &ids[0]).await.unwrap();
        let again = bench.projections.ignore_letter("a", &ids[0]).await.unwrap_err();
        assert_eq!(again.code(), "PROJECTION_LETTER_NOT_PENDING");
        // Taken after all, when it comes again: that resolves it.
        bad.mend();
        bench.projections.set_checkpoint("a", 0, 0).await.unwrap();
        until("both are applied", async || bench.noted("a").await == [1, 2]).await;
        let filter = LetterFilter { status: Some(LetterStatus::Resolved), ..LetterFilter::default() };
        assert_eq!(bench.projections.letters(filter, 10).await.unwrap()[0].event_id, ids[1]);
        assert!(bench.projections.letters(pending("a"), 10).await.unwrap().is_empty());
        assert_eq!(bench.projections.purge_resolved(7).await.unwrap(), 0);
        time.advance(8 * 86_400_000).await.unwrap();
        assert_eq!(bench.projections.purge_resolved(7).await.unwrap(), 1);
        assert_eq!(bench.projections.letter_stats().await.unwrap().total, 1);
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn b_214_the_payload_of_a_letter_is_gone_when_its_event_is_erased() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![noting_unless("a", &bad)]).await;
        let ids = bench.append("Noted", &["bad"]).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        assert!(bench.projections.letter("a", &ids[0]).await.unwrap().payload.is_some());
        bench.log.erase(Erasure::of_event(&ids[0]).by("ada").because("asked to")).await.unwrap();
        let letter = bench.projections.letter("a", &ids[0]).await.unwrap();
        assert!(letter.payload.is_none(), "{letter:?}");
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn b_214_a_page_of_letters_has_no_more_payloads_than_fit() {
    for_each_kind(&[Kind::SqliteMemory], async |place| {
        let all = noting("a").retry(at_once(1)).each(async |_: Tx, _: Model, _: Event| {
            Err::<(), _>(mainstay_store::Error::application("never"))
        });
        let bench = Bench::open(&place, vec![all]).await;
        let text = "x".repeat(60_000);
        bench.append("Noted", &[text.as_str(); 150]).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        let page = bench.projections.letters(LetterFilter::default(), 150).await.unwrap();
        let carried = page.iter().filter_map(|letter| letter.payload.as_ref());
        assert_eq!((page.len(), carried.count()), (150, MAX_PAYLOADS_BYTES / 60_002));
        let last = bench.projections.letter("a", &page[149].event_id).await.unwrap();
        assert!(last.payload.is_some());
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn b_216_all_letters_of_a_status_are_tried_again() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![noting_unless("a", &bad), noting_unless("b", &bad)]).await;
        let ids = bench.append("Noted", &["bad", "bad", "bad"]).await;
        let (projecting, engine) = bench.start().await;
        bench.caught_up("a").await;
        bench.caught_up("b").await;
        for projection in ["a", "b"] {
            bench.projections.ignore_letter(projection, &ids[0]).await.unwrap();
        }
        bad.mend();
        for status in [LetterStatus::Retrying, LetterStatus::Resolved] {
            let refused = bench.projections.retry_all(status, None).await.unwrap_err();
            assert_eq!(refused.code(), "FLOW_INVALID");
        }
        assert_eq!(bench.projections.retry_all(LetterStatus::Ignored, None).await.unwrap(), 2);
        for projection in ["a", "b"] {
            until("what was ignored is applied", async || bench.noted(projection).await == [1]).await;
        }
        // Of one projection and status.
        let wanted = LetterFilter { projection: Some("b".to_owned()), ..LetterFilter::default() };
        assert_eq!(bench.projections.retry_letters(wanted, Some(1)).await.unwrap(), 1);
        until("the oldest is applied", async || bench.noted("b").await == [1, 2]).await;
        assert_eq!(bench.noted("a").await, [1]);
        assert_eq!(bench.projections.retry_all(LetterStatus::Pending, None).await.unwrap(), 3);
        until("all are applied", async || {
            bench.noted("a").await.len() == 3 && bench.noted("b").await.len() == 3
        })
        .await;
        let unknown = LetterFilter { projection: Some("none".to_owned()), ..LetterFilter::default() };
        let unknown = bench.projections.retry_letters(unknown, None).await.unwrap_err();
        assert_eq!(unknown.code(), "UNKNOWN_PROJECTION");
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_216_221_a_letter_is_seen_to_by_hand() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let bench = Bench::open(&place, vec![noting_unless("a", &bad)]).await;
        let ids = bench.append("Noted", &["bad", "bad"]).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        let taken = bench.projections.prepare_letter("a", &ids[0]).await.unwrap();
        assert_eq!((taken.status, taken.retry_count), (LetterStatus::Retrying, 1));
        assert_eq!(taken.payload.as_ref().map(|payload| payload.get()), Some("\"bad\""));
        let run = taken.retry_run_id.unwrap();
        let twice = bench.projections.prepare_letter("a", &ids[0]).await.unwrap_err();
        assert_eq!(twice.code(), "PROJECTION_LETTER_NOT_PENDING");
        assert!(bench.projections.complete_letter(&run, Err("not yet".to_owned())).await.unwrap());
        let letter = bench.projections.letter("a", &ids[0]).await.unwrap();
        assert_eq!((letter.status, letter.last_error.as_deref()), (LetterStatus::Pending, Some("not yet")));
        // That run is over, and so is one that nobody knows.
        for gone in [run.as_str(), "retry_none"] {
            assert!(!bench.projections.complete_letter(gone, Ok(())).await.unwrap());
        }
        assert_eq!(bench.projections.letter("a", &ids[0]).await.unwrap().status, LetterStatus::Pending);
        let run = bench.projections.prepare_letter("a", &ids[0]).await.unwrap().retry_run_id.unwrap();
        for reason in [String::new(), "x".repeat(5_000)] {
            let refused = bench.projections.complete_letter(&run, Err(reason)).await.unwrap_err();
            assert_eq!(refused.code(), "FLOW_INVALID");
        }
        assert!(bench.projections.complete_letter(&run, Ok(())).await.unwrap());
        let letter = bench.projections.letter("a", &ids[0]).await.unwrap();
        assert_eq!((letter.status, letter.retry_count), (LetterStatus::Resolved, 2));
        assert!(letter.resolved_at.is_some());
        let other = bench.projections.letter("a", &ids[1]).await.unwrap();
        assert_eq!((other.status, other.retry_count), (LetterStatus::Pending, 0));
        let unknown = bench.projections.prepare_letter("a", "nobody").await.unwrap_err();
        assert!(unknown.to_string().starts_with("Dead letter not found"), "{unknown}");
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn b_220_221_a_letter_is_tried_again_through_the_retrier() {
    for_each_store(async |place| {
        let (bad, is_up) = (Bad::texts(&["bad"]), Arc::new(AtomicBool::new(false)));
        let up = is_up.clone();
        let functions = Functions::new().action("lookUp", move |_: Call, args: Value| {
            let is_up = up.load(Ordering::SeqCst);
            async move {
                assert!(args["projection"].is_string() && args["eventId"].is_string());
                if is_up { Ok("found") } else { Err(Failure::permanent("the service is gone")) }
            }
        });
        let store = components(place.options()).open().await.unwrap();
        let bench = Bench::with(store, vec![noting_unless("a", &bad)], functions).await;
        let (projecting, engine) = bench.start().await;
        let trace =
            TraceContext { trace_id: "trace-abc".into(), span_id: "span-001".into(), parent_span_id: None };
        let appended = bench.log.append(NewEvent::new("Noted", &"bad").unwrap().trace(trace)).await.unwrap();
        let ids = [appended.events[0].event_id.clone()];
        bench.caught_up("a").await;
        bench.work.pause(RETRIER_POOL).await.unwrap();
        let run = bench.projections.run_letter("a", &ids[0], Some("lookUp")).await.unwrap();
        let item = async |tx: Tx| tx.query_one("SELECT item FROM mainstay_work", &[]).await?.get::<String>(0);
        let item: Value = serde_json::from_str(&bench.store.read(item).await.unwrap()).unwrap();
        let retry = &item["retry"];
        // The first try and five retries.
        assert_eq!(
            (&retry["initialBackoffMs"], &retry["base"], &retry["maxAttempts"]),
            (&json!(1_000), &json!(2.0), &json!(6)),
            "{item}"
        );
        assert_eq!(item["trace"]["traceId"], "trace-abc", "{item}");
        bench.work.resume(RETRIER_POOL).await.unwrap();
        let letter = bench.projections.letter("a", &ids[0]).await.unwrap();
        assert_eq!((letter.retry_run_id.as_ref(), letter.retry_count), (Some(&run), 1));
        assert!(letter.last_retry_at.is_some());
        bench.work.wait_for(&run, PATIENCE).await.unwrap();
        let letter = bench.projections.letter("a", &ids[0]).await.unwrap();
        assert_eq!(letter.status, LetterStatus::Pending);
        assert!(letter.last_error.is_some_and(|error| error.contains("the service is gone")));
        // By applying the event.
        bad.mend();
        let run = bench.projections.run_letter("a", &ids[0], None).await.unwrap();
        assert_eq!(bench.work.wait_for(&run, PATIENCE).await.unwrap().state, State::Completed);
        let letter = bench.projections.letter("a", &ids[0]).await.unwrap();
        assert_eq!((letter.status, letter.retry_count), (LetterStatus::Resolved, 2));
        assert_eq!(bench.noted("a").await, [1]);
        let unknown = bench.projections.run_letter("a", "nobody", None).await.unwrap_err();
        assert!(unknown.to_string().starts_with("Dead letter not found"), "{unknown}");
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_225_227_an_event_is_traced_to_the_read_models_that_it_is_in() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let definitions = vec![
            noting_unless("all", &Bad::default()),
            noting_unless("picky", &bad).on(["Wanted"]),
            noting_unless("paused", &Bad::default()),
        ];
        let bench = Bench::open(&place, definitions).await;
        bench.projections.pause("paused").await.unwrap();
        let projecting = bench.projections.start();
        let events =
            ["fine", "bad"].map(|text| NewEvent::new("Wanted", &text).unwrap().correlation("corr-123"));
        bench.log.append(mainstay_events::Append::new(events)).await.unwrap();
        // Later events do not hide what the earlier ones have done.
        bench.append("Other", &["x"; 5]).await;
        bench.caught_up("all").await;
        bench.caught_up("picky").await;
        let found =
            bench.log.read(&mainstay_events::Selection::all().correlated("corr-123"), 10).await.unwrap();
        let updates = bench.projections.updates(&found.events).await.unwrap();
        let told: Vec<(&str, &str)> =
            updates.iter().map(|one| (one.projection_name.as_str(), one.event_id.as_str())).collect();
        let (first, second) = (found.events[0].id(), found.events[1].id());
        assert_eq!(told, [("all", first), ("picky", first), ("all", second)]);
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn a_lane_leaves_the_letters_of_other_lanes_alone() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let by = By::custom(|event| event.data().unwrap_or_default().to_owned());
        let lanes = noting_unless("lanes", &bad).retry(at_once(1)).partitioned(2, by);
        let bench = Bench::open(&place, vec![lanes]).await;
        let ids = bench.append("Noted", &["a", "b", "c", "d", "bad", "a", "b", "c", "d"]).await;
        let running = bench.start().await;
        bench.caught_up("lanes").await;
        for lane in [0, 1] {
            bench.projections.set_checkpoint("lanes", lane, 0).await.unwrap();
            bench.caught_up("lanes").await;
            let letter = bench.projections.letter("lanes", &ids[4]).await.unwrap();
            assert_eq!(letter.status, LetterStatus::Pending, "lane {lane} went over it again");
        }
        running.0.stop(PATIENCE).await;
        running.1.stop(PATIENCE).await.unwrap();
    });
}
