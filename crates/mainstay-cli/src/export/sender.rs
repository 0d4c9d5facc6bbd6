//! The thread that sends spans. It is a thread, so that neither a slow collector nor a busy runtime is in the way of the
//! other.

use super::finished::Finished;
use super::queue::Queue;
use super::{Options, otlp};
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;

/// How long the collector may take to hear us, and to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);
/// How often the same spans are sent before they are dropped.
const TRIES: u32 = 5;
/// The first wait between two tries; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// Why spans were not taken.
enum Refused {
    /// It may work later.
    Later(String),
    /// It will not.
    ForGood(String),
}

pub(super) struct Sender {
    queue: Arc<Queue>,
    agent: Agent,
    url: String,
    options: Options,
    /// Whether the last request came to nothing, which was told.
    is_away: bool,
}

impl Sender {
    pub(super) fn new(queue: Arc<Queue>, options: Options) -> Self {
        let url = format!("{}/v1/traces", options.endpoint.trim_end_matches('/'));
        let agent = crate::client::agent(&url, CONNECT, ANSWER);
        Self { queue, agent, url, options, is_away: false }
    }

    pub(super) fn run(mut self) {
        loop {
            let spans = self.queue.take();
            if spans.is_empty() {
                return self.queue.close();
            }
            self.send(&spans);
        }
    }

    fn send(&mut self, spans: &[Finished]) {
        let body = otlp::body(&self.options.service, spans).to_string();
        let mut wait = FIRST_WAIT;
        for number in 1..=TRIES {
            let reason = match self.post(&body) {
                Ok(()) => return self.came_through(),
                Err(Refused::ForGood(reason)) => {
                    self.tell(&reason);
                    break;
                }
                Err(Refused::Later(reason)) => reason,
            };
            self.tell(&reason);
            if number == TRIES || !self.queue.pause(wait) {
                break;
            }
            wait *= 2;
        }
        self.queue.drop_spans(spans.len());
        if self.queue.is_stopping() {
            // There is no time to find out whether the next ones fare better.
            self.queue.close();
        }
    }

    fn post(&self, body: &str) -> Result<(), Refused> {
        let mut request = self.agent.post(&self.url).content_type("application/json");
        for (name, value) in &self.options.headers {
            request = request.header(name, value);
        }
        // What a client says of a failure names the address and never what was sent.
        let answer = request.send(body).map_err(|error| Refused::Later(error.to_string()))?;
        match answer.status().as_u16() {
            200..=299 => Ok(()),
            status @ (408 | 429 | 500..=599) => {
                Err(Refused::Later(format!("the collector answers {status}")))
            }
            status => Err(Refused::ForGood(format!("the collector answers {status}"))),
        }
    }

    /// Once, until it works again.
    fn tell(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_away, true) {
            tracing::warn!(reason, "spans cannot be exported; they wait, and are dropped when too many do");
        }
    }

    fn came_through(&mut self) {
        if std::mem::replace(&mut self.is_away, false) {
            tracing::info!(dropped = self.queue.dropped(), "spans are exported again");
        }
    }
}
