//! Lists, counts and groups of letters. All of them are one table's, and none scans what it does not tell of.

use super::{Kind, Status, listed};
use crate::MAX_PAGE;
use crate::error::{Error, Result};
use mainstay_store::{Bulk, Column, Row, Tx, Value, params};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Longest text that a filter names.
pub const MAX_FILTER_BYTES: usize = 256;

/// Which letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Filter {
    /// Of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Of this function, projection or target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of work of this pool; letters of other sources have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Of this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Of this group of errors.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hex")]
    pub group: Option<i64>,
    /// With an error that has this text in it, in small or capital letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of what belongs together under this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// That failed at this moment or later, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_since: Option<i64>,
    /// That failed before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_before: Option<i64>,
}

/// The number of a group as text: JSON's numbers are not long enough.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "what serde hands over")]
    pub(super) fn serialize<S: Serializer>(group: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
        match group {
            Some(group) => serializer.collect_str(&format_args!("{group:016x}")),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(text: D) -> Result<Option<i64>, D::Error> {
        let Some(text) = Option::<String>::deserialize(text)? else { return Ok(None) };
        let group = super::parse_group(&text);
        group
            .map(Some)
            .ok_or_else(|| serde::de::Error::custom("a group is 16 digits and letters from a to f"))
    }
}

fn parse_group(text: &str) -> Option<i64> {
    let group = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16)?;
    Some(i64::from_ne_bytes(group.to_ne_bytes()))
}

impl Filter {
    /// Whether anybody can have such letters.
    pub fn check(&self) -> Result<()> {
        if let Some(kind) = &self.kind {
            kind.check()?;
        }
        let texts = [
            ("name", &self.name),
            ("pool", &self.pool),
            ("error", &self.error),
            ("correlationId", &self.correlation_id),
        ];
        for (field, text) in texts {
            if text
                .as_ref()
                .is_some_and(|text| !(1..=MAX_FILTER_BYTES).contains(&text.len()) || text.contains('\0'))
            {
                return Err(Error::invalid(field, format!("must be 1 to {MAX_FILTER_BYTES} bytes")));
            }
        }
        for (field, moment) in [("failedSince", self.failed_since), ("failedBefore", self.failed_before)] {
            if moment.is_some_and(|moment| moment < 0) {
                return Err(Error::invalid(field, "must not be negative"));
            }
        }
        Ok(())
    }

    /// Reads a group as it is shown.
    pub fn parse_group(text: &str) -> Result<i64> {
        parse_group(text)
            .ok_or_else(|| Error::invalid("group", "is none: it is 16 digits and letters from a to f"))
    }

    /// What must hold for a row, behind a `WHERE` that has something before it. Rows that are wanted `in_order` are found by
    /// an index that has them in that order, and not by one whose rows would all have to be sorted.
    fn condition(&self, values: &mut Vec<Value>, in_order: bool) -> String {
        self.indexed(values, in_order) + &self.searched(values)
    }

    /// Condition on the text of a row's error. The time for a row is bounded, since its error has at most 500 bytes.
    fn searched(&self, values: &mut Vec<Value>) -> String {
        let Some(error) = &self.error else { return String::new() };
        let mut pattern = String::from("%");
        for one in listed(error).chars() {
            if matches!(one, '%' | '_' | '\\') {
                pattern.push('\\');
            }
            pattern.push(one.to_ascii_lowercase());
        }
        pattern.push('%');
        values.push(Value::from(pattern));
        format!(" AND lower(error COLLATE \"binary\") LIKE ${} ESCAPE '\\'", values.len())
    }

    /// Conditions on a row apart from the text of its error.
    fn indexed(&self, values: &mut Vec<Value>, in_order: bool) -> String {
        let mut sql = String::new();
        let mut add = |text: &str, value: Value| {
            values.push(value);
            sql.push_str(&format!(" AND {}", text.replace('?', &format!("${}", values.len()))));
        };
        let is_few = self.group.is_some() || self.correlation_id.is_some() || self.pool.is_some();
        if let Some(status) = self.status {
            let column = if in_order && is_few { "status + 0" } else { "status" };
            add(&format!("{column} = ?"), Value::Int(status.number()));
        }
        if let Some(group) = self.group {
            add("error_group = ?", Value::Int(group));
        }
        if let Some(correlation) = &self.correlation_id {
            add("correlation = ?", Value::from(correlation));
        }
        if let Some(pool) = &self.pool {
            // A name that no pool has finds nothing.
            add("pool = (SELECT p.number FROM mainstay_pools p WHERE p.name = ?)", Value::from(pool));
        }
        for (column, wanted) in
            [("kind", self.kind.as_ref().map(Kind::as_str)), ("name", self.name.as_deref())]
        {
            if let Some(wanted) = wanted {
                let column = if in_order { format!("{column} || ''") } else { column.to_owned() };
                add(&format!("{column} = ?"), Value::from(wanted));
            }
        }
        if let Some(since) = self.failed_since {
            add("failed_at >= ?", Value::Int(since));
        }
        if let Some(before) = self.failed_before {
            add("failed_at < ?", Value::Int(before));
        }
        sql
    }

    /// Whether texts of errors are looked through.
    pub fn is_search(&self) -> bool {
        self.error.is_some()
    }
}

/// Most letters of one read through the texts of errors.
const MOST_SEARCHED: i64 = 20_000;
/// The same for a transaction: others wait for the writer meanwhile.
const MOST_SEARCHED_WRITING: i64 = 5_000;

/// The newest letters first.
const DOWN: (&str, &str) = ("<", "DESC");
/// The oldest letters first.
const UP: (&str, &str) = (">", "ASC");

/// Number of the last letter that a search from a number on looks at; nothing when it reaches the end, or is no search.
async fn edge(
    tx: &Tx,
    filter: &Filter,
    from: i64,
    (compare, order): (&str, &str),
    most: i64,
) -> mainstay_store::Result<Option<i64>> {
    if !filter.is_search() {
        return Ok(None);
    }
    let mut values = vec![Value::Int(from), Value::Int(most - 1)];
    let condition = filter.indexed(&mut values, true);
    let sql = format!(
        "SELECT number FROM mainstay_dead_letters WHERE number {compare} $1{condition} ORDER BY number {order} LIMIT 1 OFFSET $2"
    );
    tx.query_optional(&sql, &values).await?.map(|row| row.get(0)).transpose()
}

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
}

impl Chunk {
    /// Letters of which there were at most `limit`.
    pub fn of(letters: Vec<Listed>, limit: usize) -> Self {
        let reached = letters.last().filter(|_| letters.len() >= limit).map(|last| last.number);
        Self { letters, reached }
    }
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
fn letter_id<S: Serializer>(number: &i64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&Listed::id(*number))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde hands over")]
fn group_text<S: Serializer>(group: &i64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{group:016x}"))
}

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

const COLUMNS: &str =
    "number, kind, name, reference, status, error_group, failed_at, changed_at, retries, correlation, error";
static ERRORS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::among("SELECT number, error FROM mainstay_dead_letters WHERE number IN ({values})", Column::Int)
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

/// A page of letters, the newest first; those before a number, if one is given.
pub async fn page(
    tx: &Tx,
    filter: &Filter,
    before: Option<i64>,
    limit: usize,
) -> mainstay_store::Result<Page> {
    let (before, limit) = (before.unwrap_or(i64::MAX), limit.clamp(1, MAX_PAGE));
    let edge = edge(tx, filter, before, DOWN, MOST_SEARCHED).await?;
    let mut values = vec![Value::Int(before), Value::Int(limit as i64)];
    let mut condition = filter.condition(&mut values, true);
    if let Some(edge) = edge {
        values.push(Value::Int(edge));
        condition.push_str(&format!(" AND number >= ${}", values.len()));
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_dead_letters WHERE number < $1{condition} ORDER BY number DESC LIMIT $2"
    );
    let letters =
        tx.query(&sql, &values).await?.iter().map(row).collect::<mainstay_store::Result<Vec<_>>>()?;
    let last = letters.last().filter(|_| letters.len() == limit).map(|last| last.number);
    Ok(Page { next: last.or(edge), is_partial: last.is_none() && edge.is_some(), letters })
}

/// Letters between two numbers, without the first and with the last, the oldest first.
pub async fn waiting(
    tx: &Tx,
    filter: &Filter,
    (after, until): (i64, i64),
    limit: usize,
) -> mainstay_store::Result<Chunk> {
    let limit = limit.clamp(1, MAX_PAGE);
    let edge = edge(tx, filter, after, UP, MOST_SEARCHED_WRITING).await?.filter(|edge| *edge < until);
    let mut values = vec![Value::Int(after), Value::Int(limit as i64)];
    let mut condition = filter.condition(&mut values, true);
    if let Some(edge) = edge {
        values.push(Value::Int(edge));
        condition.push_str(&format!(" AND number <= ${}", values.len()));
    }
    // Without the last one: PostgreSQL takes two ends for few rows, and sorts all of them.
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_dead_letters WHERE number > $1{condition} ORDER BY number LIMIT $2"
    );
    let rows = tx.query(&sql, &values).await?;
    let letters = rows.iter().map(row).collect::<mainstay_store::Result<Vec<_>>>()?;
    let letters = letters.into_iter().take_while(|letter| letter.number <= until).collect();
    let chunk = Chunk::of(letters, limit);
    Ok(Chunk { reached: chunk.reached.or(edge), ..chunk })
}

/// The number of the last of the oldest letters, `most` of them, up to a number; that number when there are no more.
pub async fn number_of_oldest(
    tx: &Tx,
    filter: &Filter,
    until: i64,
    most: usize,
) -> mainstay_store::Result<i64> {
    let (mut after, mut found) = (0, 0);
    loop {
        let chunk = waiting(tx, filter, (after, until), most - found).await?;
        found += chunk.letters.len();
        match (chunk.letters.last(), chunk.reached) {
            (Some(last), _) if found >= most => return Ok(last.number),
            (_, Some(reached)) => after = reached,
            (_, None) => return Ok(until),
        }
    }
}

/// Pending letters of a kind that were tried again so often and failed before a moment, between two numbers, the oldest first.
/// Those that were tried again more often are not looked at.
pub async fn due(
    tx: &Tx,
    (kind, retries): (&Kind, u32),
    failed_before: i64,
    (after, until): (i64, i64),
    limit: usize,
) -> mainstay_store::Result<Vec<Listed>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_dead_letters WHERE status = 0 AND kind = $1 AND retries = $2 AND number > $3 \
         AND number <= $4 AND failed_at < $5 ORDER BY number LIMIT $6"
    );
    let limit = limit.clamp(1, MAX_PAGE) as i64;
    let params = params![kind.as_str(), i64::from(retries), after, until, failed_before, limit];
    tx.query(&sql, params).await?.iter().map(row).collect()
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

/// How many letters there are of each kind, name and status, up to a number.
pub async fn counts(tx: &Tx, filter: &Filter, until: i64) -> mainstay_store::Result<Vec<Counted>> {
    counted(tx, filter, "number + 0 <= $1", until).await
}

/// As [`counts`], of no more letters than a search looks at; whether there are others.
pub async fn counts_of_newest(tx: &Tx, filter: &Filter) -> mainstay_store::Result<(Vec<Counted>, bool)> {
    match edge(tx, filter, i64::MAX, DOWN, MOST_SEARCHED).await? {
        Some(edge) => Ok((counted(tx, filter, "number >= $1", edge).await?, true)),
        None => Ok((counts(tx, filter, i64::MAX).await?, false)),
    }
}

async fn counted(tx: &Tx, filter: &Filter, range: &str, number: i64) -> mainstay_store::Result<Vec<Counted>> {
    let mut values = vec![Value::Int(number)];
    let condition = filter.condition(&mut values, false);
    let sql = format!(
        "SELECT kind, name, status, count(*), min(failed_at) FROM mainstay_dead_letters WHERE {range}{condition} \
         GROUP BY status, kind, name ORDER BY status, kind, name"
    );
    let rows = tx.query(&sql, &values).await?;
    let counted = |row: &Row| {
        Ok(Counted {
            kind: Kind::from(row.get::<&str>(0)?),
            name: row.get(1)?,
            status: Status::of(row.get(2)?),
            count: row.get(3)?,
            oldest_failed_at: row.get(4)?,
        })
    };
    rows.iter().map(counted).collect()
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

/// The largest groups of letters that have failed in the same way.
pub async fn groups(tx: &Tx, filter: &Filter, limit: usize) -> mainstay_store::Result<Groups> {
    let edge = edge(tx, filter, i64::MAX, DOWN, MOST_SEARCHED).await?;
    let mut values = vec![Value::Int(limit.clamp(1, MAX_PAGE) as i64)];
    let mut condition = filter.condition(&mut values, false);
    if let Some(edge) = edge {
        values.push(Value::Int(edge));
        condition.push_str(&format!(" AND number >= ${}", values.len()));
    }
    let sql = format!(
        "SELECT error_group, kind, name, count(*) AS many, min(failed_at), max(failed_at), max(number) \
         FROM mainstay_dead_letters WHERE 1 = 1{condition} GROUP BY kind, name, error_group \
         ORDER BY many DESC, kind, name, error_group LIMIT $1"
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
    Ok(Groups { groups, is_partial: edge.is_some() })
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

    #[test]
    fn a_group_is_read_as_it_is_shown() {
        let filter = Filter { group: Some(-2), ..Filter::default() };
        let text = serde_json::to_string(&filter).unwrap();
        assert_eq!(text, r#"{"group":"fffffffffffffffe"}"#);
        assert_eq!(serde_json::from_str::<Filter>(&text).unwrap(), filter);
        for bad in ["", "xyz", "fffffffffffffffff", "1"] {
            assert!(Filter::parse_group(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_filter_that_is_too_long_or_empty_is_refused() {
        let long = Filter { error: Some("x".repeat(MAX_FILTER_BYTES + 1)), ..Filter::default() };
        assert_eq!(long.check().unwrap_err().code(), "WORK_INVALID");
        assert!(Filter { kind: Some(Kind::from("")), ..Filter::default() }.check().is_err());
        assert!(Filter { failed_since: Some(-1), ..Filter::default() }.check().is_err());
        assert!(Filter { name: Some("sendEmail".into()), ..Filter::default() }.check().is_ok());
    }
}
