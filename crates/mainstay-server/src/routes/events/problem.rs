//! What the log says, as a problem document.

use crate::Problem;
use mainstay_events::{Error, Versioned};
use serde_json::json;

impl From<Error> for Problem {
    /// A conflict names the state that was found, so that the caller can decide anew.
    fn from(error: Error) -> Self {
        let problem = match &error {
            Error::Store(error) => return Self::from(&**error),
            Error::Corrupt { .. } => {
                tracing::error!(%error, "a damaged event was asked for");
                Self::new(error.entry(), error.to_string())
            }
            _ => Self::new(error.entry(), error.to_string()),
        };
        match error {
            Error::Invalid { field, .. }
            | Error::TooLarge { field, .. }
            | Error::ScopeKey { field, .. }
            | Error::Tenant { field } => problem.of_field(field),
            Error::Empty | Error::TooMany { .. } => problem.of_field("events"),
            Error::AfterBeyondHead { after, head } => {
                problem.of_field("condition.after").with("after", after).with("head", head)
            }
            Error::ConditionFailed { witness, head } => {
                let witness = json!({
                    "position": witness.position, "eventId": witness.event_id, "type": witness.event_type,
                });
                problem.with("witness", witness).with("head", head)
            }
            Error::VersionConflict { of, expected, current, head } => {
                let problem = match of {
                    Versioned::Stream { stream_type, id } => {
                        problem.with("stream", json!({ "type": stream_type, "id": id }))
                    }
                    Versioned::Scope { key } => problem.with("scope", json!({ "key": key })),
                };
                problem.with("expectedVersion", expected).with("currentVersion", current).with("head", head)
            }
            Error::IdempotencyConflict { key, existing_event_id, existing_position, reason, audit_id } => {
                problem
                    .with("idempotencyKey", key)
                    .with("existingEventId", existing_event_id)
                    .with("existingPosition", existing_position)
                    .with("reason", reason.as_str())
                    .with("auditId", audit_id)
            }
            Error::EventIdTaken { event_id, position } => {
                problem.with("eventId", event_id).with("position", position)
            }
            Error::EpochChanged { expected, found } => {
                problem.with("expectedEpoch", expected).with("currentEpoch", found)
            }
            Error::Corrupt { position, .. } => problem.with("position", position),
            _ => problem,
        }
    }
}
