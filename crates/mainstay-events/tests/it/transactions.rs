//! Appends beside an author's own writes.

use crate::support::{all, append, event, open};
use mainstay_events::{Append, Condition, Error, IdempotencyKey, Log, NewEvent, Receipt, Status};
use mainstay_store::{Isolation, Store, Tx, params};
use mainstay_testkit::stores::{Place, for_each_store};

async fn open_with_orders(place: &Place) -> (Store, Log) {
    let log = open(place).await;
    let create = async |tx: Tx| tx.execute("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY)", &[]).await;
    log.store().transact(create).await.unwrap();
    (log.store().clone(), log)
}

async fn orders(store: &Store) -> i64 {
    store.read(async |tx| tx.query_one("SELECT count(*) FROM orders", &[]).await?.get(0)).await.unwrap()
}

async fn place_order(store: &Store, log: &Log, id: i64, append: Append) -> Result<Receipt, Error> {
    let work = async |tx: Tx, (log, id, append): (Log, i64, Append)| {
        let receipt = log.append_in(&tx, append)?;
        tx.execute("INSERT INTO orders (id) VALUES ($1)", params![id]).await?;
        assert!(receipt.get().is_none(), "nobody knows a position before the commit");
        Ok(receipt)
    };
    Ok(store.transact_with((log.clone(), id, append), work).await?)
}

#[test]
fn rows_and_events_commit_together_or_not_at_all() {
    for_each_store(async |place| {
        let (store, log) = open_with_orders(&place).await;
        let once = Condition::no_tag("order:1").unwrap();
        let receipt =
            place_order(&store, &log, 1, append("Placed", &["order:1"]).unless(once.clone())).await.unwrap();
        assert_eq!(receipt.get().unwrap().events[0].position, 1);
        assert_eq!(receipt.get().unwrap().events[0].event_id, receipt.event_ids()[0]);
        assert_eq!(log.find(&receipt.event_ids()[0]).await.unwrap().unwrap().position(), 1);
        let refused =
            place_order(&store, &log, 2, append("Placed", &["order:1"]).unless(once)).await.unwrap_err();
        assert_eq!(refused.code(), "APPEND_CONDITION_FAILED");
        assert_eq!(
            (orders(&store).await, log.head().await.unwrap()),
            (1, 1),
            "the row went with the refused event"
        );
        // And the other way round: a row that is refused takes its event with it.
        assert!(place_order(&store, &log, 1, append("Placed", &["order:9"])).await.is_err());
        assert_eq!((orders(&store).await, log.head().await.unwrap()), (1, 1));
    });
}

#[test]
fn several_appends_of_a_transaction_see_each_other() {
    for_each_store(async |place| {
        let (store, log) = open_with_orders(&place).await;
        let work = async |tx: Tx, log: Log| {
            let first = log.append_in(&tx, event("A", &["x"]).stream("s", "1").expecting(0))?;
            let second = log.append_in(&tx, event("B", &["y"]).stream("s", "1").expecting(1))?;
            Ok((first, second))
        };
        let (first, second) = store.transact_with(log.clone(), work).await.unwrap();
        assert_eq!(
            (first.get().unwrap().events[0].position, second.get().unwrap().events[0].position),
            (1, 2)
        );
        let work = async |tx: Tx, log: Log| {
            log.append_in(&tx, append("C", &["z"]))?;
            log.append_in(&tx, append("D", &[]).unless(Condition::no_tag("z")?))?;
            Ok(())
        };
        let error: Error = store.transact_with(log.clone(), work).await.unwrap_err().into();
        assert!(
            matches!(error, Error::ConditionFailed { ref witness, .. } if witness.event_type == "C"),
            "{error:?}"
        );
        assert_eq!(all(&log).await.len(), 2);
    });
}

#[test]
fn what_was_applied_before_is_told_and_not_done_twice() {
    for_each_store(async |place| {
        let (store, log) = open_with_orders(&place).await;
        let keyed = |text: &str| event(text, &[]).idempotent(&IdempotencyKey::raw("k").unwrap()).into();
        place_order(&store, &log, 1, keyed("Placed")).await.unwrap();
        let again = place_order(&store, &log, 2, keyed("Placed")).await.unwrap_err();
        let Error::AlreadyApplied(first) = again else { panic!("{again:?}") };
        assert_eq!(first.events[0].position, 1);
        assert_eq!(orders(&store).await, 1);
        let mut listener = store.listen(mainstay_store::Topic::new("mainstay.idempotency_audits").unwrap());
        let other = place_order(&store, &log, 3, keyed("Other")).await.unwrap_err();
        assert_eq!(other.code(), "IDEMPOTENCY_CONFLICT");
        assert!(listener.woken(std::time::Duration::from_secs(30)).await, "the refusal is written down");
        let audits = async |tx: Tx| -> mainstay_store::Result<i64> {
            tx.query_one("SELECT count(*) FROM mainstay_idempotency_audits", &[]).await?.get(0)
        };
        // What woke us may have been the link, which wakes everyone when it is up.
        let written = async { while store.read(audits).await.unwrap() != 1 {} };
        tokio::time::timeout(std::time::Duration::from_secs(30), written)
            .await
            .expect("it is written down once");
        assert_eq!((orders(&store).await, log.head().await.unwrap()), (1, 1));
    });
}

#[test]
fn an_append_that_may_repeat_lets_the_rest_of_its_transaction_commit() {
    for_each_store(async |place| {
        let (store, log) = open_with_orders(&place).await;
        let keyed = |text: &str, key: &str| event(text, &[]).idempotent(&IdempotencyKey::raw(key).unwrap());
        let order = async |tx: Tx, (log, id, event): (Log, i64, NewEvent)| {
            let receipt = log.append_once_in(&tx, event)?;
            tx.execute("INSERT INTO orders (id) VALUES ($1)", params![id]).await?;
            Ok(receipt)
        };
        let first = store.transact_with((log.clone(), 1, keyed("Placed", "k")), order).await.unwrap();
        assert_eq!(first.get().unwrap().status, Status::Appended);
        let again = store.transact_with((log.clone(), 2, keyed("Placed", "k")), order).await.unwrap();
        let (first, again) = (first.get().unwrap(), again.get().unwrap());
        assert_eq!((again.status, &again.events), (Status::Duplicate, &first.events));
        assert_eq!((orders(&store).await, log.head().await.unwrap()), (2, 1));
        // Two of one transaction, of which the second repeats the first.
        let twice = async |tx: Tx, (log, event): (Log, NewEvent)| {
            Ok([log.append_once_in(&tx, event.clone())?, log.append_once_in(&tx, event)?])
        };
        let two = store.transact_with((log.clone(), keyed("Paid", "p")), twice).await.unwrap();
        assert_eq!(
            two.each_ref().map(|receipt| receipt.get().unwrap().status),
            [Status::Appended, Status::Duplicate]
        );
        let other = store.transact_with((log.clone(), 3, keyed("Other", "k")), order).await.unwrap_err();
        assert_eq!(Error::from(other).code(), "IDEMPOTENCY_CONFLICT");
        let bare = store.transact_with((log.clone(), 4, event("Bare", &[])), order).await.unwrap_err();
        assert_eq!(Error::from(bare).code(), "EVENT_INVALID");
        assert_eq!((orders(&store).await, log.head().await.unwrap()), (2, 2));
    });
}

#[test]
fn an_event_is_found_by_its_key_and_known_from_another() {
    for_each_store(async |place| {
        let (store, log) = open_with_orders(&place).await;
        let keyed = |text: &str| event(text, &[]).idempotent(&IdempotencyKey::raw("k").unwrap());
        log.append(keyed("Placed")).await.unwrap();
        let find = async |tx: Tx, (log, tenant): (Log, Option<&'static str>)| {
            Ok(log.find_by_key_in(&tx, tenant, "k").await?)
        };
        let found = store.transact_with((log.clone(), None), find).await.unwrap().unwrap();
        assert_eq!(found.position(), 1);
        assert!(found.is_repeated_by(&keyed("Placed")) && !found.is_repeated_by(&keyed("Other")));
        assert!(!found.is_repeated_by(&event("Placed", &[])));
        assert!(store.transact_with((log.clone(), Some("acme")), find).await.unwrap().is_none());
    });
}

#[test]
fn an_append_in_a_read_is_refused() {
    for_each_store(async |place| {
        let (store, log) = open_with_orders(&place).await;
        let read = async |tx: Tx, log: Log| Ok(log.append_in(&tx, append("A", &[]))?.event_ids().len());
        let error = store.read_with(log.clone(), read).await.unwrap_err();
        assert_eq!(error.code(), "STORE_READ_ONLY", "{error}");
        assert_eq!(log.head().await.unwrap(), 0);
    });
}

#[test]
fn transactions_and_lone_appends_of_both_isolations_share_one_order() {
    for_each_store(async |place| {
        let (store, log) = open_with_orders(&place).await;
        let tasks: Vec<_> = (0..60)
            .map(|number| {
                let (store, log) = (store.clone(), log.clone());
                tokio::spawn(async move {
                    let event = append("E", &[&format!("n:{number}")]);
                    let store = match number % 3 {
                        0 => return log.append(event).await.map(drop),
                        1 => store,
                        _ => store.with_isolation(Isolation::Serializable),
                    };
                    // So many at once may overtake one of them more often than the store runs it again.
                    for _ in 0..9 {
                        match place_order(&store, &log, number, event.clone()).await {
                            Err(error) if error.code() == "STORE_CONFLICT" => {}
                            ended => return ended.map(drop),
                        }
                    }
                    place_order(&store, &log, number, event).await.map(drop)
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!((orders(&store).await, all(&log).await.len()), (40, 60));
    });
}
