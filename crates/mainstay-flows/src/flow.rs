//! What belongs together: a correlation from its command through events to read models (items 225 to 227).

use crate::Result;
use crate::commands::Dispatcher;
use crate::projections::failures::LetterFilter;
use crate::projections::{Projections, Update};
use mainstay_events::{Event, Log, MAX_PAGE, Selection};
use serde::Serialize;

/// Most letters of a correlation that are told.
const MAX_LETTERS: usize = 1_000;

/// Everything that one correlation led to, each kind in the order of time.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventFlow {
    /// What belongs together.
    pub correlation_id: String,
    /// The command that began it.
    pub command: Option<FlowCommand>,
    /// All commands.
    pub commands: Vec<FlowCommand>,
    /// The events, at most a thousand.
    pub events: Vec<FlowEvent>,
    /// Which read models have taken which events.
    pub projection_updates: Vec<Update>,
    /// Which could not.
    pub dead_letters: Vec<FlowLetter>,
    /// Sagas; none yet.
    pub sagas: Vec<()>,
}

/// A command of a flow.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowCommand {
    /// The command.
    pub command_id: String,
    /// What was wanted.
    pub command_type: String,
    /// How far it is.
    pub status: &'static str,
    /// When it was dispatched.
    pub created_at: i64,
    /// When it ended.
    pub completed_at: Option<i64>,
}

/// An event of a flow.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowEvent {
    /// The event.
    pub event_id: String,
    /// What happened.
    pub event_type: String,
    /// The stream it is in, `{type}/{id}`.
    pub stream_id: Option<String>,
    /// Where it is.
    pub global_position: u64,
    /// When.
    pub timestamp: i64,
    /// What caused it.
    pub causation_id: Option<String>,
}

/// An event that a read model could not take.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowLetter {
    /// The projection.
    pub projection_name: String,
    /// The event.
    pub event_id: String,
    /// What was done about it; `quarantined` for a poison event.
    pub status: &'static str,
    /// What happened.
    pub error: String,
    /// When.
    pub failed_at: i64,
}

impl From<&Event> for FlowEvent {
    fn from(event: &Event) -> Self {
        Self {
            event_id: event.id().to_owned(),
            event_type: event.event_type().to_owned(),
            stream_id: event.stream().map(|stream| format!("{}/{}", stream.stream_type, stream.id)),
            global_position: event.position(),
            timestamp: event.timestamp_ms(),
            causation_id: event.causation_id().map(str::to_owned),
        }
    }
}

/// Everything that one correlation led to.
pub async fn event_flow(
    log: &Log,
    commands: &Dispatcher,
    projections: &Projections,
    correlation_id: &str,
) -> Result<EventFlow> {
    let commands = commands.flow_of(correlation_id).await?;
    let page = log.read(&Selection::all().correlated(correlation_id), MAX_PAGE).await?;
    let dead_letters = letters(projections, correlation_id).await?;
    let mut projection_updates = projections.updates(&page.events).await?;
    projection_updates.sort_by_key(|update| update.updated_at);
    Ok(EventFlow {
        correlation_id: correlation_id.to_owned(),
        command: commands.first().cloned(),
        commands,
        events: page.events.iter().map(Into::into).collect(),
        projection_updates,
        dead_letters,
        sagas: Vec::new(),
    })
}

async fn letters(projections: &Projections, correlation_id: &str) -> Result<Vec<FlowLetter>> {
    let filter = LetterFilter { correlation_id: Some(correlation_id.to_owned()), ..LetterFilter::default() };
    let letters = projections.bare_letters(filter, MAX_LETTERS).await?.into_iter().map(|letter| FlowLetter {
        projection_name: letter.projection_name,
        event_id: letter.event_id,
        status: letter.status.as_str(),
        error: letter.last_error.unwrap_or(letter.error),
        failed_at: letter.failed_at,
    });
    let quarantined = projections.quarantined_of(correlation_id, MAX_LETTERS).await?;
    let quarantined = quarantined.into_iter().map(|poison| FlowLetter {
        projection_name: poison.projection_name,
        event_id: poison.event_id,
        status: "quarantined",
        error: poison.error,
        failed_at: poison.failed_at,
    });
    let mut letters: Vec<FlowLetter> = letters.chain(quarantined).collect();
    letters.sort_by_key(|letter| letter.failed_at);
    Ok(letters)
}
