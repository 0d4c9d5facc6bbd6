//! What was erased is gone, everybody can see that it was, and nothing else changes.

use super::{saying, verify};
use crate::support::{append, deciding, event, open, query};
use mainstay_events::{Append, Erasure, IdempotencyKey, Log, NewEvent, Selection, Status};
use mainstay_store::{Tx, Value};
use mainstay_testkit::stores::{Kind, for_each_kind, for_each_store};
use std::path::Path;
use std::process::Command;

const SECRET: &str = "Ada Lovelace, 12 St James's Square";

fn erasure(tag: &str) -> Erasure {
    Erasure::of_tag(tag).unwrap().by("ada").because("request 17")
}

async fn audits(log: &Log) -> Vec<Vec<Value>> {
    let sql = "SELECT selector, tenant_id, actor, reason, events, ended_at >= began_at, erasure_id \
               FROM mainstay_erasures";
    let read = async |tx: Tx| {
        Ok(tx.query(sql, &[]).await?.into_iter().map(mainstay_store::Row::into_values).collect())
    };
    log.store().read(read).await.unwrap()
}

fn keyed() -> NewEvent {
    saying("Moved", SECRET).tag("customer:1").idempotent(&IdempotencyKey::raw("move-1").unwrap())
}

#[test]
fn an_erased_event_keeps_its_header_and_stays_a_duplicate() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let first = log.append(keyed().metadata(&serde_json::json!({"by": SECRET})).unwrap()).await.unwrap();
        log.append(append("Other", &["customer:2"])).await.unwrap();
        let erased = log.erase(erasure("customer:1")).await.unwrap();
        assert_eq!((erased.events, erased.is_log_empty), (1, true));
        assert!(erased.erasure_id.starts_with("era_"));

        let page =
            log.read(&Selection::all().matching(query(&["Moved"], &["customer:1"])), 10).await.unwrap();
        let json = serde_json::to_value(&page.events[0]).unwrap();
        assert_eq!((&json["data"], &json["erased"]), (&serde_json::Value::Null, &true.into()));
        assert_eq!(
            (&json["eventId"], &json["metadata"]),
            (&first.events[0].event_id.clone().into(), &serde_json::Value::Null)
        );
        assert_eq!(log.append(keyed()).await.unwrap().status, Status::Duplicate);
        let once = mainstay_events::Condition::no_tag("customer:1").unwrap();
        let refused = log.append(append("Moved", &[]).unless(once)).await.unwrap_err();
        assert_eq!(refused.code(), "APPEND_CONDITION_FAILED");
        assert!(log.find(&first.events[0].event_id).await.unwrap().unwrap().is_erased());

        let again = log.erase(erasure("customer:1")).await.unwrap();
        assert_eq!(again.events, 0, "again erases nothing more");
        let report = verify(&log).await;
        assert_eq!((report.problems.len(), report.erased), (0, 1), "{:?}", report.problems);
        let rows = audits(&log).await;
        assert_eq!(rows.len(), 2);
        // Ids of one millisecond have no order.
        for (id, events) in [(erased.erasure_id, 1), (again.erasure_id, 0)] {
            let row = rows.iter().find(|row| row[6] == Value::from(&id)).unwrap();
            let selector = Value::from(r#"{"query":[{"tags":["customer:1"]}]}"#);
            assert_eq!(
                row[..5],
                [selector, Value::Null, "ada".into(), "request 17".into(), Value::Int(events)]
            );
            assert!(!matches!(row[5], Value::Null), "it has ended: {row:?}");
        }
    });
}

#[test]
fn by_id_whether_given_or_made_and_never_without_a_reason() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let made = log.append(saying("A", SECRET)).await.unwrap().events[0].event_id.clone();
        log.append(saying("B", SECRET).id("evt-1")).await.unwrap();
        for id in [made.as_str(), "evt-1"] {
            let by_id = || Erasure::of_event(id).by("ada").because("request 17");
            assert_eq!(log.erase(by_id()).await.unwrap().events, 1);
            assert_eq!(log.erase(by_id()).await.unwrap().events, 0);
            assert!(log.find(id).await.unwrap().unwrap().is_erased());
        }
        let unknown = log.erase(Erasure::of_event("evt-2").by("ada").because("x")).await.unwrap_err();
        assert_eq!(unknown.code(), "EVENT_NOT_FOUND");
        let silent = log.erase(Erasure::of_event("evt-1").by("ada")).await.unwrap_err();
        assert_eq!(silent.code(), "EVENT_INVALID");
        assert_eq!(audits(&log).await.len(), 4, "what was refused is not written down");
    });
}

#[test]
fn a_tenant_erases_only_its_own() {
    for_each_store(async |place| {
        let log = open(&place).await;
        for tenant in ["acme", "other"] {
            log.for_tenant(tenant)
                .append(saying("A", SECRET).tag("x").id(format!("of-{tenant}")))
                .await
                .unwrap();
        }
        let acme = log.for_tenant("acme");
        let foreign = acme.erase(Erasure::of_event("of-other").by("ada").because("x")).await.unwrap_err();
        assert_eq!(foreign.code(), "EVENT_NOT_FOUND");
        assert_eq!(acme.erase(erasure("x")).await.unwrap().events, 1);
        assert!(log.find("of-acme").await.unwrap().unwrap().is_erased());
        assert!(!log.find("of-other").await.unwrap().unwrap().is_erased());
        assert_eq!(audits(&log).await[0][1], "acme".into());
    });
}

/// Whether the secret is in a file. Another process looks: closing the file here would drop SQLite's locks on it.
fn is_in(path: &Path) -> bool {
    path.exists() && Command::new("grep").arg("-qaF").arg(SECRET).arg(path).status().unwrap().success()
}

#[test]
fn the_bytes_are_gone_from_the_file_and_its_log() {
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let log = open(&place).await;
        let (file, wal) = (place.file().unwrap(), place.folder().unwrap().join("store.db-wal"));
        // Rows of many sizes, so that pages split and overflow, and neighbours that stay.
        for number in 0..150_usize {
            let text = format!("{} {SECRET}", "-".repeat(number * 67 % 6_000));
            let secret = saying("Secret", &text).tag(format!("secret:{}", number % 3));
            log.append(Append::new([secret, event("Plain", &["plain"])])).await.unwrap();
        }
        assert!(is_in(&wal) || is_in(&file));
        for (round, left) in [("secret:1", true), ("secret:0", true), ("secret:2", false)] {
            let erased = log.erase(erasure(round)).await.unwrap();
            assert_eq!((erased.events, erased.is_log_empty), (50, true));
            assert_eq!(is_in(&file) || is_in(&wal), left, "after {round}");
        }
        assert_eq!(verify(&log).await.problems, []);
        log.store().clone().close().await;
        assert!(!is_in(&file));
    });
}

#[test]
fn a_damaged_payload_can_be_erased_and_a_damaged_header_is_told() {
    for_each_store(async |place| {
        let log = open(&place).await;
        for _ in 0..3 {
            log.append(saying("A", SECRET).tag("x")).await.unwrap();
        }
        let damage = "UPDATE mainstay_events SET payload = (SELECT header FROM mainstay_events WHERE position = 1) \
                      WHERE position = 2";
        super::tamper(&log, damage, &[]).await;
        let damage = "UPDATE mainstay_events SET header = (SELECT header FROM mainstay_events WHERE position = 1) \
                      WHERE position = 3";
        super::tamper(&log, damage, &[]).await;
        let error = log.erase(erasure("x")).await.unwrap_err();
        assert_eq!(error.code(), "LOG_CORRUPT");
        let rows = audits(&log).await;
        assert_eq!((&rows[0][4], &rows[0][5]), (&Value::Int(2), &Value::Null), "it has not ended");
        let page = log.read(&Selection::all(), 2).await.unwrap();
        assert!(page.events.iter().all(mainstay_events::Event::is_erased));
    });
}

#[test]
fn a_decision_does_not_find_what_was_erased() {
    for_each_store(async |place| {
        let log = open(&place).await;
        for customer in ["customer:1", "customer:2"] {
            log.append(saying("Moved", SECRET).tag(customer)).await.unwrap();
        }
        let of = |customer: &str| Selection::all().tagged(customer).unwrap();
        assert!(deciding(&log, of("customer:1")).await.events[0].data().is_some());
        log.erase(erasure("customer:1")).await.unwrap();
        let first = deciding(&log, of("customer:1")).await;
        assert!(first.events.len() == 1 && first.events[0].is_erased(), "{first:?}");
        let second = deciding(&log, of("customer:2")).await;
        assert_eq!(second.events[0].data_as::<String>().unwrap(), SECRET);
    });
}

#[test]
fn a_decision_is_told_the_epoch() {
    for_each_store(async |place| {
        let log = open(&place).await;
        log.append(append("Moved", &["customer:1"])).await.unwrap();
        assert_eq!(deciding(&log, Selection::all()).await.epoch, 1);
        assert_eq!(log.begin_epoch().await.unwrap(), 2);
        assert_eq!(deciding(&log, Selection::all()).await.epoch, 2);
    });
}
