//! `mainstay bench operate`: what an operator asks a server, over a store that is full, while nothing happens and while it is
//! written to as fast as it takes.
//!
//! - `fill`, `more`, `writing`: a store that is full, of everything, and one that is busy
//! - `visitor`: who asks
//! - `pages`: lists, the first page and the thousandth
//! - `live`: what it costs to follow the overview
//! - `verdict`: what is over its limit

mod fill;
mod live;
mod more;
mod pages;
mod verdict;
mod visitor;
mod writing;

pub use pages::Pages;

use crate::{Error, Result};
use mainstay::events::Log;
use mainstay::guards::limits::{Definition, Kind};
use mainstay::store::Store;
use mainstay::work::{Call, Failure, Functions};
use mainstay_server::tokens::New;
use mainstay_server::{Builder, Role, Routes, Server, Tokens};
use std::time::Duration;
use visitor::Visitor;
use writing::Writing;

/// The pool whose items all fail.
pub const POOL: &str = "bench.operate";
/// What is asked for, and how long that may take.
pub const QUESTIONS: [(&str, Duration); 23] = [
    ("/health/live", READY),
    ("/health/ready", READY),
    ("/health", READY),
    ("/metrics", Duration::from_millis(20)),
    ("/console", PAGE),
    ("/console/events", PAGE),
    ("/console/events?tag=bench:7", PAGE),
    ("/console/events?type=mainstay.BenchNoted", PAGE),
    ("/console/events?stream=Bench/nobody", PAGE),
    ("/console/events?to=2000-01-01T00:00", PAGE),
    ("/console/traces/bench-7", PAGE),
    ("/console/work", PAGE),
    ("/console/work?state=failed", PAGE),
    ("/console/projections", PAGE),
    ("/console/projections/bench", PAGE),
    ("/console/dead-letters", PAGE),
    ("/console/dead-letters?error=always", PAGE),
    ("/console/publications", PAGE),
    ("/console/intents", PAGE),
    ("/console/circuits", PAGE),
    ("/console/limits", PAGE),
    ("/console/audit", PAGE),
    ("/console/configuration", PAGE),
];

const PAGE: Duration = Duration::from_millis(100);
const READY: Duration = Duration::from_millis(50);
const FUNCTION: &str = "bench.fail";
/// Appends at once, when the log is filled and when the store is kept busy.
const AT_ONCE: usize = 16;
/// What counts how much a token may change.
const ADMIN_OPERATIONS: &str = "adminOperations";
/// The overview is followed for so long for each time that a question is asked.
const FOLLOWED: Duration = Duration::from_millis(200);
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
    /// Lists, page by page.
    pub pages: Vec<Pages>,
    /// The share of a core that one who follows the overview takes, where that can be told.
    pub live_share: Option<f64>,
    /// How many bytes a browser loads for the overview.
    pub transferred: usize,
}

/// Fills the store with so many events and dead letters, and asks a server over it everything so many times.
pub async fn measure(store: &Store, events: usize, letters: usize, times: usize) -> Result<Measured> {
    let fail = async |_: Call, _: u64| Err::<(), _>(Failure::permanent("it always fails"));
    let functions = Functions::new().action(FUNCTION, fail);
    let (registry, targets) = (more::registry(), more::targets());
    let services = Builder::on_store(store.clone())
        .projections(registry)
        .targets(targets)
        .functions(functions)
        .open()
        .await?;
    fill::fill(&services.log, events).await?;
    more::fill(store, &services, letters / 10).await?;
    fill::fail_often(&services.work, letters).await?;
    let options = mainstay_server::Options::default().listen(([127, 0, 0, 1], 0).into());
    let server = Server::bind_with(options, services.clone(), Routes::default())
        .await
        .map_err(crate::Failure::from)?;
    let (url, handle) = (server.url(), server.handle());
    let link = server.login_link().await.map_err(crate::Failure::from)?;
    let tokens = Tokens::new(store.clone());
    let new = New::named("bench", Role::Admin).map_err(|error| crate::Failure::Broken(error.to_string()))?;
    let (token, secret) = tokens.create(new).await?;
    // More is done in a second than people do in a month.
    let usual = services.limits.definition(ADMIN_OPERATIONS).await?;
    services.limits.define(ADMIN_OPERATIONS, Definition::new(Kind::FixedWindow, 1e6, 3_600_000)?).await?;
    let running = tokio::spawn(server.run(std::future::pending()));
    let measured = async {
        let visitor = Visitor::log_in(url, link, secret.reveal().to_owned()).await?;
        let (answers, appended_per_second) = ask_twice(&services.log, &visitor, times).await?;
        visitor.aside(move |visitor| pages::be_written_down(visitor, times)).await?;
        let pages = visitor.aside(move |visitor| pages::ask(visitor, times)).await?;
        let time = FOLLOWED * times as u32;
        let live_share = visitor.aside(move |visitor| live::share(visitor, time)).await?;
        let transferred = visitor.aside(live::transferred).await?;
        let (events, letters) = (events as u64, letters as u64);
        Ok(Measured { events, letters, appended_per_second, answers, pages, live_share, transferred })
    };
    let measured = measured.await;
    handle.stop();
    drop(running.await);
    services.limits.define(ADMIN_OPERATIONS, usual).await?;
    tokens.revoke(&token.id, None).await?;
    measured
}

/// Asks everything, first while nothing happens, then while the store is written to; and how fast that was.
async fn ask_twice(log: &Log, visitor: &Visitor, times: usize) -> Result<(Vec<Answered>, f64)> {
    let mut answers = Vec::with_capacity(QUESTIONS.len());
    for (path, most) in QUESTIONS {
        let (bytes, quiet) = visitor.aside(move |visitor| visitor.ask(path, times)).await?;
        answers.push(Answered { path, most, bytes, quiet, busy: Vec::new() });
    }
    let writing = Writing::start(log);
    for answer in &mut answers {
        let path = answer.path;
        answer.busy = visitor.aside(move |visitor| visitor.ask(path, times)).await?.1;
    }
    Ok((answers, writing.stop().await?))
}

fn lost(error: tokio::task::JoinError) -> Error {
    mainstay::store::Error::Panicked(error.to_string()).into()
}
