//! The checker of histories against logs on a real PostgreSQL: two that people write first, which are wrong in ways
//! that no test with one writer shows, and a plain one that is right.

use std::sync::Arc;

use anyhow::{Context, Result};
use mainstay_core::query::{Item, Query};
use mainstay_testkit::history::subscription::{self, Follower};
use mainstay_testkit::history::{
    Condition, Event, Operation, Outcome, Recorded, Recorder, Report, Violation, check,
};
use mainstay_testkit::postgres::{Database, Postgres};
use tokio::sync::Barrier;
use tokio_postgres::{Client, NoTls, Row};

const WRITERS: usize = 16;
const TAGS: [&str; 4] = ["seat:1", "seat:2", "seat:3", "seat:4"];
const APPENDS_PER_ROUND: usize = 10;
/// One round nearly always shows the race; a hundred without it would mean that there is none.
const MOST_ROUNDS: usize = 100;

const CREATE: &str =
    "CREATE TABLE log (position BIGSERIAL PRIMARY KEY, id uuid NOT NULL DEFAULT gen_random_uuid(),
    operation BIGINT NOT NULL, type TEXT NOT NULL, tags TEXT[] NOT NULL)";
const HEAD: &str = "SELECT coalesce(max(position), 0) FROM log WHERE tags @> ARRAY[$1]";
const IN_THE_WAY: &str = "SELECT min(position) FROM log WHERE position > $1 AND tags @> ARRAY[$2]";
const INSERT: &str = "INSERT INTO log (operation, type, tags) VALUES ($1, $2, $3) RETURNING position";
const READ: &str =
    "SELECT position, id::text, operation, type, tags FROM log WHERE position > $1 ORDER BY position";

/// What keeps two writers apart between the question and the insert.
#[derive(Clone, Copy)]
enum Isolation {
    /// Nothing: READ COMMITTED, as it comes.
    Naive,
    /// One lock for all writers.
    Locked,
}

async fn connect(database: &Database) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn new_log() -> Result<(Database, Client)> {
    let database = Postgres::shared()?.database()?;
    let client = connect(&database).await?;
    client.batch_execute(CREATE).await?;
    Ok((database, client))
}

fn recorded(row: &Row) -> Recorded {
    let number = |column| row.get::<_, i64>(column) as u64;
    let event = Event { event_type: row.get(3), tags: row.get(4) };
    Recorded { position: number(0), id: row.get(1), event, operation: number(2) }
}

async fn read(client: &Client, after: u64) -> Result<Vec<Recorded>> {
    Ok(client.query(READ, &[&(after as i64)]).await?.iter().map(recorded).collect())
}

/// Decides on the events of one tag and appends one with two tags, if no other has come for the first in between.
async fn append(client: &mut Client, recorder: &Recorder, isolation: Isolation, turn: usize) -> Result<()> {
    let (tag, other) = (TAGS[turn % 4], TAGS[(turn / 4) % 4]);
    let head: i64 = client.query_one(HEAD, &[&tag]).await?.get(0);
    let query = Query::new(vec![Item { types: vec![], tags: vec![tag.to_owned()] }])?;
    let event = Event::new("Reserved", [tag, other]);
    let pending = recorder.begin(Some(Condition::none_after(query, head as u64)), vec![event.clone()]);
    let transaction = client.transaction().await?;
    if let Isolation::Locked = isolation {
        transaction.batch_execute("LOCK TABLE log IN EXCLUSIVE MODE").await?;
    }
    let in_the_way: Option<i64> = transaction.query_one(IN_THE_WAY, &[&head, &tag]).await?.get(0);
    if let Some(witness) = in_the_way {
        transaction.rollback().await?;
        pending.finish(Outcome::Refused { witness: witness as u64 });
        return Ok(());
    }
    let values = (pending.id() as i64, event.event_type, event.tags);
    let position: i64 = transaction.query_one(INSERT, &[&values.0, &values.1, &values.2]).await?.get(0);
    transaction.commit().await?;
    pending.finish(Outcome::Appended { positions: vec![position as u64] });
    Ok(())
}

/// Lets all writers append at once, round after round until the verdict is what we want to see.
async fn race(
    isolation: Isolation,
    is_enough: impl Fn(&Result<Report, Vec<Violation>>) -> bool,
) -> Result<(Result<Report, Vec<Violation>>, Vec<Operation>)> {
    let (database, client) = new_log().await?;
    let recorder = Recorder::new();
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        writers.push(connect(&database).await?);
    }
    for _ in 0..MOST_ROUNDS {
        let start = Arc::new(Barrier::new(WRITERS));
        let tasks: Vec<_> = (0..)
            .zip(writers.drain(..))
            .map(|(number, mut writer)| {
                let (recorder, start) = (recorder.clone(), Arc::clone(&start));
                tokio::spawn(async move {
                    start.wait().await;
                    for turn in 0..APPENDS_PER_ROUND {
                        append(&mut writer, &recorder, isolation, number + 3 * turn).await?;
                    }
                    anyhow::Ok(writer)
                })
            })
            .collect();
        for task in tasks {
            writers.push(task.await??);
        }
        let operations = recorder.operations();
        let verdict = check(&read(&client, 0).await?, &operations);
        if is_enough(&verdict) {
            return Ok((verdict, operations));
        }
    }
    anyhow::bail!("not in {MOST_ROUNDS} rounds of {WRITERS} writers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_naive_conditional_append_is_caught() -> Result<()> {
    let (verdict, operations) = race(Isolation::Naive, Result::is_err).await.context("no race was caught")?;
    let violations = verdict.unwrap_err();
    // Only what is really wrong is said to be wrong: two writers went through the same gap, nothing else.
    for violation in &violations {
        let Violation::Conflict { operation, .. } = violation else { panic!("{violation}") };
        assert!(operations.iter().any(|one| one.id == *operation && one.condition.is_some()));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_append_behind_a_lock_passes() -> Result<()> {
    let enough = |verdict: &Result<Report, _>| match verdict {
        Ok(report) => report.refused >= 100 && report.conditional >= 100,
        Err(_) => true,
    };
    let (verdict, operations) = race(Isolation::Locked, enough).await.context("too little contention")?;
    let report = verdict.unwrap();
    assert_eq!(report.appended + report.refused, operations.len());
    Ok(())
}

/// Reads on from the last position that was seen, as one would over any sequence.
async fn poll(client: &Client, follower: &mut Follower) -> Result<()> {
    let unseen = read(client, follower.last()).await?;
    unseen.into_iter().for_each(|recorded| follower.saw(recorded.position, recorded.id));
    Ok(())
}

#[tokio::test]
async fn a_naive_reader_misses_what_commits_late() -> Result<()> {
    let (database, client) = new_log().await?;
    let (mut slow, quick) = (connect(&database).await?, connect(&database).await?);
    let tags = vec!["seat:1"];
    let open = slow.transaction().await?;
    assert_eq!(open.query_one(INSERT, &[&1i64, &"Reserved", &tags]).await?.get::<_, i64>(0), 1);
    assert_eq!(quick.query_one(INSERT, &[&2i64, &"Reserved", &tags]).await?.get::<_, i64>(0), 2);
    let mut naive = Follower::of_all();
    poll(&client, &mut naive).await?;
    assert_eq!((naive.seen().len(), naive.last()), (1, 2), "the first is not yet committed");
    open.commit().await?;
    poll(&client, &mut naive).await?;
    let log = read(&client, 0).await?;
    assert_eq!(log.len(), 2);
    assert_eq!(naive.check(&log), Err(vec![subscription::Violation::Missed { position: 1 }]));
    let mut late = Follower::of_all();
    poll(&client, &mut late).await?;
    assert_eq!(late.check(&log), Ok(2), "whoever begins now misses nothing");
    Ok(())
}
