//! States that are folded from the log, and what is decided on them.

use super::{Hall, HallCommand, HallEvent, Halls, append, open, run};
use mainstay_events::{Append, Condition, Erasure, Item, Log, NewEvent, Query};
use mainstay_flows::commands::{Folded, fold_in};
use mainstay_flows::{Error, Result};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;

fn hall(number: u32) -> Query {
    let types = ["SeatSold", "SeatRefused", "HallClosed"].map(str::to_owned).to_vec();
    Query::new(vec![Item { types, tags: vec![format!("hall:{number}")] }]).unwrap()
}

async fn fold(log: &Log, query: Query) -> Result<Folded<Hall>> {
    let work = async |tx: Tx, (log, query): (Log, Query)| Ok(fold_in(&tx, &log, &Halls, &query).await?);
    Ok(log.store().transact_with((log.clone(), query), work).await?)
}

#[test]
fn a_state_is_what_the_events_of_its_boundary_say() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let nothing = fold(&log, hall(1)).await.unwrap();
        assert_eq!(nothing, Folded { state: Hall::default(), head: 0, events_read: 0 });
        append(&log, (1..=3).map(|seat| HallEvent::SeatSold { hall: 1, seat })).await;
        append(&log, [HallEvent::SeatSold { hall: 2, seat: 9 }, HallEvent::HallClosed { hall: 1 }]).await;
        // Of the same hall, but none of the decider's business.
        log.append(NewEvent::new("LampBroke", &7).unwrap().tag("hall:1")).await.unwrap();
        let folded = fold(&log, hall(1)).await.unwrap();
        let state = Hall { sold: [1, 2, 3].into(), refused: 0, is_closed: true };
        assert_eq!(folded, Folded { state, head: 6, events_read: 4 });
    });
}

#[test]
fn a_long_history_is_read_page_after_page() {
    for_each_store(async |place| {
        let log = open(&place).await;
        for chunk in 0..21 {
            let sold = (0..100).map(|number| HallEvent::SeatSold { hall: 1, seat: chunk * 100 + number });
            let sold = sold.map(|event| mainstay_flows::commands::encode(&event).unwrap());
            log.append(Append::new(sold)).await.unwrap();
        }
        let folded = fold(&log, hall(1)).await.unwrap();
        assert_eq!((folded.state.sold.len(), folded.head, folded.events_read), (2_100, 2_100, 2_100));
    });
}

#[test]
fn a_decision_is_appended_only_on_the_state_that_it_rests_on() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let sell = |seat| HallCommand::SellSeat { hall: 1, seat };
        assert_eq!(run(&log, Halls, sell(1)).await.unwrap(), Some(1));
        assert_eq!(run(&log, Halls, sell(1)).await.unwrap(), Some(2), "refused, with an event");
        assert_eq!(run(&log, Halls, HallCommand::CloseHall { hall: 1 }).await.unwrap(), Some(3));
        assert_eq!(run(&log, Halls, sell(2)).await.unwrap(), None, "rejected, without one");
        assert_eq!(log.stream_version("hall", "1").await.unwrap(), 1);
        // What was folded before the hall was closed is too old to append on.
        let stale = Condition::none_match(hall(1)).after(2);
        let late = mainstay_flows::commands::encode(&HallEvent::SeatSold { hall: 1, seat: 2 }).unwrap();
        let refused = log.append(Append::from(late).unless(stale)).await.unwrap_err();
        assert_eq!(refused.code(), "APPEND_CONDITION_FAILED");
    });
}

#[test]
fn of_many_who_want_one_seat_one_gets_it() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let tasks: Vec<_> = (0..16)
            .map(|_| {
                let log = log.clone();
                tokio::spawn(async move {
                    loop {
                        let command = HallCommand::SellSeat { hall: 1, seat: 5 };
                        match run(&log, Halls, command).await.map_err(Error::from) {
                            Ok(position) => return position,
                            Err(error) => assert_eq!(error.code(), "APPEND_CONDITION_FAILED", "{error}"),
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            assert!(task.await.unwrap().is_some());
        }
        let folded = fold(&log, hall(1)).await.unwrap();
        assert_eq!((folded.state.sold.len(), folded.state.refused), (1, 15));
    });
}

#[test]
fn tenants_fold_only_their_own() {
    for_each_store(async |place| {
        let log = open(&place).await;
        append(&log.for_tenant("a"), [HallEvent::SeatSold { hall: 1, seat: 1 }]).await;
        append(&log.for_tenant("b"), [HallEvent::HallClosed { hall: 1 }]).await;
        let folded = fold(&log.for_tenant("a"), hall(1)).await.unwrap();
        assert!(folded.state.sold.contains(&1) && !folded.state.is_closed);
    });
}

#[test]
fn what_cannot_be_read_ends_the_fold_and_names_the_event() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let tagged =
            |name: &str, data: &str| NewEvent::new(name, &data).unwrap().tag("hall:1").tag(name.to_owned());
        append(&log, [HallEvent::SeatSold { hall: 1, seat: 1 }]).await;
        log.append(tagged("LampBroke", "twice")).await.unwrap();
        log.append(tagged("SeatSold", "no seat")).await.unwrap();
        log.append(tagged("HallClosed", "later").schema_version(7)).await.unwrap();
        for (tag, code, position) in [
            ("LampBroke", "UNKNOWN_EVENT_TYPE", 2),
            ("SeatSold", "INVALID_EVENT", 3),
            ("HallClosed", "FUTURE_VERSION", 4),
        ] {
            let any = Item { types: Vec::new(), tags: vec![tag.to_owned()] };
            let error = fold(&log, Query::new(vec![any]).unwrap()).await.unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(&format!("{tag} at position {position}")), "{error}");
            assert!(!error.is_retryable());
        }
    });
}

#[test]
fn an_erased_event_is_what_the_author_takes_it_for_or_an_error() {
    for_each_store(async |place| {
        let log = open(&place).await;
        append(&log, [HallEvent::SeatRefused { hall: 1, seat: 1 }, HallEvent::SeatSold { hall: 2, seat: 1 }])
            .await;
        for tag in ["hall:1", "hall:2"] {
            log.erase(Erasure::of_tag(tag).unwrap().by("me").because("they asked")).await.unwrap();
        }
        assert_eq!(fold(&log, hall(1)).await.unwrap().state.refused, 1);
        assert_eq!(fold(&log, hall(2)).await.unwrap_err().code(), "EVENT_ERASED");
    });
}
