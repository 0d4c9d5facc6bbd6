//! The table of operations, which is also the record of what was done, by whom and with which outcome.

use super::control::RETENTION;
use crate::dead_letters::acts::{Action, Came};
use crate::dead_letters::opened::Shared;
use crate::error::{Error, Result};
use crate::inbox::{Counted, Filter, Listed, Refused};
use mainstay_store::{Hold, Row, Tx, Value, params};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperationStatus {
    /// It is known what it would touch.
    Previewed,
    /// It runs.
    Running,
    /// It has ended.
    Done,
    /// Somebody has stopped it.
    Cancelled,
    /// It could not go on.
    Failed,
}

impl OperationStatus {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Previewed => "previewed",
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    fn of(name: &str) -> Self {
        match name {
            "running" => Self::Running,
            "done" => Self::Done,
            "cancelled" => Self::Cancelled,
            "failed" => Self::Failed,
            _ => Self::Previewed,
        }
    }
}

/// A letter about which nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// The letter.
    pub letter_id: String,
    /// The code of why.
    pub code: String,
    /// Why.
    pub error: String,
}

/// What is done about letters, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// Its id; later ones are greater.
    pub operation_id: String,
    /// What is done.
    pub action: Action,
    /// About which letters.
    pub filter: Filter,
    /// About which one, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letter_id: Option<String>,
    /// Who wanted it.
    pub asked_by: String,
    /// Who let it run, if it was previewed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_by: Option<String>,
    /// Who stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// How far it is.
    pub status: OperationStatus,
    /// What it would touch, by kind and name.
    pub preview: Vec<Counted>,
    /// How many letters that were.
    pub total: u64,
    /// Whether letters were left that the preview has not looked at, because it had looked at as many as it may. Of the oldest
    /// letters only those that were counted are touched; otherwise all that the filter names.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
    /// About how many it was done.
    pub done: u64,
    /// How many were dealt with by somebody else meanwhile.
    pub skipped: u64,
    /// About how many it could not be done.
    pub failed: u64,
    /// How many were left as they were, because the node that came to them knows no such projection or target. Another one may.
    pub left: u64,
    /// The first of those that failed or were left.
    pub failures: Vec<Failed>,
    /// Why it could not go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it was previewed.
    pub created_at: i64,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<i64>,
    /// When it last went on.
    pub updated_at: i64,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<i64>,
    /// The last letter that it may touch.
    #[serde(skip)]
    pub(in crate::dead_letters) highest: i64,
    /// The last letter that it has touched.
    #[serde(skip)]
    pub(in crate::dead_letters) reached: i64,
    /// The item of work that goes on with it.
    #[serde(skip)]
    pub(in crate::dead_letters) step: i64,
    /// The item of that step, see `completion`.
    #[serde(skip)]
    pub(in crate::dead_letters) item: Option<String>,
}

/// Most letters that are named about which nothing could be done.
const MAX_FAILURES: usize = 20;
/// Longest reason of one of them.
const MAX_REASON_BYTES: usize = 500;
/// Longest name of who wants it.
const MAX_ASKER_BYTES: usize = 128;

impl Operation {
    /// One that has just been asked for.
    pub(in crate::dead_letters) fn new(
        shared: &Shared,
        action: Action,
        filter: Filter,
        asked_by: String,
        now_ms: i64,
    ) -> Self {
        Self {
            operation_id: format!("operation_{}", shared.ids.uuid()),
            action,
            filter,
            letter_id: None,
            asked_by,
            run_by: None,
            cancelled_by: None,
            status: OperationStatus::Previewed,
            preview: Vec::new(),
            total: 0,
            is_partial: false,
            done: 0,
            skipped: 0,
            failed: 0,
            left: 0,
            failures: Vec::new(),
            error: None,
            created_at: now_ms,
            started_at: None,
            updated_at: now_ms,
            ended_at: None,
            highest: 0,
            reached: 0,
            step: 0,
            item: None,
        }
    }

    /// One that was about one letter, and is done.
    pub(in crate::dead_letters) fn about_one(
        shared: &Shared,
        action: Action,
        letter: &Listed,
        asked_by: String,
        now_ms: i64,
    ) -> Self {
        let preview = Counted {
            kind: letter.kind.clone(),
            name: letter.name.clone(),
            status: letter.status,
            count: 1,
            oldest_failed_at: letter.failed_at,
        };
        Self {
            letter_id: Some(Listed::id(letter.number)),
            preview: vec![preview],
            highest: letter.number,
            reached: letter.number,
            total: 1,
            done: 1,
            ..Self::new(shared, action, Filter::default(), asked_by, now_ms)
                .ended(OperationStatus::Done, now_ms)
        }
    }

    pub(in crate::dead_letters) fn ended(self, status: OperationStatus, now_ms: i64) -> Self {
        let started_at = self.started_at.or(Some(now_ms));
        Self { status, started_at, updated_at: now_ms, ended_at: Some(now_ms), ..self }
    }

    /// Counts what came of letters.
    pub(in crate::dead_letters) fn count(&mut self, came: HashMap<i64, Came>) {
        let mut came: Vec<(i64, Came)> = came.into_iter().collect();
        came.sort_by_key(|(number, _)| *number);
        for (number, came) in came {
            match came {
                Some(Ok(())) => self.done += 1,
                Some(Err(Refused { entry, error, is_elsewhere })) => {
                    *(if is_elsewhere { &mut self.left } else { &mut self.failed }) += 1;
                    if self.failures.len() < MAX_FAILURES {
                        let (code, mut reason) = (entry.code.to_owned(), error.to_string());
                        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
                        self.failures.push(Failed { letter_id: Listed::id(number), code, error: reason });
                    }
                }
                None => self.skipped += 1,
            }
        }
    }
}

/// Whether somebody's name can be kept.
pub(in crate::dead_letters) fn check_asker(asked_by: &str) -> Result<()> {
    if (1..=MAX_ASKER_BYTES).contains(&asked_by.len()) && !asked_by.contains(char::is_control) {
        return Ok(());
    }
    Err(Error::invalid("askedBy", format!("must be 1 to {MAX_ASKER_BYTES} bytes without control characters")))
}

const COLUMNS: &str = "operation_id, action, filter, letter, asked_by, status, preview, total, highest, reached, step, \
     done, skipped, failed, failures, error, created_at, started_at, updated_at, ended_at, left_over, \
     run_by, cancelled_by, item, is_partial";
const UPDATE: &str = "UPDATE mainstay_letter_operations SET status = $2, reached = $3, step = $4, done = $5, \
     skipped = $6, failed = $7, failures = $8, error = $9, started_at = $10, updated_at = $11, ended_at = $12, \
     left_over = $13, run_by = $14, cancelled_by = $15, item = $16 WHERE operation_id = $1";
/// Those that ended, or were never begun, long ago.
const PRUNE: &str = "DELETE FROM mainstay_letter_operations WHERE operation_id IN (SELECT operation_id \
     FROM mainstay_letter_operations WHERE updated_at < mainstay_now() - $1 AND status <> 'running' \
     ORDER BY updated_at LIMIT 100)";

fn json(value: &impl Serialize) -> mainstay_store::Result<String> {
    serde_json::to_string(value).map_err(mainstay_store::Error::application)
}

fn read<'a, T: Deserialize<'a>>(row: &'a Row, index: usize) -> mainstay_store::Result<T> {
    serde_json::from_str(row.get(index)?).map_err(mainstay_store::Error::application)
}

fn operation(row: &Row) -> mainstay_store::Result<Operation> {
    Ok(Operation {
        operation_id: row.get(0)?,
        action: Action::of(row.get(1)?),
        filter: read(row, 2)?,
        letter_id: row.get::<Option<i64>>(3)?.map(Listed::id),
        asked_by: row.get(4)?,
        status: OperationStatus::of(row.get(5)?),
        preview: read(row, 6)?,
        total: row.get(7)?,
        highest: row.get(8)?,
        reached: row.get(9)?,
        step: row.get(10)?,
        done: row.get(11)?,
        skipped: row.get(12)?,
        failed: row.get(13)?,
        failures: read(row, 14)?,
        error: row.get(15)?,
        created_at: row.get(16)?,
        started_at: row.get(17)?,
        updated_at: row.get(18)?,
        ended_at: row.get(19)?,
        left: row.get(20)?,
        run_by: row.get(21)?,
        cancelled_by: row.get(22)?,
        item: row.get(23)?,
        is_partial: row.get::<i64>(24)? != 0,
    })
}

/// Writes a new one, and forgets some from long ago: more than one, so that there are not ever more of them.
pub(in crate::dead_letters) async fn insert(tx: &Tx, one: &Operation) -> mainstay_store::Result<()> {
    tx.execute(PRUNE, params![RETENTION.as_millis() as i64]).await?;
    let places: Vec<String> = (1..=25).map(|number| format!("${number}")).collect();
    let sql = format!("INSERT INTO mainstay_letter_operations ({COLUMNS}) VALUES ({})", places.join(", "));
    let params = params![
        &one.operation_id,
        one.action.as_str(),
        json(&one.filter)?,
        one.letter_id.as_deref().and_then(Listed::parse_id),
        &one.asked_by,
        one.status.as_str(),
        json(&one.preview)?,
        one.total as i64,
        one.highest,
        one.reached,
        one.step,
        one.done as i64,
        one.skipped as i64,
        one.failed as i64,
        json(&one.failures)?,
        one.error.as_deref(),
        one.created_at,
        one.started_at,
        one.updated_at,
        one.ended_at,
        one.left as i64,
        one.run_by.as_deref(),
        one.cancelled_by.as_deref(),
        one.item.as_deref(),
        i64::from(one.is_partial),
    ];
    tx.execute(&sql, params).await.map(drop)
}

/// Writes how far one is that is held.
pub(in crate::dead_letters) async fn update(tx: &Tx, one: &Operation) -> mainstay_store::Result<()> {
    let params = params![
        &one.operation_id,
        one.status.as_str(),
        one.reached,
        one.step,
        one.done as i64,
        one.skipped as i64,
        one.failed as i64,
        json(&one.failures)?,
        one.error.as_deref(),
        one.started_at,
        one.updated_at,
        one.ended_at,
        one.left as i64,
        one.run_by.as_deref(),
        one.cancelled_by.as_deref(),
        one.item.as_deref(),
    ];
    tx.execute(UPDATE, params).await.map(drop)
}

fn not_found(id: &str) -> Error {
    Error::LetterOperationNotFound(id.to_owned())
}

/// One of them.
pub(super) async fn look(tx: &Tx, id: &str) -> mainstay_store::Result<Operation> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_letter_operations WHERE operation_id = $1");
    let row = tx.query_optional(&sql, params![id]).await?.ok_or_else(|| not_found(id))?;
    operation(&row)
}

/// One of them, held until the transaction ends.
pub(super) async fn hold(tx: &Tx, id: &str) -> mainstay_store::Result<Operation> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_letter_operations WHERE operation_id = $1");
    let rows = tx.query_holding(&sql, params![id], Hold::Alone).await?;
    operation(rows.first().ok_or_else(|| not_found(id))?)
}

/// A page of them, the newest first.
pub(super) async fn page(
    tx: &Tx,
    status: Option<OperationStatus>,
    before: Option<&str>,
    limit: i64,
) -> mainstay_store::Result<Vec<Operation>> {
    let mut values = vec![Value::Int(limit)];
    let mut sql = format!("SELECT {COLUMNS} FROM mainstay_letter_operations WHERE 1 = 1");
    for (column, wanted) in [("status =", status.map(OperationStatus::as_str)), ("operation_id <", before)] {
        if let Some(wanted) = wanted {
            values.push(Value::from(wanted));
            sql.push_str(&format!(" AND {column} ${}", values.len()));
        }
    }
    sql.push_str(" ORDER BY operation_id DESC LIMIT $1");
    tx.query(&sql, &values).await?.iter().map(operation).collect()
}
