//! The spans of events that a read model takes as they come: what is told of them, in one place.
//!
//! A chunk holds events of many traces. Each has a span for as long as the chunk takes; what a handler logs stands in the
//! span of its event when there is just one. Events of the past, and those of large chunks, have none: nobody follows a
//! request there, and it would cost as much as applying them.

use mainstay_core::random::Random;
use mainstay_events::Event;
use std::sync::Arc;
use tracing::{Level, Span};

/// Most events of a chunk that have a span each.
const MAX_SPANS: usize = 64;

/// The spans of the events of a chunk; none when nobody listens.
#[derive(Debug, Clone, Default)]
pub(super) struct Spans(Arc<[Span]>);

impl Spans {
    /// Spans that begin now.
    pub(super) fn of(projection: &str, events: &[Event], random: &dyn Random) -> Self {
        if !(1..=MAX_SPANS).contains(&events.len()) || !tracing::span_enabled!(Level::INFO) {
            return Self::default();
        }
        Self(events.iter().map(|event| span(projection, event, random)).collect())
    }

    /// That of one event.
    pub(super) fn only(&self, index: usize) -> Self {
        Self(self.0.get(index).cloned().into_iter().collect())
    }

    /// What the handler's lines stand in.
    pub(super) fn around(&self) -> Span {
        match &*self.0 {
            [only] => only.clone(),
            _ => Span::none(),
        }
    }

    /// Says what came of the events.
    pub(super) fn record(&self, outcome: &str) {
        for span in &*self.0 {
            span.record("outcome", outcome);
        }
    }
}

fn span(projection: &str, event: &Event, random: &dyn Random) -> Span {
    let trace = event.trace().map(|trace| trace.child(random));
    let trace = trace.as_ref();
    tracing::info_span!(
        parent: None,
        "projection",
        projection,
        event_type = event.event_type(),
        event_id = event.id(),
        trace_id = trace.map(|trace| trace.trace_id.as_str()),
        span_id = trace.map(|trace| trace.span_id.as_str()),
        parent_span_id = trace.and_then(|trace| trace.parent_span_id.as_deref()),
        correlation_id = event.correlation_id(),
        outcome = tracing::field::Empty,
    )
}
