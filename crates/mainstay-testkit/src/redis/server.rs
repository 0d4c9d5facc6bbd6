//! One Redis server.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, RawPid, Signal, kill_process};

use super::wire::command;
use crate::shim::{library, preload};

const SCRIPT: &str = include_str!("server.sh");
const CLOCK: &str = include_str!("clock.c");
/// A port that was free a moment ago may be taken by the time the server wants it.
const TRIES: usize = 10;

/// A Redis server that belongs to one test. Nothing of it reaches the disk, and it is gone when dropped or when the
/// process of the test has ended.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    options: Vec<String>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    keeper: Child,
    server: Pid,
    folder: PathBuf,
}

impl Redis {
    /// Starts a server on a free port.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// As [`start`](Self::start), with options of `redis-server`.
    pub fn start_with(options: &[&str]) -> Result<Self> {
        for _ in 0..TRIES {
            let port = free_port()?;
            let options = options.iter().map(|option| (*option).to_owned()).collect();
            let mut redis = Self { port, options, running: None };
            if redis.run().is_ok() {
                return Ok(redis);
            }
        }
        bail!("no redis-server starts here; run ./test, which installs it")
    }

    /// Where it is: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends one command and gives its answer as text.
    pub fn command(&self, words: &[&str]) -> Result<String> {
        command(self.port, words)
    }

    /// Kills it in one stroke.
    pub fn kill9(&mut self) {
        self.running = None;
    }

    /// Starts it again on the same port, and empty.
    pub fn run(&mut self) -> Result<()> {
        self.running = None;
        let folder = tempfile::Builder::new().prefix("mainstay-redis-").tempdir()?.keep();
        std::fs::write(folder.join("clock"), [0; 8])?;
        let mut line = Command::new("sh");
        line.args(["-c", SCRIPT, "mainstay-redis"]).arg(&folder);
        line.arg(std::env::var_os("MAINSTAY_REDIS_SERVER").unwrap_or_else(|| "redis-server".into()));
        line.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"]);
        line.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&folder).args(&self.options);
        line.env("LD_PRELOAD", preload(&library("clock", CLOCK)?));
        line.env("MAINSTAY_CLOCK", folder.join("clock"));
        line.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = line.spawn().context("starting a shell for redis-server")?;
        let mut pid = String::new();
        let output = keeper.stdout.take().context("the output of the shell")?;
        BufReader::new(output).read_line(&mut pid)?;
        let server = Pid::from_raw(pid.trim().parse::<RawPid>()?).context("a process")?;
        self.running = Some(Running { keeper, server, folder });
        self.wait_until_it_answers()
    }

    /// Stops it in its tracks: it accepts connections, and says nothing.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Puts its time of day to `now_ms`, where it stands from then on.
    pub fn set_time(&self, now_ms: i64) {
        let running = self.running.as_ref().expect("the server runs");
        let clock = std::fs::File::options().write(true).open(running.folder.join("clock"));
        let written = clock.and_then(|file| file.write_all_at(&(now_ms * 1_000).to_ne_bytes(), 0));
        written.expect("the clock of the server can be written");
    }

    fn signal(&self, signal: Signal) {
        if let Some(running) = &self.running {
            let _ = kill_process(running.server, signal);
        }
    }

    fn wait_until_it_answers(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.command(&["PING"]).is_ok_and(|answer| answer == "PONG") {
            let folder = self.running.as_ref().map(|running| running.folder.clone()).unwrap_or_default();
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            let is_gone = log.contains("Failed listening") || log.contains("not found");
            if is_gone || Instant::now() > deadline {
                bail!("redis-server does not answer:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The keeper does the rest when its input ends.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// A port that nobody uses now.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
