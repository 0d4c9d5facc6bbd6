//! States that are kept, and when they are not used.

use super::{Hall, HallCommand, HallEvent, Halls, append, open};
use mainstay_events::{Erasure, Item, Log, Query};
use mainstay_flows::commands::{Boundary, Decided, Decider, Folded, Moment, Snapshots, fold_in};
use mainstay_flows::{Error, Result};
use mainstay_store::Tx;
use mainstay_testkit::stores::{Kind, for_each_kind, for_each_store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Halls whose states are kept after every four events.
#[derive(Clone, Copy)]
struct Kept {
    version: u32,
    every: u32,
}

const KEPT: Kept = Kept { version: 1, every: 4 };

impl Decider for Kept {
    type Command = HallCommand;
    type Event = HallEvent;
    type State = Hall;
    type Data = usize;

    fn boundary(&self, command: &HallCommand) -> Boundary {
        Halls.boundary(command)
    }

    fn evolve(&self, state: &mut Hall, event: HallEvent) {
        Halls.evolve(state, event);
    }

    fn decide(&self, state: &Hall, command: &HallCommand, moment: &Moment) -> Decided<HallEvent, usize> {
        Halls.decide(state, command, moment)
    }

    fn snapshots(&self) -> Option<Snapshots<Hall>> {
        Some(Snapshots::of("halls").every(self.every).state_version(self.version))
    }
}

fn hall(number: u32) -> Query {
    Query::new(vec![Item { types: vec![], tags: vec![format!("hall:{number}")] }]).unwrap()
}

async fn fold(log: &Log, decider: Kept, query: Query) -> Result<Folded<Hall>> {
    let work = async |tx: Tx, (log, query, decider): (Log, Query, Kept)| {
        Ok(fold_in(&tx, &log, &decider, &query).await?)
    };
    Ok(log.store().transact_with((log.clone(), query, decider), work).await?)
}

fn sold(seats: std::ops::RangeInclusive<u32>) -> impl Iterator<Item = HallEvent> {
    seats.map(|seat| HallEvent::SeatSold { hall: 1, seat })
}

async fn kept(log: &Log) -> Vec<String> {
    let sql = "SELECT state FROM mainstay_snapshots";
    let rows = log.store().read(async |tx| tx.query(sql, &[]).await).await.unwrap();
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}

#[test]
fn a_fold_begins_at_the_snapshot_and_comes_to_the_same() {
    for_each_store(async |place| {
        let log = open(&place).await;
        let mut read = Vec::new();
        for seat in 1..=12 {
            append(&log, sold(seat..=seat)).await;
            append(&log, [HallEvent::SeatSold { hall: 2, seat }]).await;
            let folded = fold(&log, KEPT, hall(1)).await.unwrap();
            assert_eq!(folded.state.sold, (1..=seat).collect());
            assert_eq!(folded.head, u64::from(2 * seat));
            read.push(folded.events_read);
        }
        assert_eq!(read, [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]);
        assert_eq!(kept(&log).await.len(), 1);
    });
}

#[test]
fn snapshots_belong_to_one_boundary_and_one_tenant() {
    for_each_store(async |place| {
        let log = open(&place).await;
        append(&log, sold(1..=4)).await;
        assert_eq!(fold(&log, KEPT, hall(1)).await.unwrap().state.sold.len(), 4);
        assert_eq!(fold(&log, KEPT, hall(2)).await.unwrap().state, Hall::default());
        let tenant = log.for_tenant("t");
        assert_eq!(fold(&tenant, KEPT, hall(1)).await.unwrap().state, Hall::default());
    });
}

#[test]
fn a_snapshot_of_another_state_version_is_ignored_and_replaced() {
    for_each_store(async |place| {
        let log = open(&place).await;
        append(&log, sold(1..=5)).await;
        let next = Kept { version: 2, ..KEPT };
        for (decider, read) in [(KEPT, 5), (KEPT, 0), (next, 5), (next, 0), (KEPT, 5)] {
            let folded = fold(&log, decider, hall(1)).await.unwrap();
            assert_eq!((folded.events_read, folded.state.sold.len(), folded.head), (read, 5, 5));
        }
    });
}

#[test]
fn a_snapshot_that_cannot_be_read_is_ignored_and_replaced() {
    for_each_store(async |place| {
        let log = open(&place).await;
        append(&log, sold(1..=5)).await;
        fold(&log, KEPT, hall(1)).await.unwrap();
        let spoil = async |tx: Tx| tx.execute("UPDATE mainstay_snapshots SET state = '{}'", &[]).await;
        log.store().transact(spoil).await.unwrap();
        let read = async || fold(&log, KEPT, hall(1)).await.unwrap().events_read;
        assert_eq!((read().await, read().await), (5, 0));
    });
}

#[test]
fn a_snapshot_goes_with_the_transaction_that_wrote_it() {
    for_each_store(async |place| {
        let log = open(&place).await;
        append(&log, sold(1..=5)).await;
        let work = async |tx: Tx, log: Log| {
            fold_in(&tx, &log, &KEPT, &hall(1)).await?;
            Err::<(), _>(Error::from(mainstay_events::Error::Empty).into())
        };
        log.store().transact_with(log.clone(), work).await.unwrap_err();
        assert!(kept(&log).await.is_empty());
    });
}

#[test]
fn what_is_erased_is_in_no_snapshot() {
    for_each_store(async |place| {
        let log = open(&place).await;
        append(&log, sold(1..=5)).await;
        fold(&log, KEPT, hall(1)).await.unwrap();
        assert_eq!(kept(&log).await.len(), 1);
        log.erase(Erasure::of_tag("hall:1").unwrap().by("me").because("they asked")).await.unwrap();
        assert!(kept(&log).await.is_empty());
        assert_eq!(fold(&log, KEPT, hall(1)).await.unwrap_err().code(), "EVENT_ERASED");
    });
}

/// Whoever has read an event before it was erased may write a snapshot after that, unless the erasure waits for them.
#[test]
fn what_is_erased_comes_back_into_no_snapshot() {
    for_each_kind(&[Kind::SqliteFile, Kind::Postgres], async |place| {
        let log = open(&place).await;
        for round in 0..10 {
            let tag = format!("hall:{round}");
            append(&log, (1..=40).map(|seat| HallEvent::SeatSold { hall: round, seat })).await;
            let is_over = Arc::new(AtomicBool::new(false));
            let folds: Vec<_> = (0..4)
                .map(|_| {
                    let (log, is_over) = (log.clone(), is_over.clone());
                    tokio::spawn(async move {
                        while !is_over.load(Ordering::SeqCst) {
                            if fold(&log, Kept { every: 1, ..KEPT }, hall(round)).await.is_ok() {
                                append(&log, [HallEvent::SeatRefused { hall: round, seat: 7 }]).await;
                            }
                        }
                    })
                })
                .collect();
            log.erase(Erasure::of_tag(tag).unwrap().by("me").because("they asked")).await.unwrap();
            is_over.store(true, Ordering::SeqCst);
            for fold in folds {
                fold.await.unwrap();
            }
            assert_eq!(kept(&log).await, [] as [String; 0], "in round {round}");
        }
    });
}
