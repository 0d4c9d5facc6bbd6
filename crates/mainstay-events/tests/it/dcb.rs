//! Items 58 and 59: decisions within a versioned scope.

use crate::support::{event, open};
use mainstay_core::keys::ScopeKey;
use mainstay_events::Log;
use mainstay_events::dcb::{Decision, Entity, Outcome, Scope};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::for_each_store;

fn scope(expected_version: u64, entities: &[(&str, &str)]) -> Scope {
    let key = ScopeKey::new("acme", "reservation", "r1").unwrap().to_string();
    let entities = entities.iter().map(|(of, id)| ((*of).to_owned(), (*id).to_owned())).collect();
    Scope { key, expected_version, entities }
}

async fn reserve(tx: Tx, entities: Vec<Entity>) -> mainstay_store::Result<Decision<usize>> {
    tx.execute("INSERT INTO reservations (id) VALUES ($1)", params![entities.len() as i64]).await?;
    let events =
        entities.iter().map(|entity| event("StockReserved", &[]).stream("product", entity.id.as_str()));
    Ok(Decision::Success { data: entities.len(), events: events.collect() })
}

async fn prepare(log: &Log) {
    let create = async |tx: Tx| tx.execute("CREATE TABLE reservations (id BIGINT NOT NULL)", &[]).await;
    log.store().transact(create).await.unwrap();
    for id in ["p1", "p2"] {
        log.append(event("ProductCreated", &[]).stream("product", id)).await.unwrap();
    }
}

async fn rows(log: &Log) -> i64 {
    log.store()
        .read(async |tx| tx.query_one("SELECT count(*) FROM reservations", &[]).await?.get(0))
        .await
        .unwrap()
}

#[test]
fn b_058_success_rejected_failed_and_conflict() {
    for_each_store(async |place| {
        let log = open(&place).await;
        prepare(&log).await;
        let both = [("product", "p1"), ("product", "p2")];
        let done = log.execute_with_dcb(scope(0, &both), reserve).await.unwrap();
        let Outcome::Success { data: 2, receipt, version: 1 } = done else { panic!("{done:?}") };
        assert_eq!(receipt.get().unwrap().events.len(), 2);
        let stale = log.execute_with_dcb(scope(0, &both), reserve).await.unwrap();
        assert!(matches!(stale, Outcome::Conflict { current_version: 1 }), "{stale:?}");
        let reject = async |tx: Tx, _: Vec<Entity>| {
            tx.execute("INSERT INTO reservations (id) VALUES (99)", &[]).await?;
            Ok(Decision::<()>::Rejected { code: "INSUFFICIENT_STOCK".into(), reason: "none left".into() })
        };
        let rejected = log.execute_with_dcb(scope(1, &both), reject).await.unwrap();
        assert!(
            matches!(&rejected, Outcome::Rejected { code, .. } if code == "INSUFFICIENT_STOCK"),
            "{rejected:?}"
        );
        assert_eq!((rows(&log).await, log.head().await.unwrap()), (1, 4), "a rejection leaves no trace");
        let fail = async |_: Tx, _: Vec<Entity>| {
            Ok(Decision::<()>::Failed {
                reason: "no stock".into(),
                events: vec![event("ReservationFailed", &[])],
            })
        };
        let failed = log.execute_with_dcb(scope(1, &both), fail).await.unwrap();
        assert!(matches!(failed, Outcome::Failed { version: 2, .. }), "{failed:?}");
        assert_eq!(log.head().await.unwrap(), 5);
    });
}

#[test]
fn b_059_bad_keys_missing_scopes_and_missing_entities() {
    for_each_store(async |place| {
        let log = open(&place).await;
        prepare(&log).await;
        for (key, expected) in [("", "SCOPE_KEY_EMPTY"), ("tenant:a:b", "INVALID_SCOPE_KEY_FORMAT")] {
            let bad = Scope { key: key.to_owned(), ..scope(0, &[]) };
            let rejected = log.execute_with_dcb(bad, reserve).await.unwrap();
            assert!(matches!(&rejected, Outcome::Rejected { code, .. } if code == expected), "{rejected:?}");
        }
        let early = log.execute_with_dcb(scope(3, &[]), reserve).await.unwrap();
        assert!(matches!(early, Outcome::Conflict { current_version: 0 }), "{early:?}");
        let missing = scope(0, &[("product", "p1"), ("product", "none")]);
        let rejected = log.execute_with_dcb(missing, reserve).await.unwrap();
        let Outcome::Rejected { code, reason } = &rejected else { panic!("{rejected:?}") };
        assert_eq!((code.as_str(), reason.as_str()), ("ENTITIES_NOT_FOUND", "not found: product/none"));
        assert_eq!((rows(&log).await, log.head().await.unwrap()), (0, 2));
        let new = log.execute_with_dcb(scope(0, &[("product", "p1")]), reserve).await.unwrap();
        assert!(matches!(new, Outcome::Success { version: 1, .. }), "{new:?}");
    });
}

#[test]
fn b_058_of_many_decisions_at_one_version_one_is_made() {
    for_each_store(async |place| {
        let log = open(&place).await;
        prepare(&log).await;
        let deciders: Vec<_> = (0..16)
            .map(|_| {
                let log = log.clone();
                tokio::spawn(
                    async move { log.execute_with_dcb(scope(0, &[("product", "p1")]), reserve).await },
                )
            })
            .collect();
        let mut made = 0;
        for decider in deciders {
            match decider.await.unwrap().unwrap() {
                Outcome::Success { .. } => made += 1,
                Outcome::Conflict { current_version: 1 } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((made, rows(&log).await, log.head().await.unwrap()), (1, 1, 3));
    });
}
