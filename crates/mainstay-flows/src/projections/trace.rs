//! Which read models an event is in, for whoever follows what a request has caused.

use super::lanes::KEYLESS;
use super::opened::Projections;
use crate::error::Result;
use mainstay_events::Event;
use mainstay_store::{Tx, params};
use serde::Serialize;
use std::sync::Arc;

/// An event in a read model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// The projection.
    pub projection_name: String,
    /// The event.
    pub event_id: String,
    /// Where the event's lane is now.
    pub last_global_position: u64,
    /// When that was last set.
    pub updated_at: i64,
}

const LANES: &str = "SELECT lane, position, updated_at FROM mainstay_projection_lanes WHERE projection = $1";
const MISSING: &str = "SELECT count(*) FROM mainstay_projection_failures f JOIN mainstay_projections p \
     ON p.name = f.projection AND p.generation = f.generation \
     WHERE f.projection = $1 AND f.event_id = $2 AND f.status <> 'resolved'";

impl Projections {
    /// The read models that these events are in, in the order of the events: those that take their types and have come
    /// that far, unless they could not take the event.
    pub async fn updates(&self, events: &[Event]) -> Result<Vec<Update>> {
        let projections = self.shared.projections.clone();
        let read = async |tx: Tx, (projections, events): (Vec<_>, Arc<[Event]>)| {
            let mut lanes = Vec::new();
            for projection in &projections {
                let projection: &Arc<super::Projection> = projection;
                lanes.push(tx.query(LANES, params![&projection.name]).await?);
            }
            let mut updates = Vec::new();
            for event in events.iter() {
                let taking = projections.iter().zip(&lanes);
                for (projection, lanes) in taking.filter(|(one, _)| one.takes(event.event_type())) {
                    let number = projection.by.lane(event, projection.lanes).unwrap_or(KEYLESS);
                    let mut found = lanes.iter().filter(|row| row.get::<u32>(0).ok() == Some(number));
                    let Some(row) = found.next() else { continue };
                    let last_global_position: u64 = row.get(1)?;
                    if last_global_position < event.position() {
                        continue;
                    }
                    let missing = tx.query_one(MISSING, params![&projection.name, event.id()]).await?;
                    if missing.get::<i64>(0)? == 0 {
                        updates.push(Update {
                            projection_name: projection.name.clone(),
                            event_id: event.id().to_owned(),
                            last_global_position,
                            updated_at: row.get(2)?,
                        });
                    }
                }
            }
            Ok(updates)
        };
        Ok(self.shared.store.read_with((projections, events.into()), read).await?)
    }
}
