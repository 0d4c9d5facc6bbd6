//! Items 138 to 147: an append is done once for its key.

use crate::support::{all, event, open};
use mainstay_events::{Append, Appended, Category, Error, IdempotencyKey, Log, NewEvent, Reuse, Status};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;

fn paid(amount: u32) -> NewEvent {
    let event =
        NewEvent::new("PaymentCaptured", &serde_json::json!({"amount": amount, "of": "ord-123"})).unwrap();
    event.stream("order", "ord-123").idempotent(&IdempotencyKey::action("payment", "ord-123").unwrap())
}

async fn audits(log: &Log) -> i64 {
    let count =
        async |tx: Tx| tx.query_one("SELECT count(*) FROM mainstay_idempotency_audits", &[]).await?.get(0);
    log.store().read(count).await.unwrap()
}

fn only(appended: &Appended) -> (&str, u64, Option<u64>) {
    let [event] = &appended.events[..] else { panic!("{appended:?}") };
    (&event.event_id, event.position, event.version)
}

#[test]
fn b_138_b_141_an_unused_key_appends_and_the_event_carries_it() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let appended = log.append(paid(5)).await.unwrap();
        assert_eq!(appended.status, Status::Appended);
        assert_eq!(all(&log).await[0].idempotency_key(), Some("payment:ord-123"));
        log.append(event("Other", &[])).await.unwrap();
        assert_eq!(all(&log).await[1].idempotency_key(), None, "a key is optional");
    });
}

#[test]
fn b_140_b_142_a_used_key_is_a_duplicate_that_names_the_first_event() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let first = log.append(paid(5).id("evt-456")).await.unwrap();
        let again = log.append(paid(5)).await.unwrap();
        assert_eq!(again.status, Status::Duplicate);
        assert_eq!(only(&again), ("evt-456", 1, Some(1)));
        assert_eq!(only(&again), only(&first));
        let json = serde_json::to_value(&again).unwrap();
        assert_eq!(json["status"], "duplicate");
        assert_eq!(log.head().await.unwrap(), 1, "the store is unchanged");
    });
}

#[test]
fn b_139_the_idempotent_append_takes_every_field_of_the_item() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let full = || paid(5).context("payments").correlation("corr-1").causation("cmd-1").expecting_any();
        assert_eq!(log.append(full().expecting(0)).await.unwrap().status, Status::Appended);
        let stored = &all(&log).await[0];
        assert_eq!((stored.context(), stored.correlation_id()), (Some("payments"), "corr-1"));
        // The stream has moved on since; the key is looked at before the version.
        assert_eq!(log.append(full().expecting(0)).await.unwrap().status, Status::Duplicate);
    });
}

trait ExpectingAny {
    fn expecting_any(self) -> Self;
}

impl ExpectingAny for NewEvent {
    fn expecting_any(mut self) -> Self {
        if let Some(stream) = &mut self.stream {
            stream.expected_version = None;
        }
        self
    }
}

#[test]
fn b_143_another_key_is_another_event() {
    for_each_store(async |place| {
        let log = open(&place).await;
        log.append(paid(5)).await.unwrap();
        let other = paid(5).idempotent(&IdempotencyKey::action("refund", "ord-123").unwrap());
        let other = log.append(other).await.unwrap();
        assert_eq!((other.status, other.events[0].position), (Status::Appended, 2));
    });
}

#[test]
fn b_144_any_number_of_concurrent_retries_stores_it_once() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let tries: Vec<_> = (0..50)
            .map(|_| {
                let log = log.clone();
                tokio::spawn(async move { log.append(paid(5)).await.unwrap() })
            })
            .collect();
        let mut appended = 0;
        for one in tries {
            let answer = one.await.unwrap();
            assert_eq!(only(&answer).1, 1);
            appended += usize::from(answer.status == Status::Appended);
        }
        assert_eq!((appended, log.head().await.unwrap()), (1, 1));
    });
}

#[test]
fn b_147_the_same_key_with_other_content_is_refused_and_audited() {
    for_each_store(async |place| {
        let log = open(&place).await;
        log.append(paid(5).id("evt-456")).await.unwrap();
        // Another spelling of the same data is the same content.
        let spelled = Append::new([NewEvent {
            data: serde_json::value::RawValue::from_string(r#"{ "of":"ord-123", "amount": 5 }"#.into())
                .unwrap(),
            ..paid(5)
        }]);
        assert_eq!(log.append(spelled).await.unwrap().status, Status::Duplicate);
        assert_eq!(audits(&log).await, 0);
        let error = log.append(paid(6)).await.unwrap_err();
        let Error::IdempotencyConflict { existing_event_id, reason, audit_id, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((existing_event_id.as_str(), *reason), ("evt-456", Reuse::DifferentPayload));
        assert!(audit_id.starts_with("ida_"));
        assert_eq!((audits(&log).await, log.head().await.unwrap()), (1, 1), "the first event is kept");
        assert_eq!(all(&log).await[0].data(), Some(r#"{"amount":5,"of":"ord-123"}"#));
    });
}

#[test]
fn b_147_a_version_conflict_without_a_known_key_names_both_versions() {
    for_each_store(async |place| {
        let log = open(&place).await;
        log.append(event("Placed", &[]).stream("order", "ord-123")).await.unwrap();
        let error = log.append(paid(5).expecting(0)).await.unwrap_err();
        assert!(matches!(error, Error::VersionConflict { expected: 0, current: 1, .. }), "{error:?}");
    });
}

#[test]
fn b_147_a_batch_is_a_duplicate_as_a_whole_or_not_at_all() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let keyed = |key: &str| event("E", &[]).idempotent(&IdempotencyKey::raw(key).unwrap());
        log.append(Append::new([keyed("a"), keyed("b")])).await.unwrap();
        let again = log.append(Append::new([keyed("a"), keyed("b")])).await.unwrap();
        let positions: Vec<u64> = again.events.iter().map(|event| event.position).collect();
        assert_eq!((again.status, positions), (Status::Duplicate, vec![1, 2]));
        let error = log.append(Append::new([keyed("b"), keyed("c")])).await.unwrap_err();
        assert!(matches!(error, Error::IdempotencyConflict { reason: Reuse::PartialBatch, .. }), "{error:?}");
        let mixed = log.append(Append::new([keyed("d"), event("E", &[])])).await.unwrap_err();
        assert_eq!(mixed.code(), "EVENT_INVALID");
        assert_eq!((log.head().await.unwrap(), audits(&log).await), (2, 1));
    });
}

#[test]
fn b_138_a_tenants_keys_are_its_own() {
    for_each_store(async |place| {
        let log = open(&place).await;
        for tenant in ["acme", "other"] {
            let appended = log.for_tenant(tenant).append(paid(5)).await.unwrap();
            assert_eq!(
                (appended.status, appended.events[0].version),
                (Status::Appended, Some(1)),
                "{tenant}"
            );
        }
        let again = log.for_tenant("acme").append(paid(5)).await.unwrap();
        assert_eq!((again.status, again.events[0].position), (Status::Duplicate, 1));
    });
}

/// Each of the eight parts of a fingerprint, changed alone.
fn changes() -> [(&'static str, NewEvent); 8] {
    let base = || paid(5).context("payments").tenant("acme");
    let in_stream = |stream_type: &str, id: &str| base().stream(stream_type, id);
    [
        ("stream type", in_stream("invoice", "ord-123")),
        ("stream id", in_stream("order", "ord-124")),
        ("bounded context", base().context("refunds")),
        ("tenant", base().tenant("other")),
        ("event type", NewEvent { event_type: "PaymentReserved".to_owned(), ..base() }),
        ("category", base().category(Category::Integration)),
        ("schema version", base().schema_version(2)),
        ("data", NewEvent { data: paid(6).data, ..base() }),
    ]
}

#[test]
fn b_147_each_part_of_what_a_key_stands_for_counts_alone() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let base = paid(5).context("payments").tenant("acme");
        log.append(base.clone()).await.unwrap();
        let stored = all(&log).await.remove(0);
        assert!(stored.is_repeated_by(&base));
        for (part, changed) in changes() {
            assert!(!stored.is_repeated_by(&changed), "{part}");
            // A key of another tenant is another key.
            if part != "tenant" {
                let error = log.append(changed).await.unwrap_err();
                let reason = Reuse::DifferentPayload;
                assert!(
                    matches!(&error, Error::IdempotencyConflict { reason: told, .. } if *told == reason),
                    "{part}: {error:?}"
                );
            }
        }
        let repeat =
            base.correlation("another").causation("another").metadata(&serde_json::json!({})).unwrap();
        assert_eq!(log.append(repeat).await.unwrap().status, Status::Duplicate, "the rest may differ");
        assert_eq!(log.head().await.unwrap(), 1);
    });
}
