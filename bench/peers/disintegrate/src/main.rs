//! disintegrate, deciding on halls. Answers each JSON line on standard input with one on standard output;
//! `bench/src/flows/disintegrate.rs` says which there are.

mod hall;

use anyhow::{Context, Result, bail};
use disintegrate::serde::json::Json;
use disintegrate::{EventStore, NoSnapshot};
use disintegrate_postgres::{PgDecisionMaker, PgEventStore};
use hall::{HallEvent, SellSeat};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Tried on two cores: 1, 2, 3, 4, 8, 16, 32 and 64. Every append is a serializable transaction, and PostgreSQL ends so many of
/// those that run at once, because they might have been overtaken, that one after another is fastest.
const CONNECTIONS: u32 = 1;

/// Events of one statement when halls are filled.
const BATCH: usize = 1_000;

/// disintegrate writes the mask as 0xFFFFFFFF, which PostgreSQL 15 cannot read. With `check_function_bodies` off it makes the
/// function all the same, and this is the same one for all versions.
const BEGIN_EPOCH: &str = "
    CREATE OR REPLACE FUNCTION event_store_begin_epoch() RETURNS void AS $$
    DECLARE
        id BIGINT;
        db_id INT;
    BEGIN
        SELECT last_value INTO id FROM seq_event_event_id;
        SELECT oid INTO db_id FROM pg_database WHERE datname = current_database();
        PERFORM pg_try_advisory_xact_lock_shared(db_id, 0);
        PERFORM pg_try_advisory_xact_lock_shared(1, (id & 4294967295)::bit(32)::integer);
        PERFORM pg_try_advisory_xact_lock_shared(2, (id >> 32)::bit(32)::integer);
    END;
    $$ LANGUAGE plpgsql";

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).context("the URL of a database")?;
    let peer = Peer::open(&url).await?;
    let about = format!(
        "disintegrate {}, connections: {CONNECTIONS}, no snapshots; writes neither the row nor the work",
        version()
    );
    println!("{}", json!({ "about": about }));
    for line in std::io::stdin().lock().lines() {
        let began = Instant::now();
        let answer = match peer.answer(&line?).await {
            Ok(count) => json!({ "count": count, "ms": began.elapsed().as_secs_f64() * 1e3 }),
            Err(error) => json!({ "error": format!("{error:#}") }),
        };
        println!("{answer}");
    }
    Ok(())
}

type Decisions = PgDecisionMaker<HallEvent, Json<HallEvent>, NoSnapshot>;

struct Peer {
    pool: PgPool,
    events: PgEventStore<HallEvent, Json<HallEvent>>,
    decisions: Decisions,
    again: Arc<AtomicU64>,
}

impl Peer {
    async fn open(url: &str) -> Result<Self> {
        let options: PgConnectOptions = url.parse()?;
        let options = options.options([("check_function_bodies", "off")]);
        let pool = PgPoolOptions::new()
            .min_connections(CONNECTIONS)
            .max_connections(CONNECTIONS)
            .test_before_acquire(false)
            .connect_with(options)
            .await?;
        let events = PgEventStore::try_new(pool.clone(), Json::default()).await?;
        sqlx::query(BEGIN_EPOCH).execute(&pool).await?;
        let decisions = disintegrate_postgres::decision_maker(events.clone(), NoSnapshot);
        Ok(Self { pool, events, decisions, again: Arc::default() })
    }

    async fn answer(&self, line: &str) -> Result<u64> {
        let request: Value = serde_json::from_str(line)?;
        let number = |name: &'static str| request[name].as_i64().context(name);
        match request["verb"].as_str() {
            Some("fill") => self.fill(number("halls")?, number("seats")?).await,
            Some("decide") => self.decide(number("callers")?, number("each")?, number("from")?).await,
            Some("events") => self.count().await,
            Some("again") => Ok(self.again.load(Ordering::Relaxed)),
            _ => bail!("no such verb: {line}"),
        }
    }

    /// Sells so many seats of so many halls; then the database knows what it holds.
    async fn fill(&self, halls: i64, seats: i64) -> Result<u64> {
        let sold = (0..halls).flat_map(|hall| (0..seats).map(move |seat| HallEvent::SeatSold { hall, seat }));
        let sold: Vec<HallEvent> = sold.collect();
        for batch in sold.chunks(BATCH) {
            self.events.append_without_validation(batch.to_vec()).await?;
        }
        sqlx::query("VACUUM ANALYZE").execute(&self.pool).await?;
        Ok(sold.len() as u64)
    }

    /// Each caller sells one seat in each of its halls, one after another.
    async fn decide(&self, callers: i64, each: i64, from: i64) -> Result<u64> {
        let callers: Vec<_> = (0..callers)
            .map(|caller| {
                let (decisions, again) = (self.decisions.clone(), self.again.clone());
                let first = from + caller * each;
                tokio::spawn(async move {
                    for hall in first..first + each {
                        decide(&decisions, hall, &again).await?;
                    }
                    Ok::<_, anyhow::Error>(each as u64)
                })
            })
            .collect();
        let mut decided = 0;
        for caller in callers {
            decided += caller.await??;
        }
        Ok(decided)
    }

    async fn count(&self) -> Result<u64> {
        let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM event");
        Ok(count.fetch_one(&self.pool).await? as u64)
    }
}

/// Until nobody was in between. PostgreSQL says so of serializable transactions that only might have been overtaken, too.
async fn decide(decisions: &Decisions, hall: i64, again: &AtomicU64) -> Result<()> {
    loop {
        match decisions.make(SellSeat { hall, seat: 1_000 }).await {
            Ok(_) => return Ok(()),
            Err(disintegrate::DecisionError::StateStore(error)) if is_conflict(&*error) => {
                again.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool {
    match error.downcast_ref() {
        Some(disintegrate_postgres::Error::Concurrency) => true,
        Some(disintegrate_postgres::Error::Database(sqlx::Error::Database(error))) => {
            error.code().as_deref() == Some("40001")
        }
        _ => false,
    }
}

/// The version of disintegrate that this was built with.
fn version() -> &'static str {
    let mut lines = include_str!("../Cargo.lock").lines();
    lines.find(|line| *line == "name = \"disintegrate\"");
    lines.next().and_then(|line| line.split('"').nth(1)).unwrap_or("of an unknown version")
}
