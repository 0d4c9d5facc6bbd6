//! Items of work that belong together.
//!
//! No index finds work by its correlation: every enqueue would pay for it. But ids are in the order of time, and what belongs
//! together was enqueued near its commands and events. So it is looked for there, a page at each moment that is known.

use super::super::super::api::Fault;
use super::super::super::parts::Told;
use super::super::super::visit::{Visit, address};
use crate::routes::work_at;
use serde_json::Value;

/// How many pages of items are looked at, each of up to 5,000.
const MOST_PAGES: usize = 6;
/// Most items of a page.
const PAGE: usize = 100;
/// Clocks of nodes may differ.
const MARGIN_MS: i64 = 5_000;

/// What was found.
pub(super) struct Found {
    pub(super) items: Vec<Value>,
    /// Whether everything that there is was looked at.
    pub(super) is_all: bool,
}

/// Looks for the work of a correlation around moments at which something happened under it.
pub(super) async fn find(visit: &Visit, id: &str, moments: &[i64]) -> Result<Found, Fault> {
    let mut moments: Vec<i64> = moments.iter().map(|at| (at - MARGIN_MS).max(0)).collect();
    moments.sort_unstable();
    let mut found = Found { items: Vec::new(), is_all: true };
    let Some(first) = moments.first().map(|at| work_at(*at)) else {
        found.is_all = back(visit, id, &mut found.items, None, MOST_PAGES).await?;
        return Ok(found);
    };
    found.is_all = back(visit, id, &mut found.items, Some(first.clone()), 1).await?;
    let mut cursor = first;
    for _ in 0..MOST_PAGES {
        let (many, next) = page(visit, id, &mut found.items, "oldest", Some(&cursor)).await?;
        let Some(next) = next else { return Ok(found) };
        if many == PAGE {
            cursor = next;
            continue;
        }
        // What lies between two moments is passed over.
        let further = moments.iter().map(|at| work_at(*at)).find(|at| *at > next);
        found.is_all = false;
        let Some(further) = further else { return Ok(found) };
        cursor = further;
    }
    found.is_all = false;
    Ok(found)
}

/// Looks backwards; whether nothing is left.
async fn back(
    visit: &Visit,
    id: &str,
    items: &mut Vec<Value>,
    mut cursor: Option<String>,
    pages: usize,
) -> Result<bool, Fault> {
    for _ in 0..pages {
        cursor = page(visit, id, items, "newest", cursor.as_deref()).await?.1;
        if cursor.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One page: how many items it had, and where the next one begins.
async fn page(
    visit: &Visit,
    id: &str,
    items: &mut Vec<Value>,
    order: &str,
    cursor: Option<&str>,
) -> Result<(usize, Option<String>), Fault> {
    let limit = PAGE.to_string();
    let asked = [("correlationId", id), ("limit", &*limit), ("order", order)];
    let asked = asked.into_iter().chain(cursor.map(|cursor| ("cursor", cursor)));
    let page = visit.get(&address("/admin/work", asked)).await?;
    let found = page.list("work");
    items.extend_from_slice(found);
    Ok((found.len(), page.get("next").and_then(Value::as_str).map(str::to_owned)))
}
