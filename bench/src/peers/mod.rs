//! Peers in processes of their own: small programs in `bench/peers` that take a JSON line and answer with one, so that a
//! peer in any language takes part.
//!
//! | file | what lives there |
//! |---|---|
//! | `npm` | installing and starting those for Node |
//! | `cargo` | building those in Rust, which cannot be dependencies of this program |
//!
//! A peer first says `{"about": "graphile-worker 0.18.0, … (Node 26.10.0)"}`. To `{"verb": "work"}` it answers
//! `{"count": 20000, "ms": 480.1}`, or `{"error": "…"}` when anything goes wrong; which verbs it knows and what they count
//! is said by the contest. It ends when its standard input does.

pub mod cargo;
pub mod npm;

use crate::rounds::Answer;
use anyhow::{Context, Result, bail};
use mainstay_testkit::postgres::{Database, Private};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How much longer than by the peer's clock a step may take by ours. Beyond it, figures are of the pipes or of a machine
/// that is too busy.
const LONGER: f64 = 1.02;
const LONGER_MS: f64 = 10.0;

/// Installs or builds a peer if need be.
pub type Preparation = fn() -> Result<Program>;

/// What to start; the URL of its database comes last.
#[derive(Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Starts it on a database of its own.
    pub async fn open(&self, server: &Arc<Private>) -> Result<Peer> {
        let (program, server) = (self.clone(), server.clone());
        tokio::task::spawn_blocking(move || Peer::open(&program, server.database()?)).await?
    }
}

/// A peer that runs; dropping it ends it.
pub struct Peer {
    pub about: String,
    pipes: Arc<Mutex<Pipes>>,
    child: Child,
    _database: Database,
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Peer {
    fn open(program: &Program, database: Database) -> Result<Self> {
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .arg(database.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.path.display()))?;
        let (stdin, stdout) = (child.stdin.take().context("a pipe")?, child.stdout.take().context("a pipe")?);
        let pipes = Arc::new(Mutex::new(Pipes { stdin, stdout: BufReader::new(stdout) }));
        let mut peer = Self { about: String::new(), pipes, child, _database: database };
        let hello = peer.pipes.lock().unwrap_or_else(PoisonError::into_inner).read()?;
        peer.about = hello["about"].as_str().context("who it is")?.to_owned();
        Ok(peer)
    }

    /// One line, and the count in its answer.
    pub fn ask(&self, request: Value) -> Answer<'_, u64> {
        let pipes = self.pipes.clone();
        let ask = move || pipes.lock().unwrap_or_else(PoisonError::into_inner).ask(&request);
        Box::pin(async move { tokio::task::spawn_blocking(ask).await? })
    }
}

struct Pipes {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Pipes {
    fn ask(&mut self, request: &Value) -> Result<u64> {
        let began = Instant::now();
        writeln!(self.stdin, "{request}")?;
        let answer = self.read()?;
        let ms = began.elapsed().as_secs_f64() * 1e3;
        let own_ms = answer["ms"].as_f64().context("the time it took")?;
        if ms > own_ms * LONGER + LONGER_MS {
            eprintln!("  {request} took {own_ms:.1} ms by the peer's clock, and {ms:.1} ms by ours");
        }
        answer["count"].as_u64().context("a count")
    }

    fn read(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            bail!("the peer ended");
        }
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("the peer said {line:?}"))?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }
}

/// Where a peer's own files are.
fn source(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}

/// Where it is installed or built.
fn target(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/peers").join(name)
}
