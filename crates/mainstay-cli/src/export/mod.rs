//! Sends spans to a collector of OpenTelemetry, as OTLP over HTTP in JSON.
//!
//! - [`Finished`], `finished`: a span that is on its way
//! - `queue`: where spans wait; bounded, and never in anybody's way
//! - `sender`: the thread that sends them
//! - `otlp`: how they are written
//!
//! The ids are those of Mainstay's own trace context, which are kept in events, work and publications and go out in headers.
//! The usual crates make ids of their own and keep the parents of spans in memory, where no restart finds them; so they are
//! not used, and what is left of them is small.

mod finished;
mod otlp;
mod queue;
mod sender;

pub(crate) use finished::Finished;

use crate::spans::{Ids, Told};
use queue::Queue;
use std::sync::Arc;
use std::time::Duration;

/// How long the end of the program waits for the last spans to be sent.
const FLUSH: Duration = Duration::from_secs(5);

/// Where spans go, and as whose.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The URL of the collector, without `/v1/traces`.
    pub(crate) endpoint: String,
    /// What every request to it carries; may be secret.
    pub(crate) headers: Vec<(String, String)>,
    /// Whose spans they are.
    pub(crate) service: String,
    /// How many of the traces are sent, from 0 to 1.
    pub(crate) ratio: f64,
}

/// Takes spans that have ended and sends them.
#[derive(Debug)]
pub(crate) struct Export {
    queue: Arc<Queue>,
    ratio: f64,
}

impl Export {
    /// Starts the thread that sends.
    pub(crate) fn start(options: Options) -> std::io::Result<Self> {
        let (queue, ratio) = (Arc::new(Queue::default()), options.ratio);
        let sender = sender::Sender::new(queue.clone(), options);
        std::thread::Builder::new().name("mainstay-traces".to_owned()).spawn(move || sender.run())?;
        Ok(Self { queue, ratio })
    }

    /// A span that begins now, if it can and shall be exported.
    pub(crate) fn begin(
        &self,
        kind: &'static str,
        ids: &Ids,
        fields: Vec<(&'static str, Told)>,
    ) -> Option<Finished> {
        Finished::begin(kind, ids, fields).filter(|span| span.is_sampled(self.ratio))
    }

    /// Takes a span that ends now; drops it when too many wait.
    pub(crate) fn end(&self, mut span: Finished) {
        span.end();
        self.queue.offer(span);
    }

    /// Sends what waits, as far as that goes within a moment. Blocks.
    pub(crate) fn stop(&self) {
        self.queue.stop(FLUSH);
        let dropped = self.queue.dropped();
        if dropped > 0 {
            tracing::warn!(dropped, "spans were not exported");
        }
    }
}

#[cfg(test)]
mod tests;
