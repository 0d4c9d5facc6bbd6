//! PostgreSQL by hand: a table of events and a table of tags, one transaction for each append.
//!
//! - *naive*: positions from a sequence. Fast and wrong: transactions commit in another order than their positions
//!   say, so readers miss events, and two callers with the same tag both find nothing at READ COMMITTED.
//! - *locked*: a lock around the log from before the check until the commit. Right, and one sync of the disk each.

use super::{Answer, Contender, DATA, Entry, TYPE, Verdict, load, mainstay};
use crate::rounds;
use anyhow::{Context, Result};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use futures_util::TryStreamExt;
use mainstay_testkit::postgres::{Database, Private};
use std::pin::pin;
use std::sync::Arc;
use tokio_postgres::NoTls;

/// Enough to share the server's flushes, few enough for two cores.
const CONNECTIONS: usize = 16;

/// Statements are planned while the tables are empty, when reading all of a table looks cheapest, and keep that plan.
/// A log that has been in use for a while has statistics, and its check uses the index; so must this one.
const USE_INDEXES: &str = "-c enable_seqscan=off";

const CREATE: &str = "
    CREATE TABLE events (position BIGSERIAL PRIMARY KEY, type TEXT NOT NULL, data TEXT NOT NULL);
    CREATE TABLE tags (tag TEXT, position BIGINT, PRIMARY KEY (tag, position))";
/// Any number that all writers agree on.
const LOCK: &str = "SELECT pg_advisory_xact_lock(100)";
const EXISTS: &str = "SELECT EXISTS (SELECT FROM tags WHERE tag = $1)";
const INSERT_NAIVE: &str = "
    WITH event AS (INSERT INTO events (type, data) VALUES ($2, $3) RETURNING position)
    INSERT INTO tags SELECT $1, position FROM event";
const INSERT_LOCKED: &str = "
    WITH event AS (INSERT INTO events
                   SELECT coalesce(max(position), 0) + 1, $2, $3 FROM events RETURNING position)
    INSERT INTO tags SELECT $1, position FROM event";
const READ: &str = "SELECT position, type, data FROM events ORDER BY position";

/// Prints the table, on a server of its own with fsync on.
pub async fn run(seconds: f64) -> Result<()> {
    rounds::on_postgres(async |server, settings| {
        println!("\nPostgreSQL: {settings}, {CONNECTIONS} connections each");
        load::appends("PostgreSQL", &contenders(server), seconds).await
    })
    .await
}

/// Those on PostgreSQL, each in a database of its own.
fn contenders(server: &Arc<Private>) -> Vec<Entry> {
    vec![
        entry("naive", server, false),
        entry("locked", server, true),
        mainstay::on_postgres(server),
        mainstay::two_nodes(server),
    ]
}

fn entry(name: &'static str, server: &Arc<Private>, is_locked: bool) -> Entry {
    let server = server.clone();
    Entry::new(name, move |_folder| {
        let server = server.clone();
        async move {
            let database = tokio::task::spawn_blocking(move || server.database()).await??;
            Ok(Arc::new(ByHand::open(database, is_locked).await?) as _)
        }
    })
}

struct ByHand {
    pool: Pool,
    is_locked: bool,
    _database: Database,
}

impl ByHand {
    async fn open(database: Database, is_locked: bool) -> Result<Self> {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let mut url: tokio_postgres::Config = database.url().parse()?;
        url.options(USE_INDEXES);
        let manager = Manager::from_config(url, NoTls, config);
        let pool = Pool::builder(manager).max_size(CONNECTIONS).build()?;
        pool.get().await?.batch_execute(CREATE).await.context("making the tables")?;
        Ok(Self { pool, is_locked, _database: database })
    }
}

impl Contender for ByHand {
    fn append(&self, tag: String) -> Answer<'_, Verdict> {
        Box::pin(async move {
            let mut connection = self.pool.get().await?;
            let transaction = connection.transaction().await?;
            if self.is_locked {
                transaction.execute(&transaction.prepare_cached(LOCK).await?, &[]).await?;
            }
            let exists = transaction.prepare_cached(EXISTS).await?;
            if transaction.query_one(&exists, &[&tag]).await?.get(0) {
                return Ok(Verdict::Refused);
            }
            let insert = if self.is_locked { INSERT_LOCKED } else { INSERT_NAIVE };
            let insert = transaction.prepare_cached(insert).await?;
            transaction.execute(&insert, &[&tag, &TYPE, &DATA]).await?;
            transaction.commit().await?;
            Ok(Verdict::Appended)
        })
    }

    fn read_all(&self) -> Answer<'_, u64> {
        Box::pin(async move {
            let connection = self.pool.get().await?;
            let none: [&str; 0] = [];
            let mut rows = pin!(connection.query_raw(READ, none).await?);
            let mut count = 0;
            while let Some(row) = rows.try_next().await? {
                std::hint::black_box(row.get::<_, &str>(2));
                count += 1;
            }
            Ok(count)
        })
    }
}
