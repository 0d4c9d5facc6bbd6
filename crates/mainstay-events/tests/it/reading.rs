//! Reading, waiting and following.

use crate::support::{all, append, deciding, event, item, open, positions, query, select, select_backwards};
use mainstay_events::{Append, Query, Selection};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::{START_MS, VirtualTime};
use std::time::Duration;

#[test]
fn every_shape_of_query_yields_what_a_scan_yields() {
    for_each_store(async |place| {
        // Where the newest entries are in memory, some of these are in the table and some are not.
        let store = place.options().component(mainstay_events::COMPONENT).open().await.unwrap();
        let log = mainstay_events::Log::open_in_segments(&store, 16).await.unwrap();
        let (types, tags) = (["A", "B", "C"], ["x", "y", "z"]);
        for number in 0_usize..60 {
            let mine: Vec<&str> = (0..3).filter(|bit| number >> bit & 1 == 1).map(|bit| tags[bit]).collect();
            log.append(append(types[number / 8 % 3], &mine)).await.unwrap();
        }
        let events = all(&log).await;
        let mut items = Vec::new();
        for some_types in [&[][..], &["A"], &["A", "C"], &["none"]] {
            for some_tags in [&[][..], &["x"], &["x", "z"], &["x", "y", "z"], &["x", "none"]] {
                items.push(item(some_types, some_tags));
            }
        }
        let pairs = items
            .iter()
            .enumerate()
            .map(|(number, one)| vec![one.clone(), items[(number * 7 + 3) % items.len()].clone()]);
        for items in items.iter().map(|one| vec![one.clone()]).chain(pairs) {
            let query = Query::new(items).unwrap();
            for after in [0, 13, 60] {
                let expected: Vec<u64> = events
                    .iter()
                    .filter(|event| event.position() > after)
                    .filter(|event| query.matches(event.event_type(), &event.tags().collect::<Vec<_>>()))
                    .map(mainstay_events::Event::position)
                    .collect();
                let selection = Selection::all().matching(query.clone()).after(after);
                let found = select(&log, selection.clone()).await;
                assert_eq!(positions(&found), expected, "{query:?} after {after}");
                let page = deciding(&log, selection.clone()).await;
                assert_eq!(format!("{:?}", page.events), format!("{found:?}"), "{query:?} after {after}");
                assert_eq!((page.head, page.next, page.epoch), (60, None, 1));
                let mut backwards = positions(&select_backwards(&log, selection.clone()).await);
                backwards.reverse();
                assert_eq!(backwards, expected, "{query:?} after {after}, backwards");
                let selection = selection.until(31);
                let mut backwards = positions(&select_backwards(&log, selection).await);
                backwards.reverse();
                let some: Vec<u64> = expected.into_iter().filter(|position| *position <= 31).collect();
                assert_eq!(backwards, some, "{query:?} after {after} until 31, backwards");
            }
        }
    });
}

#[test]
fn reads_by_stream_correlation_and_time() {
    for_each_store(async |place| {
        let options = place.options().component(mainstay_events::COMPONENT);
        let (store, time) = VirtualTime::open_with(&place, options).await.unwrap();
        let log = mainstay_events::Log::open(&store).await.unwrap();
        for number in 0..9 {
            let stream = format!("{}", number % 2);
            log.append(event("E", &[]).stream("order", stream).correlation(format!("c{}", number % 3)))
                .await
                .unwrap();
            time.advance(1_000).await.unwrap();
        }
        let own = log.append(Append::new([event("E", &[]), event("E", &[])])).await.unwrap();
        let made = log.find(&own.events[0].event_id).await.unwrap().unwrap().correlation_id().to_owned();
        log.append(event("Later", &[]).correlation(made.as_str())).await.unwrap();
        let all = Selection::all;
        let cases = [
            (all().of_stream("order", "1"), vec![2, 4, 6, 8]),
            (all().correlated("c1"), vec![2, 5, 8]),
            (all().correlated("c1").of_stream("order", "0"), vec![5]),
            (all().correlated(made.as_str()), vec![10, 11, 12]),
            (all().since_ms(START_MS + 3_000).before_ms(START_MS + 5_000), vec![4, 5]),
            (all().since_ms(START_MS + 8_001), vec![10, 11, 12]),
            (all().before_ms(START_MS), vec![]),
            (all().after(4).until(6), vec![5, 6]),
            (all().matching(query(&["E"], &[])).correlated("c0").after(1), vec![4, 7]),
        ];
        for (selection, expected) in cases {
            let found = select(&log, selection.clone()).await;
            assert_eq!(positions(&found), expected, "{selection:?}");
            let mut backwards = positions(&select_backwards(&log, selection.clone()).await);
            backwards.reverse();
            assert_eq!(backwards, expected, "{selection:?} backwards");
        }
    });
}

#[test]
fn a_page_is_bounded_and_tells_how_to_go_on() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let big = "x".repeat(60_000);
        let large = |_| mainstay_events::NewEvent::new("Large", &big).unwrap();
        for _ in 0..2 {
            log.append(Append::new((0..50).map(large))).await.unwrap();
        }
        let page = log.read(&Selection::all(), 1_000).await.unwrap();
        assert!(page.events.len() < 100 && page.events.len() >= 60, "{}", page.events.len());
        assert_eq!((page.next, page.head), (Some(page.events.len() as u64), 100));
        let back = log.read_backwards(&Selection::all(), 1_000).await.unwrap();
        assert!(back.events.len() < 100 && back.events.len() >= 60, "{}", back.events.len());
        assert_eq!((back.next, back.head), (Some(100 - back.events.len() as u64), 100));
        assert_eq!(back.events[0].position(), 100);
        let last = log.read_backwards(&Selection::all().until(1), 10).await.unwrap();
        assert_eq!((positions(&last.events), last.next), (vec![1], None));
        let none = log.read_backwards(&Selection::all().until(0), 10).await.unwrap();
        assert_eq!((none.events.len(), none.next), (0, None));
        let empty = log.read(&Selection::all().after(100), 10).await.unwrap();
        assert_eq!((empty.events.len(), empty.next, empty.head), (0, None, 100));
        let beyond = log.read(&Selection::all().after(500), 10).await.unwrap();
        assert_eq!((beyond.events.len(), beyond.next), (0, None));
    });
}

#[test]
fn waiting_ends_when_the_log_gets_there_or_patience_ends() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let waiting = tokio::spawn({
            let log = log.clone();
            async move { log.wait_for(2, Duration::from_secs(60)).await }
        });
        log.append(Append::new([event("A", &[]), event("B", &[])])).await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap(), 2);
        let error = log.wait_for(3, Duration::from_millis(5)).await.unwrap_err();
        assert_eq!(error.code(), "LOG_NOT_REACHED");
    });
}

#[test]
fn a_subscription_catches_up_then_follows() {
    for_each_store(async |place| {
        let log = open(&place).await;
        for _ in 0..30 {
            log.append(append("Before", &["x"])).await.unwrap();
        }
        let mut everything = log.subscribe(Selection::all());
        let mut some = log.subscribe(Selection::all().tagged("x").unwrap().after(10));
        let writer = tokio::spawn({
            let log = log.clone();
            async move {
                for number in 0..200 {
                    log.append(append("After", &[if number % 2 == 0 { "x" } else { "y" }])).await.unwrap();
                }
            }
        });
        for expected in 1..=230 {
            assert_eq!(everything.next().await.unwrap().position(), expected);
        }
        let mut last = 10;
        for _ in 0..20 + 100 {
            let event = some.next().await.unwrap();
            assert!(event.position() > last && event.tags().any(|tag| tag == "x"));
            last = event.position();
        }
        writer.await.unwrap();
        assert!(some.try_next().await.unwrap().is_none());
        assert_eq!(everything.position(), 230);
        assert!(everything.try_next().await.unwrap().is_none());
    });
}

#[test]
fn tenants_see_their_own() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let acme = log.for_tenant("acme");
        log.append(append("Public", &["x"])).await.unwrap();
        let own = acme.append(event("Own", &["x"]).stream("order", "1").correlation("c")).await.unwrap();
        let other = log.for_tenant("other");
        other.append(event("Foreign", &["x"]).stream("order", "1").correlation("c")).await.unwrap();
        assert_eq!(positions(&all(&acme).await), [2]);
        assert_eq!(positions(&select(&acme, Selection::all().tagged("x").unwrap()).await), [2]);
        assert_eq!(positions(&select_backwards(&acme, Selection::all()).await), [2]);
        assert_eq!(positions(&select_backwards(&acme, Selection::all().correlated("c")).await), [2]);
        assert_eq!(positions(&select(&acme, Selection::all().correlated("c")).await), [2]);
        assert_eq!(acme.read_stream("order", "1", 0, 10).await.unwrap().version, 1);
        assert!(other.find(&own.events[0].event_id).await.unwrap().is_none());
        let mut following = acme.subscribe(Selection::all());
        assert_eq!(following.next().await.unwrap().position(), 2);
        assert!(following.try_next().await.unwrap().is_none());
    });
}
