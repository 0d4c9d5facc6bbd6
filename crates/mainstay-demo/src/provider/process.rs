//! The process, and what is said to it.

use super::super::schedule::{Schedule, Weather};
use super::{Books, Greeting, Order};
use crate::{Error, Failure, Result};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The provider, at work.
pub(in super::super) struct Provider {
    line: Arc<Mutex<Line>>,
    process: Child,
    url: String,
    schedule: Schedule,
    /// When its schedule began; it is well until then.
    began: OnceLock<Instant>,
    is_calm: AtomicBool,
}

/// The line to it.
struct Line {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Provider {
    /// Starts it, with its books at a URL.
    pub(in super::super) async fn start(books: &str, cycle: Duration) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().map_err(broken)?);
        command.args(["demo", "--provider", books, "--cycle", &cycle.as_secs().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A Ctrl-C is for the demo, which asks for the books before it ends.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command.spawn().map_err(broken)?;
        let (Some(orders), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(broken(io::ErrorKind::BrokenPipe.into()));
        };
        let mut line = Line { orders, answers: BufReader::new(answers) };
        let greeted = move || line.hear::<Greeting>().map(|greeting| (greeting, line));
        let (Greeting { url }, line) = aside(greeted).await?;
        let schedule = Schedule::new(cycle);
        let (began, is_calm) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Self { line: Arc::new(Mutex::new(line)), process, url, schedule, began, is_calm })
    }

    /// Lets its schedule begin, if it has not.
    pub(in super::super) fn begin(&self) -> Result<()> {
        self.began.get_or_init(Instant::now);
        locked(&self.line).say(Order::Begin)
    }

    /// Where it answers.
    pub(in super::super) fn url(&self) -> &str {
        &self.url
    }

    /// How it is now, by its schedule.
    pub(in super::super) fn weather(&self) -> Weather {
        if self.is_calm.load(Ordering::Relaxed) {
            return Weather::Well;
        }
        self.began.get().map_or(Weather::Well, |began| self.schedule.at(began.elapsed()))
    }

    /// Lets it be well from now on.
    pub(in super::super) fn calm(&self) -> Result<()> {
        self.is_calm.store(true, Ordering::Relaxed);
        locked(&self.line).say(Order::Calm)
    }

    /// What is in its books.
    pub(in super::super) async fn books(&self) -> Result<Books> {
        let line = self.line.clone();
        aside(move || {
            let mut line = locked(&line);
            line.say(Order::Books)?;
            line.hear()
        })
        .await
    }

    /// Lets it go, and waits until it has gone.
    pub(in super::super) async fn stop(self) -> Result<()> {
        let Self { line, mut process, .. } = self;
        drop(line);
        aside(move || process.wait().map(drop).map_err(broken)).await
    }
}

fn locked(line: &Mutex<Line>) -> std::sync::MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    fn say(&mut self, order: Order) -> Result<()> {
        let order = serde_json::to_string(&order).map_err(|error| broken(error.into()))?;
        writeln!(self.orders, "{order}").and_then(|()| self.orders.flush()).map_err(broken)
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut said = String::new();
        self.answers.read_line(&mut said).map_err(broken)?;
        // Whoever ends before it says anything has told why on stderr, which is ours.
        serde_json::from_str(&said).map_err(|error| broken(error.into()))
    }
}

/// Does what may wait for the other process where nobody else waits for it.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|lost| Err(mainstay::store::Error::Panicked(lost.to_string()).into()))
}

fn broken(source: io::Error) -> Error {
    Failure::Io { what: "the provider of payments".to_owned(), source }.into()
}
