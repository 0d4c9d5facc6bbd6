//! An event as other contexts see it.

use super::MAX_DATA_BYTES;
use crate::commands::{DomainEvent, decode_data};
use crate::error::{Error, Result};
use mainstay_core::json::{self, Bounds};
use mainstay_core::trace::TraceContext;
use mainstay_events::{Event, NewEvent};
use mainstay_store::{Cause, Inherited};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Longest id, type, subject, or id of what it belongs to.
const MAX_TEXT_BYTES: usize = 256;

/// An event as other contexts see it: what a publication holds, and what a translator makes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublicEvent {
    /// Its id. The publication is known by that of the source's event, whatever a translator makes of it.
    pub event_id: String,
    /// What happened.
    #[serde(rename = "type")]
    pub event_type: String,
    /// What there is to know about it.
    pub data: Box<RawValue>,
    /// The version of the shape of its data.
    pub schema_version: u32,
    /// What it is about: `Order/ord-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What it belongs together with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// What caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Where it stands in a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// When it happened, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
}

impl PublicEvent {
    /// An event of an id, a type and data.
    pub fn new(
        event_id: impl Into<String>,
        event_type: impl Into<String>,
        data: &(impl Serialize + ?Sized),
    ) -> Result<Self> {
        let data = serde_json::value::to_raw_value(data)
            .map_err(|error| Error::invalid("data", error.to_string()))?;
        Ok(Self {
            event_id: event_id.into(),
            event_type: event_type.into(),
            data,
            schema_version: 1,
            subject: None,
            correlation_id: None,
            causation_id: None,
            tenant_id: None,
            trace: None,
            timestamp: None,
        })
    }

    /// An event that is appended in the same transaction, under the id that
    /// [`Receipt::event_ids`](mainstay_events::Receipt::event_ids) tells.
    pub fn of_new(event_id: impl Into<String>, new: &NewEvent) -> Self {
        Self {
            event_id: event_id.into(),
            event_type: new.event_type.clone(),
            data: new.data.clone(),
            schema_version: new.schema_version,
            subject: new.stream.as_ref().map(|stream| format!("{}/{}", stream.stream_type, stream.id)),
            correlation_id: new.correlation_id.clone(),
            causation_id: new.causation_id.clone(),
            tenant_id: new.tenant_id.clone(),
            trace: new.trace.clone(),
            timestamp: None,
        }
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

    /// The same event with another type and other data: what most translators make.
    pub fn with(
        &self,
        event_type: impl Into<String>,
        data: &(impl Serialize + ?Sized),
    ) -> std::result::Result<Self, String> {
        let data = serde_json::value::to_raw_value(data).map_err(|error| error.to_string())?;
        Ok(Self { event_type: event_type.into(), data, ..self.clone() })
    }

    /// One of the source's own events, whichever version it was written in: what translators read.
    pub fn decode<E: DomainEvent>(&self) -> std::result::Result<E, String> {
        let decoded = decode_data(&self.event_type, self.schema_version, self.data.get());
        decoded.map_err(|error| format!("{} {error}", self.event_type))
    }

    pub(super) fn check(&self) -> std::result::Result<(), (&'static str, String)> {
        // A subject names a stream by its type and its id.
        let texts = [
            ("eventId", Some(&self.event_id), MAX_TEXT_BYTES),
            ("type", Some(&self.event_type), MAX_TEXT_BYTES),
            ("subject", self.subject.as_ref(), 2 * MAX_TEXT_BYTES + 1),
            ("correlationId", self.correlation_id.as_ref(), MAX_TEXT_BYTES),
            ("causationId", self.causation_id.as_ref(), MAX_TEXT_BYTES),
            ("tenantId", self.tenant_id.as_ref(), MAX_TEXT_BYTES),
        ];
        for (field, text, most) in texts {
            let is_bad = |text: &String| !(1..=most).contains(&text.len()) || text.contains(char::is_control);
            if text.is_some_and(is_bad) {
                return Err((field, format!("must be 1 to {most} bytes without control characters")));
            }
        }
        json::check(self.data.get().as_bytes(), Bounds::bytes(MAX_DATA_BYTES))
            .map_err(|error| ("data", error.to_string()))
    }
}

impl TryFrom<&Event> for PublicEvent {
    type Error = Error;

    /// An event of the log. One whose data were erased has nothing to say.
    fn try_from(event: &Event) -> Result<Self> {
        let data = event.data().ok_or_else(|| Error::invalid("eventId", "its data were erased"))?;
        let data = RawValue::from_string(data.to_owned())
            .map_err(|error| Error::invalid("data", error.to_string()))?;
        Ok(Self {
            event_id: event.id().to_owned(),
            event_type: event.event_type().to_owned(),
            data,
            schema_version: event.schema_version(),
            subject: event.stream().map(|stream| format!("{}/{}", stream.stream_type, stream.id)),
            correlation_id: Some(event.correlation_id().to_owned()),
            causation_id: event.causation_id().map(str::to_owned),
            tenant_id: event.tenant().map(str::to_owned),
            trace: event.trace(),
            timestamp: Some(event.timestamp_ms()),
        })
    }
}
