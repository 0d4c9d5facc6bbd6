//! An event before it is in the log.

use crate::error::{Error, Result};
use crate::event::Category;
use mainstay_core::keys::IdempotencyKey;
use mainstay_core::query::{Item, Query};
use mainstay_core::trace::TraceContext;
use mainstay_store::{Cause, Inherited};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// An event to be appended. Only type and data must be given.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewEvent {
    /// What happened.
    #[serde(rename = "type")]
    pub event_type: String,
    /// What there is to know about it, kept as it is written.
    pub data: Box<RawValue>,
    /// The id; one is made when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The stream it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<NewStream>,
    /// The scope whose version it moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeClaim>,
    /// What else is to be noted, a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<RawValue>>,
    /// What makes a repeated append recognisable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// What it belongs together with; one is made when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// What caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// What kind of event it is.
    #[serde(default)]
    pub category: Category,
    /// The version of the shape of its data.
    #[serde(default = "first_version")]
    pub schema_version: u32,
    /// The bounded context it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounded_context: Option<String>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Where it stands in a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

fn first_version() -> u32 {
    1
}

/// The stream that an event is appended to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewStream {
    /// Its type.
    #[serde(rename = "type")]
    pub stream_type: String,
    /// Which one.
    pub id: String,
    /// The version it must have before this event; 0 for a stream that does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
}

/// The scope that an append claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScopeClaim {
    /// `tenant:{tenantId}:{scopeType}:{scopeId}`.
    pub key: String,
    /// The version it must have; the append moves it to the next.
    pub expected_version: u64,
}

/// What must not have happened, as dcb.events has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Condition {
    /// No such event may be there…
    pub fail_if_events_match: Query,
    /// …after this position: the head of what the decision rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

impl Condition {
    /// No event of `query` may be there at all.
    pub fn none_match(query: Query) -> Self {
        Self { fail_if_events_match: query, after: None }
    }

    /// No event may be there that has this tag.
    pub fn no_tag(tag: impl Into<String>) -> Result<Self> {
        let item = Item { types: Vec::new(), tags: vec![tag.into()] };
        let query = Query::new(vec![item]);
        query
            .map(Self::none_match)
            .map_err(|error| Error::invalid("condition.failIfEventsMatch", error.to_string()))
    }

    /// What was there at `position` or before is known and does not count.
    pub fn after(self, position: u64) -> Self {
        Self { after: Some(position), ..self }
    }
}

impl NewEvent {
    /// An event of this type, with data of the application.
    pub fn new(event_type: impl Into<String>, data: &impl Serialize) -> Result<Self> {
        let data = serde_json::value::to_raw_value(data);
        let data = data.map_err(|error| Error::invalid("data", error.to_string()))?;
        Ok(Self {
            event_type: event_type.into(),
            data,
            event_id: None,
            tags: Vec::new(),
            stream: None,
            scope: None,
            metadata: None,
            idempotency_key: None,
            correlation_id: None,
            causation_id: None,
            category: Category::default(),
            schema_version: first_version(),
            bounded_context: None,
            tenant_id: None,
            trace: None,
        })
    }

    /// With an id of the author's own.
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { event_id: Some(id.into()), ..self }
    }

    /// With one more tag.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// In a stream, whatever its version is.
    pub fn stream(self, stream_type: impl Into<String>, id: impl Into<String>) -> Self {
        let stream = NewStream { stream_type: stream_type.into(), id: id.into(), expected_version: None };
        Self { stream: Some(stream), ..self }
    }

    /// In its stream only at this version; 0 for a stream that does not exist.
    pub fn expecting(mut self, version: u64) -> Self {
        if let Some(stream) = &mut self.stream {
            stream.expected_version = Some(version);
        }
        self
    }

    /// Moves a scope that must be at this version.
    pub fn scope(self, key: impl ToString, expected_version: u64) -> Self {
        Self { scope: Some(ScopeClaim { key: key.to_string(), expected_version }), ..self }
    }

    /// With a key that makes a repeat recognisable.
    pub fn idempotent(self, key: &IdempotencyKey) -> Self {
        Self { idempotency_key: Some(key.to_string()), ..self }
    }

    /// Belongs together with others of this id.
    pub fn correlation(self, id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..self }
    }

    /// Caused by this.
    pub fn causation(self, id: impl Into<String>) -> Self {
        Self { causation_id: Some(id.into()), ..self }
    }

    /// Belongs to this bounded context.
    pub fn context(self, context: impl Into<String>) -> Self {
        Self { bounded_context: Some(context.into()), ..self }
    }

    /// Belongs to this tenant.
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        Self { tenant_id: Some(tenant.into()), ..self }
    }

    /// Belongs to this tenant, unless it belongs to another.
    pub(crate) fn or_tenant(mut self, tenant: &str) -> Self {
        self.tenant_id.get_or_insert_with(|| tenant.to_owned());
        self
    }

    /// Of this kind.
    pub fn category(self, category: Category) -> Self {
        Self { category, ..self }
    }

    /// With data of this version.
    pub fn schema_version(self, schema_version: u32) -> Self {
        Self { schema_version, ..self }
    }

    /// At this place in a trace.
    pub fn trace(self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), ..self }
    }

    /// Takes from `cause` what the event does not say: correlation, causation, tenant and trace.
    pub fn caused_by(mut self, cause: &Cause) -> Self {
        cause.fill(Inherited {
            correlation_id: &mut self.correlation_id,
            causation_id: &mut self.causation_id,
            tenant_id: &mut self.tenant_id,
            trace: &mut self.trace,
        });
        self
    }

    /// With metadata, which must become a JSON object.
    pub fn metadata(self, metadata: &impl Serialize) -> Result<Self> {
        let metadata = serde_json::value::to_raw_value(metadata);
        let metadata = metadata.map_err(|error| Error::invalid("metadata", error.to_string()))?;
        Ok(Self { metadata: Some(metadata), ..self })
    }
}
