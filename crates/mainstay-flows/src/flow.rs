//! What belongs together: a correlation from its command through events to read models (items 225 to 227).

use crate::Result;
use crate::commands::Dispatcher;
use crate::projections::Projections;
use crate::projections::failures::LetterFilter;
use mainstay_api::{EventFlow, FlowEvent, FlowLetter};
use mainstay_events::{Event, Log, MAX_PAGE, Selection};

/// Most letters of a correlation that are told.
const MAX_LETTERS: usize = 1_000;

fn flow_event(event: &Event) -> FlowEvent {
    FlowEvent {
        event_id: event.id().to_owned(),
        tenant_id: event.tenant().map(str::to_owned),
        event_type: event.event_type().to_owned(),
        stream_type: event.stream().map(|stream| stream.stream_type.to_owned()),
        stream_id: event.stream().map(|stream| stream.id.to_owned()),
        global_position: event.position(),
        timestamp: event.timestamp_ms(),
        causation_id: event.causation_id().map(str::to_owned),
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
        events: page.events.iter().map(flow_event).collect(),
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
        tenant_id: letter.tenant_id,
        status: letter.status.as_str().to_owned(),
        error: letter.last_error.unwrap_or(letter.error),
        failed_at: letter.failed_at,
    });
    let quarantined = projections.quarantined_of(correlation_id, MAX_LETTERS).await?;
    let quarantined = quarantined.into_iter().map(|poison| FlowLetter {
        projection_name: poison.projection_name,
        event_id: poison.event_id,
        tenant_id: poison.tenant_id,
        status: "quarantined".to_owned(),
        error: poison.error,
        failed_at: poison.failed_at,
    });
    let mut letters: Vec<FlowLetter> = letters.chain(quarantined).collect();
    letters.sort_by_key(|letter| letter.failed_at);
    Ok(letters)
}
