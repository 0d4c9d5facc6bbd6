//! One command, one transaction, one outcome.

use super::house::{House, order, rejected};
use mainstay_events::Selection;
use mainstay_flows::commands::{Command, MAX_SNAPSHOTS, Outcome, State};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::for_each_store;
use serde_json::json;
use std::time::Duration;

#[test]
fn a_command_writes_rows_events_and_work_together() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let dispatched = house.send("PlaceOrder", 7).await.unwrap();
        let Outcome::Success { data, events } = &dispatched.outcome else { panic!("{dispatched:?}") };
        assert_eq!(data.get(), r#"{"orderId":7}"#);
        assert_eq!((events.len(), events[0].position, dispatched.is_duplicate), (1, 1, false));
        assert_eq!(house.orders().await, ["PlaceOrder"]);
        assert_eq!(house.depth("shop").await, 1);
        let page = house.log.read(&Selection::all(), 10).await.unwrap();
        assert_eq!(page.events[0].event_type(), "OrderPlaced");
        assert_eq!(page.events[0].correlation_id(), dispatched.correlation_id);
        assert_eq!(page.events[0].causation_id(), Some(&*dispatched.command_id));
        let status = house.dispatcher.status(&dispatched.command_id).await.unwrap();
        assert_eq!((status.state, &*status.command_type), (State::Executed, "PlaceOrder"));
        assert!(status.executed_at.is_some());
    });
}

#[test]
fn a_command_of_the_same_id_is_answered_with_what_came_of_the_first() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let first = house.dispatcher.dispatch(order("PlaceOrder", 7).id("cmd-1")).await.unwrap();
        let again = house.dispatcher.dispatch(order("PlaceOrder", 7).id("cmd-1")).await.unwrap();
        assert!(again.is_duplicate);
        assert_eq!(
            (again.correlation_id, again.outcome.events()),
            (first.correlation_id, first.outcome.events())
        );
        assert_eq!(house.orders().await, ["PlaceOrder"]);
        let taken = house.dispatcher.dispatch(order("PlaceOrder", 8).id("cmd-1")).await.unwrap_err();
        assert_eq!(taken.code(), "COMMAND_ID_TAKEN");
        let refused = house.dispatcher.dispatch(order("RefuseOrder", 1).id("cmd-2")).await.unwrap();
        let again = house.dispatcher.dispatch(order("RefuseOrder", 1).id("cmd-2")).await.unwrap();
        assert_eq!((rejected(&refused), rejected(&again)), ("NO_SUCH_ITEM", "NO_SUCH_ITEM"));
        assert!(again.is_duplicate);
    });
}

#[test]
fn commands_of_one_id_at_once_are_one_command() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let sent = (0..16).map(|_| {
            let dispatcher = house.dispatcher.clone();
            tokio::spawn(async move { dispatcher.dispatch(order("PlaceOrder", 7).id("cmd-1")).await })
        });
        let mut first = 0;
        for sent in sent.collect::<Vec<_>>() {
            let dispatched = sent.await.unwrap().unwrap();
            assert_eq!(dispatched.outcome.events()[0].position, 1);
            first += usize::from(!dispatched.is_duplicate);
        }
        assert_eq!(first, 1);
        assert_eq!(house.orders().await, ["PlaceOrder"]);
        assert_eq!((house.log.head().await.unwrap(), house.depth("shop").await), (1, 1));
    });
}

#[test]
fn a_rejected_command_leaves_nothing_but_its_record() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let dispatched = house.send("RefuseOrder", 7).await.unwrap();
        assert_eq!(rejected(&dispatched), "NO_SUCH_ITEM");
        assert!(house.orders().await.is_empty());
        assert_eq!(house.log.head().await.unwrap(), 0);
        let status = house.dispatcher.status(&dispatched.command_id).await.unwrap();
        assert_eq!(status.state, State::Rejected);
    });
}

#[test]
fn a_business_failure_is_an_event_and_counts_as_executed() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let dispatched = house.send("FailOrder", 7).await.unwrap();
        let Outcome::Failed { reason, events } = &dispatched.outcome else { panic!("{dispatched:?}") };
        assert_eq!((&**reason, events.len()), ("out of stock", 1));
        assert_eq!(house.orders().await, ["FailOrder"]);
        let status = house.dispatcher.status(&dispatched.command_id).await.unwrap();
        assert_eq!(status.state, State::Executed);
    });
}

#[test]
fn a_handler_that_fails_or_panics_changes_nothing_and_harms_nobody() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        for command_type in ["BreakOrder", "PanicOrder"] {
            let error = house.send(command_type, 7).await.unwrap_err();
            assert_eq!(error.code(), "HANDLER_ERROR", "{error}");
        }
        let error = house.send("BoastOrder", 7).await.unwrap_err();
        assert_eq!(error.code(), "COMMAND_TOO_LARGE");
        assert!(house.orders().await.is_empty());
        assert!(house.texts("SELECT command_id FROM mainstay_commands").await.is_empty());
        assert!(house.send("PlaceOrder", 7).await.is_ok());
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let dispatch = async |command: Command| house.dispatcher.dispatch(command).await;
        let unknown = dispatch(order("Dance", 1)).await.unwrap_err();
        assert_eq!((unknown.code(), unknown.entry().status), ("UNKNOWN_COMMAND", 422));
        let wrong =
            dispatch(Command::new("PlaceOrder", &json!({ "id": 1, "size": 2 })).unwrap()).await.unwrap();
        assert_eq!(rejected(&wrong), "VALIDATION_ERROR");
        let large = dispatch(Command::new("PlaceOrder", &"x".repeat(70_000)).unwrap()).await.unwrap_err();
        assert_eq!((large.code(), large.entry().status), ("COMMAND_TOO_LARGE", 413));
        let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
        for text in [&*deep, r#""\u0000""#, "1e999"] {
            let payload = serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
            let error = dispatch(Command::raw("PlaceOrder", payload)).await.unwrap_err();
            assert!(error.code() == "FLOW_INVALID" && error.to_string().starts_with("payload"), "{error}");
        }
        for command in [
            order("PlaceOrder", 1).id(""),
            order("PlaceOrder", 1).correlation("x".repeat(300)),
            order("PlaceOrder", 1).user("a\nb"),
            order("PlaceOrder", 1).within("no scope", 1),
        ] {
            assert_eq!(dispatch(command).await.unwrap_err().code(), "FLOW_INVALID");
        }
        let missing = house.dispatcher.status("cmd-9").await.unwrap_err();
        assert_eq!((missing.code(), missing.entry().status), ("COMMAND_NOT_FOUND", 404));
        assert!(house.diary.entries().is_empty());
        assert_eq!(house.log.head().await.unwrap(), 0);
    });
}

/// Up to now the ids also stood in the text.
#[test]
fn rows_of_earlier_versions_are_read() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.dispatcher.dispatch(order("PlaceOrder", 1).id("old").correlation("corr")).await.unwrap();
        let kept = house.texts("SELECT command FROM mainstay_commands").await.remove(0);
        let ids = r#"{"commandType":"PlaceOrder","commandId":"old","correlationId":"corr","attempt":0,"#;
        let before = kept.replacen('{', ids, 1);
        let change = async |tx: Tx, before: String| {
            tx.execute("UPDATE mainstay_commands SET command = $1", params![before]).await
        };
        house.store.transact_with(before, change).await.unwrap();
        let status = house.dispatcher.status("old").await.unwrap();
        let told = (&*status.command_id, &*status.command_type, &*status.correlation_id);
        assert_eq!(told, ("old", "PlaceOrder", "corr"));
        let again = house.dispatcher.dispatch(order("PlaceOrder", 1).id("old")).await.unwrap();
        assert!(again.is_duplicate && again.correlation_id == "corr");
    });
}

#[test]
fn commands_are_forgotten_after_seven_days_but_not_while_they_wait() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.dispatcher.dispatch(order("PlaceOrder", 1).id("old")).await.unwrap();
        house.dispatcher.dispatch(order("PlaceOrder", 2).id("new")).await.unwrap();
        house.dispatcher.dispatch(order("PlaceOrder", 3).id("waits")).await.unwrap();
        // More than are forgotten in one transaction.
        let many = async |tx: Tx| {
            let copy = "INSERT INTO mainstay_commands (command_id, command_type, correlation_id, state, attempt, \
                 created_at, executed_at, expires_at, command, result) SELECT $1, command_type, correlation_id, state, \
                 attempt, created_at, executed_at, expires_at, command, result FROM mainstay_commands \
                 WHERE command_id = 'old'";
            let rows: Vec<_> =
                (0..1_100).map(|number| params![format!("old-{number:04}")].to_vec()).collect();
            tx.execute_many(copy, &rows).await
        };
        house.store.transact(many).await.unwrap();
        let age =
            "UPDATE mainstay_commands SET expires_at = expires_at - 7 * 86400000 WHERE command_id <> 'new'";
        let wait = "UPDATE mainstay_commands SET state = 0 WHERE command_id = 'waits'";
        for sql in [age, wait] {
            house.store.transact(async move |tx| tx.execute(sql, &[]).await).await.unwrap();
        }
        let prune = mainstay_work::NewWork::platform("dcbRetryPool", "mainstay.command.prune", &()).unwrap();
        let engine = house.work.start().await.unwrap();
        let item = house.work.enqueue(prune).await.unwrap();
        house.work.wait_for(&item.work_id, Duration::from_secs(20)).await.unwrap();
        let left = async || house.texts("SELECT command_id FROM mainstay_commands ORDER BY command_id").await;
        let pruned = async {
            while left().await.len() > 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), pruned).await.expect("all old ones are forgotten");
        engine.stop(Duration::from_secs(5)).await.unwrap();
        assert_eq!(left().await, ["new", "waits"]);
    });
}

#[test]
fn snapshots_beyond_the_most_are_forgotten_the_oldest_first() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let many = async |tx: Tx| {
            let insert = "INSERT INTO mainstay_snapshots (decider, boundary, state_version, position, state) \
                 VALUES ('gone', $1, 1, $2, '{}')";
            let rows: Vec<_> = (1..=MAX_SNAPSHOTS as i64 + 1_100)
                .map(|position| params![format!("b{position}"), position].to_vec())
                .collect();
            tx.execute_many(insert, &rows).await
        };
        house.store.transact(many).await.unwrap();
        let prune = mainstay_work::NewWork::platform("dcbRetryPool", "mainstay.command.prune", &()).unwrap();
        let engine = house.work.start().await.unwrap();
        house.work.enqueue(prune).await.unwrap();
        let left = async || {
            let sql = "SELECT CAST(count(*) AS TEXT) || ' after ' || CAST(min(position) - 1 AS TEXT) \
                 FROM mainstay_snapshots";
            house.texts(sql).await.remove(0)
        };
        let expected = format!("{MAX_SNAPSHOTS} after 1100");
        let pruned = async {
            while left().await != expected {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), pruned).await.expect("the oldest are forgotten");
        engine.stop(Duration::from_secs(5)).await.unwrap();
        assert_eq!(left().await, expected, "and no more than those");
    });
}
