//! Talks to a server that runs.
//!
//! Calls block: a verb does one thing after another, and nobody else waits for its thread.

use super::Call;
use crate::{Error, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader};
use std::time::Duration;
use ureq::http::{Request, Response, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// A server on this machine answers within a moment; one far away within this.
const CONNECT: Duration = Duration::from_secs(5);
/// Longer than any server lets a request take by default.
const ANSWER: Duration = Duration::from_secs(60);

/// A client for who is at `url`, who may take so long to be reached, to hear us, and to begin to answer.
pub(crate) fn agent(url: &str, connect: Duration, answer: Duration) -> Agent {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        // Whoever redirects us, or stands in between, is nobody to show a token to.
        .max_redirects(0)
        .proxy(None)
        .timeout_connect(Some(connect))
        .timeout_send_body(Some(answer))
        .timeout_recv_response(Some(answer));
    if url.starts_with("https://") {
        let trusted = rustls_native_certs::load_native_certs().certs;
        let trusted: Vec<_> = trusted.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
        config =
            config.tls_config(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&trusted)).build());
    }
    config.build().new_agent()
}

/// A server, as verbs see it.
pub(crate) struct Remote {
    agent: Agent,
    url: String,
    token: Option<String>,
    /// Why a server is asked at all, when nobody said so.
    because: Option<String>,
}

/// What a server says when it says no.
#[derive(Deserialize)]
pub(crate) struct Problem {
    pub(crate) code: String,
    pub(crate) detail: String,
}

impl Remote {
    /// The server at `url`, shown `token`.
    pub(crate) fn new(url: &str, token: Option<String>, because: Option<String>) -> Result<Self> {
        let url = url.trim_end_matches('/').to_owned();
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err(Error::Argument(format!(
                "--server: {url:?} is not the URL of a server, as in http://127.0.0.1:7420"
            )));
        }
        Ok(Self { agent: agent(&url, CONNECT, ANSWER), url, token, because })
    }

    /// Whether a token is shown.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Makes a call.
    pub(crate) fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<T> {
        let request = Request::builder().method(&call.method).uri(self.at(&call.path));
        let request = match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        };
        let sent = match call.body.as_deref() {
            Some(body) => request
                .header("Content-Type", "application/json")
                .body(body)
                .map(|request| self.agent.run(request)),
            None => request.body(()).map(|request| self.agent.run(request)),
        };
        let mut response = self.checked(sent.map_err(|error| self.unreachable(&error))?)?;
        let text = response.body_mut().read_to_string().map_err(|error| self.unreachable(&error))?;
        serde_json::from_str(&text).map_err(|_| self.stranger(response.status()))
    }

    /// The lines of an answer that streams, as they come and for as long as they come; from `last_event_id` on.
    pub(crate) fn lines(
        &self,
        path: &str,
        last_event_id: u64,
    ) -> Result<impl Iterator<Item = Result<String>>> {
        let mut request = self.agent.get(self.at(path)).header("Accept", "text/event-stream");
        request = request.header("Last-Event-ID", last_event_id.to_string());
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let response = self.checked(request.call())?;
        let reader = BufReader::new(response.into_body().into_reader());
        Ok(reader.lines().map(|line| line.map_err(|error| self.lost(&error.to_string()))))
    }

    /// An answer that streamed ended before its time.
    pub(crate) fn lost(&self, reason: &str) -> Error {
        Error::Unreachable { url: self.url.clone(), reason: reason.to_owned(), because: None }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// The answer, if it is a yes.
    fn checked(&self, answer: std::result::Result<Response<Body>, ureq::Error>) -> Result<Response<Body>> {
        let mut response = answer.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let text = response.body_mut().read_to_string().unwrap_or_default();
        Err(match serde_json::from_str(&text) {
            Ok(Problem { code, detail }) => Error::Refused { code, detail },
            Err(_) => self.stranger(response.status()),
        })
    }

    fn unreachable(&self, reason: &dyn std::fmt::Display) -> Error {
        Error::Unreachable {
            url: self.url.clone(),
            reason: format!("no server answers: {reason}"),
            because: self.because.clone(),
        }
    }

    /// Something answers that is no server of ours, or one of another version.
    fn stranger(&self, status: StatusCode) -> Error {
        let reason =
            format!("what answers there ({status}) is no Mainstay server that this program understands");
        Error::Unreachable { url: self.url.clone(), reason, because: self.because.clone() }
    }
}
