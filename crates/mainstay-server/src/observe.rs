//! What happens around every request: its span, the limit of its headers, the count, and what catches a panic.

use crate::app::App;
use crate::{Problem, error, recorded};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mainstay_core::trace::TraceContext;
use std::any::Any;
use std::time::Instant;
use tracing::Instrument;

/// Most bytes in the headers of a request, its path and query included.
pub(crate) const MAX_HEADER_BYTES: usize = 16 << 10;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Puts the request into its span and tells the caller which one that was.
pub(crate) async fn observe(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let _under_way = UnderWay::new(&app);
    let trace = trace(request.headers(), &app);
    request.extensions_mut().insert(trace.clone());
    // The query may hold what is nobody's business, and so may headers; the path is what names the request.
    let span = tracing::info_span!(
        "request",
        method = %request.method(),
        path = recorded::path(request.uri().path()),
        trace_id = trace.trace_id,
        span_id = trace.span_id,
        parent_span_id = trace.parent_span_id,
        correlation_id = tracing::field::Empty,
        status = tracing::field::Empty,
    );
    let mut response = if size(&request) > MAX_HEADER_BYTES {
        let detail = format!("The headers have more than {MAX_HEADER_BYTES} bytes.");
        Problem::new(&error::HEADERS_TOO_LARGE, detail).into_response()
    } else {
        next.run(request).instrument(span.clone()).await
    };
    span.record("status", response.status().as_u16());
    span.in_scope(|| tracing::debug!(elapsed_us = began.elapsed().as_micros() as u64, "answered"));
    count(&app, &response, began);
    if let Some(value) = trace.to_traceparent().and_then(|text| HeaderValue::try_from(text).ok()) {
        response.headers_mut().insert(TRACEPARENT, value);
    }
    response
}

/// The server's span: a child of the caller's, or the root of a new trace when the caller told none that can be read.
fn trace(headers: &HeaderMap, app: &App) -> TraceContext {
    let mut told = headers.get_all(TRACEPARENT).iter();
    let caller = told.next().and_then(|value| TraceContext::from_traceparent(value.to_str().ok()?).ok());
    match (caller, told.next()) {
        (Some(caller), None) => caller.child(app.random()),
        _ => TraceContext::root(app.random()),
    }
}

fn size(request: &Request) -> usize {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    headers.sum::<usize>() + request.uri().path_and_query().map_or(0, |path| path.as_str().len())
}

fn count(app: &App, response: &Response, began: Instant) {
    let figures = app.figures();
    figures.answered.increment();
    figures.time.record_duration(began.elapsed());
    if response.status().is_client_error() {
        figures.client_errors.increment();
    } else if response.status().is_server_error() {
        figures.server_errors.increment();
    }
}

/// Counts a request as under way, also when its client goes away.
struct UnderWay<'a>(&'a App);

impl<'a> UnderWay<'a> {
    fn new(app: &'a App) -> Self {
        app.figures().in_flight.add(1);
        Self(app)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.figures().in_flight.add(-1);
    }
}

/// A panic is our mistake: told to the log, not to the client, and no reason to stop serving.
pub(crate) fn panicked(app: &App, panic: &(dyn Any + Send)) -> Response {
    app.figures().panics.increment();
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Problem::internal(format!("a handler panicked: {}", text.unwrap_or("no message"))).into_response()
}
