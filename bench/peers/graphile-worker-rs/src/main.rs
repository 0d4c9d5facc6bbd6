//! graphile_worker for Rust, with local queues and batched completion. Answers each JSON line on standard input with one
//! on standard output; `bench/src/work/peers` says which there are.

use anyhow::{Context, Result, bail};
use graphile_worker::{
    Database, IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Tried in turns on two cores: one local queue was slower, and neither more jobs at once nor a delay was faster.
const LOCAL_QUEUES: usize = 2;
const CONCURRENCY: usize = 64;
const LOCAL_QUEUE: usize = 500;
const DELAY: Duration = Duration::ZERO;

const CONNECTIONS: u32 = 20;
const SCHEMA: &str = "graphile_worker";

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).context("the URL of a database")?;
    let mut peer = Peer::open(&url).await?;
    let about = format!(
        "graphile_worker {}, {CONCURRENCY} jobs at once, {LOCAL_QUEUES} local queues of {LOCAL_QUEUE}, batched completion",
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

struct Peer {
    pool: PgPool,
    utils: WorkerUtils,
    enqueued: u64,
}

impl Peer {
    async fn open(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
        let utils = WorkerUtils::new(Database::from(pool.clone()), SCHEMA);
        utils.migrate().await?;
        Ok(Self { pool, utils, enqueued: 0 })
    }

    async fn answer(&mut self, line: &str) -> Result<u64> {
        let request: Value = serde_json::from_str(line)?;
        match request["verb"].as_str() {
            Some("enqueue") => {
                let batches = request["batches"].as_u64().context("batches")?;
                let size = request["size"].as_u64().context("size")?;
                self.enqueue(batches, size, &request["body"]).await
            }
            Some("work") => self.work().await,
            Some("left") => self.left().await,
            _ => bail!("no such verb: {line}"),
        }
    }

    async fn enqueue(&mut self, batches: u64, size: u64, body: &Value) -> Result<u64> {
        for _ in 0..batches {
            let jobs: Vec<RawJobSpec> = (0..size)
                .map(|_| RawJobSpec {
                    identifier: Noop::IDENTIFIER.to_owned(),
                    payload: body.clone(),
                    spec: JobSpec::default(),
                })
                .collect();
            self.utils.add_raw_jobs(&jobs).await?;
            self.enqueued += size;
        }
        Ok(batches * size)
    }

    async fn work(&mut self) -> Result<u64> {
        let ran = Ran::new(self.enqueued);
        let worker = WorkerOptions::default()
            .database(self.pool.clone())
            .schema(SCHEMA)
            .concurrency(CONCURRENCY)
            .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE).with_queue_count(LOCAL_QUEUES))
            .complete_job_batch_delay(DELAY)
            .fail_job_batch_delay(DELAY)
            .listen_os_shutdown_signals(false)
            .add_extension(ran.clone())
            .define_job::<Noop>()
            .init()
            .await?;
        let (worked, ()) = tokio::join!(worker.run(), async {
            ran.all.notified().await;
            // Writes the completions that are still waiting for their batch.
            worker.request_shutdown();
        });
        worked?;
        self.enqueued = 0;
        Ok(ran.count.load(Ordering::Relaxed))
    }

    async fn left(&self) -> Result<u64> {
        let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM graphile_worker._private_jobs");
        Ok(count.fetch_one(&self.pool).await? as u64)
    }
}

/// How many handlers ran.
#[derive(Debug, Clone)]
struct Ran {
    count: Arc<AtomicU64>,
    expected: u64,
    all: Arc<Notify>,
}

impl Ran {
    fn new(expected: u64) -> Self {
        Self { count: Arc::default(), expected, all: Arc::default() }
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Noop {
    order: u64,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        std::hint::black_box(self.order);
        let ran = context.get_ext::<Ran>().ok_or("no counter")?;
        if ran.count.fetch_add(1, Ordering::Relaxed) + 1 == ran.expected {
            ran.all.notify_one();
        }
        Ok::<(), &str>(())
    }
}

/// The version of graphile_worker that this was built with.
fn version() -> &'static str {
    let mut lines = include_str!("../Cargo.lock").lines();
    lines.find(|line| *line == "name = \"graphile_worker\"");
    lines.next().and_then(|line| line.split('"').nth(1)).unwrap_or("of an unknown version")
}
