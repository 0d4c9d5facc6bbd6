//! An event as it is in the log.

use crate::append::{NewEvent, fingerprint};
use crate::record::{FINGERPRINT_BYTES, number_at};
use mainstay_core::trace::TraceContext;
use mainstay_store::Cause;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use std::sync::Arc;

/// What kind of event it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Category {
    /// Of the domain itself.
    #[default]
    Domain = 0,
    /// For other contexts.
    Integration = 1,
    /// Says that something happened, and carries ids only.
    Trigger = 2,
    /// Carries the full state.
    Fat = 3,
}

impl Category {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Domain, Self::Integration, Self::Trigger, Self::Fat].get(usize::from(byte)).copied()
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Domain => "domain",
            Self::Integration => "integration",
            Self::Trigger => "trigger",
            Self::Fat => "fat",
        }
    }
}

/// Where a text lies in a header.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    at: u32,
    length: u32,
}

impl Span {
    pub(crate) fn new(at: usize, length: usize) -> Self {
        Self { at: at as u32, length: length as u32 }
    }

    pub(crate) fn end(self) -> usize {
        (self.at + self.length) as usize
    }
}

/// What a header says, and where.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    pub(crate) timestamp_ms: i64,
    pub(crate) payload_checksum: u32,
    pub(crate) category: Category,
    pub(crate) schema_version: u32,
    pub(crate) id: Span,
    pub(crate) event_type: Span,
    pub(crate) correlation_id: Span,
    pub(crate) context: Option<Span>,
    pub(crate) tenant: Option<Span>,
    pub(crate) stream: Option<(Span, Span, u64)>,
    pub(crate) causation_id: Option<Span>,
    pub(crate) trace: Option<(Span, Span, Option<Span>)>,
    pub(crate) idempotency: Option<(Span, [u8; FINGERPRINT_BYTES])>,
    pub(crate) scope: Option<(Span, u64)>,
    pub(crate) tags_at: u32,
    pub(crate) tag_count: u32,
}

/// An event of the log. It is kept as it was stored, and read where it is asked. Clones are the same.
#[derive(Clone)]
pub struct Event(Arc<Stored>);

struct Stored {
    position: u64,
    header: Vec<u8>,
    payload: Payload,
    fields: Fields,
    data: Span,
}

/// Where the payload of an event is.
pub(crate) enum Payload {
    /// Nowhere: it was erased, or nobody asked for it.
    Nowhere,
    /// In bytes of its own.
    Apart(Vec<u8>),
    /// Behind the header, from there on.
    Behind(usize),
}

impl Stored {
    fn payload(&self) -> Option<&[u8]> {
        match &self.payload {
            Payload::Nowhere => None,
            Payload::Apart(payload) => Some(payload),
            Payload::Behind(at) => self.header.get(*at..),
        }
    }
}

/// An event's place in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPlace<'a> {
    /// The stream's type.
    pub stream_type: &'a str,
    /// Which stream of that type.
    pub id: &'a str,
    /// The event's number in it, from 1.
    pub version: u64,
}

impl Event {
    pub(crate) fn of(position: u64, header: Vec<u8>, payload: Payload, fields: Fields, data: Span) -> Self {
        Self(Arc::new(Stored { position, header, payload, fields, data }))
    }

    pub(crate) fn into_header(self) -> Vec<u8> {
        let end = match self.0.payload {
            Payload::Behind(at) => at,
            Payload::Nowhere | Payload::Apart(_) => self.0.header.len(),
        };
        let mut header =
            Arc::try_unwrap(self.0).map_or_else(|shared| shared.header.clone(), |stored| stored.header);
        header.truncate(end);
        header
    }

    fn text(&self, span: Span) -> &str {
        // The whole header was checked when it was read.
        std::str::from_utf8(&self.0.header[span.at as usize..span.end()]).unwrap_or_default()
    }

    /// The place in the log, from 1.
    pub fn position(&self) -> u64 {
        self.0.position
    }

    /// The id.
    pub fn id(&self) -> &str {
        self.text(self.0.fields.id)
    }

    /// What happened.
    pub fn event_type(&self) -> &str {
        self.text(self.0.fields.event_type)
    }

    /// When it was committed, in milliseconds since the epoch. It never goes back along the log.
    pub fn timestamp_ms(&self) -> i64 {
        self.0.fields.timestamp_ms
    }

    /// What it is about.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        let mut at = self.0.fields.tags_at as usize;
        (0..self.0.fields.tag_count).map_while(move |_| {
            let (length, start) = number_at(&self.0.header, at)?;
            at = start + length as usize;
            std::str::from_utf8(self.0.header.get(start..at)?).ok()
        })
    }

    /// Its place in its stream, if it is in one.
    pub fn stream(&self) -> Option<StreamPlace<'_>> {
        let (stream_type, id, version) = self.0.fields.stream?;
        Some(StreamPlace { stream_type: self.text(stream_type), id: self.text(id), version })
    }

    /// What happened, in JSON; nothing once it was erased.
    pub fn data(&self) -> Option<&str> {
        let payload = self.0.payload()?;
        std::str::from_utf8(&payload[self.0.data.at as usize..self.0.data.end()]).ok()
    }

    /// The data as a type of the application.
    pub fn data_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.data().unwrap_or("null"))
    }

    /// What else the author noted, a JSON object.
    pub fn metadata(&self) -> Option<&str> {
        let rest = &self.0.payload()?[self.0.data.end()..];
        std::str::from_utf8(rest).ok().filter(|text| !text.is_empty())
    }

    /// Whether data and metadata were erased.
    pub fn is_erased(&self) -> bool {
        matches!(self.0.payload, Payload::Nowhere)
    }

    /// What kind of event it is.
    pub fn category(&self) -> Category {
        self.0.fields.category
    }

    /// The version of the shape of its data.
    pub fn schema_version(&self) -> u32 {
        self.0.fields.schema_version
    }

    /// The bounded context it belongs to.
    pub fn context(&self) -> Option<&str> {
        self.0.fields.context.map(|span| self.text(span))
    }

    /// Whose it is.
    pub fn tenant(&self) -> Option<&str> {
        self.0.fields.tenant.map(|span| self.text(span))
    }

    /// What it belongs together with.
    pub fn correlation_id(&self) -> &str {
        self.text(self.0.fields.correlation_id)
    }

    /// What caused it.
    pub fn causation_id(&self) -> Option<&str> {
        self.0.fields.causation_id.map(|span| self.text(span))
    }

    /// Where it stands in a trace.
    pub fn trace(&self) -> Option<TraceContext> {
        let (trace_id, span_id, parent) = self.0.fields.trace?;
        Some(TraceContext {
            trace_id: self.text(trace_id).to_owned(),
            span_id: self.text(span_id).to_owned(),
            parent_span_id: parent.map(|span| self.text(span).to_owned()),
        })
    }

    /// The cause of all records that this event leads to.
    pub fn cause(&self) -> Cause {
        Cause {
            correlation_id: Some(self.correlation_id().to_owned()),
            causation_id: Some(self.id().to_owned()),
            tenant_id: self.tenant().map(str::to_owned),
            trace: self.trace(),
        }
    }

    /// What makes a repeated append of it recognisable.
    pub fn idempotency_key(&self) -> Option<&str> {
        self.0.fields.idempotency.map(|(span, _)| self.text(span))
    }

    /// Whether appending `new` would repeat this event: it has the same idempotency key, and says the same.
    pub fn is_repeated_by(&self, new: &NewEvent) -> bool {
        self.idempotency_key().is_some()
            && self.idempotency_key() == new.idempotency_key.as_deref()
            && self.fingerprint() == Some(fingerprint(new))
    }

    pub(crate) fn fingerprint(&self) -> Option<[u8; FINGERPRINT_BYTES]> {
        self.0.fields.idempotency.map(|(_, fingerprint)| fingerprint)
    }

    /// The scope whose version it moved, and to which.
    pub fn scope(&self) -> Option<(&str, u64)> {
        self.0.fields.scope.map(|(span, version)| (self.text(span), version))
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        let apart = if let Payload::Apart(payload) = &self.0.payload { payload.len() } else { 0 };
        self.0.header.len() + apart
    }

    /// Writes the event as JSON, its data and metadata as they were given.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let mut object = Object { out, is_first: true };
        object.out.push(b'{');
        object.text("eventId", self.id());
        object.number("position", self.0.position);
        object.text("type", self.event_type());
        if let Some(stream) = self.stream() {
            object.nested("stream", |stream_object| {
                stream_object.text("type", stream.stream_type);
                stream_object.text("id", stream.id);
                stream_object.number("version", stream.version);
            });
        }
        object.key("tags");
        for (number, tag) in self.tags().enumerate() {
            object.out.push(if number == 0 { b'[' } else { b',' });
            put_string(object.out, tag);
        }
        object.out.extend_from_slice(if self.0.fields.tag_count == 0 { b"[]" } else { b"]" });
        object.raw("data", self.data().unwrap_or("null"));
        if self.is_erased() {
            object.raw("erased", "true");
        }
        if let Some(metadata) = self.metadata() {
            object.raw("metadata", metadata);
        }
        object.text("category", self.category().as_str());
        object.number("schemaVersion", self.schema_version().into());
        for (name, value) in [("boundedContext", self.context()), ("tenantId", self.tenant())] {
            object.optional(name, value);
        }
        object.text("correlationId", self.correlation_id());
        object.optional("causationId", self.causation_id());
        if let Some((trace_id, span_id, parent)) = self.0.fields.trace {
            object.nested("trace", |trace| {
                trace.text("traceId", self.text(trace_id));
                trace.text("spanId", self.text(span_id));
                trace.optional("parentSpanId", parent.map(|span| self.text(span)));
            });
        }
        object.optional("idempotencyKey", self.idempotency_key());
        if let Some((key, version)) = self.scope() {
            object.nested("scope", |scope| {
                scope.text("key", key);
                scope.number("version", version);
            });
        }
        object.raw("timestamp", &self.timestamp_ms().to_string());
        object.out.push(b'}');
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = Vec::with_capacity(self.bytes() + 256);
        self.write_json(&mut json);
        let text = String::from_utf8(json).map_err(serde::ser::Error::custom)?;
        RawValue::from_string(text).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut json = Vec::new();
        self.write_json(&mut json);
        out.write_str(&String::from_utf8_lossy(&json))
    }
}

/// Writes the members of a JSON object.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl Object<'_> {
    fn key(&mut self, name: &str) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn raw(&mut self, name: &str, json: &str) {
        self.key(name);
        self.out.extend_from_slice(json.as_bytes());
    }

    fn number(&mut self, name: &str, number: u64) {
        self.key(name);
        // Writing to a Vec cannot fail.
        let _ = std::io::Write::write_fmt(self.out, format_args!("{number}"));
    }

    fn text(&mut self, name: &str, text: &str) {
        self.key(name);
        put_string(self.out, text);
    }

    fn optional(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    fn nested(&mut self, name: &str, fill: impl FnOnce(&mut Object<'_>)) {
        self.key(name);
        self.out.push(b'{');
        fill(&mut Object { out: self.out, is_first: true });
        self.out.push(b'}');
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    // Writing to a Vec cannot fail.
    let _ = serde_json::to_writer(out, text);
}
