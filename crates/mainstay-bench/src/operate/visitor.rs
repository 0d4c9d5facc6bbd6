//! Somebody who asks a server, as an operator does: with a browser that is logged in, and with a token.

use super::{PATIENCE, lost};
use crate::{Error, Failure, Result};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use ureq::Agent;

/// Somebody who is logged in, and has a token. Calls block, so they have a thread of their own.
#[derive(Clone)]
pub(super) struct Visitor {
    agent: Agent,
    url: String,
    cookie: String,
    token: String,
}

impl Visitor {
    pub(super) async fn log_in(url: String, link: String, token: String) -> Result<Self> {
        let agent = agent();
        let asking = agent.clone();
        let answer = tokio::task::spawn_blocking(move || asking.get(link).call()).await.map_err(lost)?;
        let answer = answer.map_err(|error| unreachable(&url, error))?;
        let cookie = answer.headers().get("set-cookie").and_then(|cookie| cookie.to_str().ok());
        let cookie = cookie.and_then(|cookie| cookie.split(';').next()).unwrap_or_default().to_owned();
        Ok(Self { agent, url, cookie, token })
    }

    /// Lets somebody do something on a thread of its own.
    pub(super) async fn aside<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T> + Send + 'static,
    {
        let visitor = self.clone();
        tokio::task::spawn_blocking(move || work(&visitor)).await.map_err(lost)?
    }

    /// How many bytes the answer has, and how long it took each time, the shortest first.
    pub(super) fn ask(&self, path: &str, times: usize) -> Result<(usize, Vec<Duration>)> {
        let mut took = Vec::with_capacity(times);
        // The first is not counted: nobody has asked before.
        let mut bytes = self.once(path)?.len();
        for _ in 0..times {
            let began = Instant::now();
            bytes = self.once(path)?.len();
            took.push(began.elapsed());
        }
        took.sort_unstable();
        Ok((bytes, took))
    }

    /// Asks once.
    pub(super) fn once(&self, path: &str) -> Result<Vec<u8>> {
        let asked = self.agent.get(format!("{}{path}", self.url)).header("Cookie", &self.cookie);
        let asked = asked.header("Authorization", format!("Bearer {}", self.token)).call();
        let mut answer = asked.map_err(|error| unreachable(&self.url, error))?;
        let body = answer.body_mut().read_to_vec().map_err(|error| unreachable(&self.url, error))?;
        match answer.status().as_u16() {
            200 => Ok(body),
            // A probe that says that something is behind has answered.
            503 if path.starts_with("/health") => Ok(body),
            status => Err(Failure::Broken(format!("{path} was answered with {status}")).into()),
        }
    }

    /// Asks once for a document.
    pub(super) fn document(&self, path: &str) -> Result<Value> {
        let not_json = |error: serde_json::Error| unreachable(&self.url, error);
        serde_json::from_slice(&self.once(path)?).map_err(not_json)
    }

    /// Does something that is written down.
    pub(super) fn act(&self, path: &str) -> Result<()> {
        let asked = self.agent.post(format!("{}{path}", self.url));
        let asked = asked.header("Authorization", format!("Bearer {}", self.token)).send_empty();
        let answer = asked.map_err(|error| unreachable(&self.url, error))?;
        match answer.status().as_u16() {
            200 => Ok(()),
            status => Err(Failure::Broken(format!("{path} was answered with {status}")).into()),
        }
    }

    /// Follows a page for so long; how many bytes came.
    pub(super) fn follow(&self, path: &str, time: Duration) -> Result<usize> {
        let failed = |error: std::io::Error| unreachable(&self.url, error);
        let host = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).map_err(failed)?;
        let cookie = &self.cookie;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n").map_err(failed)?;
        let (until, mut bytes, mut buffer) = (Instant::now() + time, 0, [0; 16_384]);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(bytes);
            }
            stream.set_read_timeout(Some(left)).map_err(failed)?;
            match stream.read(&mut buffer) {
                Ok(0) => return Err(Failure::Broken(format!("{path} has ended by itself")).into()),
                Ok(read) => bytes += read,
                // Its time is over.
                Err(_) => return Ok(bytes),
            }
        }
    }
}

/// A client for a server on this machine.
fn agent() -> Agent {
    let config = Agent::config_builder().http_status_as_error(false).max_redirects(0).proxy(None);
    config.timeout_connect(Some(PATIENCE)).timeout_recv_response(Some(PATIENCE)).build().into()
}

fn unreachable(url: &str, error: impl std::fmt::Display) -> Error {
    Failure::Unreachable { url: url.to_owned(), reason: error.to_string() }.into()
}
