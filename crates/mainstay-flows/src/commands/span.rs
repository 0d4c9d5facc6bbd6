//! The spans of commands and of the events that they append: what is told of every decision, in one place.
//!
//! They say what was decided and where that belongs, and nothing that is in a payload.

use super::command::Issued;
use super::outcome::Outcome;
use mainstay_core::trace::TraceContext;
use mainstay_events::{NewEvent, Receipt};
use tracing::{Level, Span};

/// The span of a decision.
pub(super) fn span(issued: &Issued) -> Span {
    tracing::info_span!(
        "command",
        command_type = issued.command_type,
        command_id = issued.command_id,
        attempt = issued.attempt,
        trace_id = issued.trace.trace_id,
        span_id = issued.trace.span_id,
        parent_span_id = issued.trace.parent_span_id,
        correlation_id = issued.correlation_id,
        outcome = tracing::field::Empty,
        code = tracing::field::Empty,
    )
}

/// Says in its span what came of a decision.
pub(super) fn record(span: &Span, outcome: Result<&Outcome, &crate::Error>) {
    match outcome {
        Ok(outcome) => {
            span.record("outcome", outcome.status());
            if let Outcome::Rejected { code, .. } = outcome {
                span.record("code", code.as_str());
            }
        }
        Err(error) => {
            span.record("outcome", "failed");
            span.record("code", error.code());
        }
    }
}

/// What a decision appends. An event has a step of its own in the trace, which what follows from it names as its cause.
#[derive(Debug)]
pub(super) struct Appending {
    pub(super) receipt: Receipt,
    /// Each event's type and step, while somebody listens.
    steps: Vec<(String, Option<TraceContext>)>,
}

impl Appending {
    /// The steps of events that are about to be appended.
    pub(super) fn steps(events: &[NewEvent]) -> Vec<(String, Option<TraceContext>)> {
        if !tracing::span_enabled!(Level::INFO) {
            return Vec::new();
        }
        events.iter().map(|event| (event.event_type.clone(), event.trace.clone())).collect()
    }

    pub(super) fn new(receipt: Receipt, steps: Vec<(String, Option<TraceContext>)>) -> Self {
        Self { receipt, steps }
    }

    /// Tells of the events, which are in the log by now.
    pub(super) fn tell(&self, issued: &Issued) {
        for ((event_type, trace), event_id) in self.steps.iter().zip(self.receipt.event_ids()) {
            let Some(trace) = trace else { continue };
            tracing::info_span!(
                "event",
                event_type,
                event_id,
                trace_id = trace.trace_id,
                span_id = trace.span_id,
                parent_span_id = trace.parent_span_id,
                correlation_id = issued.correlation_id,
            );
        }
    }
}
