//! The contest on PostgreSQL, and a bare loop by hand: one connection, one table, a commit for each step.
//!
//! The loop does what every queue on PostgreSQL does at the least, and nothing else: no retries, no keys, no second
//! worker, nobody who notices that a lease ran out. It shows how much room there is.

use super::{Answer, BATCH, BODY, CLAIM, Contender, Entry, handle, load, mainstay, peers};
use crate::rounds;
use anyhow::{Context, Result};
use mainstay_testkit::postgres::{Database, Private};
use std::sync::Arc;
use tokio_postgres::{Client, NoTls, Statement};

/// Statements are planned while the table is small, when reading all of it looks cheapest, and keep that plan. A queue
/// that has been in use for a while has statistics, and uses its index; so must this one.
const USE_INDEXES: &str = "-c enable_seqscan=off";

const CREATE: &str = "
    CREATE TABLE items (id BIGSERIAL PRIMARY KEY, pool TEXT NOT NULL, state SMALLINT NOT NULL DEFAULT 0,
                        lease TIMESTAMPTZ, body TEXT NOT NULL)";
const ENQUEUE: &str = "INSERT INTO items (pool, body) SELECT $1, unnest($2::TEXT[])";
const CLAIM_SOME: &str = "
    UPDATE items SET state = 1, lease = now() + interval '30 s'
    WHERE id IN (SELECT id FROM items WHERE pool = $1 AND state = 0 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING id, body";
const COMPLETE: &str = "DELETE FROM items WHERE id = ANY ($1)";
const COUNT: &str = "SELECT count(*) FROM items";

const POOL: &str = "noop";

/// Prints the table, on a server of its own with fsync on.
pub async fn run(items: u64) -> Result<()> {
    rounds::on_postgres(async |server, settings| {
        println!("\nPostgreSQL: {settings}");
        load::contest("PostgreSQL", &contenders(server).await?, items).await
    })
    .await
}

/// Those on PostgreSQL, each in a database of its own.
async fn contenders(server: &Arc<Private>) -> Result<Vec<Entry>> {
    let mut entries = peers::entries(server).await?;
    entries.push(entry(server));
    entries.push(mainstay::on_postgres("mainstay", server, false));
    entries.push(mainstay::on_postgres("mainstay, told", server, true));
    Ok(entries)
}

fn entry(server: &Arc<Private>) -> Entry {
    let server = server.clone();
    Entry::new("bare loop", move |_folder| {
        let server = server.clone();
        async move {
            let database = tokio::task::spawn_blocking(move || server.database()).await??;
            Ok(Arc::new(Bare::open(database).await?) as _)
        }
    })
}

struct Bare {
    client: Client,
    enqueue: Statement,
    claim: Statement,
    complete: Statement,
    _database: Database,
}

impl Bare {
    async fn open(database: Database) -> Result<Self> {
        let mut config: tokio_postgres::Config = database.url().parse()?;
        let (client, connection) = config.options(USE_INDEXES).connect(NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(CREATE).await.context("making the table")?;
        Ok(Self {
            enqueue: client.prepare(ENQUEUE).await?,
            claim: client.prepare(CLAIM_SOME).await?,
            complete: client.prepare(COMPLETE).await?,
            client,
            _database: database,
        })
    }
}

impl Contender for Bare {
    fn about(&self) -> String {
        format!("tokio-postgres {}, one connection, {CLAIM} at a time", rounds::version("tokio-postgres"))
    }

    fn enqueue(&self, batches: u64) -> Answer<'_, ()> {
        Box::pin(async move {
            for _ in 0..batches {
                let bodies = [BODY; BATCH as usize];
                self.client.execute(&self.enqueue, &[&POOL, &&bodies[..]]).await?;
            }
            Ok(())
        })
    }

    fn work(&self) -> Answer<'_, u64> {
        Box::pin(async move {
            let mut ran = 0;
            loop {
                let claimed = self.client.query(&self.claim, &[&POOL, &(CLAIM as i64)]).await?;
                if claimed.is_empty() {
                    return Ok(ran);
                }
                let mut done: Vec<i64> = Vec::with_capacity(claimed.len());
                for item in &claimed {
                    handle(item.get(1));
                    ran += 1;
                    done.push(item.get(0));
                }
                self.client.execute(&self.complete, &[&done]).await?;
            }
        })
    }

    fn left(&self) -> Answer<'_, u64> {
        Box::pin(async move { Ok(self.client.query_one(COUNT, &[]).await?.get::<_, i64>(0) as u64) })
    }
}
