//! Mainstay's pools, in this process: on a SQLite file, and on a database of their own.

use super::{Answer, BATCH, Contender, Entry, handle};
use anyhow::Result;
use mainstay_store::Options;
use mainstay_testkit::postgres::{Database, Private};
use mainstay_work::{COMPONENT, Call, Functions, NewWork, OnComplete, Pool, Work};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const POOL: &str = "noop";
/// Items that run at once: two claims' worth, so that one is taken while the other ends.
const AT_ONCE: u32 = 2_000;

/// On a SQLite file.
pub fn on_sqlite(name: &'static str, is_told: bool) -> Entry {
    Entry::new(name, move |folder: std::path::PathBuf| async move {
        let url = format!("sqlite:{}", folder.join("work.db").display());
        Ok(Arc::new(Pools::open(&url, None, is_told).await?) as _)
    })
}

/// On a database of its own.
pub fn on_postgres(name: &'static str, server: &Arc<Private>, is_told: bool) -> Entry {
    let server = server.clone();
    Entry::new(name, move |_folder| {
        let server = server.clone();
        async move {
            let database = tokio::task::spawn_blocking(move || server.database()).await??;
            let url = database.url().to_owned();
            Ok(Arc::new(Pools::open(&url, Some(database), is_told).await?) as _)
        }
    })
}

struct Pools {
    work: Work,
    ran: Arc<AtomicU64>,
    /// Whether every item's end is told to a mutation.
    is_told: bool,
    _database: Option<Database>,
}

impl Pools {
    async fn open(url: &str, database: Option<Database>, is_told: bool) -> Result<Self> {
        let store = Options::new(url).component(COMPONENT).open().await?;
        let ran = Arc::new(AtomicU64::new(0));
        let counting = ran.clone();
        let functions = Functions::new()
            .action("noop", move |call: Call, _: serde_json::Value| {
                handle(call.args.get());
                counting.fetch_add(1, Ordering::Relaxed);
                async { Ok(()) }
            })
            .mutation("told", async |_tx, _: Call, _: OnComplete| Ok(()));
        let work = Work::open(&store, functions).await?;
        work.pool(Pool::new(POOL).max_parallelism(AT_ONCE)).await?;
        Ok(Self { work, ran, is_told, _database: database })
    }

    fn item(&self) -> Result<NewWork> {
        // As `BODY` has it.
        let item = NewWork::new(POOL, "noop", &json!({"order": 4200}))?;
        Ok(if self.is_told { item.on_complete("told", "noop")? } else { item })
    }
}

impl Contender for Pools {
    fn about(&self) -> String {
        let told = if self.is_told { ", every end told to a mutation in its transaction" } else { "" };
        format!("mainstay {}, at most {AT_ONCE} at once{told}", env!("CARGO_PKG_VERSION"))
    }

    fn enqueue(&self, batches: u64) -> Answer<'_, ()> {
        Box::pin(async move {
            for _ in 0..batches {
                let item = self.item()?;
                self.work.enqueue_all(vec![item; BATCH as usize]).await?;
            }
            Ok(())
        })
    }

    fn work(&self) -> Answer<'_, u64> {
        Box::pin(async move {
            let before = self.ran.load(Ordering::Relaxed);
            // Counted when the end is committed.
            let succeeded = &self.work.figures().succeeded;
            let all = succeeded.get() + self.left().await?;
            let engine = self.work.start().await?;
            while succeeded.get() < all {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            engine.stop(Duration::from_secs(5)).await?;
            Ok(self.ran.load(Ordering::Relaxed) - before)
        })
    }

    fn left(&self) -> Answer<'_, u64> {
        Box::pin(async move {
            let depth = self.work.depth(POOL).await?;
            Ok(depth.pending + depth.running)
        })
    }
}
