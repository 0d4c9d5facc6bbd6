//! Events on the wire: CloudEvents 1.0, structured JSON.

use super::event::PublicEvent;
use mainstay_core::trace::TraceContext;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The content type of an event in the structured form.
pub const CONTENT_TYPE: &str = "application/cloudevents+json";

/// An event as CloudEvents 1.0 has it. What the specification does not name is an extension: lower case, and signed with
/// the rest of the body.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub struct CloudEvent {
    /// The version of the specification: `1.0`.
    pub specversion: String,
    /// The event's id, which is its own together with the source.
    pub id: String,
    /// The context it comes from.
    pub source: String,
    /// What happened.
    #[serde(rename = "type")]
    pub event_type: String,
    /// What it is about: `Order/ord-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// When it happened, as RFC 3339 has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// What the data are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacontenttype: Option<String>,
    /// Extension: the same for every attempt to deliver it, `pub:{eventId}:{target}` or `pub@{tenant}:{eventId}:{target}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotencykey: Option<String>,
    /// Extension: the version of the shape of its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schemaversion: Option<u32>,
    /// Extension: what it belongs together with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlationid: Option<String>,
    /// Extension: what caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causationid: Option<String>,
    /// Extension: whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenantid: Option<String>,
    /// Extension of distributed tracing: where the event stands in a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What there is to know about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

impl CloudEvent {
    /// An event of a context, on its way to a target.
    pub fn new(event: &PublicEvent, source: &str, idempotency_key: &str) -> Self {
        let time = event.timestamp.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        Self {
            specversion: "1.0".to_owned(),
            id: event.event_id.clone(),
            source: source.to_owned(),
            event_type: event.event_type.clone(),
            subject: event.subject.clone(),
            time: time.map(|time| time.to_string()),
            datacontenttype: Some("application/json".to_owned()),
            idempotencykey: Some(idempotency_key.to_owned()),
            schemaversion: Some(event.schema_version),
            correlationid: event.correlation_id.clone(),
            causationid: event.causation_id.clone(),
            tenantid: event.tenant_id.clone(),
            traceparent: event.trace.as_ref().and_then(TraceContext::to_traceparent),
            data: Some(event.data.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_looks_as_the_specification_has_it() {
        let event = PublicEvent {
            subject: Some("Order/ord-1".to_owned()),
            timestamp: Some(1_700_000_000_123),
            correlation_id: Some("corr_1".to_owned()),
            ..PublicEvent::new("evt-1", "OrderSubmitted", &json!({ "orderId": "ord-1" })).expect("JSON")
        };
        let cloud = CloudEvent::new(&event, "orders", "pub:evt-1:inventory");
        assert_eq!(
            serde_json::to_value(&cloud).expect("JSON"),
            json!({
                "specversion": "1.0",
                "id": "evt-1",
                "source": "orders",
                "type": "OrderSubmitted",
                "subject": "Order/ord-1",
                "time": "2023-11-14T22:13:20.123Z",
                "datacontenttype": "application/json",
                "idempotencykey": "pub:evt-1:inventory",
                "schemaversion": 1,
                "correlationid": "corr_1",
                "data": { "orderId": "ord-1" },
            })
        );
        let names = serde_json::to_value(&cloud).expect("JSON");
        for name in names.as_object().expect("an object").keys() {
            assert!(name.len() <= 20 && name.bytes().all(|byte| byte.is_ascii_lowercase()), "{name}");
        }
    }
}
