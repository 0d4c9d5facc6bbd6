//! Limiters in Redis: ours, which asks for many callers at once, and a script for each call by hand.

use crate::rounds::{Answer, median, ratios, version};
use anyhow::{Context, Result, ensure};
use mainstay_bench::load::{Load, Outcome};
use mainstay_bench::table::Table;
use mainstay_guards::limits::redis::{Options, Redis, RedisLimiter, WhenAway};
use mainstay_guards::limits::{Policy, RateLimiter};
use mainstay_testkit::redis as server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script, cmd};
use std::sync::Arc;
use std::time::Duration;

/// Calls in flight.
const CALLERS: [usize; 2] = [1, 512];
const KEYS: u64 = 10_000;
const ROUNDS: usize = 3;
const CAPACITY: u64 = 1_000_000_000;
const PER_SECOND: u64 = 1_000_000;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// What most people's script does: a bucket in a hash, by the time of the server.
const BUCKET: &str = include_str!("bucket.lua");
/// The least that a script can do: one number, read and written.
const NUMBER: &str = include_str!("number.lua");

/// Prints the tables.
pub async fn run() -> Result<()> {
    let server = tokio::task::spawn_blocking(server::Redis::start).await??;
    let info = server.command(&["INFO", "server"])?;
    let redis_version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or_default();
    println!(
        "\nRedis {redis_version}, nothing of it on disk: {KEYS} keys, nobody denied; the median of {ROUNDS} rounds in \
         turns\n\n- EVALSHA: redis {} (the crate), one multiplexed connection, a call of the script for each decision; a \
         bucket in a hash, or one number in a string\n- mainstay: `limits::redis`, on the same crate\n",
        version("redis")
    );
    let entries: [(&str, Arc<dyn Contender>); 3] = [
        ("EVALSHA, hash", Arc::new(Each::open(&server.url(), BUCKET).await?)),
        ("EVALSHA, number", Arc::new(Each::open(&server.url(), NUMBER).await?)),
        ("mainstay", Arc::new(ours(&server.url()).await?)),
    ];
    let names: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
    let mut table = Table::new();
    for callers in CALLERS {
        let mut outcomes = entries.each_ref().map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for ((_, contender), outcomes) in entries.iter().zip(&mut outcomes) {
                outcomes.push(turn(contender, callers).await);
            }
        }
        let rates = |outcomes: &Vec<Outcome>| outcomes.iter().map(Outcome::per_second).collect::<Vec<_>>();
        let rates: Vec<Vec<f64>> = outcomes.iter().map(rates).collect();
        for ((name, outcomes), ratio) in names.iter().zip(outcomes).zip(ratios(&names, &rates)) {
            table.add(name, &median(outcomes, Outcome::per_second), &ratio);
        }
    }
    print!("{}", table.render());
    drop(entries);
    tokio::task::spawn_blocking(move || drop(server)).await?;
    Ok(())
}

/// A limiter in Redis.
trait Contender: Send + Sync {
    /// Takes one token.
    fn take(&self, key: String) -> Answer<'_, ()>;
}

async fn turn(contender: &Arc<dyn Contender>, callers: usize) -> Outcome {
    let contender = contender.clone();
    let load = Load { callers, warm_up: Duration::from_millis(500), measured: Duration::from_secs(2) };
    load.run(move |caller, number| {
        let contender = contender.clone();
        async move { contender.take(format!("user:{}", (caller as u64 * 7_919 + number) % KEYS)).await }
    })
    .await
}

/// A call of a script for each decision.
struct Each {
    connection: MultiplexedConnection,
    hash: String,
    prefix: String,
}

impl Each {
    async fn open(url: &str, script: &str) -> Result<Self> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(url)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let hash: String = cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection.clone()).await?;
        ensure!(hash == Script::new(script).get_hash(), "another script was loaded");
        Ok(Self { connection, prefix: format!("{}:", &hash[..8]), hash })
    }
}

impl Contender for Each {
    fn take(&self, key: String) -> Answer<'_, ()> {
        Box::pin(async move {
            let mut call = cmd("EVALSHA");
            call.arg(&self.hash).arg(1).arg(self.prefix.clone() + &key).arg(CAPACITY).arg(PER_SECOND).arg(1);
            let answer: Vec<i64> = call.query_async(&mut self.connection.clone()).await?;
            ensure!(*answer.first().context("no answer")? == 1, "denied");
            Ok(())
        })
    }
}

async fn ours(url: &str) -> Result<RedisLimiter> {
    let options = Options::new(url).timeout(PATIENCE).when_away(WhenAway::Refuse);
    Ok(Redis::open(options).await?.limiter(Policy::bucket(CAPACITY as f64, PER_SECOND as f64)?))
}

impl Contender for RedisLimiter {
    fn take(&self, key: String) -> Answer<'_, ()> {
        Box::pin(async move {
            ensure!(self.consume(&key, 1).await?.allowed, "denied");
            Ok(())
        })
    }
}
