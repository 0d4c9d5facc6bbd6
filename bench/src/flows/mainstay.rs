//! Mainstay: a command, and for comparison an append of one event and nothing else.

use super::dispatch::{CALLERS, Contender, Entry, Written};
use super::halls::{HallCommand, Halls, sold};
use crate::rounds::Answer;
use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use mainstay_events::{Append, Condition, Log, MAX_EVENTS, NewEvent};
use mainstay_flows::commands::{self, Command, Commands, Decision, Dispatcher, Handling, Outcome, decide_in};
use mainstay_store::{Options, Store, Tx, params};
use mainstay_testkit::postgres::{Database, Private};
use mainstay_work::{Call, Functions, NewWork, Pool, Work};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::NoTls;

const POOL: &str = "shipping";
/// How long a store has nothing to do before it counts as having tidied up.
const QUIET: Duration = Duration::from_millis(300);
/// Appends at once when halls are filled.
const AT_ONCE: usize = 16;

const CREATE: &str = "CREATE TABLE sales (hall BIGINT NOT NULL PRIMARY KEY, command TEXT NOT NULL)";
const INSERT: &str = "INSERT INTO sales (hall, command) VALUES ($1, 'Sell')";
const COUNT: &str = "SELECT count(*) FROM sales";

/// What callers ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// One conditional append, nothing else.
    Append,
    /// A command. Callers take the halls in turn, so that rows come in the order of their key.
    Command,
    /// A command. Each caller has halls of its own, so that rows of one transaction go to as many pages.
    ScatteredCommand,
}

/// On a SQLite file.
pub fn on_sqlite(name: &'static str, task: Task) -> Entry {
    Entry::new(name, move |folder: PathBuf| async move {
        let url = format!("sqlite:{}", folder.join("halls.db").display());
        Ok(Arc::new(House::open(&url, None, task).await?) as _)
    })
}

/// On a database of its own.
pub fn on_postgres(name: &'static str, server: &Arc<Private>, task: Task) -> Entry {
    let server = server.clone();
    Entry::new(name, move |_folder| {
        let server = server.clone();
        async move {
            let database = tokio::task::spawn_blocking(move || server.database()).await??;
            let url = database.url().to_owned();
            Ok(Arc::new(House::open(&url, Some(database), task).await?) as _)
        }
    })
}

struct House {
    store: Store,
    log: Log,
    work: Work,
    dispatcher: Dispatcher,
    task: Task,
    database: Option<Database>,
}

impl House {
    async fn open(url: &str, database: Option<Database>, task: Task) -> Result<Self> {
        let options = Options::new(url).component(mainstay_events::COMPONENT);
        let options = options.component(mainstay_work::COMPONENT).component(commands::COMPONENT);
        let store = options.open().await?;
        store.transact(async |tx| tx.execute(CREATE, &[]).await).await?;
        let log = Log::open(&store).await?;
        let commands = selling();
        let functions = Functions::new().action("ship", async |_: Call, _: u64| Ok(()));
        // Nobody works, so that what was started is there to be counted.
        let work = Work::open(&store, functions).await?;
        work.pool(Pool::new(POOL)).await?;
        let dispatcher = Dispatcher::open(&log, &work, commands).await?;
        Ok(Self { store, log, work, dispatcher, task, database })
    }

    /// Waits until the store has had nothing to do for a while: what the halls left behind is not theirs who come next.
    async fn settle(&self) {
        let mut before = None;
        loop {
            let commits = self.store.figures().commit_time.snapshot().count;
            if before.replace(commits) == Some(commits) {
                return;
            }
            tokio::time::sleep(QUIET).await;
        }
    }
}

/// Folds what happened in a hall, decides, writes a row, and starts an item of work.
fn selling() -> Commands {
    Commands::new().on("Sell", async |handling: Handling, hall: u64| {
        let command = HallCommand::SellSeat { hall, seat: 1_000 };
        let considered =
            decide_in(handling.tx(), handling.log(), &Halls, &command, &handling.moment()).await?;
        handling.unless(considered.condition);
        handling.tx().execute(INSERT, params![hall as i64]).await?;
        handling.start(NewWork::new(POOL, "ship", &hall)?)?;
        match considered.decided? {
            Decision::Success { events, .. } => Ok(Decision::success((), events)),
            _ => Err(mainstay_store::Error::application("the seat is free")),
        }
    })
}

async fn sell(dispatcher: &Dispatcher, hall: u64) -> Result<()> {
    let dispatched = dispatcher.dispatch(Command::new("Sell", &hall)?).await?;
    let outcome = dispatched.outcome;
    anyhow::ensure!(matches!(outcome, Outcome::Success { .. }), "{outcome:?}");
    Ok(())
}

async fn append(log: &Log, hall: u64) -> Result<()> {
    let tag = format!("bare:{hall}");
    let once = Condition::no_tag(tag.as_str())?;
    log.append(Append::from(NewEvent::new("SeatSold", &hall)?.tag(tag)).unless(once)).await?;
    Ok(())
}

impl Contender for House {
    fn about(&self) -> Answer<'_, String> {
        Box::pin(async {
            let what = match self.task {
                Task::Append => "one conditional append each, nothing else",
                Task::Command => "all of it, rows in the order of their key",
                Task::ScatteredCommand => "all of it, each row on another page",
            };
            Ok(format!("mainstay {}, {what}; {}", env!("CARGO_PKG_VERSION"), self.store.durability().await?))
        })
    }

    fn fill(&self, halls: u64, seats: u64) -> Answer<'_, ()> {
        Box::pin(async move {
            let sold = sold(halls, seats).collect::<mainstay_flows::Result<Vec<_>>>()?;
            futures_util::stream::iter(sold.chunks(MAX_EVENTS).map(Ok))
                .try_for_each_concurrent(AT_ONCE, |batch| async {
                    self.log.append(Append::new(batch.to_vec())).await.map(drop)
                })
                .await?;
            self.settle().await;
            if let Some(database) = &self.database {
                let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await?;
                tokio::spawn(connection);
                client.batch_execute("VACUUM ANALYZE").await?;
            }
            Ok(())
        })
    }

    fn decide(&self, each: u64, from: u64) -> Answer<'_, u64> {
        Box::pin(async move {
            let callers = (0..CALLERS).map(|caller| {
                let (log, dispatcher, task) = (self.log.clone(), self.dispatcher.clone(), self.task);
                tokio::spawn(async move {
                    for number in 0..each {
                        match task {
                            Task::Append => append(&log, from + caller * each + number).await?,
                            Task::Command => sell(&dispatcher, from + number * CALLERS + caller).await?,
                            Task::ScatteredCommand => {
                                sell(&dispatcher, from + caller * each + number).await?
                            }
                        }
                    }
                    Ok::<_, anyhow::Error>(each)
                })
            });
            let mut decided = 0;
            for caller in callers.collect::<Vec<_>>() {
                decided += caller.await.context("a caller")??;
            }
            Ok(decided)
        })
    }

    fn written(&self) -> Answer<'_, Written> {
        Box::pin(async {
            let events = self.log.head().await?;
            if self.task == Task::Append {
                return Ok(Written { events, rows: None, items: None });
            }
            let rows = self.store.read(async |tx: Tx| tx.query_one(COUNT, &[]).await?.get::<u64>(0)).await?;
            let items = self.work.depth(POOL).await?.pending;
            Ok(Written { events, rows: Some(rows), items: Some(items) })
        })
    }
}
