//! Pages of letters, and chunks of them for operations. Rows are read by one index in the order of their numbers; what else a
//! filter asks for is looked for among so many of them and no more.

use super::filter::Conditions;
use super::{Filter, Kind, Status};
use crate::MAX_PAGE;
use mainstay_store::{Bulk, Column, Row, Tx, Value, params};
use serde::{Serialize, Serializer};
use std::sync::LazyLock;

/// A page of letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The letters, the newest first.
    pub letters: Vec<Listed>,
    /// The number before which the next page begins; nothing when there is none.
    pub next: Option<i64>,
    /// Whether the page ended before it was full, because it had looked at as many letters as a page may.
    pub is_partial: bool,
}

/// Letters for one transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The letters, the oldest first.
    pub letters: Vec<Listed>,
    /// The number after which to go on; nothing when all were looked at.
    pub reached: Option<i64>,
    /// How many letters were looked at for them, or fewer.
    pub looked_at: i64,
}

/// A letter as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Its number, by which it is known; later ones have higher ones.
    #[serde(rename = "letterId", serialize_with = "letter_id")]
    pub number: i64,
    /// The kind.
    pub kind: Kind,
    /// What failed: a function, a projection, a target.
    pub name: String,
    /// What it is about: the item of work, the event, the publication.
    pub reference: String,
    /// What was done about it.
    pub status: Status,
    /// Which letters have failed in the same way.
    #[serde(serialize_with = "group_text")]
    pub group: i64,
    /// When it failed last.
    pub failed_at: i64,
    /// When something was last done about it.
    pub changed_at: i64,
    /// How often it was tried again.
    pub retry_count: u32,
    /// What it belongs together with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// What happened, as much of it as fits into a list.
    pub error: String,
}

impl Listed {
    /// The id of a letter, as it is shown.
    pub fn id(number: i64) -> String {
        format!("letter_{number}")
    }

    /// The number in the id of a letter.
    pub fn parse_id(id: &str) -> Option<i64> {
        let digits = id.strip_prefix("letter_")?;
        let number: i64 = digits.parse().ok()?;
        (number > 0 && number.to_string() == digits).then_some(number)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde hands over")]
pub(super) fn letter_id<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Listed::id(*number))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde hands over")]
pub(super) fn group_text<S: Serializer>(group: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{group:016x}"))
}

const COLUMNS: &str =
    "number, kind, name, reference, status, error_group, failed_at, changed_at, retries, correlation, error";
const ERROR: usize = 10;
static THESE: LazyLock<Bulk> = LazyLock::new(|| {
    let text = format!("SELECT {COLUMNS} FROM mainstay_dead_letters WHERE number IN ({{values}})");
    Bulk::among(&text, Column::Int)
});
const HIGHEST: &str = "SELECT coalesce(max(number), 0) FROM mainstay_dead_letters";

fn row(row: &Row) -> mainstay_store::Result<Listed> {
    Ok(Listed {
        number: row.get(0)?,
        kind: Kind::from(row.get::<&str>(1)?),
        name: row.get(2)?,
        reference: row.get(3)?,
        status: Status::of(row.get(4)?),
        group: row.get(5)?,
        failed_at: row.get(6)?,
        changed_at: row.get(7)?,
        retry_count: row.get(8)?,
        correlation_id: row.get(9)?,
        error: row.get(10)?,
    })
}

/// In which order letters are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    compare: &'static str,
    order: &'static str,
    furthest: &'static str,
}

/// The newest letters first.
pub(super) const DOWN: Way = Way { compare: "<", order: "DESC", furthest: "min" };
/// The oldest letters first.
const UP: Way = Way { compare: ">", order: "ASC", furthest: "max" };

/// Numbers of letters that one read looks through, one step after another: a page whose letters lie close together is full
/// after the first. Together 20,000.
const STEPS: [i64; 3] = [1_000, 4_000, 15_000];

/// Letters of one read.
pub(super) struct Found {
    pub(super) letters: Vec<Listed>,
    /// The number up to which letters were looked at; nothing when there are no more.
    pub(super) reached: Option<i64>,
    /// How many letters that were, or fewer.
    looked_at: i64,
}

/// Letters from a number on, without that one: at most `limit`.
pub(super) async fn look(
    tx: &Tx,
    filter: &Filter,
    from: i64,
    way: Way,
    limit: usize,
) -> mainstay_store::Result<Found> {
    if filter.is_search() {
        search(tx, filter, from, way, limit).await
    } else {
        list(tx, filter, from, way, limit).await
    }
}

/// Letters of which an index has those that are wanted, and no others.
async fn list(
    tx: &Tx,
    filter: &Filter,
    from: i64,
    Way { compare, order, .. }: Way,
    limit: usize,
) -> mainstay_store::Result<Found> {
    let Conditions { indexed, values, .. } =
        filter.by_index(vec![Value::Int(from), Value::Int(limit as i64)]);
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_dead_letters WHERE number {compare} $1{indexed} ORDER BY number {order} LIMIT $2"
    );
    let rows = tx.query(&sql, &values).await?;
    let letters = rows.iter().map(row).collect::<mainstay_store::Result<Vec<_>>>()?;
    let reached = letters.last().filter(|_| letters.len() == limit).map(|last| last.number);
    Ok(Found { looked_at: letters.len() as i64, letters, reached })
}

/// Letters that are looked for among others.
async fn search(
    tx: &Tx,
    filter: &Filter,
    mut from: i64,
    way: Way,
    limit: usize,
) -> mainstay_store::Result<Found> {
    let Way { compare, order, furthest } = way;
    let needle = filter.needle();
    let (mut letters, mut looked_at) = (Vec::new(), 0);
    for step in STEPS {
        looked_at += step;
        let left = match needle {
            Some(_) => step,
            None => step.min(i64::try_from(limit - letters.len()).unwrap_or(step)),
        };
        let given = vec![Value::Int(from), Value::Int(step), Value::Int(left)];
        let Conditions { indexed, others, values } = filter.conditions(given);
        // A LIMIT inside keeps both databases from looking by another index.
        let sql = format!(
            "SELECT {COLUMNS} FROM (SELECT {COLUMNS}, pool FROM mainstay_dead_letters WHERE number {compare} $1{indexed} \
             ORDER BY number {order} LIMIT $2) AS looked_at WHERE 1 = 1{others} ORDER BY number {order} LIMIT $3"
        );
        for found in &tx.query(&sql, &values).await? {
            let error: &str = found.get(ERROR)?;
            if needle.as_ref().is_some_and(|needle| !needle.is_in(error)) {
                continue;
            }
            letters.push(row(found)?);
            if letters.len() == limit {
                let reached = letters.last().map(|last| last.number);
                return Ok(Found { letters, reached, looked_at });
            }
        }
        let Conditions { indexed, values, .. } = filter.by_index(vec![Value::Int(from), Value::Int(step)]);
        let sql = format!(
            "SELECT count(*), {furthest}(number) FROM (SELECT number FROM mainstay_dead_letters \
             WHERE number {compare} $1{indexed} ORDER BY number {order} LIMIT $2) AS looked_at"
        );
        let edge = tx.query_one(&sql, &values).await?;
        match edge.get::<Option<i64>>(1)? {
            Some(reached) if edge.get::<i64>(0)? == step => from = reached,
            _ => return Ok(Found { letters, reached: None, looked_at }),
        }
    }
    Ok(Found { letters, reached: Some(from), looked_at })
}

/// A page of letters, the newest first; those before a number, if one is given.
pub async fn page(
    tx: &Tx,
    filter: &Filter,
    before: Option<i64>,
    limit: usize,
) -> mainstay_store::Result<Page> {
    let limit = limit.clamp(1, MAX_PAGE);
    let Found { letters, reached, .. } = look(tx, filter, before.unwrap_or(i64::MAX), DOWN, limit).await?;
    Ok(Page { next: reached, is_partial: reached.is_some() && letters.len() < limit, letters })
}

/// Letters between two numbers, without the first and with the last, the oldest first. Read on a snapshot: a search must not
/// hold the writer.
pub async fn waiting(
    tx: &Tx,
    filter: &Filter,
    (after, until): (i64, i64),
    limit: usize,
) -> mainstay_store::Result<Chunk> {
    // Without the last one as a bound: PostgreSQL takes two ends for few rows, and sorts all of them.
    let found = look(tx, filter, after, UP, limit.clamp(1, MAX_PAGE)).await?;
    let reached = found.reached.filter(|reached| *reached < until);
    let letters = found.letters.into_iter().take_while(|letter| letter.number <= until).collect();
    Ok(Chunk { letters, reached, looked_at: found.looked_at })
}

/// Letters of these numbers that a filter still names, the oldest first.
pub(crate) async fn still(tx: &Tx, filter: &Filter, numbers: &[i64]) -> mainstay_store::Result<Vec<Listed>> {
    let numbers: Vec<Value> = numbers.iter().copied().map(Value::Int).collect();
    let rows = THESE.query(tx, &numbers).await?;
    let mut letters = rows.iter().map(row).collect::<mainstay_store::Result<Vec<_>>>()?;
    letters.retain(|letter| filter.names(letter));
    letters.sort_unstable_by_key(|letter| letter.number);
    Ok(letters)
}

/// Pending letters of a kind that were tried again so often and failed before a moment, between two numbers, the oldest first.
/// Those that were tried again more often are not looked at.
pub async fn due(
    tx: &Tx,
    (kind, retries): (&Kind, u32),
    failed_before: i64,
    (after, until): (i64, i64),
    limit: usize,
) -> mainstay_store::Result<Chunk> {
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_dead_letters WHERE status = 0 AND kind = $1 AND retries = $2 AND number > $3 \
         AND number <= $4 AND failed_at < $5 ORDER BY number LIMIT $6"
    );
    let limit = limit.clamp(1, MAX_PAGE);
    let params = params![kind.as_str(), i64::from(retries), after, until, failed_before, limit as i64];
    let rows = tx.query(&sql, params).await?;
    let letters = rows.iter().map(row).collect::<mainstay_store::Result<Vec<_>>>()?;
    let reached = letters.last().filter(|_| letters.len() == limit).map(|last| last.number);
    Ok(Chunk { looked_at: letters.len() as i64, letters, reached })
}

/// One letter.
pub async fn find(tx: &Tx, number: i64) -> mainstay_store::Result<Option<Listed>> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_dead_letters WHERE number = $1");
    tx.query_optional(&sql, params![number]).await?.as_ref().map(row).transpose()
}

/// The highest number of a letter.
pub async fn highest(tx: &Tx) -> mainstay_store::Result<i64> {
    tx.query_one(HIGHEST, &[]).await?.get(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_shown_and_in_no_other_way() {
        assert_eq!(Listed::parse_id(&Listed::id(42)), Some(42));
        for id in [
            "42",
            "letter_",
            "letter_0",
            "letter_-1",
            "letter_042",
            "letter_4 2",
            "letter_99999999999999999999",
        ] {
            assert_eq!(Listed::parse_id(id), None, "{id}");
        }
    }
}
