//! Queues of others on PostgreSQL, each in a process of its own: a small program in `bench/peers` that takes a JSON line
//! and answers with one, so that a queue in any language takes part.
//!
//! | file | what lives there |
//! |---|---|
//! | `npm` | installing and starting those for Node |
//! | `cargo` | building the one in Rust, which cannot be a dependency of this program |
//!
//! | we write | the peer answers |
//! |---|---|
//! | nothing yet | `{"about": "graphile-worker 0.18.0, … (Node 26.10.0)"}` |
//! | `{"verb": "enqueue", "batches": 20, "size": 1000, "body": {…}}` | `{"count": 20000, "ms": 480.1}` |
//! | `{"verb": "work"}` | the same, with the number of handlers that ran |
//! | `{"verb": "left"}` | the same, with the number of items not completed |
//!
//! Anything that goes wrong is `{"error": "…"}`. A peer ends when its standard input does.

mod cargo;
mod npm;

use super::{Answer, BATCH, BODY, Contender, Entry};
use anyhow::{Context, Result, bail};
use mainstay_testkit::postgres::{Database, Private};
use serde_json::{Value, json};
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

/// Those that can be had here; for the others, a line says why not.
pub async fn entries(server: &Arc<Private>) -> Result<Vec<Entry>> {
    let known: [(&str, Preparation); 3] = [
        ("graphile-worker (Node)", || npm::program("graphile-worker")),
        ("pg-boss (Node)", || npm::program("pg-boss")),
        ("graphile_worker (Rust)", || cargo::program("graphile-worker-rs")),
    ];
    let mut entries = Vec::new();
    for (name, prepare) in known {
        match tokio::task::spawn_blocking(prepare).await? {
            Ok(program) => entries.push(entry(name, program, server)),
            Err(reason) => println!("{name} is left out: {reason:#}"),
        }
    }
    Ok(entries)
}

/// Installs or builds a peer if need be.
type Preparation = fn() -> Result<Program>;

/// What to start; the URL of its database comes last.
#[derive(Clone)]
struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

fn entry(name: &'static str, program: Program, server: &Arc<Private>) -> Entry {
    let server = server.clone();
    Entry::new(name, move |_folder| {
        let (server, program) = (server.clone(), program.clone());
        let open = move || Peer::open(&program, server.database()?);
        async move { Ok(Arc::new(tokio::task::spawn_blocking(open).await??) as _) }
    })
}

struct Peer {
    about: String,
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
    fn ask(&self, request: Value) -> Answer<'_, u64> {
        let pipes = self.pipes.clone();
        let ask = move || pipes.lock().unwrap_or_else(PoisonError::into_inner).ask(&request);
        Box::pin(async move { tokio::task::spawn_blocking(ask).await? })
    }
}

impl Contender for Peer {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn enqueue(&self, batches: u64) -> Answer<'_, ()> {
        Box::pin(async move {
            let body: Value = serde_json::from_str(BODY)?;
            let request = json!({ "verb": "enqueue", "batches": batches, "size": BATCH, "body": body });
            self.ask(request).await.map(drop)
        })
    }

    fn work(&self) -> Answer<'_, u64> {
        self.ask(json!({ "verb": "work" }))
    }

    fn left(&self) -> Answer<'_, u64> {
        self.ask(json!({ "verb": "left" }))
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
