//! Appending: positions, ids, streams, scopes, limits.

use crate::support::{all, append, event, open, positions};
use mainstay_core::keys::ScopeKey;
use mainstay_core::trace::TraceContext;
use mainstay_events::{Append, Category, Error, NewEvent, Status, Versioned};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::{START_MS, VirtualTime};

#[test]
fn positions_are_dense_from_one_in_the_order_of_commits() {
    for_each_store(async |place| {
        let log = open(&place).await;
        assert_eq!(log.head().await.unwrap(), 0);
        let tasks: Vec<_> = (0..40)
            .map(|number| {
                let log = log.clone();
                tokio::spawn(async move {
                    let events = (0..=number % 3).map(|part| event("T", &[&format!("n:{number}:{part}")]));
                    log.append(Append::new(events)).await.unwrap()
                })
            })
            .collect();
        let mut given = Vec::new();
        for task in tasks {
            let appended = task.await.unwrap();
            let own: Vec<u64> = appended.events.iter().map(|event| event.position).collect();
            assert!(own.windows(2).all(|pair| pair[1] == pair[0] + 1), "one append is contiguous: {own:?}");
            given.extend(own);
        }
        given.sort_unstable();
        assert_eq!(given, (1..=given.len() as u64).collect::<Vec<_>>());
        assert_eq!(positions(&all(&log).await), given);
    });
}

#[test]
fn an_event_keeps_everything_it_was_given() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let trace = TraceContext { trace_id: "t1".into(), span_id: "s1".into(), parent_span_id: None };
        let full = NewEvent::new("OrderPlaced", &serde_json::json!({"n": 1})).unwrap();
        let full = full
            .id("evt-1")
            .tag("order:1")
            .tag("order:1")
            .stream("order", "1")
            .correlation("corr-1")
            .causation("cmd-1")
            .context("orders")
            .tenant("acme")
            .category(Category::Integration)
            .schema_version(2)
            .trace(trace.clone())
            .metadata(&serde_json::json!({"user": "ada"}))
            .unwrap();
        let receipt = log.append(full).await.unwrap();
        assert_eq!((receipt.events[0].event_id.as_str(), receipt.events[0].version), ("evt-1", Some(1)));
        let found = log.find("evt-1").await.unwrap().unwrap();
        assert_eq!(found.tags().collect::<Vec<_>>(), ["order:1"]);
        assert_eq!((found.correlation_id(), found.causation_id()), ("corr-1", Some("cmd-1")));
        assert_eq!((found.context(), found.tenant()), (Some("orders"), Some("acme")));
        assert_eq!((found.category(), found.schema_version()), (Category::Integration, 2));
        assert_eq!((found.data(), found.metadata()), (Some(r#"{"n":1}"#), Some(r#"{"user":"ada"}"#)));
        assert_eq!(found.trace(), Some(trace));
        let json: serde_json::Value = serde_json::to_value(&found).unwrap();
        assert_eq!(json["stream"]["version"], 1);
        assert_eq!(json["data"]["n"], 1);
        assert_eq!(json["boundedContext"], "orders");
    });
}

#[test]
fn ids_are_made_when_there_are_none_and_found_again() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let receipt =
            log.append(Append::new([event("A", &[]).context("orders"), event("B", &[])])).await.unwrap();
        for given in &receipt.events {
            let found = log.find(&given.event_id).await.unwrap().unwrap();
            assert_eq!(found.position(), given.position);
        }
        assert!(receipt.events[0].event_id.starts_with("orders_event_"), "{receipt:?}");
        let events = all(&log).await;
        let shared = events[0].correlation_id();
        assert!(shared.starts_with("corr_") && events[1].correlation_id() == shared);
        assert!(log.find("app_event_unknown").await.unwrap().is_none());
    });
}

#[test]
fn an_id_is_taken_once() {
    for_each_store(async |place| {
        let log = open(&place).await;
        log.append(event("A", &[]).id("same")).await.unwrap();
        let made = log.append(append("A", &[])).await.unwrap().events.remove(0).event_id;
        for taken in ["same", &made] {
            let again = log.append(event("A", &[]).id(taken)).await.unwrap_err();
            assert_eq!(again.code(), "EVENT_ID_TAKEN");
        }
        assert_eq!(log.head().await.unwrap(), 2);
    });
}

#[test]
fn a_stream_counts_its_versions_and_refuses_another_expectation() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let of = |version| event("E", &[]).stream("order", "1").expecting(version);
        log.append(Append::new([of(0), of(1)])).await.unwrap();
        let stale = log.append(of(1)).await.unwrap_err();
        let Error::VersionConflict { of: versioned, expected: 1, current: 2, head: 2 } = stale else {
            panic!("{stale:?}")
        };
        assert_eq!(versioned, Versioned::Stream { stream_type: "order".into(), id: "1".into() });
        assert_eq!(log.append(of(5)).await.unwrap_err().code(), "VERSION_CONFLICT");
        assert_eq!(log.append(of(2)).await.unwrap().events[0].version, Some(3));
        let anyway = log.append(event("E", &[]).stream("order", "1")).await.unwrap();
        assert_eq!(anyway.events[0].version, Some(4));
        assert_eq!(
            log.append(event("E", &[]).stream("order", "2")).await.unwrap().events[0].version,
            Some(1)
        );
        let page = log.read_stream("order", "1", 2, 10).await.unwrap();
        assert_eq!((page.version, positions(&page.page.events)), (4, vec![3, 4]));
        let none = log.read_stream("order", "none", 0, 10).await.unwrap();
        assert_eq!((none.version, none.page.events.len()), (0, 0));
    });
}

#[test]
fn b_058_a_scope_at_another_version_is_a_conflict_that_names_the_current_one() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let key = ScopeKey::new("acme", "course", "c1").unwrap();
        let claim = |version| event("Enrolled", &[]).scope(&key, version);
        assert_eq!(log.scope_version(&key).await.unwrap(), 0);
        log.append(Append::new([claim(0), claim(0)])).await.unwrap();
        assert_eq!(log.scope_version(&key).await.unwrap(), 1, "one append moves a scope once");
        let stale = log.append(claim(0)).await.unwrap_err();
        assert!(matches!(stale, Error::VersionConflict { expected: 0, current: 1, .. }), "{stale:?}");
        log.append(claim(1)).await.unwrap();
        assert_eq!(all(&log).await[2].scope(), Some((key.to_string().as_str(), 2)));
    });
}

#[test]
fn b_059_a_missing_scope_is_at_version_0_and_a_bad_key_is_refused() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let key = ScopeKey::new("acme", "course", "c1").unwrap();
        let early = log.append(event("E", &[]).scope(&key, 3)).await.unwrap_err();
        assert!(matches!(early, Error::VersionConflict { expected: 3, current: 0, .. }), "{early:?}");
        for (bad, code) in [("", "SCOPE_KEY_EMPTY"), ("tenant:acme", "INVALID_SCOPE_KEY_FORMAT")] {
            assert_eq!(log.append(event("E", &[]).scope(bad, 0)).await.unwrap_err().code(), code);
        }
        assert_eq!(log.head().await.unwrap(), 0);
    });
}

#[test]
fn limits_name_the_field_and_change_nothing() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let long = "x".repeat(513);
        let many: Vec<String> = (0..65).map(|number| format!("t{number}")).collect();
        let many = many.iter().fold(event("E", &[]), |event, tag| event.tag(tag.as_str()));
        let text = |length: usize| NewEvent::new("E", &"x".repeat(length)).unwrap();
        let deep =
            NewEvent::new("E", &(0..65).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner])));
        let cases: Vec<(Append, &str, &str)> = vec![
            (Append::new([]), "APPEND_EMPTY", "events"),
            (Append::new((0..101).map(|_| event("E", &[]))), "APPEND_TOO_LARGE", "events"),
            (append("", &[]), "EVENT_INVALID", "events[0].type"),
            (append("a\0b", &[]), "EVENT_INVALID", "events[0].type"),
            (append("E", &["ok", &long]), "EVENT_INVALID", "events[0].tags[1]"),
            (many.into(), "EVENT_INVALID", "events[0].tags"),
            (text((64 << 10) - 1).into(), "PAYLOAD_TOO_LARGE", "events[0].data"),
            (deep.unwrap().into(), "EVENT_INVALID", "events[0].data"),
            (event("E", &[]).id("").into(), "EVENT_INVALID", "events[0].eventId"),
            (event("E", &[]).metadata(&1).unwrap().into(), "EVENT_INVALID", "events[0].metadata"),
            (event("E", &[]).schema_version(0).into(), "EVENT_INVALID", "events[0].schemaVersion"),
            (event("E", &[]).stream("order", "").into(), "EVENT_INVALID", "events[0].stream.id"),
            (
                event("E", &[]).stream("order", "1").expecting(u64::MAX).into(),
                "EVENT_INVALID",
                "events[0].stream.expectedVersion",
            ),
            (
                Append::new([event("E", &[]).id("a"), event("E", &[]).id("a")]),
                "EVENT_INVALID",
                "events[1].eventId",
            ),
        ];
        for (append, code, field) in cases {
            let error = log.append(append).await.unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().starts_with(field), "{error} names {field}");
        }
        assert_eq!(log.append(text((64 << 10) - 2)).await.unwrap().status, Status::Appended);
        assert_eq!(log.head().await.unwrap(), 1);
    });
}

#[test]
fn time_never_goes_back_along_the_log() {
    for_each_store(async |place| {
        let options = place.options().component(mainstay_events::COMPONENT);
        let (store, time) = VirtualTime::open_with(&place, options).await.unwrap();
        let log = mainstay_events::Log::open(&store).await.unwrap();
        for step in [0, 1_000, -500_000, 500_500] {
            time.advance(step).await.unwrap();
            log.append(append("E", &[])).await.unwrap();
        }
        let times: Vec<i64> = all(&log).await.iter().map(|event| event.timestamp_ms() - START_MS).collect();
        assert_eq!(times, [0, 1_000, 1_000, 1_500]);
    });
}
