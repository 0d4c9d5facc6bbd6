//! The experiments on the store.

use super::facts::{Culprits, Facts, Refusal, Round, Wakeup};
use super::{log, micros};
use mainstay::core::measure::HistogramSnapshot;
use mainstay::prelude::*;
use mainstay::store::Topic;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How many transactions a round has.
const CALLERS: i64 = 64;
/// The caller that panics, and the one that waits for something foreign: both in the midst of the others.
const PANICS: i64 = 13;
const DAWDLES: i64 = 42;
/// The chapter in which they do.
const WITH_CULPRITS: &str = "with culprits";

const CREATE: &str = "CREATE TABLE mainstay_demo (chapter TEXT NOT NULL, caller BIGINT NOT NULL, PRIMARY KEY (chapter, caller))";
const INSERT: &str = "INSERT INTO mainstay_demo (chapter, caller) VALUES ($1, $2)";
const COUNT: &str = "SELECT count(*) FROM mainstay_demo WHERE chapter = $1";
const DROP: &str = "DROP TABLE IF EXISTS mainstay_demo";

pub(super) async fn play(store: &Store, options: Options, log: log::Facts) -> Result<Facts> {
    // A demo that was killed may have left its table.
    clean_up(store).await?;
    store.transact(async |tx| tx.execute(CREATE, &[]).await).await?;
    Ok(Facts {
        store: store.location().to_string(),
        durability: store.durability().await?,
        log,
        one_by_one: one_by_one(store).await?,
        together: together(store).await?,
        with_culprits: with_culprits(store).await?,
        wakeup: wakeup(store).await?,
        second_opening: second_opening(options).await,
    })
}

pub(super) async fn clean_up(store: &Store) -> Result<()> {
    store.transact(async |tx| tx.execute(DROP, &[]).await).await.map(drop)
}

async fn one_by_one(store: &Store) -> Result<Round> {
    let meter = Meter::start(store);
    for caller in 0..CALLERS {
        insert(store, "one by one", caller).await?;
    }
    Ok(meter.stop())
}

async fn together(store: &Store) -> Result<Round> {
    // Not measured: on PostgreSQL the first round opens the connections.
    all_at_once("warm up", store).await.into_iter().next().map_or(Ok(()), Err)?;
    let meter = Meter::start(store);
    all_at_once("together", store).await.into_iter().next().map_or(Ok(()), Err)?;
    Ok(meter.stop())
}

async fn with_culprits(store: &Store) -> Result<Culprits> {
    let meter = Meter::start(store);
    let refused = all_at_once(WITH_CULPRITS, store).await;
    let round = meter.stop();
    let rows = store.read(async |tx| tx.query_one(COUNT, params![WITH_CULPRITS]).await?.get(0)).await?;
    Ok(Culprits { round, rows, refused: refused.into_iter().map(Refusal::from).collect() })
}

/// Starts every caller at once; the errors come in the order of the callers.
async fn all_at_once(chapter: &'static str, store: &Store) -> Vec<Error> {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let store = store.clone();
        callers.spawn(async move { (caller, insert(&store, chapter, caller).await) });
    }
    let mut ended = callers.join_all().await;
    ended.sort_by_key(|(caller, _)| *caller);
    ended.into_iter().filter_map(|(_, result)| result.err()).collect()
}

async fn insert(store: &Store, chapter: &'static str, caller: i64) -> Result<()> {
    store
        .transact_with(caller, move |tx, caller| async move {
            tx.execute(INSERT, params![chapter, caller]).await?;
            if chapter == WITH_CULPRITS && caller == PANICS {
                // As panic!, without its message on the terminal, where it would look like a defect of the demo.
                resume_unwind(Box::new("caller 13 has a defect"));
            }
            if chapter == WITH_CULPRITS && caller == DAWDLES {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok(())
        })
        .await
}

async fn wakeup(store: &Store) -> Result<Wakeup> {
    let topic = Topic::new("mainstay:demo")?;
    let mut listener = store.listen(topic.clone());
    let rolled_back = store.transact_with(topic.clone(), async |tx, topic| {
        tx.execute(INSERT, params!["rolled back", 0]).await?;
        tx.wake(&topic)?;
        Err::<(), _>(Error::application("changed my mind"))
    });
    rolled_back.await.expect_err("the closure always fails");
    let after_rollback = listener.woken(Duration::from_millis(20)).await;

    let began = Instant::now();
    let listening =
        tokio::spawn(
            async move { listener.woken(Duration::from_secs(5)).await.then(|| micros(began.elapsed())) },
        );
    let committed = store.transact_with(topic, async |tx, topic| {
        tx.execute(INSERT, params!["committed", 0]).await?;
        tx.wake(&topic)
    });
    committed.await?;
    let after_commit_us = listening.await.map_err(|lost| Error::Panicked(lost.to_string()))?;
    Ok(Wakeup { after_rollback, after_commit_us })
}

async fn second_opening(options: Options) -> Option<Refusal> {
    match options.open().await {
        Ok(second) => {
            second.close().await;
            None
        }
        Err(refused) => Some(refused.into()),
    }
}

/// Reads what the store measures about itself before and after a round.
struct Meter<'a> {
    store: &'a Store,
    began: Instant,
    committed: u64,
    commits: HistogramSnapshot,
}

impl<'a> Meter<'a> {
    fn start(store: &'a Store) -> Self {
        let (committed, commits) = (store.figures().committed.get(), store.figures().commit_time.snapshot());
        Self { store, began: Instant::now(), committed, commits }
    }

    fn stop(self) -> Round {
        let elapsed_us = micros(self.began.elapsed());
        let now = self.store.figures().commit_time.snapshot();
        let commits = now.count - self.commits.count;
        Round {
            transactions: self.store.figures().committed.get() - self.committed,
            commits,
            elapsed_us,
            mean_commit_us: (now.sum - self.commits.sum) / commits.max(1),
        }
    }
}
