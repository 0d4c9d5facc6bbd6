//! When the time of an intent is up.

use super::house::{House, MINUTE, components, submission};
use crate::delivery::support::{PATIENCE, data, until};
use mainstay_flows::delivery::intents::{Completion, IntentStatus, Intents, NewIntent, OnTimeout, Policy};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::VirtualTime;
use mainstay_work::bounds::MAX_LANES_OF_POOL;
use mainstay_work::{FunctionKind, LetterFilter, NewWork, RETRIER_POOL, TIMER_POOL};
use serde_json::json;
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(20);

fn brief(order: &str, on_timeout: OnTimeout) -> NewIntent {
    NewIntent::new("OrderSubmission", ("Order", order), "orders", MOMENT, on_timeout)
}

#[test]
fn b_181_b_182_an_intent_of_ten_minutes_with_a_timeout_of_five_is_abandoned() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let house = House::on(store).await;
        let abandoned = submission("1", OnTimeout::abandon().handler("handle"));
        let key = house.intents.record(abandoned.metadata(&7).unwrap()).await.unwrap().intent_key;
        let young = NewIntent::new("Other", ("Order", "1"), "orders", 30 * MINUTE, OnTimeout::abandon());
        let young = house.intents.record(young).await.unwrap().intent_key;
        time.advance(10 * 60_000).await.unwrap();
        let engine = house.work.start().await.unwrap();
        let handled = until(async || house.handled().await.pop()).await;
        let event = house.events().await.pop().unwrap();
        assert_eq!(event.event_type(), "OrderSubmissionAbandoned");
        let expected = json!({
            "intentKey": key, "operationType": "OrderSubmission", "status": "abandoned", "error": "timeout"
        });
        assert_eq!(data(&event), expected);
        let intent = house.intents.get(&key).await.unwrap();
        assert_eq!((intent.status, intent.error.as_deref()), (IntentStatus::Abandoned, Some("timeout")));
        assert_eq!((&handled.intent_key, handled.policy, handled.timeouts), (&key, Policy::Abandon, 1));
        assert_eq!(handled.metadata.unwrap().get(), "7");
        assert_eq!(house.intents.get(&young).await.unwrap().status, IntentStatus::Pending);
        // Whoever completes it now is told.
        let late = house.intents.complete(Completion::success(&key)).await.unwrap_err();
        assert_eq!(late.code(), "INTENT_ALREADY_ENDED");
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_182_an_alert_calls_the_handler_once_and_the_intent_goes_on() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        let engine = house.work.start().await.unwrap();
        let key =
            house.intents.record(brief("1", OnTimeout::alert().handler("handle"))).await.unwrap().intent_key;
        let handled = until(async || house.handled().await.pop()).await;
        assert_eq!(handled.policy, Policy::Alert);
        let intent = house.intents.get(&key).await.unwrap();
        assert_eq!((intent.status, intent.timeouts), (IntentStatus::Pending, 1));
        assert_eq!(house.timers().await, 0);
        house.intents.complete(Completion::success(&key)).await.unwrap();
        assert_eq!(house.types().await, ["OrderSubmissionStarted", "OrderSubmitted"]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_182_a_retry_calls_the_handler_again_and_again_and_then_the_intent_is_abandoned() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        let engine = house.work.start().await.unwrap();
        let key = house.intents.record(brief("1", OnTimeout::retry("handle", 3))).await.unwrap().intent_key;
        until(async || {
            let intent = house.intents.get(&key).await.unwrap();
            (intent.status == IntentStatus::Abandoned).then_some(())
        })
        .await;
        let handled = until(async || Some(house.handled().await).filter(|handled| handled.len() >= 3)).await;
        let mut timeouts: Vec<u32> = handled.iter().map(|handled| handled.timeouts).collect();
        timeouts.sort_unstable();
        assert_eq!(timeouts, [1, 2, 3]);
        assert_eq!(house.types().await, ["OrderSubmissionStarted", "OrderSubmissionAbandoned"]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_183_timers_of_an_intent_that_has_ended_change_nothing_and_succeed() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        let done = house
            .intents
            .record(brief("1", OnTimeout::abandon().handler("handle")))
            .await
            .unwrap()
            .intent_key;
        house.intents.complete(Completion::success(&done)).await.unwrap();
        let alerted =
            house.intents.record(brief("2", OnTimeout::alert().handler("handle"))).await.unwrap().intent_key;
        // Many timers for each, and one for an intent that nobody knows.
        let mut timers = Vec::new();
        for key in [&done, &done, &alerted, &alerted, &alerted, &"nobody".to_owned()] {
            let timer = json!({ "intentKey": key, "number": 0 });
            timers.push(NewWork::platform(TIMER_POOL, "mainstay.intent.timeout", &timer).unwrap());
        }
        let timers = house.work.enqueue_all(timers).await.unwrap();
        let engine = house.work.start().await.unwrap();
        for timer in timers {
            let status = house.work.wait_for(&timer.work_id, PATIENCE).await.unwrap();
            assert_eq!(status.native, mainstay_work::Native::Success);
        }
        until(async || (house.timers().await == 0).then_some(())).await;
        until(async || house.handled().await.pop()).await;
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!(house.handled().await.len(), 1, "one alert");
        assert_eq!(house.intents.get(&alerted).await.unwrap().timeouts, 1);
        assert_eq!(house.intents.get(&done).await.unwrap().status, IntentStatus::Completed);
        assert_eq!(
            house.types().await,
            ["OrderSubmissionStarted", "OrderSubmitted", "OrderSubmissionStarted"]
        );
        assert!(house.work.letters(LetterFilter::default(), 10).await.unwrap().is_empty());
    });
}

#[test]
fn an_intent_ends_no_sooner_than_its_time_whatever_timers_there_are() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        let new =
            NewIntent::new("OrderSubmission", ("Order", "1"), "orders", 60 * MINUTE, OnTimeout::abandon());
        let key = house.intents.record(new).await.unwrap().intent_key;
        let timer = json!({ "intentKey": key, "number": 0 });
        let timer = NewWork::platform(TIMER_POOL, "mainstay.intent.timeout", &timer).unwrap();
        let forged = house.work.enqueue(timer).await.unwrap();
        let own = house.work.pending(TIMER_POOL, 10).await.unwrap();
        let own = own.iter().find(|item| item.work_id != forged.work_id).unwrap().work_id.clone();
        house.work.run_now(&own).await.unwrap();
        let engine = house.work.start().await.unwrap();
        for work_id in [&forged.work_id, &own] {
            let status = house.work.wait_for(work_id, PATIENCE).await.unwrap();
            assert_eq!(status.native, mainstay_work::Native::Success);
        }
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!(house.intents.get(&key).await.unwrap().status, IntentStatus::Pending);
        assert!(house.timers().await > 0, "its timer is set again");
    });
}

#[test]
fn the_handler_of_an_intent_is_no_function_of_the_platform() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        for name in ["mainstay.publication.ended", "MAINSTAY.x", " Mainstay.x "] {
            let new = brief("1", OnTimeout::abandon().handler(name));
            let error = house.intents.record(new).await.unwrap_err();
            assert_eq!(error.code(), "NAME_RESERVED", "{name:?}: {error}");
        }
        assert_eq!(house.timers().await, 0);
        assert!(house.types().await.is_empty());
    });
}

/// Completions and timers of the same intents, at the same time: each intent has one end, and every caller knows which.
#[test]
fn b_183_of_a_completion_and_a_timer_at_once_one_is_first_and_the_other_is_told() {
    for_each_store(async |place| {
        let house = House::open(place.options()).await;
        let engine = house.work.start().await.unwrap();
        let mut racing = tokio::task::JoinSet::new();
        for number in 0..60_u64 {
            let intents = house.intents.clone();
            let new = brief(&number.to_string(), OnTimeout::abandon());
            let key = intents.record(new).await.unwrap().intent_key;
            racing.spawn(async move {
                tokio::time::sleep(MOMENT.mul_f64(0.8 + (number % 10) as f64 / 20.0)).await;
                match intents.complete(Completion::success(&key)).await {
                    Ok(completed) => {
                        assert!(!completed.is_duplicate);
                        (key, IntentStatus::Completed)
                    }
                    Err(error) => {
                        assert_eq!(error.code(), "INTENT_ALREADY_ENDED");
                        (key, IntentStatus::Abandoned)
                    }
                }
            });
        }
        let told = racing.join_all().await;
        until(async || (house.timers().await == 0).then_some(())).await;
        engine.stop(PATIENCE).await.unwrap();
        let types = house.types().await;
        for (key, status) in &told {
            assert_eq!(house.intents.get(key).await.unwrap().status, *status, "{key}");
        }
        let of = |name: &str| types.iter().filter(|one| *one == name).count();
        let abandoned = told.iter().filter(|(_, status)| *status == IntentStatus::Abandoned).count();
        println!("{}: {abandoned} of 60 were abandoned", place.kind());
        assert_eq!((of("OrderSubmitted"), of("OrderSubmissionAbandoned")), (60 - abandoned, abandoned));
    });
}

#[test]
fn intents_are_forgotten_a_week_after_they_ended_and_pending_ones_never() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let house = House::on(store).await;
        let pending = house.intents.record(submission("0", OnTimeout::alert())).await.unwrap().intent_key;
        let begin_and_end = async |tx: Tx, (intents, tens): (Intents, u32)| {
            for number in tens * 100..(tens + 1) * 100 {
                let new = submission(&number.to_string(), OnTimeout::alert());
                let key = intents.record_in(&tx, new).await?.intent_key;
                intents.complete_in(&tx, Completion::success(key)).await?;
            }
            Ok(())
        };
        for tens in 1..=6 {
            house.store.transact_with((house.intents.clone(), tens), begin_and_end).await.unwrap();
        }
        let count = async || {
            let count = async |tx: Tx| {
                tx.query_one("SELECT count(*) FROM mainstay_intents", &[]).await?.get::<i64>(0)
            };
            house.store.read(count).await.unwrap()
        };
        // Every timer forgets a few.
        let timers = async |most: u32| {
            for number in 0..most {
                house.intents.record(brief(&format!("t{number}"), OnTimeout::alert())).await.unwrap();
            }
            time.advance(1_000).await.unwrap();
            let engine = house.work.start().await.unwrap();
            until(async || (house.timers().await == 0).then_some(())).await;
            engine.stop(PATIENCE).await.unwrap();
        };
        time.advance(7 * 86_400_000 - 60_000).await.unwrap();
        timers(1).await;
        assert_eq!(count().await, 602);
        time.advance(120_000).await.unwrap();
        timers(70).await;
        assert_eq!(count().await, 72);
        assert_eq!(house.intents.get(&pending).await.unwrap().status, IntentStatus::Pending);
    });
}

#[test]
fn a_handler_is_kept_while_an_intent_names_it_and_its_call_has_room() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let house = House::on(store).await;
        house.work.declare("remote", FunctionKind::Action).await.unwrap();
        house.intents.record(submission("1", OnTimeout::abandon().handler("remote"))).await.unwrap();
        assert_eq!(house.work.delete_function("remote").await.unwrap_err().code(), "WORK_NAME_IN_USE");
        // Callers fill the pool in which handlers are called.
        let hour = Duration::from_secs(3_600);
        house.work.declare("filler", FunctionKind::Action).await.unwrap();
        let filler = |priority: usize| {
            let new = NewWork::new(RETRIER_POOL, "filler", &()).unwrap().priority(priority as i16);
            new.run_after(hour)
        };
        // One lane is that of the handler.
        house.work.enqueue_all((1..MAX_LANES_OF_POOL).map(filler).collect()).await.unwrap();
        house.work.declare("late", FunctionKind::Action).await.unwrap();
        let no_room = house.intents.record(submission("2", OnTimeout::abandon().handler("late"))).await;
        assert_eq!(no_room.unwrap_err().code(), "WORK_NAMES_TOO_MANY");
        time.advance(10 * 60_000).await.unwrap();
        let engine = house.work.start().await.unwrap();
        until(async || {
            let waiting = house.work.pending(RETRIER_POOL, 1_000).await.unwrap();
            waiting.iter().any(|item| item.function == "remote").then_some(())
        })
        .await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn an_intent_ends_when_its_time_is_up_though_its_handler_is_gone() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let house = House::on(store.clone()).await;
        house.work.declare("remote", FunctionKind::Action).await.unwrap();
        let intent =
            house.intents.record(submission("1", OnTimeout::abandon().handler("remote"))).await.unwrap();
        // As an earlier version deleted it, under an intent.
        let delete = async |tx: Tx| {
            tx.execute("DELETE FROM mainstay_lanes WHERE function = 'remote'", &[]).await?;
            tx.execute("DELETE FROM mainstay_functions WHERE name = 'remote'", &[]).await
        };
        store.transact(delete).await.unwrap();
        // And one whose handler a caller named before names of the platform were reserved.
        let planted =
            house.intents.record(submission("2", OnTimeout::abandon().handler("handle"))).await.unwrap();
        let plant = async |tx: Tx| {
            let sql =
                "UPDATE mainstay_intents SET intent = replace(intent, '\"handle\"', '\"mainstay.append\"')";
            tx.execute(sql, &[]).await
        };
        store.transact(plant).await.unwrap();
        let house = House::on(store).await;
        time.advance(10 * 60_000).await.unwrap();
        let engine = house.work.start().await.unwrap();
        let letters = until(async || {
            let letters = house.work.letters(LetterFilter::default(), 10).await.unwrap();
            (letters.len() == 2).then_some(letters)
        })
        .await;
        let refused = letters.iter().find(|letter| letter.function == "mainstay.append").unwrap();
        assert!(refused.error.starts_with("NAME_RESERVED: "), "{}", refused.error);
        let refused = house.work.retry_letter(&refused.work_id).await.unwrap_err();
        assert_eq!(refused.code(), "NAME_RESERVED");
        let found = house.intents.get(&planted.intent_key).await.unwrap();
        assert_eq!(found.status, IntentStatus::Abandoned);
        let letter = letters.iter().find(|letter| letter.function == "remote").unwrap();
        assert_eq!((&*letter.function, &*letter.pool), ("remote", RETRIER_POOL));
        assert!(letter.error.starts_with("UNKNOWN_FUNCTION: "), "{}", letter.error);
        let found = house.intents.get(&intent.intent_key).await.unwrap();
        assert_eq!(found.status, IntentStatus::Abandoned);
        house.work.declare("remote", FunctionKind::Action).await.unwrap();
        house.work.retry_letter(&letter.work_id).await.unwrap();
        engine.stop(PATIENCE).await.unwrap();
    });
}
