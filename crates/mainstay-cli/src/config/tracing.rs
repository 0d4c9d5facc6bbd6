//! `[tracing]`: where spans are sent.

use super::setting::{Kind, Section, Setting, Value};
use super::{Config, Error, Place};
use crate::export::Options;
use axum::http::{HeaderName, HeaderValue};
use std::borrow::Cow;

/// The section.
pub static SECTION: Section = Section {
    name: "tracing",
    doc: "Where spans are sent: what every request, command, event, projection, item of work and publication took, as one \
          trace. Nothing is sent unless an endpoint is named. See [tracing](../operations/tracing.md).",
    settings: &[&OTLP_ENDPOINT, &OTLP_HEADERS, &SERVICE_NAME, &SAMPLE_RATIO],
};

/// The collector.
pub static OTLP_ENDPOINT: Setting = Setting {
    section: "tracing",
    key: "otlpEndpoint",
    kind: Kind::Endpoint,
    default: Value::Text(Cow::Borrowed("")),
    flag: None,
    doc: "The collector, as in `http://127.0.0.1:4318`: spans are sent to `/v1/traces` below it, as OTLP over HTTP in \
          JSON. Empty sends none. When it is away, spans wait for a while and are then dropped and counted; nothing else \
          waits for it.",
};

/// What requests to the collector carry.
pub static OTLP_HEADERS: Setting = Setting {
    section: "tracing",
    key: "otlpHeaders",
    kind: Kind::Variable,
    default: Value::Text(Cow::Borrowed("")),
    flag: None,
    doc: "Headers for the collector, such as its key. They are secret, so only where they are is written here: `env:NAME` \
          takes them from the variable NAME when the server starts, as `name=value`, parted by commas.",
};

/// Whose spans they are.
pub static SERVICE_NAME: Setting = Setting {
    section: "tracing",
    key: "serviceName",
    kind: Kind::Name,
    default: Value::Text(Cow::Borrowed("mainstay")),
    flag: None,
    doc: "The `service.name` that spans are sent under.",
};

/// How many traces are sent.
pub static SAMPLE_RATIO: Setting = Setting {
    section: "tracing",
    key: "sampleRatio",
    kind: Kind::Ratio,
    default: Value::Decimal(Cow::Borrowed("1.0")),
    flag: None,
    doc: "The share of traces that is sent, from 0 to 1. It is decided by the trace's id, so that a trace is sent whole, by \
          every node that has a part in it.",
};

/// What the configuration asks for, with the headers from the environment; nothing when nothing is to be sent.
pub(crate) fn options(config: &Config) -> Result<Option<Options>, Error> {
    let endpoint = config.text(&OTLP_ENDPOINT);
    if endpoint.is_empty() {
        return Ok(None);
    }
    let ratio = match &config.entry(&SAMPLE_RATIO).value {
        Value::Decimal(text) => text.parse().unwrap_or(1.0),
        Value::Integer(number) => *number as f64,
        other => unreachable!("a ratio is checked to be a number, not {other}"),
    };
    Ok(Some(Options {
        endpoint: endpoint.to_owned(),
        headers: headers(config)?,
        service: config.text(&SERVICE_NAME).to_owned(),
        ratio,
    }))
}

fn headers(config: &Config) -> Result<Vec<(String, String)>, Error> {
    let Some(variable) = config.text(&OTLP_HEADERS).strip_prefix("env:") else { return Ok(Vec::new()) };
    let place = config.entry(&OTLP_HEADERS).place.clone().unwrap_or(Place::Flag("--config"));
    // A reason names the variable and never what is in it.
    let refused = |reason: String| Error::Refused { place: place.clone(), name: OTLP_HEADERS.name(), reason };
    let text = std::env::var(variable)
        .map_err(|_| refused(format!("the variable {variable} is not set, or not text")))?;
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (name.trim(), value.trim());
            let is_header = HeaderName::from_bytes(name.as_bytes()).is_ok();
            match is_header && !value.is_empty() && HeaderValue::from_str(value).is_ok() {
                true => Ok((name.to_owned(), value.to_owned())),
                false => {
                    Err(refused(format!("the variable {variable} must hold name=value, parted by commas")))
                }
            }
        })
        .collect()
}
