//! `mainstay bench operate`: what an operator asks a server, over a store that is full, while nothing happens and while it is
//! written to as fast as it takes.

use crate::{Error, Result, remote};
use mainstay::events::{Append, Log, MAX_EVENTS, NewEvent};
use mainstay::flows::commands::Commands;
use mainstay::flows::projections::Registry;
use mainstay::store::Store;
use mainstay::work::{Call, Failure, Functions, NewWork, Pool, RetryPolicy, Work};
use mainstay_server::{Rooms, Routes, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use ureq::Agent;

/// The pool whose items all fail.
pub const POOL: &str = "mainstay.bench.operate";
/// What is asked for, and how long that may take.
pub const QUESTIONS: [(&str, Duration); 19] = [
    ("/health/live", READY),
    ("/health/ready", READY),
    ("/health", READY),
    ("/metrics", Duration::from_millis(20)),
    ("/console", PAGE),
    ("/console/events", PAGE),
    ("/console/events?tag=bench:7", PAGE),
    ("/console/events?type=mainstay.BenchNoted", PAGE),
    ("/console/traces/bench-7", PAGE),
    ("/console/work", PAGE),
    ("/console/work?state=failed", PAGE),
    ("/console/projections", PAGE),
    ("/console/dead-letters", PAGE),
    ("/console/publications", PAGE),
    ("/console/intents", PAGE),
    ("/console/circuits", PAGE),
    ("/console/limits", PAGE),
    ("/console/audit", PAGE),
    ("/console/configuration", PAGE),
];

const PAGE: Duration = Duration::from_millis(100);
const READY: Duration = Duration::from_millis(50);
const FUNCTION: &str = "mainstay.bench.fail";
const TYPE: &str = "mainstay.BenchNoted";
/// With its quotes an event carries 100 bytes.
const TEXT_BYTES: usize = 98;
/// Appends at once, when the log is filled and when the store is kept busy.
const AT_ONCE: usize = 16;
/// Items that are enqueued together.
const BATCH: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(10);

/// What came of one question.
#[derive(Debug)]
pub struct Answered {
    /// What was asked for.
    pub path: &'static str,
    /// How long it may take.
    pub most: Duration,
    /// How many bytes the answer has.
    pub bytes: usize,
    /// How long it took while nothing else happened, the shortest first.
    pub quiet: Vec<Duration>,
    /// How long it took while the store was written to, the shortest first.
    pub busy: Vec<Duration>,
}

impl Answered {
    /// The time in the middle, in milliseconds.
    pub fn middle_ms(times: &[Duration]) -> f64 {
        times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    /// The longest time, in milliseconds.
    pub fn longest_ms(times: &[Duration]) -> f64 {
        times.last().map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }
}

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// Events in the log before anything was asked.
    pub events: u64,
    /// Dead letters that were made.
    pub letters: u64,
    /// Events that were appended in a second meanwhile.
    pub appended_per_second: f64,
    /// The answers.
    pub answers: Vec<Answered>,
}

/// Fills the store with so many events and dead letters, and asks a server over it everything so many times.
pub async fn measure(store: &Store, events: usize, letters: usize, times: usize) -> Result<Measured> {
    let fail = async |_: Call, _: u64| Err::<(), _>(Failure::permanent("it always fails"));
    let functions = Functions::new().action(FUNCTION, fail);
    let rooms = Rooms::open_with(store, Commands::new(), Registry::new(), |_| functions).await?;
    fill(&rooms.log, events).await?;
    fail_often(&rooms.work, letters).await?;
    let options = mainstay_server::Options::default().listen(([127, 0, 0, 1], 0).into());
    let server = Server::bind_with(options, rooms.clone(), Routes::default()).await?;
    let (url, handle) = (server.url(), server.handle());
    let link = server.login_link().await?;
    let running = tokio::spawn(server.run(std::future::pending()));
    let asked = ask_twice(&rooms.log, Visitor::log_in(url, link).await?, times).await;
    handle.stop();
    drop(running.await);
    let (answers, appended_per_second) = asked?;
    let events = events as u64;
    Ok(Measured { events, letters: letters as u64, appended_per_second, answers })
}

async fn fill(log: &Log, events: usize) -> Result<()> {
    let mut filling = tokio::task::JoinSet::new();
    for from in (0..events).step_by(MAX_EVENTS) {
        if filling.len() >= AT_ONCE
            && let Some(filled) = filling.join_next().await
        {
            filled.map_err(lost)??;
        }
        let (log, numbers) = (log.clone(), from..events.min(from + MAX_EVENTS));
        filling.spawn(async move { log.append(Append::new(noted(numbers)?)).await.map(drop) });
    }
    while let Some(filled) = filling.join_next().await {
        filled.map_err(lost)??;
    }
    Ok(())
}

/// Events, a thousand of which are about the same, and ten of which belong together.
fn noted(numbers: std::ops::Range<usize>) -> mainstay::events::Result<Vec<NewEvent>> {
    let data = "x".repeat(TEXT_BYTES);
    let event = |number: usize| {
        let event = NewEvent::new(TYPE, &data)?.tag(format!("bench:{}", number / 1_000));
        Ok(event.correlation(format!("bench-{}", number / 10)))
    };
    numbers.map(event).collect()
}

/// Lets so many items fail for good.
async fn fail_often(work: &Work, letters: usize) -> Result<()> {
    let retry = RetryPolicy::new(1, 1, 1.0, 1).map_err(|error| Error::Argument(error.to_string()))?;
    work.pool(Pool::new(POOL).max_parallelism(64).retry(retry)).await?;
    for from in (0..letters).step_by(BATCH) {
        let items =
            (from..letters.min(from + BATCH)).map(|number| NewWork::new(POOL, FUNCTION, &(number as u64)));
        work.enqueue_all(items.collect::<mainstay::work::Result<Vec<_>>>()?).await?;
    }
    let engine = work.start().await?;
    loop {
        let depth = work.depth(POOL).await?;
        if (depth.pending, depth.running) == (0, 0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(engine.stop(PATIENCE).await?)
}

/// Asks everything, first while nothing happens, then while the store is written to; and how fast that was.
async fn ask_twice(log: &Log, visitor: Visitor, times: usize) -> Result<(Vec<Answered>, f64)> {
    let mut answers = Vec::with_capacity(QUESTIONS.len());
    for (path, most) in QUESTIONS {
        let (bytes, quiet) = visitor.ask(path, times).await?;
        answers.push(Answered { path, most, bytes, quiet, busy: Vec::new() });
    }
    let writing = Writing::start(log);
    for answer in &mut answers {
        answer.busy = visitor.ask(answer.path, times).await?.1;
    }
    Ok((answers, writing.stop().await?))
}

/// Callers that append one event after another.
struct Writing {
    is_over: Arc<AtomicBool>,
    callers: tokio::task::JoinSet<mainstay::events::Result<u64>>,
    began: Instant,
}

impl Writing {
    fn start(log: &Log) -> Self {
        let (is_over, mut callers) = (Arc::new(AtomicBool::new(false)), tokio::task::JoinSet::new());
        for _ in 0..AT_ONCE {
            let (log, is_over) = (log.clone(), is_over.clone());
            callers.spawn(async move {
                let mut appended = 0;
                while !is_over.load(Ordering::Relaxed) {
                    log.append(Append::new(noted(0..1)?)).await?;
                    appended += 1;
                }
                Ok(appended)
            });
        }
        Self { is_over, callers, began: Instant::now() }
    }

    async fn stop(mut self) -> Result<f64> {
        self.is_over.store(true, Ordering::Relaxed);
        let (took, mut appended) = (self.began.elapsed(), 0);
        while let Some(caller) = self.callers.join_next().await {
            appended += caller.map_err(lost)??;
        }
        Ok(appended as f64 / took.as_secs_f64())
    }
}

/// Somebody who is logged in. Calls block, so they have a thread of their own.
#[derive(Clone)]
struct Visitor {
    agent: Agent,
    url: String,
    cookie: String,
}

impl Visitor {
    async fn log_in(url: String, link: String) -> Result<Self> {
        let agent = remote::agent(&url, PATIENCE, PATIENCE);
        let asking = agent.clone();
        let answer = tokio::task::spawn_blocking(move || asking.get(link).call()).await.map_err(lost)?;
        let answer = answer.map_err(|error| unreachable(&url, error))?;
        let cookie = answer.headers().get("set-cookie").and_then(|cookie| cookie.to_str().ok());
        let cookie = cookie.and_then(|cookie| cookie.split(';').next()).unwrap_or_default().to_owned();
        Ok(Self { agent, url, cookie })
    }

    /// How many bytes the answer has, and how long it took each time, the shortest first.
    async fn ask(&self, path: &'static str, times: usize) -> Result<(usize, Vec<Duration>)> {
        let visitor = self.clone();
        tokio::task::spawn_blocking(move || {
            let mut took = Vec::with_capacity(times);
            // The first is not counted: nobody has asked before.
            let mut bytes = visitor.once(path)?;
            for _ in 0..times {
                let began = Instant::now();
                bytes = visitor.once(path)?;
                took.push(began.elapsed());
            }
            took.sort_unstable();
            Ok((bytes, took))
        })
        .await
        .map_err(lost)?
    }

    fn once(&self, path: &str) -> Result<usize> {
        let asked = self.agent.get(format!("{}{path}", self.url)).header("Cookie", &self.cookie).call();
        let mut answer = asked.map_err(|error| unreachable(&self.url, error))?;
        let body = answer.body_mut().read_to_vec().map_err(|error| unreachable(&self.url, error))?;
        match answer.status().as_u16() {
            200 => Ok(body.len()),
            status => Err(Error::Argument(format!("{path} was answered with {status}"))),
        }
    }
}

fn unreachable(url: &str, error: impl std::fmt::Display) -> Error {
    Error::Unreachable { url: url.to_owned(), reason: error.to_string(), because: None }
}

fn lost(error: tokio::task::JoinError) -> Error {
    mainstay::store::Error::Panicked(error.to_string()).into()
}
