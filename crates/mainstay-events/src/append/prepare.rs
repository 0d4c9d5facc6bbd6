//! Checks an append, and makes everything of it that needs no database.

use super::Append;
use super::new_event::{Condition, NewEvent};
use crate::error::{Error, Result};
use crate::index::{Groups, Terms};
use crate::record::{self, FINGERPRINT_BYTES};
use crate::{MAX_EVENTS, MAX_ID_BYTES, MAX_TAGS, MAX_VALUE_BYTES};
use mainstay_core::json::{self, Bounds};
use mainstay_core::keys::{MAX_KEY_BYTES, ScopeKey, has_control};
use mainstay_core::query::{MAX_NAME_BYTES, is_name};
use sha2::{Digest, Sha256};
use std::fmt::Display;

/// An append that is fit to be decided.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(super) events: Vec<PreparedEvent>,
    pub(super) condition: Option<PreparedCondition>,
    /// Whose appends these are; conditions see only events of the same tenant, or all when there is none.
    pub(super) tenant: Option<String>,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct PreparedEvent {
    pub(super) new: NewEvent,
    pub(super) payload: Vec<u8>,
    pub(super) payload_checksum: u32,
    /// Whether the id is of our own making, and so nobody else's.
    pub(super) has_made_id: bool,
    /// Only of events with an idempotency key.
    pub(super) fingerprint: Option<[u8; FINGERPRINT_BYTES]>,
}

#[derive(Debug)]
pub(super) struct PreparedCondition {
    pub(super) condition: Condition,
    pub(super) after: u64,
    /// For each item of the query, what an event must have.
    pub(super) items: Vec<Groups>,
}

impl Prepared {
    /// Checks `append` as one of `tenant`'s, or of nobody's in particular.
    pub(crate) fn new(append: Append, tenant: Option<&str>, terms: Terms) -> Result<Self> {
        if append.events.is_empty() {
            return Err(Error::Empty);
        }
        if append.events.len() > MAX_EVENTS {
            return Err(Error::TooMany { count: append.events.len() });
        }
        let events =
            append.events.into_iter().enumerate().map(|(number, event)| check(number, event, tenant));
        let events = events.collect::<Result<Vec<_>>>()?;
        check_together(&events)?;
        let condition =
            append.condition.map(|condition| prepare_condition(condition, tenant, terms)).transpose()?;
        let bytes = events.iter().map(|event| event.payload.len() + 256).sum();
        Ok(Self { events, condition, tenant: tenant.map(str::to_owned), bytes })
    }

    /// The type of each event's stream.
    pub(crate) fn stream_types(&self) -> impl Iterator<Item = Option<&str>> {
        self.events.iter().map(|event| event.new.stream.as_ref().map(|stream| stream.stream_type.as_str()))
    }
}

/// The name of an event's field, spelt out only when something is wrong with it.
struct Field(usize, &'static str);

impl Display for Field {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "events[{}].{}", self.0, self.1)
    }
}

fn check(number: usize, mut new: NewEvent, tenant: Option<&str>) -> Result<PreparedEvent> {
    let field = |name| Field(number, name);
    name(field("type"), &new.event_type)?;
    tags(field("tags"), &mut new.tags)?;
    let ids = [
        ("eventId", &new.event_id, MAX_ID_BYTES),
        ("correlationId", &new.correlation_id, MAX_ID_BYTES),
        ("causationId", &new.causation_id, MAX_ID_BYTES),
        ("boundedContext", &new.bounded_context, MAX_ID_BYTES),
        ("tenantId", &new.tenant_id, MAX_ID_BYTES),
        ("idempotencyKey", &new.idempotency_key, MAX_KEY_BYTES),
    ];
    for (what, text, most) in ids {
        if let Some(text) = text {
            plain(field(what), text, most)?;
        }
    }
    match (tenant, &new.tenant_id) {
        (Some(own), Some(given)) if own != given => {
            return Err(Error::Tenant { field: field("tenantId").to_string() });
        }
        (Some(own), None) => new.tenant_id = Some(own.to_owned()),
        _ => {}
    }
    if let Some(stream) = &new.stream {
        plain(field("stream.type"), &stream.stream_type, MAX_NAME_BYTES)?;
        plain(field("stream.id"), &stream.id, MAX_NAME_BYTES)?;
        position(field("stream.expectedVersion"), stream.expected_version)?;
    }
    if let Some(scope) = &new.scope {
        let parsed: std::result::Result<ScopeKey, _> = scope.key.parse();
        let key =
            parsed.map_err(|source| Error::ScopeKey { field: field("scope.key").to_string(), source })?;
        if new.tenant_id.as_ref().is_some_and(|tenant| *tenant != key.tenant_id) {
            return Err(Error::Tenant { field: field("scope.key").to_string() });
        }
        position(field("scope.expectedVersion"), Some(scope.expected_version))?;
    }
    if let Some(trace) = &new.trace {
        trace.validate().map_err(|error| Error::invalid(field("trace").to_string(), error.to_string()))?;
    }
    if new.schema_version == 0 || new.schema_version > i32::MAX as u32 {
        return Err(Error::invalid(field("schemaVersion").to_string(), "must be 1 to 2147483647"));
    }
    value(field("data"), new.data.get())?;
    if let Some(metadata) = &new.metadata {
        value(field("metadata"), metadata.get())?;
        if !metadata.get().starts_with('{') {
            return Err(Error::invalid(field("metadata").to_string(), "must be an object"));
        }
    }
    let payload =
        record::encode_payload(new.data.get(), new.metadata.as_ref().map(|metadata| metadata.get()));
    let fingerprint = new.idempotency_key.as_ref().map(|_| fingerprint(&new));
    let payload_checksum = record::payload_checksum(&payload);
    Ok(PreparedEvent { new, payload, payload_checksum, has_made_id: false, fingerprint })
}

/// What one append says twice must not differ.
fn check_together(events: &[PreparedEvent]) -> Result<()> {
    let keyed = events.iter().filter(|event| event.fingerprint.is_some()).count();
    if let Some(number) = events.iter().position(|event| event.fingerprint.is_none()).filter(|_| keyed > 0) {
        let field = format!("events[{number}].idempotencyKey");
        return Err(Error::invalid(field, "is missing: either every event of an append has a key, or none"));
    }
    for (number, event) in events.iter().enumerate() {
        let before = events[..number].iter().map(|earlier| &earlier.new);
        for earlier in before {
            let same = |name: &str| Error::invalid(format!("events[{number}].{name}"), "is given twice");
            let is_of_one = event.new.tenant_id == earlier.tenant_id;
            if is_of_one && event.new.event_id.is_some() && event.new.event_id == earlier.event_id {
                return Err(same("eventId"));
            }
            let has_key = event.new.idempotency_key.is_some();
            if is_of_one && has_key && event.new.idempotency_key == earlier.idempotency_key {
                return Err(same("idempotencyKey"));
            }
            if let (Some(one), Some(other)) = (&event.new.scope, &earlier.scope)
                && one.key == other.key
                && one.expected_version != other.expected_version
            {
                let field = format!("events[{number}].scope.expectedVersion");
                return Err(Error::invalid(field, "differs from another event's of the same append"));
            }
        }
    }
    Ok(())
}

fn prepare_condition(condition: Condition, tenant: Option<&str>, terms: Terms) -> Result<PreparedCondition> {
    position("condition.after", condition.after)?;
    let items =
        condition.fail_if_events_match.items().iter().map(|item| groups(item, tenant, terms)).collect();
    Ok(PreparedCondition { after: condition.after.unwrap_or(0), items, condition })
}

/// What an event must have to match an item, for a tenant.
pub(crate) fn groups(item: &mainstay_core::query::Item, tenant: Option<&str>, terms: Terms) -> Groups {
    let mut groups = Groups::default();
    for tag in &item.tags {
        groups = groups.and(vec![terms.tag(tag)]);
    }
    groups = groups.and(item.types.iter().map(|one| terms.event_type(one)).collect());
    groups.and(tenant.map(|tenant| terms.tenant(tenant)).into_iter().collect())
}

fn name(field: impl Display, text: &str) -> Result<()> {
    if is_name(text) { Ok(()) } else { Err(bad_text(field, MAX_NAME_BYTES)) }
}

fn plain(field: impl Display, text: &str, most: usize) -> Result<()> {
    let fits = (1..=most).contains(&text.len()) && !has_control(text);
    if fits { Ok(()) } else { Err(bad_text(field, most)) }
}

fn bad_text(field: impl Display, most: usize) -> Error {
    Error::invalid(field.to_string(), format!("must be 1 to {most} bytes without control characters"))
}

fn tags(field: impl Display, tags: &mut Vec<String>) -> Result<()> {
    if tags.len() > MAX_TAGS {
        return Err(Error::invalid(
            field.to_string(),
            format!("{} tags are more than {MAX_TAGS}", tags.len()),
        ));
    }
    tags.iter().enumerate().try_for_each(|(number, tag)| name(format_args!("{field}[{number}]"), tag))?;
    if tags.len() > 1 {
        let mut seen = std::collections::HashSet::new();
        tags.retain(|tag| seen.insert(tag.clone()));
    }
    Ok(())
}

/// Positions and versions are kept in signed columns.
fn position(field: impl Display, number: Option<u64>) -> Result<()> {
    match number {
        Some(number) if i64::try_from(number).is_err() => {
            Err(Error::invalid(field.to_string(), "is larger than any position"))
        }
        _ => Ok(()),
    }
}

fn value(field: impl Display, text: &str) -> Result<()> {
    json::check(text.as_bytes(), Bounds::bytes(MAX_VALUE_BYTES)).map_err(|error| match error {
        json::Error::TooLarge { bytes, .. } => Error::TooLarge { field: field.to_string(), bytes },
        error => Error::invalid(field.to_string(), error.to_string()),
    })
}

/// What must be the same when an idempotency key is used again: where the event belongs, what it is, and its data in
/// one spelling. Correlation, metadata and trace may differ between two attempts.
pub(crate) fn fingerprint(new: &NewEvent) -> [u8; FINGERPRINT_BYTES] {
    // serde_json's map is sorted by key.
    let data = serde_json::from_str::<serde_json::Value>(new.data.get());
    let data = data.map_or_else(|_| new.data.get().to_owned(), |value| value.to_string());
    let stream = new.stream.as_ref();
    let mut hasher = Sha256::new();
    for part in [
        stream.map_or("", |stream| &stream.stream_type),
        stream.map_or("", |stream| &stream.id),
        new.bounded_context.as_deref().unwrap_or_default(),
        new.tenant_id.as_deref().unwrap_or_default(),
        &new.event_type,
        new.category.as_str(),
        &new.schema_version.to_string(),
        &data,
    ] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let mut out = [0; FINGERPRINT_BYTES];
    out.copy_from_slice(&hasher.finalize()[..FINGERPRINT_BYTES]);
    out
}
