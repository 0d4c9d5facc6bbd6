//! The event with an id. Ids are unique within a tenant (decision C62): events without a tenant share one space.

use crate::error::{Error, Result};
use crate::event::Event;
use crate::index::{self, Groups, Terms, View, position_in};
use crate::log::Log;
use crate::record::{event_of, header_of};
use mainstay_store::{Row, Tx};

/// Entries of one id that are read at once: several tenants may have it.
pub(crate) const SHARED_ID: usize = 64;

impl Log {
    /// The event with this id. A tenant's view has only that tenant's. The view of all tenants prefers the event without
    /// a tenant, then takes the only one; an id of several tenants is refused with [`Error::SeveralTenants`].
    pub async fn find(&self, event_id: &str) -> Result<Option<Event>> {
        let Some(row) = self.row_of(event_id).await? else { return Ok(None) };
        event_of(row).map(Some)
    }

    /// The position of the event that [`find`](Self::find) would return. The payload may be damaged or erased.
    pub(crate) async fn position_of(&self, event_id: &str) -> Result<Option<u64>> {
        let row = self.row_of(event_id).await?;
        Ok(row.map(|row| row.get(0)).transpose()?)
    }

    async fn row_of(&self, event_id: &str) -> Result<Option<Row>> {
        let view = self.ground().view();
        let asked = (view, self.terms(), self.tenant().map(str::to_owned), event_id.to_owned());
        self.store().read_with(asked, read_row).await?
    }
}

type Asked = (View, Terms, Option<String>, String);

/// The row `(position, header, payload)` of an event. Only headers are looked at.
async fn read_row(tx: Tx, (view, terms, tenant, id): Asked) -> mainstay_store::Result<Result<Option<Row>>> {
    let groups = Groups::default().and(vec![terms.event_id(&id)]);
    let (mut after, mut others, mut only, mut damaged) = (0, 0, None, None);
    // An id that was made for its event is not in the index: it holds the position itself.
    let mut positions: Vec<u64> = position_in(&id).into_iter().collect();
    loop {
        let page = index::ascending(&tx, &view, &groups, after, i64::MAX as u64, SHARED_ID).await?;
        let is_last = page.len() < SHARED_ID;
        after = page.last().copied().unwrap_or(after);
        positions.extend(page);
        for row in index::rows_at(&tx, &positions).await? {
            match header_of(&row) {
                Ok(event) if event.id() != id => {}
                Ok(event) if event.tenant() == tenant.as_deref() => return Ok(Ok(Some(row))),
                Ok(_) if tenant.is_some() => {}
                Ok(_) => {
                    others += 1;
                    only = Some(row);
                }
                Err(error) => damaged = Some(error),
            }
        }
        positions.clear();
        if is_last {
            break;
        }
    }
    Ok(match (others, damaged) {
        (0, Some(error)) => Err(error),
        (0 | 1, _) => Ok(only),
        _ => Err(Error::SeveralTenants { what: "event id", id }),
    })
}
