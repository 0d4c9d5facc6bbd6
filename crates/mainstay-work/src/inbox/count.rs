//! Counts and groups of letters.

use super::filter::Conditions;
use super::look::{self, DOWN, Found, Listed};
use super::look::{group_text, letter_id};
use super::{Filter, Kind, Status};
use crate::MAX_PAGE;
use mainstay_store::{Bulk, Column, Row, Tx, Value, params};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// How many letters there are of one kind, name and status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counted {
    /// The kind.
    pub kind: Kind,
    /// What failed.
    pub name: String,
    /// What was done about them.
    pub status: Status,
    /// How many.
    pub count: u64,
    /// When the oldest of them failed.
    pub oldest_failed_at: i64,
}

/// Letters that have failed in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// What they have in common.
    #[serde(serialize_with = "group_text")]
    pub group: i64,
    /// The kind.
    pub kind: Kind,
    /// What failed.
    pub name: String,
    /// How many.
    pub count: u64,
    /// When the oldest of them failed.
    pub oldest_failed_at: i64,
    /// When the newest did.
    pub newest_failed_at: i64,
    /// One of them.
    #[serde(rename = "exampleLetterId", serialize_with = "letter_id")]
    pub example: i64,
    /// What happened to that one.
    pub error: String,
}

/// The largest groups of letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Groups {
    /// The groups, the largest first.
    pub groups: Vec<Group>,
    /// Whether only the newest letters were looked at: as many as a search may.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
}

static ERRORS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::among("SELECT number, error FROM mainstay_dead_letters WHERE number IN ({values})", Column::Int)
});
const SPAN: &str = "SELECT (SELECT min(number) FROM mainstay_dead_letters), \
     (SELECT max(number) FROM mainstay_dead_letters)";
/// Most letters that are counted in an index which has all that is counted, a fraction of a second.
const MOST_IN_INDEX: i64 = 1_000_000;
/// Most letters that are counted row by row.
const MOST_ROWS: i64 = 50_000;

/// Letters that are counted: a `FROM` with all of its conditions, and its values.
struct Counting {
    from: String,
    values: Vec<Value>,
    /// Whether there are more letters than are counted.
    is_partial: bool,
}

/// The letters up to a number are counted in the index that has all that is counted, unless there are too many of them; the
/// newest of them row by row otherwise.
async fn counting(tx: &Tx, filter: &Filter, until: i64) -> mainstay_store::Result<Counting> {
    let span = tx.query_one(SPAN, &[]).await?;
    let (first, last): (Option<i64>, Option<i64>) = (span.get(0)?, span.get(1)?);
    let span = last.zip(first).map_or(0, |(last, first)| last - first);
    if filter.is_in_one_index() && span < MOST_IN_INDEX {
        let Conditions { indexed, others, values } = filter.conditions(vec![Value::Int(until)]);
        // By no index of numbers.
        let from = format!("mainstay_dead_letters WHERE number + 0 <= $1{indexed}{others}");
        return Ok(Counting { from, values, is_partial: false });
    }
    let given = || vec![Value::Int(until), Value::Int(MOST_ROWS)];
    let Conditions { indexed, values, .. } = filter.by_index(given());
    let rest = format!(
        "SELECT number FROM mainstay_dead_letters WHERE number <= $1{indexed} ORDER BY number DESC LIMIT 1 OFFSET $2"
    );
    let is_partial = tx.query_optional(&rest, &values).await?.is_some();
    let Conditions { indexed, others, values } = filter.conditions(given());
    let from = format!(
        "(SELECT number, kind, name, status, error_group, failed_at, correlation, pool FROM mainstay_dead_letters \
         WHERE number <= $1{indexed} ORDER BY number DESC LIMIT $2) AS newest WHERE 1 = 1{others}"
    );
    Ok(Counting { from, values, is_partial })
}

/// How many letters there are of each kind, name and status up to a number, and whether only the newest were looked at.
pub async fn counts(tx: &Tx, filter: &Filter, until: i64) -> mainstay_store::Result<(Vec<Counted>, bool)> {
    if filter.error.is_some() {
        let Found { letters, reached, .. } =
            look::look(tx, filter, until.saturating_add(1), DOWN, usize::MAX).await?;
        let mut tally = Tally::default();
        tally.add(&letters);
        return Ok((tally.counts(), reached.is_some()));
    }
    let Counting { from, values, is_partial } = counting(tx, filter, until).await?;
    let sql = format!(
        "SELECT kind, name, status, count(*), min(failed_at) FROM {from} GROUP BY status, kind, name \
         ORDER BY status, kind, name"
    );
    let counted = |row: &Row| {
        Ok(Counted {
            kind: Kind::from(row.get::<&str>(0)?),
            name: row.get(1)?,
            status: Status::of(row.get(2)?),
            count: row.get(3)?,
            oldest_failed_at: row.get(4)?,
        })
    };
    let counts = tx.query(&sql, &values).await?.iter().map(counted).collect::<mainstay_store::Result<_>>()?;
    Ok((counts, is_partial))
}

/// Counts of letters that were read.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<(i64, Kind, String), (u64, i64)>);

impl Tally {
    pub(crate) fn add(&mut self, letters: &[Listed]) {
        for letter in letters {
            let key = (letter.status.number(), letter.kind.clone(), letter.name.clone());
            let (count, oldest) = self.0.entry(key).or_insert((0, letter.failed_at));
            *count += 1;
            *oldest = letter.failed_at.min(*oldest);
        }
    }

    /// The counts by status, kind and name.
    pub(crate) fn counts(self) -> Vec<Counted> {
        let counted = |((status, kind, name), (count, oldest_failed_at))| Counted {
            kind,
            name,
            status: Status::of(status),
            count,
            oldest_failed_at,
        };
        self.0.into_iter().map(counted).collect()
    }
}

/// The largest groups of letters that have failed in the same way.
pub async fn groups(tx: &Tx, filter: &Filter, limit: usize) -> mainstay_store::Result<Groups> {
    let limit = limit.clamp(1, MAX_PAGE);
    if filter.error.is_some() {
        return groups_of_read(look::look(tx, filter, i64::MAX, DOWN, usize::MAX).await?, limit);
    }
    let Counting { from, mut values, is_partial } = counting(tx, filter, i64::MAX).await?;
    values.push(Value::Int(limit as i64));
    let sql = format!(
        "SELECT error_group, kind, name, count(*) AS many, min(failed_at), max(failed_at), max(number) \
         FROM {from} GROUP BY kind, name, error_group ORDER BY many DESC, kind, name, error_group LIMIT ${}",
        values.len()
    );
    let rows = tx.query(&sql, &values).await?;
    let examples = rows.iter().map(|row| row.get::<i64>(6).map(Value::Int));
    let examples = examples.collect::<mainstay_store::Result<Vec<_>>>()?;
    let errors = ERRORS.query(tx, &examples).await?;
    let errors = errors.iter().map(|row| Ok((row.get(0)?, row.get(1)?)));
    let mut errors = errors.collect::<mainstay_store::Result<HashMap<i64, String>>>()?;
    let group = |row: &Row| {
        let example: i64 = row.get(6)?;
        Ok(Group {
            group: row.get(0)?,
            kind: Kind::from(row.get::<&str>(1)?),
            name: row.get(2)?,
            count: row.get(3)?,
            oldest_failed_at: row.get(4)?,
            newest_failed_at: row.get(5)?,
            example,
            error: errors.remove(&example).unwrap_or_default(),
        })
    };
    let groups = rows.iter().map(group).collect::<mainstay_store::Result<Vec<_>>>()?;
    Ok(Groups { groups, is_partial })
}

/// Groups of letters that were read, the newest first.
fn groups_of_read(found: Found, limit: usize) -> mainstay_store::Result<Groups> {
    let mut groups: BTreeMap<(Kind, String, i64), Group> = BTreeMap::new();
    for letter in found.letters {
        let Listed { number, kind, name, group, failed_at, error, .. } = letter;
        let same = groups.entry((kind.clone(), name.clone(), group)).or_insert(Group {
            group,
            kind,
            name,
            count: 0,
            oldest_failed_at: failed_at,
            newest_failed_at: failed_at,
            example: number,
            error,
        });
        same.count += 1;
        same.oldest_failed_at = same.oldest_failed_at.min(failed_at);
        same.newest_failed_at = same.newest_failed_at.max(failed_at);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    // Stable: groups of one size stay in the order of their names.
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups.truncate(limit);
    Ok(Groups { groups, is_partial: found.reached.is_some() })
}

const COUNT: &str = "SELECT count(*) FROM (SELECT 1 AS one FROM mainstay_dead_letters WHERE status = 0 LIMIT $1) AS some_of_them";
const COUNT_KIND: &str = "SELECT count(*) FROM (SELECT 1 AS one FROM mainstay_dead_letters \
     WHERE status = 0 AND kind = $1 LIMIT $2) AS some_of_them";
const NEXT_KIND: &str = "SELECT min(kind) FROM mainstay_dead_letters WHERE status = 0 AND kind > $1";
/// Most kinds that are told apart; programs have a handful.
const MAX_KINDS: usize = 64;

/// How many letters nobody has dealt with, without looking at more than `most` of them.
pub async fn count_pending(tx: &Tx, most: u32) -> mainstay_store::Result<u64> {
    tx.query_one(COUNT, params![i64::from(most)]).await?.get(0)
}

/// The same of each kind of which there are any. Kinds are found one after the other by the index that begins with them.
pub async fn count_pending_by_kind(tx: &Tx, most: u32) -> mainstay_store::Result<Vec<(Kind, u64)>> {
    let (mut counted, mut last) = (Vec::new(), String::new());
    while counted.len() < MAX_KINDS {
        let Some(kind) = tx.query_one(NEXT_KIND, params![&last]).await?.get::<Option<String>>(0)? else {
            break;
        };
        let count = tx.query_one(COUNT_KIND, params![&kind, i64::from(most)]).await?.get(0)?;
        counted.push((Kind::from(kind.as_str()), count));
        last = kind;
    }
    Ok(counted)
}
