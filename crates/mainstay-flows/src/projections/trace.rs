//! Which read models an event is in, for whoever follows what a request has caused.

use super::failures;
use super::lanes::KEYLESS;
use super::marks;
use super::opened::{Projections, Shared};
use crate::error::Result;
use mainstay_api::ProjectionUpdate;
use mainstay_events::Event;
use mainstay_store::{Row, Tx};
use std::collections::HashMap;
use std::sync::Arc;

const LANES: &str = "SELECT projection, lane, position, updated_at FROM mainstay_projection_lanes";

impl Projections {
    /// The read models that these events are in, in the order of the events: those that take their types and have come
    /// that far, unless they could not take the event or were made to leave it out.
    pub async fn updates(&self, events: &[Event]) -> Result<Vec<ProjectionUpdate>> {
        let context = (self.shared.clone(), events.into());
        Ok(self.shared.store.read_with(context, updates_in).await?)
    }
}

async fn updates_in(
    tx: Tx,
    (shared, events): (Arc<Shared>, Arc<[Event]>),
) -> mainstay_store::Result<Vec<ProjectionUpdate>> {
    let lane = |row: &Row| Ok(((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?)));
    let lanes: HashMap<(String, u32), (u64, i64)> =
        tx.query(LANES, &[]).await?.iter().map(lane).collect::<mainstay_store::Result<_>>()?;
    let missing = failures::missing(&tx, &events).await?;
    let mut found = Vec::new();
    for event in events.iter() {
        for projection in shared.projections.iter().filter(|one| one.takes(event.event_type())) {
            let number = projection.by.lane(event, projection.lanes).unwrap_or(KEYLESS);
            let name = &projection.name;
            let Some((position, moved_at)) = lanes.get(&(name.clone(), number)) else { continue };
            if *position >= event.position() && !missing.contains(&(name.clone(), event.position())) {
                found.push(((name.clone(), number, event.position()), event, *position, *moved_at));
            }
        }
    }
    let places: Vec<marks::Place> = found.iter().map(|(place, ..)| place.clone()).collect();
    let passed = marks::find(&tx, &places).await?;
    let update = |(place, event, last_global_position, moved_at): (marks::Place, &Event, u64, i64)| {
        let passed = passed.get(&place);
        (!passed.is_some_and(|passed| passed.is_skipped)).then(|| ProjectionUpdate {
            projection_name: place.0,
            event_id: event.id().to_owned(),
            last_global_position,
            updated_at: passed.map_or(moved_at, |passed| passed.reached_at),
        })
    };
    Ok(found.into_iter().filter_map(update).collect())
}
