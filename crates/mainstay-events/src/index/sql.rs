//! The statements of the log's two tables, over many rows at once.

use super::recent::View;
use mainstay_store::Column::{Blob, Int};
use mainstay_store::{Bulk, Result, Row, Tx, Value};
use std::sync::LazyLock;

static INSERT_EVENTS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert("INSERT INTO mainstay_events (position, header, payload) VALUES {rows}", &[Int, Blob, Blob])
});

static INSERT_TERMS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert(
        "INSERT INTO mainstay_event_terms (term, position) VALUES {rows} ON CONFLICT DO NOTHING",
        &[Int, Int],
    )
});

/// Entries of events that are new: nobody has them, and asking would cost a third more on PostgreSQL.
static INSERT_NEW_TERMS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert("INSERT INTO mainstay_event_terms (term, position) VALUES {rows}", &[Int, Int])
});

static EVENTS_AT: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list("SELECT position, header, payload FROM mainstay_events WHERE position IN ({values})")
});

/// Each probe's newest position: the number of the probe comes back with it.
pub(super) static LATEST: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::numbers(
        "WITH probe(number, term, low, high) AS (VALUES {rows}) SELECT probe.number, (SELECT max(entry.position) \
         FROM mainstay_event_terms AS entry WHERE entry.term = probe.term AND entry.position > probe.low \
         AND entry.position <= probe.high) FROM probe",
        4,
    )
});

/// Writes events: `(position, header, payload)` each.
pub(crate) async fn insert_rows(tx: &Tx, values: &[Value]) -> Result<()> {
    INSERT_EVENTS.execute(tx, values).await.map(drop)
}

/// Writes entries of the index: `(term, position)` each. What is there already stays.
pub(crate) async fn insert_terms(tx: &Tx, values: &[Value]) -> Result<()> {
    INSERT_TERMS.execute(tx, values).await.map(drop)
}

/// Writes entries of events that are new: `(term, position)` each.
pub(crate) async fn insert_new_terms(tx: &Tx, values: &[Value]) -> Result<()> {
    INSERT_NEW_TERMS.execute(tx, values).await.map(drop)
}

/// The events at `positions`, in any order.
pub(crate) async fn rows_at(tx: &Tx, positions: &[u64]) -> Result<Vec<Row>> {
    let values: Vec<Value> = positions.iter().map(|position| Value::Int(*position as i64)).collect();
    EVENTS_AT.query(tx, &values).await
}

/// For each place an event by its key, whatever the planner believes of the tables.
const EVENTS_OF_SHARED: &str = "SELECT place.position, event.header, event.payload FROM unnest(ARRAY(SELECT position \
     FROM mainstay_event_terms WHERE term = $1 AND position > $2 AND position <= $3 ORDER BY position LIMIT $4)) \
     AS place (position) LEFT JOIN LATERAL (SELECT header, payload FROM mainstay_events \
     WHERE position = place.position OFFSET 0) AS event ON TRUE ORDER BY place.position";
const EVENTS_OF_EMBEDDED: &str = "SELECT place.position, event.header, event.payload FROM mainstay_event_terms AS place \
     LEFT JOIN mainstay_events AS event ON event.position = place.position \
     WHERE place.term = $1 AND place.position > $2 AND place.position <= $3 ORDER BY place.position LIMIT $4";

/// The first events in `(after, most]` that have a term in the table, in order, by one statement; nothing but its position
/// of one that is not there.
pub(super) async fn rows_of_term(
    tx: &Tx,
    view: &View,
    term: i64,
    after: u64,
    most: u64,
    limit: usize,
) -> Result<Vec<Row>> {
    let sql = if view.is_table() { EVENTS_OF_SHARED } else { EVENTS_OF_EMBEDDED };
    tx.query(sql, &[term, after as i64, most as i64, limit as i64].map(Value::Int)).await
}
