//! Decisions that somebody else's has overtaken are made again.

use super::house::{Diary, House, rejected};
use mainstay_events::{Condition, NewEvent, Selection};
use mainstay_flows::commands::{
    Command, Commands, ConflictRetry, Decision, Handling, Outcome, Rejection, State,
};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use mainstay_work::{FunctionKind, LetterFilter, NewWork, Pool};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const SCOPE: &str = "tenant:t1:stock:lamp";
const PATIENCE: Duration = Duration::from_secs(20);

/// `Reserve` writes a row and an event in its scope; `Refuse` and `Fail` come to nothing; `Throw` fails once it is tried
/// again.
fn stock(diary: &Diary) -> Commands {
    let diary = diary.clone();
    let run = move |name: &'static str| {
        let diary = diary.clone();
        move |handling: Handling, id: u32| {
            diary.note(format!(
                "{name} at {} #{}",
                handling.scope_version().unwrap_or(0),
                handling.issued().attempt
            ));
            async move {
                let insert = "INSERT INTO orders (id, command) VALUES ($1, $2)";
                handling.tx().execute(insert, params![id, name]).await?;
                Ok(match name {
                    "Reserve" => Decision::success(id, [reserved(id)?]),
                    "Refuse" => return Err(Rejection::new("INSUFFICIENT", "not enough").into()),
                    "Fail" => Decision::failed("not enough", [reserved(id)?]),
                    _ if handling.issued().attempt == 0 => Decision::success(id, [reserved(id)?]),
                    _ => return Err(mainstay_store::Error::application("thrown")),
                })
            }
        }
    };
    ["Reserve", "Refuse", "Fail", "Throw"]
        .into_iter()
        .fold(Commands::new(), |commands, name| commands.on(name, run(name)))
}

fn reserved(id: u32) -> mainstay_store::Result<NewEvent> {
    Ok(NewEvent::new("StockReserved", &id)?.tag("item:lamp").tenant("t1"))
}

async fn open(place: &Place) -> House {
    let diary = Diary::default();
    let house = House::open_with(place, stock(&diary), diary).await;
    house.dispatcher.set_jitter(|| 1.0);
    house
}

/// Moves the scope on by so many versions.
async fn move_scope(house: &House, from: u64, to: u64) {
    for version in from..to {
        let event = NewEvent::new("StockAdded", &1).unwrap().tenant("t1").scope(SCOPE, version);
        house.log.append(event).await.unwrap();
    }
}

fn reserve(name: &str, expected: u64, retry: ConflictRetry) -> Command {
    Command::new(name, &1).unwrap().id("cmd-1").within(SCOPE, expected).retrying(retry)
}

/// Waits a long time, so that nothing happens by itself.
fn patient() -> ConflictRetry {
    ConflictRetry { initial_backoff_ms: 1_000_000, max_backoff_ms: 100_000_000, ..ConflictRetry::default() }
}

fn quick() -> ConflictRetry {
    ConflictRetry { initial_backoff_ms: 1, max_backoff_ms: 5, ..ConflictRetry::default() }
}

async fn args_of_retry(house: &House) -> serde_json::Value {
    let items = house.texts("SELECT item FROM mainstay_work").await;
    let items = items.iter().map(|item| serde_json::from_str::<serde_json::Value>(item).unwrap());
    let mut items = items.filter(|item| item["function"] == "mainstay.command.retry");
    items.next().unwrap()["args"].clone()
}

#[test]
fn b_061_the_defaults_are_those_of_the_platform() {
    let retry = ConflictRetry::default();
    assert_eq!(
        (retry.max_retries, retry.initial_backoff_ms, retry.base, retry.max_backoff_ms),
        (5, 100, 2.0, 30_000)
    );
}

#[test]
fn b_060_b_062_without_a_conflict_it_is_decided_once() {
    for_each_store(async |place| {
        let house = open(&place).await;
        move_scope(&house, 0, 5).await;
        let retry = patient().on_complete("told", &json!({ "order": 9 })).unwrap();
        let dispatched = house.dispatcher.dispatch(reserve("Reserve", 5, retry)).await.unwrap();
        assert_eq!(dispatched.outcome.status(), "success");
        assert_eq!(house.diary.entries(), ["Reserve at 5 #0"]);
        let pending = house.work.pending("dcbRetryPool", 10).await.unwrap();
        assert_eq!(pending.iter().map(|item| &*item.function).collect::<Vec<_>>(), ["told"], "no retry");
        assert_eq!(house.log.scope_version(&SCOPE.parse().unwrap()).await.unwrap(), 6);
    });
}

#[test]
fn b_063_rejected_and_failed_are_the_end_too() {
    for_each_store(async |place| {
        let house = open(&place).await;
        let engine = house.work.start().await.unwrap();
        let retry = || patient().on_complete("told", &json!(1)).unwrap();
        let refused = house.dispatcher.dispatch(reserve("Refuse", 0, retry()).id("a")).await.unwrap();
        assert_eq!(rejected(&refused), "INSUFFICIENT");
        let failed = house.dispatcher.dispatch(reserve("Fail", 0, retry()).id("b")).await.unwrap();
        assert_eq!(failed.outcome.status(), "failed");
        while house.told().await.len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(house.told().await, ["failed 1", "rejected INSUFFICIENT 1"]);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_064_b_065_a_conflict_is_deferred() {
    for_each_store(async |place| {
        let house = open(&place).await;
        move_scope(&house, 0, 6).await;
        let before = house.store.read(async |tx| tx.now_ms().await).await.unwrap();
        let retry = ConflictRetry { initial_backoff_ms: 100, ..ConflictRetry::default() };
        let dispatched = house.dispatcher.dispatch(reserve("Reserve", 5, retry)).await.unwrap();
        let Outcome::Deferred(deferred) = &dispatched.outcome else { panic!("{dispatched:?}") };
        assert_eq!(deferred.retry_key, format!("dcb:{SCOPE}"));
        assert_eq!((deferred.retry_attempt, deferred.scheduled_after_ms), (1, 100));
        assert!(deferred.scheduled_at >= before + 100);
        let item = house.work.status(&deferred.work_id).await.unwrap().unwrap();
        assert_eq!((item.key.as_deref(), &*item.pool), (Some(&*deferred.retry_key), "dcbRetryPool"));
        let args = args_of_retry(&house).await;
        assert_eq!((&args["expectedVersion"], &args["options"]["attempt"]), (&json!(6), &json!(1)));
        let status = house.dispatcher.status("cmd-1").await.unwrap();
        assert_eq!((status.state, status.attempt), (State::Pending, 1));
        let again = house.dispatcher.dispatch(reserve("Reserve", 5, patient())).await.unwrap();
        assert!(again.is_duplicate && again.outcome.status() == "deferred");
        assert!(house.orders().await.is_empty());
    });
}

#[test]
fn a_forged_end_of_a_retry_does_not_end_the_command() {
    for_each_store(async |place| {
        let house = open(&place).await;
        move_scope(&house, 0, 6).await;
        let dispatched = house.dispatcher.dispatch(reserve("Reserve", 5, patient())).await.unwrap();
        assert_eq!(dispatched.outcome.status(), "deferred");
        let (ended, attempt) = ("mainstay.command.retried", json!({ "commandId": "cmd-1", "attempt": 1 }));
        let bad = json!("not a number");
        let args = args_of_retry(&house).await;
        let result = json!({ "kind": "failed", "error": "no" });
        let told = json!({ "workId": "work_x", "context": attempt, "result": result });
        let items = vec![
            // A plain item, one that has its own end reported, and one that decides the command before its time.
            NewWork::platform("shop", ended, &told).unwrap(),
            NewWork::new("shop", "refuse", &bad).unwrap().tell_platform(ended).context(&attempt).unwrap(),
            NewWork::platform("shop", "mainstay.command.retry", &args).unwrap(),
        ];
        let items = house.work.enqueue_all(items).await.unwrap();
        let engine = house.work.start().await.unwrap();
        for item in items {
            house.work.wait_for(&item.work_id, PATIENCE).await.unwrap();
        }
        let refused = tokio::time::timeout(PATIENCE, async {
            loop {
                let mut letters = house.work.letters(LetterFilter::default(), 10).await.unwrap();
                letters.retain(|letter| letter.function == ended);
                if letters.len() == 2 {
                    return letters;
                }
                tokio::task::yield_now().await;
            }
        });
        let refused = refused.await.unwrap();
        engine.stop(PATIENCE).await.unwrap();
        assert!(refused.iter().all(|letter| letter.error.contains("validationError")), "{refused:?}");
        let status = house.dispatcher.status("cmd-1").await.unwrap();
        assert_eq!((status.state, status.attempt), (State::Pending, 1));
        assert!(house.orders().await.is_empty());
    });
}

#[test]
fn a_command_tells_its_end_to_no_function_of_the_platform() {
    for_each_store(async |place| {
        let house = open(&place).await;
        for name in ["mainstay.publication.ended", "MAINSTAY.x", " Mainstay.x "] {
            let retry = patient().on_complete(name, &json!(1)).unwrap();
            let error = house.dispatcher.dispatch(reserve("Reserve", 0, retry)).await.unwrap_err();
            assert_eq!(error.code(), "NAME_RESERVED", "{name:?}: {error}");
        }
        assert!(house.orders().await.is_empty());
    });
}

#[test]
fn b_066_after_the_last_retry_it_is_rejected() {
    for_each_store(async |place| {
        let house = open(&place).await;
        move_scope(&house, 0, 7).await;
        let retry = ConflictRetry { max_retries: 0, ..patient() };
        let dispatched = house.dispatcher.dispatch(reserve("Reserve", 5, retry)).await.unwrap();
        let Outcome::Rejected { code, reason, context } = &dispatched.outcome else {
            panic!("{dispatched:?}")
        };
        assert_eq!((&**code, &**reason), ("DCB_MAX_RETRIES_EXCEEDED", "OCC conflict after 0 attempts"));
        assert_eq!(context, &Some(json!({ "attempts": 0, "lastVersion": 7 })));
        assert_eq!(house.depth("dcbRetryPool").await, 0);
    });
}

/// A handler that is overtaken each time it is tried.
fn always_late(diary: &Diary) -> Commands {
    let diary = diary.clone();
    Commands::new().on("Late", move |handling: Handling, id: u32| {
        diary.note(format!("#{}", handling.issued().attempt));
        async move {
            handling
                .tx()
                .execute("INSERT INTO orders (id, command) VALUES ($1, 'Late')", params![id])
                .await?;
            handling.unless(Condition::no_tag("item:lamp")?);
            handling.decides_on("item:lamp");
            Ok(Decision::success((), [NewEvent::new("StockReserved", &id)?.tag("item:lamp")]))
        }
    })
}

#[test]
fn b_066_b_071_a_conflict_is_tried_again_five_times_and_no_more() {
    for_each_store(async |place| {
        let diary = Diary::default();
        let house = House::open_with(&place, always_late(&diary), diary).await;
        house.log.append(NewEvent::new("StockAdded", &1).unwrap().tag("item:lamp")).await.unwrap();
        let engine = house.work.start().await.unwrap();
        let retry = quick().on_complete("told", &json!({ "kept": [1, 2] })).unwrap();
        let command = Command::new("Late", &1).unwrap().retrying(retry);
        let dispatched = house.dispatcher.dispatch(command).await.unwrap();
        let Outcome::Deferred(deferred) = &dispatched.outcome else { panic!("{dispatched:?}") };
        assert_eq!(deferred.retry_key, "dcb:item:lamp");
        let ended = house.dispatcher.wait_for(&dispatched.command_id, PATIENCE).await.unwrap();
        let Outcome::Rejected { code, reason, context } = &ended.outcome else { panic!("{ended:?}") };
        assert_eq!((&**code, &**reason), ("DCB_MAX_RETRIES_EXCEEDED", "OCC conflict after 5 attempts"));
        assert_eq!(context.as_ref().unwrap()["lastVersion"], 1, "the position of the event that was first");
        assert_eq!(house.diary.entries(), ["#0", "#1", "#2", "#3", "#4", "#5"]);
        while house.told().await.is_empty() {
            tokio::task::yield_now().await;
        }
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!(
            house.told().await,
            [r#"rejected DCB_MAX_RETRIES_EXCEEDED {"kept":[1,2]}"#],
            "once, at the end"
        );
    });
}

/// Where retries meet that are under way at the same time.
#[derive(Default)]
struct Meeting {
    here: Mutex<usize>,
    came: Condvar,
}

impl Meeting {
    /// Waits for another one, for at most `patience`; whether it came.
    fn meet(&self, patience: Duration) -> bool {
        let mut here = self.here.lock().unwrap();
        *here += 1;
        self.came.notify_all();
        let (mut here, timeout) = self.came.wait_timeout_while(here, patience, |here| *here < 2).unwrap();
        *here = if timeout.timed_out() { 0 } else { *here };
        !timeout.timed_out()
    }
}

const OTHER: &str = "tenant:t1:stock:table";

/// Two commands whose retries find their scopes moved on again. Whether these met while they were about to be deferred once
/// more, where one waits for the other for at most `patience`.
async fn do_retries_meet(place: &Place, scopes: [&str; 2], patience: Duration) -> bool {
    let house = open(place).await;
    for version in 0..2 {
        for scope in BTreeSet::from(scopes) {
            let event = NewEvent::new("StockAdded", &1).unwrap().tenant("t1").scope(scope, version);
            house.log.append(event).await.unwrap();
        }
        if version == 0 {
            for (id, scope) in ["a", "b"].into_iter().zip(scopes) {
                let command = Command::new("Reserve", &1).unwrap().id(id).within(scope, 0).retrying(quick());
                let sent = house.dispatcher.dispatch(command).await.unwrap();
                let Outcome::Deferred(deferred) = sent.outcome else { panic!("{sent:?}") };
                assert_eq!(deferred.retry_key, format!("dcb:{scope}"));
            }
        }
    }
    let (meeting, has_met) = (Arc::new(Meeting::default()), Arc::new(Mutex::new(None)));
    let told = has_met.clone();
    // It is asked for in between: after a retry was overtaken, and before that is written down.
    house.dispatcher.set_jitter(move || {
        let is_first = told.lock().unwrap().is_none();
        if is_first {
            let has_met = tokio::task::block_in_place(|| meeting.meet(patience));
            told.lock().unwrap().get_or_insert(has_met);
        }
        1.0
    });
    let engine = house.work.start().await.unwrap();
    for id in ["a", "b"] {
        let ended = house.dispatcher.wait_for(id, PATIENCE).await.unwrap();
        assert_eq!(ended.outcome.status(), "success", "{id}");
    }
    engine.stop(PATIENCE).await.unwrap();
    assert_eq!(house.orders().await.len(), 2);
    let has_met = *has_met.lock().unwrap();
    has_met.expect("a retry was overtaken")
}

#[test]
fn b_070_retries_of_one_scope_take_turns_and_those_of_others_do_not_wait() {
    for_each_store(async |place| {
        assert!(do_retries_meet(&place, [SCOPE, OTHER], PATIENCE).await, "at once on {}", place.kind());
        let place = Place::new(place.kind());
        let moment = Duration::from_millis(300);
        assert!(!do_retries_meet(&place, [SCOPE, SCOPE], moment).await, "in turns on {}", place.kind());
    });
}

#[test]
fn b_072_a_retry_that_is_stale_again_is_deferred_again() {
    for_each_store(async |place| {
        let house = open(&place).await;
        move_scope(&house, 0, 6).await;
        let retry = ConflictRetry { initial_backoff_ms: 250, base: 1.0, ..ConflictRetry::default() };
        let retry = retry.on_complete("told", &json!("kept")).unwrap();
        let dispatched = house.dispatcher.dispatch(reserve("Reserve", 5, retry)).await.unwrap();
        let Outcome::Deferred(first) = dispatched.outcome else { panic!() };
        assert_eq!(first.scheduled_after_ms, 250);
        move_scope(&house, 6, 7).await;
        let engine = house.work.start().await.unwrap();
        let first = house.work.wait_for(&first.work_id, PATIENCE).await.unwrap();
        assert_eq!(first.attempts, 1);
        let ended = house.dispatcher.wait_for("cmd-1", PATIENCE).await.unwrap();
        assert_eq!((ended.outcome.status(), ended.attempt), ("success", 2));
        assert_eq!(
            house.diary.entries(),
            ["Reserve at 7 #2"],
            "a version that is known to be stale is not tried"
        );
        while house.told().await.is_empty() {
            tokio::task::yield_now().await;
        }
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!(house.told().await, [r#"success "kept""#]);
    });
}

#[test]
fn b_073_the_pool_never_tries_again_by_itself() {
    let pool = Pool::platform().into_iter().find(|pool| pool.name() == "dcbRetryPool").unwrap();
    assert_eq!(pool.at_once(), 10);
    for_each_store(async |place| {
        let house = open(&place).await;
        move_scope(&house, 0, 1).await;
        let retry = quick().on_complete("told", &json!("kept")).unwrap();
        house.dispatcher.dispatch(reserve("Throw", 0, retry)).await.unwrap();
        let engine = house.work.start().await.unwrap();
        let ended = house.dispatcher.wait_for("cmd-1", PATIENCE).await.unwrap();
        assert_eq!((ended.state, ended.outcome.status()), (State::Failed, "failed"));
        while house.told().await.is_empty() {
            tokio::task::yield_now().await;
        }
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!(house.told().await, [r#"failed "kept""#], "a retry that throws is told too");
        assert_eq!(house.diary.entries(), ["Throw at 1 #1"]);
        assert!(house.orders().await.is_empty());
    });
}

#[test]
fn b_075_a_conflict_at_the_commit_leaves_nothing() {
    for_each_store(async |place| {
        let diary = Diary::default();
        let house = House::open_with(&place, always_late(&diary), diary).await;
        house.log.append(NewEvent::new("StockAdded", &1).unwrap().tag("item:lamp")).await.unwrap();
        let error = house.dispatcher.dispatch(Command::new("Late", &1).unwrap()).await.unwrap_err();
        assert_eq!((error.code(), error.entry().status), ("APPEND_CONDITION_FAILED", 409));
        assert!(house.diary.entries().contains(&"#0".to_owned()), "its handler has written a row");
        assert!(house.orders().await.is_empty(), "which is gone");
        assert_eq!(house.log.head().await.unwrap(), 1);
        assert!(house.texts("SELECT command_id FROM mainstay_commands").await.is_empty());
    });
}

#[tokio::test]
async fn a_retry_that_makes_no_sense_is_refused() {
    let house = open(&Place::new(Kind::SqliteMemory)).await;
    for retry in [
        ConflictRetry { base: 0.0, ..ConflictRetry::default() },
        ConflictRetry { initial_backoff_ms: 0, ..ConflictRetry::default() },
        ConflictRetry { max_retries: 101, ..ConflictRetry::default() },
    ] {
        let error = house.dispatcher.dispatch(reserve("Reserve", 0, retry)).await.unwrap_err();
        assert_eq!(error.code(), "FLOW_INVALID");
    }
    let unknown = patient().on_complete("nobody", &1).unwrap();
    let error = house.dispatcher.dispatch(reserve("Reserve", 0, unknown)).await.unwrap_err();
    assert_eq!(error.code(), "UNKNOWN_FUNCTION");
    assert!(house.orders().await.is_empty());
    assert!(house.log.read(&Selection::all(), 1).await.unwrap().events.is_empty());
    let missing = house.send("PlaceOrder", 1).await.unwrap_err();
    assert_eq!(missing.code(), "UNKNOWN_COMMAND");
}

#[test]
fn a_node_without_the_handler_leaves_a_deferred_command_to_others() {
    for_each_store(async |place| {
        let house = open(&place).await;
        move_scope(&house, 0, 1).await;
        let sent = house.dispatcher.dispatch(reserve("Reserve", 0, quick())).await.unwrap();
        let Outcome::Deferred(deferred) = sent.outcome else { panic!() };
        let older = Diary::default();
        let older = House::open_on(house.store.clone(), always_late(&older), older).await;
        let engine = older.work.start().await.unwrap();
        let tried = async {
            while house.work.status(&deferred.work_id).await.unwrap().unwrap().attempts == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, tried).await.expect("the older node takes it");
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!(house.dispatcher.status("cmd-1").await.unwrap().state, State::Pending);
        let engine = house.work.start().await.unwrap();
        let ended = house.dispatcher.wait_for("cmd-1", PATIENCE).await.unwrap();
        assert_eq!(ended.outcome.status(), "success");
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_071_who_waits_for_the_end_is_told_by_a_node_that_can() {
    for_each_store(async |place| {
        let house = open(&place).await;
        move_scope(&house, 0, 1).await;
        let retry = patient().on_complete("told", &json!("kept")).unwrap();
        let sent = house.dispatcher.dispatch(reserve("Reserve", 0, retry)).await.unwrap();
        let Outcome::Deferred(deferred) = sent.outcome else { panic!() };
        let House { store, work, dispatcher, .. } = house;
        drop(dispatcher);
        let refused = work.cancel(&deferred.work_id).await.unwrap_err();
        assert!(refused.is_retryable(), "{refused}");
        assert_eq!(work.status(&deferred.work_id).await.unwrap().unwrap().ended_at, None, "nothing is lost");
        let diary = Diary::default();
        let other = House::open_on(store, stock(&diary), diary).await;
        other.work.cancel(&deferred.work_id).await.unwrap();
        let ended = other.dispatcher.status("cmd-1").await.unwrap();
        assert_eq!((ended.state, ended.outcome.status()), (State::Failed, "failed"));
        let engine = other.work.start().await.unwrap();
        while other.told().await.is_empty() {
            tokio::task::yield_now().await;
        }
        engine.stop(PATIENCE).await.unwrap();
        assert_eq!(other.told().await, [r#"failed "kept""#]);
    });
}

#[test]
fn a_deferred_command_ends_though_nothing_can_be_told_of_it_any_more() {
    for_each_store(async |place| {
        let house = open(&place).await;
        house.work.declare("remote", FunctionKind::Action).await.unwrap();
        move_scope(&house, 0, 6).await;
        let retry = || patient().on_complete("remote", &json!(1)).unwrap();
        let unknown = patient().on_complete("nobody", &json!(1)).unwrap();
        let refused =
            house.dispatcher.dispatch(reserve("Reserve", 5, unknown).id("other")).await.unwrap_err();
        assert_eq!(refused.code(), "UNKNOWN_FUNCTION");
        let dispatched = house.dispatcher.dispatch(reserve("Reserve", 5, retry())).await.unwrap();
        let Outcome::Deferred(deferred) = &dispatched.outcome else { panic!("{dispatched:?}") };
        assert_eq!(house.work.delete_function("remote").await.unwrap_err().code(), "WORK_NAME_IN_USE");
        // As an earlier version deleted it.
        let delete = async |tx: Tx| {
            tx.execute("DELETE FROM mainstay_lanes WHERE function = 'remote'", &[]).await?;
            tx.execute("DELETE FROM mainstay_functions WHERE name = 'remote'", &[]).await
        };
        house.store.transact(delete).await.unwrap();
        let house = House::open_on(house.store.clone(), stock(&house.diary), house.diary.clone()).await;
        let engine = house.work.start().await.unwrap();
        house.work.run_now(&deferred.work_id).await.unwrap();
        let letter = loop {
            if let Some(letter) = house.work.letters(LetterFilter::default(), 1).await.unwrap().pop() {
                break letter;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!((&*letter.function, &*letter.pool), ("remote", "dcbRetryPool"));
        assert_eq!(house.dispatcher.status("cmd-1").await.unwrap().state, State::Executed);
        engine.stop(PATIENCE).await.unwrap();
    });
}
