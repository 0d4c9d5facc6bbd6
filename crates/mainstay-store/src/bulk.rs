//! Statements over many rows: few of them, and of few sizes.

#[cfg(feature = "postgres")]
use crate::tx::Link;
use crate::{Hold, Result, Row, Tx, Value};
use futures_util::future::try_join_all;

/// How many rows one statement takes. Few sizes, so that few statements are prepared.
const SIZES: [usize; 3] = [64, 8, 1];

/// What a column of an inserted row holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Whole numbers.
    Int,
    /// Text.
    Text,
    /// Bytes.
    Blob,
}

impl Column {
    fn type_name(self) -> &'static str {
        match self {
            Self::Int => "BIGINT",
            Self::Text => "TEXT",
            Self::Blob => "BYTEA",
        }
    }

    /// A parameter that is a list of such values.
    fn list(self, number: usize) -> String {
        format!("CAST(${number} AS {}[])", self.type_name())
    }
}

/// A statement that takes any number of rows, as one text for each of a few sizes. Make it once and keep it.
///
/// ```
/// use mainstay_store::{Bulk, Column::{Int, Text}, Value};
/// use std::sync::LazyLock;
///
/// static INSERT: LazyLock<Bulk> = LazyLock::new(|| {
///     Bulk::insert("INSERT INTO notes (id, text) VALUES {rows} ON CONFLICT DO NOTHING", &[Int, Text])
/// });
/// ```
#[derive(Debug)]
pub struct Bulk {
    texts: [String; SIZES.len()],
    columns: usize,
    /// For PostgreSQL, which takes any number of rows as one list for each column: nothing costs it more than many
    /// parameters.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "PostgreSQL's"))]
    by_column: Option<String>,
    /// Whether that is also so for one row, because nothing else tells its types.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "PostgreSQL's"))]
    is_one_by_column: bool,
}

impl Bulk {
    /// A statement whose `{rows}`, which stands behind `VALUES`, becomes `($1, $2), ($3, $4)` and so on.
    pub fn insert(template: &str, columns: &[Column]) -> Self {
        let width = columns.len();
        let lists = columns.iter().enumerate().map(|(index, column)| column.list(index + 1));
        let lists = lists.collect::<Vec<_>>().join(", ");
        let by_column = template.replace("VALUES {rows}", &format!("SELECT * FROM unnest({lists})"));
        let by_row = Self::new(width, |rows| template.replace("{rows}", &tuples(rows, width, false)));
        Self { by_column: Some(by_column), ..by_row }
    }

    /// As [`insert`](Self::insert), for rows that stand where their types cannot be seen: `WITH new (id, text) AS (VALUES
    /// {rows}) UPDATE …`.
    pub fn rows(template: &str, columns: &[Column]) -> Self {
        Self { is_one_by_column: true, ..Self::insert(template, columns) }
    }

    /// As [`insert`](Self::insert), for rows of whole numbers that stand where their type cannot be seen, as in a
    /// `VALUES` of its own.
    pub fn numbers(template: &str, columns: usize) -> Self {
        Self::new(columns, |rows| template.replace("{rows}", &tuples(rows, columns, true)))
    }

    /// A statement whose `{values}` becomes `$1, $2, $3` and so on, as in `id IN ({values})`.
    pub fn list(template: &str) -> Self {
        Self::new(1, |rows| {
            let places: Vec<String> = (1..=rows).map(|number| format!("${number}")).collect();
            template.replace("{values}", &places.join(", "))
        })
    }

    /// As [`list`](Self::list), for values whose type is known: `id IN ({values})` is one list for PostgreSQL, however long.
    pub fn among(template: &str, column: Column) -> Self {
        let by_column = template.replace("IN ({values})", &format!("= ANY ({})", column.list(1)));
        Self { by_column: Some(by_column), ..Self::list(template) }
    }

    fn new(columns: usize, text: impl Fn(usize) -> String) -> Self {
        Self { texts: SIZES.map(text), columns, by_column: None, is_one_by_column: false }
    }

    /// Where and with which text PostgreSQL takes all of `values` as one list for each column.
    #[cfg(feature = "postgres")]
    fn by_column<'a>(
        &'a self,
        tx: &'a Tx,
        values: &[Value],
    ) -> Option<(&'a crate::drivers::postgres::Handle, &'a str)> {
        match (&tx.link, &self.by_column) {
            (Link::Postgres(handle), Some(text)) => {
                let is_one = values.len() == self.columns && !self.is_one_by_column;
                (!is_one && !values.is_empty()).then_some((handle, text.as_str()))
            }
            _ => None,
        }
    }

    /// Runs it for all rows of `values`, which stand one behind another; how many rows were changed.
    pub async fn execute(&self, tx: &Tx, values: &[Value]) -> Result<u64> {
        #[cfg(feature = "postgres")]
        if let Some((handle, text)) = self.by_column(tx, values) {
            return handle.execute_by_column(text, values).await;
        }
        if let Some(text) = self.whole(values) {
            return tx.execute(text, values).await;
        }
        // Sent one behind another, without waiting for answers in between.
        let executions = self.pieces(values).map(|(text, piece)| tx.execute(text, piece));
        Ok(try_join_all(executions).await?.into_iter().sum())
    }

    /// Runs it as a query over all rows of `values`.
    pub async fn query(&self, tx: &Tx, values: &[Value]) -> Result<Vec<Row>> {
        #[cfg(feature = "postgres")]
        if let Some((handle, text)) = self.by_column(tx, values) {
            return handle.query_by_column(text, values).await;
        }
        if let Some(text) = self.whole(values) {
            return tx.query(text, values).await;
        }
        let queries = self.pieces(values).map(|(text, piece)| tx.query(text, piece));
        Ok(try_join_all(queries).await?.into_iter().flatten().collect())
    }

    /// As [`query`](Self::query), and holds the rows until the transaction ends, in the order of `values` and within a
    /// piece as the statement orders them.
    pub async fn query_holding(&self, tx: &Tx, values: &[Value], hold: Hold) -> Result<Vec<Row>> {
        #[cfg(feature = "postgres")]
        if let Some((handle, text)) = self.by_column(tx, values) {
            return handle.query_by_column(&format!("{text} {}", hold.clause()), values).await;
        }
        let queries = self.pieces(values).map(|(text, piece)| tx.query_holding(text, piece, hold));
        Ok(try_join_all(queries).await?.into_iter().flatten().collect())
    }

    /// The text that takes all of `values`, if one does.
    fn whole(&self, values: &[Value]) -> Option<&str> {
        let index = SIZES.iter().position(|rows| rows * self.columns == values.len())?;
        Some(&self.texts[index])
    }

    /// The pieces of `values`, each with the text that takes it.
    fn pieces<'a>(&'a self, values: &'a [Value]) -> impl Iterator<Item = (&'a str, &'a [Value])> {
        let mut from = 0;
        sizes(values.len() / self.columns).map(move |index| {
            let to = from + SIZES[index] * self.columns;
            let piece = &values[from..to];
            from = to;
            (self.texts[index].as_str(), piece)
        })
    }
}

/// Cuts `count` rows into pieces: the index of each one's size.
fn sizes(mut count: usize) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = SIZES.iter().position(|size| *size <= count)?;
        count -= SIZES[index];
        Some(index)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_cut_into_few_pieces() {
        for count in 0..300 {
            let cut: Vec<usize> = sizes(count).map(|index| SIZES[index]).collect();
            assert_eq!(cut.iter().sum::<usize>(), count);
            assert!(cut.len() <= count / 64 + 14);
        }
    }

    #[test]
    fn places_are_numbered_through() {
        let insert = Bulk::insert("INSERT INTO t (a, b) VALUES {rows}", &[Column::Int, Column::Text]);
        assert_eq!(insert.texts[2], "INSERT INTO t (a, b) VALUES ($1, $2)");
        assert!(insert.texts[1].ends_with("($13, $14), ($15, $16)"));
        let by_column = "INSERT INTO t (a, b) SELECT * FROM unnest(CAST($1 AS BIGINT[]), CAST($2 AS TEXT[]))";
        assert_eq!(insert.by_column.as_deref(), Some(by_column));
        assert!(Bulk::list("a IN ({values})").texts[1].ends_with("$7, $8)"));
        let among = Bulk::among("a IN ({values})", Column::Int);
        assert_eq!(among.by_column.as_deref(), Some("a = ANY (CAST($1 AS BIGINT[]))"));
        assert!(Bulk::numbers("{rows}", 1).texts[2].contains("CAST($1 AS BIGINT)"));
    }
}
