//! Reading from the newest event on: the same pages the other way.
//!
//! A page is what lies before a position, and costs as much as what it has, wherever in the log it lies: the index is
//! asked for the last positions of its terms, never for how many there are.

use crate::error::Result;
use crate::event::Event;
use crate::index::{self, position_in};
use crate::log::Log;
use crate::read::{FIRST_LOOK, MAX_BYTES, Page, Read, Request, Selection, before_time, bounds};
use crate::record::{event_of, missing};
use mainstay_store::{Row, Tx, Value};
use std::cmp::Reverse;
use std::collections::BTreeSet;

impl Log {
    /// Reads the last events of `selection`, the newest first, at most `limit` (or [`MAX_PAGE`](crate::MAX_PAGE)) and at
    /// most 4 MiB of them. `next` is the [`until`](Selection::until) of the next page, when there is more.
    pub async fn read_backwards(&self, selection: &Selection, limit: usize) -> Result<Page> {
        let request = self.request(selection, limit);
        let (events, head, next, epoch) = self.store().read_with(request, read_page).await?;
        let events = self.counted(events)?;
        Ok(Page { events, head, next, epoch })
    }
}

const BEFORE: &str = "SELECT position, header, payload FROM mainstay_events \
     WHERE position > $1 AND position <= $2 ORDER BY position DESC LIMIT $3";

async fn read_page(tx: Tx, request: Request<'static>) -> mainstay_store::Result<Read> {
    let (mut head, epoch) = bounds(&tx).await?;
    if !request.ways.is_empty() {
        head = head.min(request.view.head);
    }
    let selection = &request.selection;
    let mut most = selection.until.map_or(head, |until| until.min(head));
    let mut after = selection.after;
    if let Some(since_ms) = selection.since_ms {
        after = after.max(before_time(&tx, since_ms, head).await?);
    }
    if let Some(before_ms) = selection.before_ms {
        most = most.min(before_time(&tx, before_ms, head).await?);
    }
    let mut events = Vec::new();
    let (mut bytes, mut seen): (usize, usize) = (0, 0);
    while events.len() < request.limit && bytes < MAX_BYTES && after < most {
        // As many as are likely to fit, once something is known of their size.
        let usual_bytes = bytes.checked_div(seen);
        let look = usual_bytes.map_or(FIRST_LOOK, |usual| (MAX_BYTES - bytes) / usual.max(1) + 1);
        let look = look.min(request.limit - events.len());
        let (found, reached) = look_at(&tx, &request, after, most, look).await?;
        most = reached;
        for event in found {
            if let Ok(event) = &event {
                (bytes, seen) = (bytes + event.bytes(), seen + 1);
                if !request.means(event) {
                    continue;
                }
            }
            events.push(event);
        }
    }
    Ok((events, head, (after < most).then_some(most), epoch))
}

/// The events before `most` that may be meant, the last first, and the position down to which that is all of them.
async fn look_at(
    tx: &Tx,
    request: &Request<'_>,
    after: u64,
    most: u64,
    limit: usize,
) -> mainstay_store::Result<(Vec<Result<Event>>, u64)> {
    if request.ways.is_empty() {
        let params = [after as i64, most as i64, limit as i64].map(Value::Int);
        let rows = tx.query(BEFORE, &params).await?;
        let reached = if rows.len() < limit { after } else { most - limit as u64 };
        return Ok((dense(rows, most, reached.max(after))?, reached.max(after)));
    }
    let mut positions = BTreeSet::new();
    for groups in &request.ways {
        let found = index::descending(tx, &request.view, groups, after, most, limit).await?;
        positions.extend(found.into_iter().map(Reverse));
    }
    // An id that was made for its event is not in the index: it holds the position itself.
    let made = request.selection.correlation_id.as_deref().and_then(position_in);
    positions.extend(made.filter(|position| (after + 1..=most).contains(position)).map(Reverse));
    let is_all = positions.len() < limit;
    let positions: Vec<u64> = positions.into_iter().take(limit).map(|Reverse(position)| position).collect();
    let reached = positions.last().filter(|_| !is_all).map_or(after, |position| position - 1);
    let found = index::events_at(tx, &request.view, positions).await?;
    Ok((found.into_iter().map(|(_, event)| event).collect(), reached))
}

/// The events of `rows`, which must be every position from `most` down, as far as `reached`.
fn dense(rows: Vec<Row>, most: u64, reached: u64) -> mainstay_store::Result<Vec<Result<Event>>> {
    let mut expected = most;
    let mut events = Vec::with_capacity(rows.len());
    for row in rows {
        let position: u64 = row.get(0)?;
        if position != expected {
            events.push(Err(missing(expected)));
        }
        expected = position.saturating_sub(1);
        events.push(event_of(row));
    }
    if expected > reached {
        events.push(Err(missing(expected)));
    }
    Ok(events)
}
