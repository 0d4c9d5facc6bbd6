//! Where an execution stands in its trace, and its span: what is told of every execution, in one place.
//!
//! An item keeps the step that caused it. Each of its executions is a step of its own below that, and its function is
//! given just that step, so that what it calls and appends names the execution that did it.

use crate::functions::Call;
use crate::item::Item;
use mainstay_core::random::Random;
use mainstay_core::trace::TraceContext;
use tracing::Span;
use uuid::Uuid;

/// The step that an execution of an item is. One that nobody traced is a trace by itself: its id names it, so that all
/// executions are in the same trace although none is kept.
pub(crate) fn step(id: Uuid, item: &Item, random: &dyn Random) -> TraceContext {
    match &item.trace {
        Some(cause) => cause.child(random),
        None => TraceContext { trace_id: id.simple().to_string(), ..TraceContext::root(random) },
    }
}

/// The span of an execution. It tells what runs and where that belongs, and nothing that is in the item.
pub(crate) fn span(pool: &str, item: &Item, call: &Call) -> Span {
    let trace = call.trace.as_ref();
    tracing::info_span!(
        parent: None,
        "work",
        function = call.function,
        work_id = call.work_id,
        pool,
        attempt = call.attempt,
        trace_id = trace.map(|trace| trace.trace_id.as_str()),
        span_id = trace.map(|trace| trace.span_id.as_str()),
        parent_span_id = trace.and_then(|trace| trace.parent_span_id.as_deref()),
        correlation_id = item.correlation.as_deref(),
        outcome = tracing::field::Empty,
    )
}
