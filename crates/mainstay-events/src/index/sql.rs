//! Statements over many rows: few of them, and of few sizes.

use futures_util::future::try_join_all;
use mainstay_store::{Result, Row, Tx, Value};
use std::sync::LazyLock;

/// How many rows one statement takes. Few sizes, so that few statements are prepared.
const SIZES: [usize; 3] = [64, 8, 1];

/// Statements that differ only in how many rows they take, for each of [`SIZES`].
pub(super) struct Sized([String; 3]);

impl Sized {
    pub(super) fn new(make: impl Fn(usize) -> String) -> Self {
        Self(SIZES.map(make))
    }
}

/// Cuts `count` into pieces of [`SIZES`]: the index of a size, and how many rows are left for it.
fn pieces(mut count: usize) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let index = SIZES.iter().position(|size| *size <= count)?;
        count -= SIZES[index];
        Some((index, SIZES[index]))
    })
}

/// `($1, $2), ($3, $4)` and so on.
fn tuples(rows: usize, columns: usize, cast: bool) -> String {
    let place =
        |number: usize| if cast { format!("CAST(${number} AS BIGINT)") } else { format!("${number}") };
    let row = |row: usize| {
        let places: Vec<String> = (1..=columns).map(|column| place(row * columns + column)).collect();
        format!("({})", places.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

static INSERT_EVENTS: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(|rows| {
        format!("INSERT INTO mainstay_events (position, header, payload) VALUES {}", tuples(rows, 3, false))
    })
});

static INSERT_TERMS: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(|rows| {
        format!(
            "INSERT INTO mainstay_event_terms (term, position) VALUES {} ON CONFLICT DO NOTHING",
            tuples(rows, 2, false)
        )
    })
});

/// Entries of events that are new: nobody has them, and asking would cost a third more on PostgreSQL.
static INSERT_NEW_TERMS: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(|rows| {
        format!("INSERT INTO mainstay_event_terms (term, position) VALUES {}", tuples(rows, 2, false))
    })
});

static EVENTS_AT: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(|rows| {
        let places: Vec<String> = (1..=rows).map(|number| format!("${number}")).collect();
        format!(
            "SELECT position, header, payload FROM mainstay_events WHERE position IN ({})",
            places.join(", ")
        )
    })
});

/// Each probe's newest position: the number of the probe comes back with it.
pub(super) static LATEST: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(|rows| {
        format!(
            "WITH probe(number, term, low, high) AS (VALUES {}) SELECT probe.number, (SELECT max(entry.position) \
             FROM mainstay_event_terms AS entry WHERE entry.term = probe.term AND entry.position > probe.low \
             AND entry.position <= probe.high) FROM probe",
            tuples(rows, 4, true)
        )
    })
});

/// Writes events: `(position, header, payload)` each.
pub(crate) async fn insert_rows(tx: &Tx, values: &[Value]) -> Result<()> {
    insert(tx, &INSERT_EVENTS, 3, values).await
}

/// Writes entries of the index: `(term, position)` each. What is there already stays.
pub(crate) async fn insert_terms(tx: &Tx, values: &[Value]) -> Result<()> {
    insert(tx, &INSERT_TERMS, 2, values).await
}

/// Writes entries of events that are new: `(term, position)` each.
pub(crate) async fn insert_new_terms(tx: &Tx, values: &[Value]) -> Result<()> {
    insert(tx, &INSERT_NEW_TERMS, 2, values).await
}

async fn insert(tx: &Tx, statements: &Sized, columns: usize, values: &[Value]) -> Result<()> {
    if let Some(index) = whole(values, columns) {
        return tx.execute(&statements.0[index], values).await.map(drop);
    }
    let executions = slices(values, columns).map(|(index, piece)| tx.execute(&statements.0[index], piece));
    // Sent one behind another, without waiting for answers in between.
    try_join_all(executions).await.map(drop)
}

/// The index of the size that takes all of `values`, if one does.
fn whole(values: &[Value], columns: usize) -> Option<usize> {
    SIZES.iter().position(|rows| rows * columns == values.len())
}

/// The pieces of `values`, rows of so many columns, each with the index of its size.
fn slices(values: &[Value], columns: usize) -> impl Iterator<Item = (usize, &[Value])> {
    let mut from = 0;
    pieces(values.len() / columns).map(move |(index, rows)| {
        let to = from + rows * columns;
        let piece = &values[from..to];
        from = to;
        (index, piece)
    })
}

/// The events at `positions`, in any order.
pub(crate) async fn rows_at(tx: &Tx, positions: &[u64]) -> Result<Vec<Row>> {
    let values: Vec<Value> = positions.iter().map(|position| Value::Int(*position as i64)).collect();
    query_each(tx, &EVENTS_AT, 1, &values).await
}

/// Runs a query over all rows of `values`.
pub(super) async fn query_each(
    tx: &Tx,
    statements: &Sized,
    columns: usize,
    values: &[Value],
) -> Result<Vec<Row>> {
    if let Some(index) = whole(values, columns) {
        return tx.query(&statements.0[index], values).await;
    }
    let queries = slices(values, columns).map(|(index, piece)| tx.query(&statements.0[index], piece));
    Ok(try_join_all(queries).await?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_cut_into_few_pieces() {
        for count in 0..300 {
            let cut: Vec<(usize, usize)> = pieces(count).collect();
            assert_eq!(cut.iter().map(|(_, rows)| rows).sum::<usize>(), count);
            assert!(cut.len() <= count / 64 + 14);
        }
        assert_eq!(tuples(2, 2, false), "($1, $2), ($3, $4)");
    }
}
