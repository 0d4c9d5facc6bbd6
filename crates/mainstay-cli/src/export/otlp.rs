//! Spans as OTLP has them in JSON: `ExportTraceServiceRequest` of opentelemetry-proto 1.x, whose JSON form is stable. Ids are
//! hexadecimal, 64-bit numbers are text.

use super::finished::Finished;
use crate::spans::Told;
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};

/// The status of a span that went wrong.
const ERROR: u8 = 2;

/// The body of a request.
pub(super) fn body(service: &str, spans: &[Finished]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            attribute("service.name", &Told::Text(service.to_owned())),
            attribute("service.version", &Told::Text(version.to_owned())),
        ] },
        "scopeSpans": [{
            "scope": { "name": "mainstay", "version": version },
            "spans": spans.iter().map(span).collect::<Vec<_>>(),
        }],
    }] })
}

fn span(span: &Finished) -> Value {
    let began = span.began.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let mut attributes: Vec<Value> =
        span.fields.iter().map(|(name, value)| attribute(&called(name), value)).collect();
    if let Some(id) = &span.correlation_id {
        attributes.push(attribute("mainstay.correlation_id", &Told::Text(id.clone())));
    }
    let mut told = json!({
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": name(span),
        "kind": kind(span),
        "startTimeUnixNano": began.as_nanos().to_string(),
        "endTimeUnixNano": (began + span.took).as_nanos().to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = &span.parent_span_id {
        told["parentSpanId"] = parent.as_str().into();
    }
    let is_failed = matches!(span.text("outcome"), Some("failed"))
        || span.integer("status").is_some_and(|status| status >= 500);
    if is_failed {
        told["status"] = json!({ "code": ERROR });
    }
    told
}

/// What a collector groups spans by, so of few kinds: what is done, and with what.
fn name(span: &Finished) -> String {
    let what = ["command_type", "function", "projection", "event_type"];
    match (span.text("method"), what.into_iter().find_map(|field| span.text(field))) {
        (Some(method), _) => method.to_owned(),
        (None, Some(what)) => format!("{} {what}", span.kind),
        (None, None) => span.kind.to_owned(),
    }
}

/// The number of a kind of span: internal, of a server, of who takes messages.
fn kind(span: &Finished) -> u8 {
    match span.kind {
        "request" => 2,
        "work" => 5,
        _ => 1,
    }
}

/// What a field is called where OpenTelemetry has a name for it.
fn called(field: &str) -> String {
    match field {
        "method" => "http.request.method".to_owned(),
        "path" => "url.path".to_owned(),
        "status" => "http.response.status_code".to_owned(),
        other => format!("mainstay.{other}"),
    }
}

fn attribute(key: &str, value: &Told) -> Value {
    let value = match value {
        Told::Text(text) => json!({ "stringValue": text }),
        Told::Integer(number) => json!({ "intValue": number.to_string() }),
        Told::Number(number) => json!({ "doubleValue": number }),
        Told::Boolean(flag) => json!({ "boolValue": flag }),
    };
    json!({ "key": key, "value": value })
}
