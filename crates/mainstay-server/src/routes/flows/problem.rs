//! What the offices say, as a problem document.

use crate::{Problem, error};
use mainstay_core::codes::ErrorCode;
use mainstay_flows::Error;
use serde_json::Value;

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match &error {
            Error::Store(error) => return Self::from(&**error),
            Error::Events(error) => return Self::from(mainstay_events::Error::clone(error)),
            Error::Work(error) => return Self::from(error.clone()),
            Error::Handler { .. } | Error::Middleware { .. } | Error::Unreadable { .. } => {
                tracing::error!(%error, code = error.code(), "a command could not be decided");
            }
            _ => {}
        }
        let problem = Self::new(error.entry(), error.to_string());
        match error {
            Error::Invalid { field, .. } | Error::TooLarge { field, .. } => problem.of_field(field),
            Error::UnknownCommand(command_type) => problem.with("commandType", command_type),
            Error::CommandNotFound(id) | Error::CommandIdTaken(id) => problem.with("commandId", id),
            Error::Middleware { name, .. } => problem.with("step", name),
            Error::UnknownProjection(name) | Error::NotRebuildable(name) | Error::LanesChanged(name) => {
                problem.with("projection", name)
            }
            Error::Transition { projection, status, .. } => {
                problem.with("projection", projection).with("currentStatus", status)
            }
            Error::ReplayAlreadyActive { projection, replay_id } => {
                problem.with("projection", projection).with("existingReplayId", replay_id)
            }
            Error::ReplayNotFound(replay_id) => problem.with("replayId", replay_id),
            Error::ReplayNotRunning { replay_id, current_status } => {
                problem.with("replayId", replay_id).with("currentStatus", current_status)
            }
            Error::BeyondHead { position, head } => problem.with("position", position).with("head", head),
            Error::NotQuarantined { projection, event_id } => {
                problem.with("projection", projection).with("eventId", event_id)
            }
            Error::LetterNotFound(event_id) => problem.with("eventId", event_id),
            Error::LetterNotPending { event_id, status } => {
                problem.with("eventId", event_id).with("currentStatus", status)
            }
            Error::IntentNotFound(key) | Error::IntentKeyTaken(key) => problem.with("intentKey", key),
            Error::IntentEnded { intent_key, status } => {
                problem.with("intentKey", intent_key).with("currentStatus", status)
            }
            Error::UnknownTarget(target) => problem.with("target", target),
            Error::PublicationNotFound(event_id) => problem.with("eventId", event_id),
            Error::PublicationLetterNotFound { event_id, target } => {
                problem.with("eventId", event_id).with("target", target)
            }
            Error::PublicationLetterNotPending { event_id, target, status } => {
                problem.with("eventId", event_id).with("target", target).with("currentStatus", status)
            }
            Error::Translation { target, .. } => problem.with("target", target),
            Error::Unreadable { position, .. } => problem.with("position", position),
            _ => problem,
        }
    }
}

/// A command that was rejected: the code is that of whoever rejected it.
pub(super) fn rejected(code: String, reason: String, context: Option<Value>) -> Problem {
    let entry: &'static ErrorCode = match &*code {
        "RATE_LIMITED" => mainstay_guards::limits::limited_code(),
        "UNAUTHORIZED" => &error::UNAUTHORIZED,
        _ => mainstay_flows::rejected_code(),
    };
    let problem = Problem::new(entry, reason).with("code", code).with("outcome", "rejected");
    match context {
        Some(context) => problem.with("context", context),
        None => problem,
    }
}
