//! The key of an event's rows: the event's id, and for the event of a tenant the tenant behind it (decision C62).
//!
//! Neither ids nor tenants hold control characters, so no two events share a key. Rows of
//! earlier versions have the id alone. A new row takes the key of the event's other rows, found by the event's position.

use crate::error::{Error, Result};
use crate::projections::opened::Projections;
use mainstay_events::Event;
use mainstay_store::{Row, Tx, params};

const BETWEEN: char = '\u{1f}';

/// The key of an event that has no rows yet.
pub(super) fn key(event: &Event) -> String {
    join(event.id(), event.tenant())
}

fn join(event_id: &str, tenant: Option<&str>) -> String {
    match tenant {
        Some(tenant) => format!("{event_id}{BETWEEN}{tenant}"),
        None => event_id.to_owned(),
    }
}

/// The event's id and its tenant.
pub(super) fn split(key: &str) -> (&str, Option<&str>) {
    match key.split_once(BETWEEN) {
        Some((event_id, tenant)) => (event_id, Some(tenant)),
        None => (key, None),
    }
}

/// The keys of an id: the one without a tenant is the first.
const KEYS: &str = "SELECT DISTINCT event_id FROM mainstay_projection_failures WHERE projection = $1 \
     AND (event_id = $2 OR (event_id > $3 AND event_id < $4)) ORDER BY event_id LIMIT 2";

impl Projections {
    /// A view of one tenant's failed events. Ids of events are unique within a tenant. A view of all tenants prefers the event without a tenant, then takes the only one; an id of several tenants is refused.
    pub fn for_tenant(&self, tenant: &str) -> Self {
        Self { shared: self.shared.clone(), tenant: Some(tenant.into()) }
    }

    /// The key that an id means here.
    pub(super) async fn key_of(&self, projection: &str, event_id: &str) -> Result<String> {
        if let Some(tenant) = &self.tenant {
            return Ok(join(event_id, Some(tenant)));
        }
        let read = async |tx: Tx, (projection, id): (String, String)| {
            // The character behind the one in between is a space.
            let (from, to) = (join(&id, Some("")), format!("{id} "));
            let rows = tx.query(KEYS, params![projection, id, from, to]).await?;
            rows.iter().map(|row: &Row| row.get(0)).collect::<mainstay_store::Result<Vec<String>>>()
        };
        let which = (projection.to_owned(), event_id.to_owned());
        let mut keys = self.shared.store.read_with(which, read).await?.into_iter();
        match (keys.next(), keys.next()) {
            (Some(first), Some(_)) if first != event_id => {
                let id = event_id.to_owned();
                Err(Error::from(mainstay_events::Error::SeveralTenants { what: "event id", id }))
            }
            (found, _) => Ok(found.unwrap_or_else(|| event_id.to_owned())),
        }
    }
}
