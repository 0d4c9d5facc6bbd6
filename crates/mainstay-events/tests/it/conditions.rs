//! Dynamic consistency boundaries, as dcb.events defines them.

use crate::support::{all, append, event, item, open, query};
use mainstay_events::{Append, Condition, Error, Query};
use mainstay_testkit::stores::for_each_store;

#[test]
fn types_are_any_of_tags_are_all_of_items_are_ored() {
    for_each_store(async |place| {
        let log = open(&place).await;
        log.append(Append::new([event("A", &["x"]), event("B", &["x", "y"]), event("C", &["z"])]))
            .await
            .unwrap();
        let cases = [
            (vec![item(&["A"], &["x"])], Some(1)),
            (vec![item(&["A", "B"], &["x"])], Some(2)),
            (vec![item(&["A", "B"], &["x", "y"])], Some(2)),
            (vec![item(&["A"], &["x", "y"])], None),
            (vec![item(&["A"], &["z"])], None),
            (vec![item(&[], &["x", "y"])], Some(2)),
            (vec![item(&[], &["x", "z"])], None),
            (vec![item(&["D"], &[])], None),
            (vec![item(&["D", "A"], &[])], Some(1)),
            (vec![item(&["D"], &[]), item(&[], &["z"])], Some(3)),
            (vec![item(&[], &[])], Some(3)),
        ];
        for (items, expected) in cases {
            let query = Query::new(items.clone()).unwrap();
            let refused = log.append(append("N", &["n"]).unless(Condition::none_match(query))).await;
            let head = log.head().await.unwrap();
            match (refused, expected) {
                (Ok(_), None) => {}
                (Err(Error::ConditionFailed { witness, .. }), Some(position)) => {
                    // Each append that went in is newer than what was there; only "any event" sees it.
                    let expected = if items == [item(&[], &[])] { head } else { position };
                    assert_eq!(witness.position, expected, "{items:?}");
                }
                (other, _) => panic!("{items:?}: {other:?}"),
            }
        }
    });
}

#[test]
fn what_is_known_does_not_count() {
    for_each_store(async |place| {
        let log = open(&place).await;
        for _ in 0..3 {
            log.append(append("A", &["x"])).await.unwrap();
        }
        let after = |position| Condition::none_match(query(&[], &["x"])).after(position);
        for stale in [0, 1, 2] {
            let error = log.append(append("B", &["x"]).unless(after(stale))).await.unwrap_err();
            let Error::ConditionFailed { witness, head: 3 } = error else { panic!("{error:?}") };
            assert_eq!((witness.position, witness.event_type.as_str()), (3, "A"), "the newest is named");
        }
        log.append(append("B", &["x"]).unless(after(3))).await.unwrap();
        assert_eq!(
            log.append(append("B", &["x"]).unless(after(3))).await.unwrap_err().code(),
            "APPEND_CONDITION_FAILED"
        );
    });
}

#[test]
fn what_dcb_leaves_dangerous_is_refused() {
    for_each_store(async |place| {
        let log = open(&place).await;
        log.append(append("A", &[])).await.unwrap();
        let beyond = Condition::none_match(query(&["A"], &[])).after(2);
        let error = log.append(append("B", &[]).unless(beyond)).await.unwrap_err();
        assert!(matches!(error, Error::AfterBeyondHead { after: 2, head: 1 }), "{error:?}");
        assert!(Query::new(vec![]).is_err(), "an empty list of items");
        let huge = Condition::none_match(query(&["A"], &[])).after(u64::MAX);
        assert_eq!(log.append(append("B", &[]).unless(huge)).await.unwrap_err().code(), "EVENT_INVALID");
        assert_eq!(log.head().await.unwrap(), 1);
    });
}

#[test]
fn one_of_many_racers_wins_a_boundary() {
    for_each_store(async |place| {
        let log = open(&place).await;
        for round in 0..10 {
            let tag = format!("seat:{round}");
            let racers: Vec<_> = (0..16)
                .map(|_| {
                    let (log, tag) = (log.clone(), tag.clone());
                    tokio::spawn(async move {
                        let once = Condition::no_tag(tag.as_str()).unwrap();
                        log.append(append("Taken", &[&tag]).unless(once)).await
                    })
                })
                .collect();
            let mut winners = 0;
            for racer in racers {
                match racer.await.unwrap() {
                    Ok(_) => winners += 1,
                    Err(error) => assert_eq!(error.code(), "APPEND_CONDITION_FAILED"),
                }
            }
            assert_eq!(winners, 1, "{tag}");
        }
        assert_eq!(all(&log).await.len(), 10);
    });
}

#[test]
fn a_refused_append_leaves_its_neighbours_alone() {
    for_each_store(async |place| {
        let log = open(&place).await;
        log.append(append("A", &["taken"])).await.unwrap();
        let tasks: Vec<_> = (0..60)
            .map(|number| {
                let log = log.clone();
                tokio::spawn(async move {
                    let tag = if number % 3 == 0 { "taken".to_owned() } else { format!("free:{number}") };
                    let once = Condition::no_tag(tag.as_str()).unwrap();
                    (number, log.append(append("B", &[&tag]).unless(once)).await)
                })
            })
            .collect();
        for task in tasks {
            let (number, result) = task.await.unwrap();
            assert_eq!(result.is_err(), number % 3 == 0, "{number}: {result:?}");
        }
        assert_eq!(all(&log).await.len(), 41);
    });
}

#[test]
fn a_tenant_is_bounded_by_its_own_events_only() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let (acme, other) = (log.for_tenant("acme"), log.for_tenant("other"));
        let once = || append("Taken", &["name:x"]).unless(Condition::no_tag("name:x").unwrap());
        acme.append(once()).await.unwrap();
        other.append(once()).await.unwrap();
        assert_eq!(acme.append(once()).await.unwrap_err().code(), "APPEND_CONDITION_FAILED");
        assert_eq!(log.append(once()).await.unwrap_err().code(), "APPEND_CONDITION_FAILED");
        let any = Condition::none_match(query(&[], &[]));
        assert!(log.for_tenant("third").append(append("E", &[]).unless(any)).await.is_ok());
        assert_eq!(acme.append(event("E", &[]).tenant("other")).await.unwrap_err().code(), "TENANT_MISMATCH");
        assert_eq!(all(&acme).await.len(), 1);
        assert_eq!(all(&log).await.len(), 3);
    });
}
