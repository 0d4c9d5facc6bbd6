//! What is kept of commands.

use super::command::Issued;
use super::outcome::{CommandResult, Outcome};
use crate::tenants::{self, FIRST_TWO};
use mainstay_store::Column::{Int, Text};
use mainstay_store::{Bulk, Row, Topic, Tx, Value, params};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, LazyLock};

/// How long a command is kept.
const KEPT_MS: i64 = 7 * 86_400_000;

/// How far a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It waits to be decided again.
    Pending,
    /// It was decided, be it that it failed with an event.
    Executed,
    /// It was rejected.
    Rejected,
    /// It could not be decided.
    Failed,
}

impl State {
    fn number(self) -> i64 {
        match self {
            Self::Pending => 0,
            Self::Executed => 1,
            Self::Rejected => 2,
            Self::Failed => 3,
        }
    }

    fn of(number: i64) -> Self {
        match number {
            0 => Self::Pending,
            1 => Self::Executed,
            2 => Self::Rejected,
            _ => Self::Failed,
        }
    }

    /// The name, as it stands in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Executed => "executed",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

/// A command that is known, and how far it is.
#[derive(Debug, Clone)]
pub struct CommandStatus {
    /// The command.
    pub command_id: String,
    /// What was wanted.
    pub command_type: String,
    /// What it belongs together with.
    pub correlation_id: String,
    /// Whose it is.
    pub tenant_id: Option<String>,
    /// How far it is.
    pub state: State,
    /// How often it was decided again.
    pub attempt: u32,
    /// When it was first dispatched.
    pub created_at: i64,
    /// When it ended.
    pub executed_at: Option<i64>,
    /// What came of it.
    pub outcome: Outcome,
}

/// A row.
pub(super) struct Record {
    pub(super) state: State,
    pub(super) attempt: u32,
    pub(super) created_at: i64,
    pub(super) executed_at: Option<i64>,
    pub(super) issued: Issued,
    pub(super) result: CommandResult,
}

impl Record {
    /// Whether the item that decides the command again is one that `is` says it is.
    pub(super) fn is_retried_by(&self, is: impl Fn(&str) -> bool) -> bool {
        self.result.deferred.as_ref().is_some_and(|deferred| is(&deferred.work_id))
    }
}

const COLUMNS: &str =
    "command_id, command_type, correlation_id, state, attempt, created_at, executed_at, command, result";
const INSERT: &str = "INSERT INTO mainstay_commands (command_id, command_type, correlation_id, state, attempt, created_at, \
     executed_at, expires_at, command, result, tenant) \
     VALUES ($1, $2, $3, $4, $5, mainstay_now(), CASE WHEN CAST($4 AS BIGINT) = 0 THEN NULL ELSE mainstay_now() END, \
     mainstay_now() + $6, $7, $8, $9) ON CONFLICT (command_id, tenant) DO NOTHING";
const END: &str = "UPDATE mainstay_commands SET state = $3, executed_at = mainstay_now(), \
     expires_at = mainstay_now() + $4, result = $5 \
     WHERE command_id = $1 AND tenant = $6 AND state = 0 AND attempt = $2";
const DEFER: &str = "UPDATE mainstay_commands SET attempt = attempt + 1, command = $3, result = $4 \
     WHERE command_id = $1 AND tenant = $5 AND state = 0 AND attempt = $2";
const PRUNE: &str = "DELETE FROM mainstay_commands WHERE (command_id, tenant) IN \
     (SELECT command_id, tenant FROM mainstay_commands \
     WHERE expires_at <= mainstay_now() AND state <> 0 ORDER BY expires_at LIMIT $1)";

/// What is woken when a command that was deferred has ended.
pub(super) fn topic() -> Topic {
    Topic::new("mainstay.commands").expect("a constant that fits")
}

static INSERT_ALL: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert(
        "INSERT INTO mainstay_commands (command_id, command_type, correlation_id, state, attempt, created_at, executed_at, \
         expires_at, command, result, tenant) VALUES {rows} ON CONFLICT (command_id, tenant) DO NOTHING",
        &[Text, Text, Text, Int, Int, Int, Int, Int, Text, Text, Text],
    )
});

/// A command that was decided, with the texts that its row will have.
pub(super) struct NewRecord {
    issued: Arc<Issued>,
    written: Arc<str>,
    state: State,
    result: String,
}

impl NewRecord {
    pub(super) fn of(
        issued: &Arc<Issued>,
        written: &Arc<str>,
        state: State,
        result: &CommandResult,
    ) -> mainstay_store::Result<Self> {
        Ok(Self { issued: issued.clone(), written: written.clone(), state, result: json(result)? })
    }
}

/// Writes commands down that were decided, unless they were known; how many were not.
pub(super) async fn insert_all(tx: &Tx, ended: Vec<NewRecord>, now_ms: i64) -> mainstay_store::Result<u64> {
    let mut values = Vec::with_capacity(ended.len() * 11);
    for NewRecord { issued, written, state, result } in ended {
        values.extend([
            Value::from(&issued.command_id),
            Value::from(&issued.command_type),
            Value::from(&issued.correlation_id),
            Value::Int(state.number()),
            Value::Int(i64::from(issued.attempt)),
            Value::Int(now_ms),
            Value::Int(now_ms),
            Value::Int(now_ms.saturating_add(KEPT_MS)),
            Value::from(&*written),
            Value::Text(result),
            Value::from(tenant_of(&issued)),
        ]);
    }
    if values.is_empty() { Ok(0) } else { INSERT_ALL.execute(tx, &values).await }
}

/// Writes a command down that was not known; whether it was not.
pub(super) async fn insert(
    tx: &Tx,
    issued: &Issued,
    state: State,
    result: &CommandResult,
) -> mainstay_store::Result<bool> {
    let params = params![
        &issued.command_id,
        &issued.command_type,
        &issued.correlation_id,
        state.number(),
        i64::from(issued.attempt),
        KEPT_MS,
        json(issued)?,
        json(result)?,
        tenant_of(issued),
    ];
    Ok(tx.execute(INSERT, params).await? == 1)
}

/// Ends a command that is at this attempt; whether it was.
pub(super) async fn end(
    tx: &Tx,
    issued: &Issued,
    state: State,
    result: &CommandResult,
) -> mainstay_store::Result<bool> {
    let params = params![
        &issued.command_id,
        i64::from(issued.attempt),
        state.number(),
        KEPT_MS,
        json(result)?,
        tenant_of(issued)
    ];
    tx.wake(&topic())?;
    Ok(tx.execute(END, params).await? == 1)
}

/// Moves a command on to `issued`, which is its next attempt; whether it was at the one before.
pub(super) async fn defer(tx: &Tx, issued: &Issued, result: &CommandResult) -> mainstay_store::Result<bool> {
    let before = i64::from(issued.attempt) - 1;
    let params = params![&issued.command_id, before, json(issued)?, json(result)?, tenant_of(issued)];
    Ok(tx.execute(DEFER, params).await? == 1)
}

/// The command of a tenant, or of none if the tenant is empty.
pub(super) async fn find(tx: &Tx, tenant: &str, command_id: &str) -> mainstay_store::Result<Option<Record>> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_commands WHERE command_id = $1 AND tenant = $2");
    tx.query_optional(&sql, params![command_id, tenant]).await?.map(|row| record(&row)).transpose()
}

/// The command that an id means for a caller that sees all tenants.
pub(super) async fn find_any(tx: &Tx, command_id: &str) -> mainstay_store::Result<Option<Record>> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_commands WHERE command_id = $1 {FIRST_TWO}");
    let rows = tx.query(&sql, params![command_id]).await?;
    let rows = rows.iter().map(record).collect::<mainstay_store::Result<Vec<_>>>()?;
    Ok(tenants::chosen(rows, |row| tenant_of(&row.issued), "command id", command_id)?)
}

fn tenant_of(issued: &Issued) -> &str {
    tenants::column(issued.tenant_id.as_deref())
}

/// The commands of a correlation, the earliest first.
pub(super) async fn correlated(
    tx: &Tx,
    correlation_id: &str,
    limit: i64,
) -> mainstay_store::Result<Vec<Record>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_commands WHERE correlation_id = $1 ORDER BY created_at, command_id, tenant LIMIT $2"
    );
    tx.query(&sql, params![correlation_id, limit]).await?.iter().map(record).collect()
}

/// Forgets commands that were kept long enough; how many.
pub(super) async fn prune(tx: &Tx, limit: u64) -> mainstay_store::Result<u64> {
    tx.execute(PRUNE, params![limit as i64]).await
}

fn record(row: &Row) -> mainstay_store::Result<Record> {
    let read = mainstay_store::Error::application;
    let attempt: i64 = row.get(4)?;
    let attempt = u32::try_from(attempt).unwrap_or_default();
    let rest: Issued = serde_json::from_str(row.get(7)?).map_err(read)?;
    let (command_id, command_type, correlation_id) = (row.get(0)?, row.get(1)?, row.get(2)?);
    Ok(Record {
        state: State::of(row.get(3)?),
        attempt,
        created_at: row.get(5)?,
        executed_at: row.get(6)?,
        issued: Issued { command_type, command_id, correlation_id, attempt, ..rest },
        result: serde_json::from_str(row.get(8)?).map_err(read)?,
    })
}

pub(super) fn json(value: &impl Serialize) -> mainstay_store::Result<String> {
    serde_json::to_string(value).map_err(mainstay_store::Error::application)
}
