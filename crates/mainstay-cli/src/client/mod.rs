//! Client of the API: a verb is written once, against this.
//!
//! - At a server: the one that is named, or the one that holds the store.
//! - In this process: where no server holds the store, the verb opens it and calls the routes of the server directly.
//!
//! `call` builds calls, `reach` chooses between the two, and `remote` talks HTTP.

mod call;
mod reach;
mod remote;

pub(crate) use call::{Call, segment};
pub(crate) use remote::{Problem, Remote, agent};

use crate::{Error, Result};
use axum::body::Body;
use axum::http::Request;
use axum::http::header::ACCEPT;
use mainstay_server::{Local, LocalAnswer};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Lines that are read ahead of the verb.
const READ_AHEAD: usize = 256;

/// The API.
pub(crate) enum Client {
    Server(Arc<Remote>),
    Local(Arc<Local>),
}

impl Client {
    /// Makes a call.
    pub(crate) async fn send<T: DeserializeOwned>(&self, mut call: Call) -> Result<T> {
        if call.has_open_twin && !self.is_operator() {
            call.path = call.path.replacen("/admin/", "/v1/", 1);
        }
        match self {
            // It blocks. A verb does one thing after another, and nothing else waits for its thread.
            Self::Server(server) => server.call(&call),
            Self::Local(api) => {
                let is_written = call.is_written;
                let answer = api.call(call.request()?, is_written).await;
                let bytes = accepted(answer).await?.bytes().await;
                serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))
            }
        }
    }

    /// Lines of an answer that streams, as they come and for as long as they are read; from `last_event_id` on.
    pub(crate) fn lines(&self, path: String, last_event_id: u64) -> mpsc::Receiver<Result<String>> {
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        match self {
            Self::Server(server) => {
                let server = server.clone();
                // Reading blocks, so it has a thread of its own, which ends when no line is taken.
                std::thread::spawn(move || match server.lines(&path, last_event_id) {
                    Err(error) => drop(sender.blocking_send(Err(error))),
                    Ok(mut lines) => {
                        while lines.next().is_some_and(|line| sender.blocking_send(line).is_ok()) {}
                    }
                });
            }
            Self::Local(api) => drop(tokio::spawn(follow(api.clone(), path, last_event_id, sender))),
        }
        receiver
    }

    /// An answer that streamed ended before its time.
    pub(crate) fn lost(&self, reason: &str) -> Error {
        match self {
            Self::Server(server) => server.lost(reason),
            Self::Local(_) => lost(reason),
        }
    }

    /// Whether the routes are in this process.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// Whether calls are made as an operator: in this process, or with a token. Without one there is what is open to this machine.
    pub(crate) fn is_operator(&self) -> bool {
        match self {
            Self::Server(server) => server.has_token(),
            Self::Local(_) => true,
        }
    }

    async fn close(self) {
        if let Self::Local(api) = self {
            let store = api.services().store().clone();
            drop(api);
            store.close().await;
        }
    }
}

/// The answer, if it is a yes.
async fn accepted(answer: LocalAnswer) -> Result<LocalAnswer> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    let Problem { code, detail } =
        serde_json::from_slice(&answer.bytes().await).map_err(|error| unreadable(&error))?;
    Err(Error::Refused { code, detail })
}

fn unreadable(error: &serde_json::Error) -> Error {
    lost(&error.to_string())
}

fn lost(reason: &str) -> Error {
    Error::Io {
        what: "an answer of this program's own routes".to_owned(),
        source: std::io::Error::other(reason.to_owned()),
    }
}

/// Reads an answer that streams, line by line.
async fn follow(api: Arc<Local>, path: String, last_event_id: u64, sender: mpsc::Sender<Result<String>>) {
    let request = Request::get(path).header(ACCEPT, "text/event-stream");
    let request = request.header("Last-Event-ID", last_event_id.to_string()).body(Body::empty());
    let request = request.expect("a path of ours, and a number");
    let mut answer = match accepted(api.call(request, false).await).await {
        Ok(answer) => answer,
        Err(error) => return drop(sender.send(Err(error)).await),
    };
    let mut rest = Vec::new();
    while let Some(part) = answer.part().await {
        rest.extend_from_slice(&part);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).trim_end_matches('\r').to_owned();
            if sender.send(Ok(line)).await.is_err() {
                return;
            }
        }
    }
}
