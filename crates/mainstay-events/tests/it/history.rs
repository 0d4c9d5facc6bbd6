//! Many writers at once, over boundaries that overlap: what each was told, and the log that is left, must be those of
//! one writer after another.

use crate::following::Followers;
use crate::ledger::{is_long, open_log, positions_of, recorded};
use crate::support::{append, item};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_events::{Append, Condition, Error, Item, Log, NewEvent, Query, Result, Selection};
use mainstay_store::{Store, Tx};
use mainstay_testkit::history::{self, Outcome, Recorder, Report, check};
use mainstay_testkit::stores::{Kind, Place, for_each_kind};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

const WRITERS: u64 = 32;
/// Few, so that boundaries overlap.
const TAGS: u64 = 5;
const TYPES: u64 = 4;
/// Small segments, so that the index moves from memory into the table all the time.
const SEGMENT_EVENTS: usize = 256;

// --- what writers ask -------------------------------------------------------------------------------------------

fn pick(random: &SeededRandom, kind: &str, count: u64) -> String {
    format!("{kind}:{}", random.below(count))
}

/// A condition of some shape. `rare` is a tag that few have.
fn query(random: &SeededRandom, rare: &str) -> Query {
    let (a, b, of) = (pick(random, "a", TAGS), pick(random, "b", TAGS), pick(random, "T", TYPES));
    let items: Vec<Item> = match random.below(7) {
        0 => vec![item(&[], &[&a])],
        1 => vec![item(&[&of], &[&a])],
        2 => vec![item(&[], &[&a, &b])],
        3 => vec![item(&[&of], &[])],
        4 => vec![item(&[&of], &[&a]), item(&[], &[&b, rare])],
        5 => vec![item(&[], &[rare]), item(&[&of, "T:0"], &[&b])],
        _ => vec![item(&[], &[rare])],
    };
    Query::new(items).unwrap()
}

fn events(random: &SeededRandom, rare: &str) -> Vec<history::Event> {
    let event = |_| {
        let mut tags = vec![pick(random, "a", TAGS)];
        tags.extend((random.below(2) == 0).then(|| pick(random, "b", TAGS)));
        tags.extend((random.below(2) == 0).then(|| rare.to_owned()));
        history::Event::new(pick(random, "T", TYPES), tags)
    };
    (0..1 + random.below(3)).map(event).collect()
}

/// What must not have happened, and since when: never, since a read of just now, or since one that is out of date.
async fn condition(random: &SeededRandom, log: &Log, rare: &str, known: &mut u64) -> Option<Condition> {
    match random.below(8) {
        0 => None,
        1 => Some(Condition::none_match(Query::new(vec![item(&[], &[rare])]).unwrap())),
        2 => Some(Condition::none_match(query(random, rare)).after(*known)),
        _ => {
            let query = query(random, rare);
            let selection = Selection::all().after(*known).matching(query.clone());
            *known = log.read(&selection, 1).await.unwrap().head;
            Some(Condition::none_match(query).after(*known))
        }
    }
}

async fn append_in_transaction(store: &Store, log: &Log, append: Append) -> Result<Vec<u64>> {
    let work = async |tx: Tx, (log, append): (Log, Append)| Ok(log.append_in(&tx, append)?);
    let receipt = store.transact_with((log.clone(), append), work).await?;
    Ok(positions_of(receipt.get().unwrap()))
}

async fn write(log: Log, recorder: Recorder, writer: u64, operations: u64) {
    let random = SeededRandom::new(writer);
    let (mut known, rare_tags) = (0, WRITERS * operations / 4);
    for _ in 0..operations {
        let rare = pick(&random, "rare", rare_tags);
        let condition = condition(&random, &log, &rare, &mut known).await;
        let events = events(&random, &rare);
        let asked = condition.clone().map(|condition| history::Condition {
            query: condition.fail_if_events_match,
            after: condition.after,
        });
        let pending = recorder.begin(asked, events.clone());
        let metadata = serde_json::json!({"operation": pending.id()});
        let events = events.into_iter().map(|event| {
            let new = NewEvent::new(event.event_type, &()).unwrap().metadata(&metadata).unwrap();
            event.tags.into_iter().fold(new, NewEvent::tag)
        });
        let append = Append { condition, ..Append::new(events) };
        let appended = if random.below(5) == 0 {
            append_in_transaction(log.store(), &log, append).await
        } else {
            log.append(append).await.map(|appended| positions_of(&appended))
        };
        pending.finish(match appended {
            Ok(positions) => Outcome::Appended { positions },
            Err(Error::ConditionFailed { witness, .. }) => Outcome::Refused { witness: witness.position },
            Err(error) => panic!("nothing fails here: {error}"),
        });
    }
}

// --- the tests --------------------------------------------------------------------------------------------------

async fn one_history(logs: &[Log], operations: u64) -> Report {
    let began = Instant::now();
    let recorder = Recorder::new();
    let followers = Followers::of(logs, "a:0");
    let mut writers = JoinSet::new();
    for (writer, log) in (0..WRITERS).zip(logs.iter().cycle()) {
        writers.spawn(write(log.clone(), recorder.clone(), writer, operations));
    }
    writers.join_all().await;
    let recorded = recorded(&logs[0]).await.unwrap();
    followers.check(&recorded).await;
    let report = check(&recorded, &recorder.operations());
    let report = report.unwrap_or_else(|wrong| panic!("{} wrong, first {:?}", wrong.len(), wrong[0]));
    println!("{} logs, {report:?}, {:.1?}", logs.len(), began.elapsed());
    report
}

/// Conditions were met and refused, often: otherwise nothing was shown.
fn is_telling(report: &Report, operations: u64) -> bool {
    let all = (WRITERS * operations) as usize;
    report.appended + report.refused == all
        && report.conditional > all / 5
        && report.refused > all / 20
        && report.events > report.appended
}

fn histories(kinds: &[Kind], nodes: usize, in_ci: u64) {
    // 102,400 operations on demand.
    let operations = if is_long() { 3_200 } else { in_ci };
    for_each_kind(kinds, async |place| {
        let report = one_history(&open_nodes(&place, nodes).await, operations).await;
        assert!(is_telling(&report, operations), "{report:?}");
    });
}

/// Several stores on one database, each with a log of its own.
async fn open_nodes(place: &Place, nodes: usize) -> Vec<Log> {
    let mut logs = Vec::new();
    for _ in 0..nodes {
        logs.push(open_log(place.options(), Some(SEGMENT_EVENTS)).await.unwrap());
    }
    logs
}

#[test]
fn a_history_of_many_writers_is_one_of_a_single_writer_on_sqlite() {
    histories(&[Kind::SqliteFile, Kind::SqliteMemory], 1, 75);
}

#[test]
fn a_history_of_many_writers_is_one_of_a_single_writer_on_postgres() {
    histories(&[Kind::Postgres], 1, 40);
}

#[test]
fn a_history_of_two_nodes_is_one_of_a_single_writer() {
    histories(&[Kind::Postgres], 2, 40);
}

const RACERS: usize = 16;
/// They append something else at the same moment: behind one of them, racers meet in one transaction.
const BYSTANDERS: usize = 4;

async fn race(logs: Vec<Log>, rounds: usize) {
    for round in 0..rounds {
        let tag = format!("seat:{round}");
        let start = Arc::new(tokio::sync::Barrier::new(RACERS + BYSTANDERS));
        let mut bystanders = JoinSet::new();
        for log in logs.iter().cycle().take(BYSTANDERS) {
            let (log, start) = (log.clone(), start.clone());
            bystanders.spawn(async move {
                start.wait().await;
                log.append(append("Passed", &[])).await.unwrap();
            });
        }
        let mut racers = JoinSet::new();
        for log in logs.iter().cycle().take(RACERS) {
            let (log, tag, start) = (log.clone(), tag.clone(), start.clone());
            racers.spawn(async move {
                let taken = append("Taken", &[&tag]).unless(Condition::no_tag(tag.as_str()).unwrap());
                start.wait().await;
                log.append(taken).await
            });
        }
        let (won, lost): (Vec<_>, Vec<_>) = racers.join_all().await.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1, "{tag}");
        let winner = positions_of(won[0].as_ref().unwrap())[0];
        for refused in lost {
            let Err(Error::ConditionFailed { witness, .. }) = refused else { panic!("{tag}: {refused:?}") };
            assert_eq!(witness.position, winner, "{tag}");
        }
        bystanders.join_all().await;
    }
    assert_eq!(logs[0].head().await.unwrap(), (rounds * (1 + BYSTANDERS)) as u64);
}

fn rounds() -> usize {
    if is_long() { 1_000 } else { 50 }
}

#[test]
fn of_sixteen_racers_on_one_boundary_one_wins() {
    for_each_kind(&[Kind::SqliteFile, Kind::SqliteMemory, Kind::Postgres], async |place| {
        race(open_nodes(&place, 1).await, rounds()).await;
    });
}

#[test]
fn of_sixteen_racers_on_two_nodes_one_wins() {
    for_each_kind(&[Kind::Postgres], async |place| race(open_nodes(&place, 2).await, rounds()).await);
}
