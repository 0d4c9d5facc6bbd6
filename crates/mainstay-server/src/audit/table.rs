//! The tables `mainstay_audit` and `mainstay_audit_head`.

use super::chain::{BEGINNING, hash};
use super::entry::{Entry, Outcome};
use mainstay_store::migrations::{Component, Script, Step};
use mainstay_store::{Error, Hold, Result, Row, Tx, Value, params};
use serde::{Deserialize, Serialize};

/// The schema of the audit; a store that a server stands on is opened with it.
pub static COMPONENT: Component =
    Component { name: "audit", steps: &[CREATE_AUDIT, FIND_BY_OUTCOME_AND_TENANT] };

const CREATE_AUDIT: Step = Step {
    name: "create_audit",
    script: Script::Both(&[
        "CREATE TABLE mainstay_audit (
            number BIGINT NOT NULL PRIMARY KEY,
            at BIGINT NOT NULL,
            action TEXT COLLATE \"binary\" NOT NULL,
            args TEXT NOT NULL,
            user_id TEXT COLLATE \"binary\" NOT NULL,
            role TEXT,
            tenant_id TEXT,
            outcome TEXT NOT NULL,
            code TEXT,
            trace_id TEXT,
            hash TEXT NOT NULL)",
        "CREATE INDEX mainstay_audit_by_user ON mainstay_audit (user_id, number)",
        "CREATE TABLE mainstay_audit_head (
            id BIGINT NOT NULL PRIMARY KEY,
            number BIGINT NOT NULL,
            hash TEXT NOT NULL)",
        "INSERT INTO mainstay_audit_head (id, number, hash) VALUES (1, 0, \
         '0000000000000000000000000000000000000000000000000000000000000000')",
    ]),
    needs: 0,
};

/// Whoever looks for what was refused, or for what one tenant did, need not read everything that all did.
const FIND_BY_OUTCOME_AND_TENANT: Step = Step {
    name: "find_audit_by_outcome_and_tenant",
    script: Script::Both(&[
        "CREATE INDEX mainstay_audit_by_outcome ON mainstay_audit (outcome, number)",
        "CREATE INDEX mainstay_audit_by_tenant ON mainstay_audit (tenant_id, number)",
    ]),
    needs: 0,
};

const HEAD: &str = "SELECT number, hash FROM mainstay_audit_head WHERE id = 1";
const MOVE_HEAD: &str = "UPDATE mainstay_audit_head SET number = $1, hash = $2 WHERE id = 1";
const INSERT: &str = "INSERT INTO mainstay_audit (number, at, action, args, user_id, role, tenant_id, outcome, code, \
    trace_id, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
const COLUMNS: &str = "number, at, action, args, user_id, role, tenant_id, outcome, code, trace_id, hash";

/// Where the audit ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the last entry; 0 when there is none.
    pub number: u64,
    /// Its hash.
    pub hash: String,
}

/// Which entries.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this token.
    pub user_id: Option<String>,
    /// Of this outcome.
    pub outcome: Option<Outcome>,
    /// Of this tenant's tokens.
    pub tenant_id: Option<String>,
    /// Before the entry of this number.
    pub before: Option<u64>,
    /// After the entry of this number, and the oldest first; 0 begins with the first of all.
    pub after: Option<u64>,
}

pub(super) async fn head(tx: &Tx) -> Result<Head> {
    let row = tx.query_optional(HEAD, &[]).await?;
    row.map_or_else(|| Ok(Head { number: 0, hash: BEGINNING.to_owned() }), |row| of_head(&row))
}

fn of_head(row: &Row) -> Result<Head> {
    Ok(Head { number: row.get(0)?, hash: row.get(1)? })
}

/// Writes an entry down as the next one; whoever does the same waits until the end of the transaction.
pub(super) async fn append(tx: &Tx, entry: &Entry) -> Result<()> {
    let held = tx.query_holding(HEAD, &[], Hold::Alone).await?;
    let last = held.first().ok_or_else(|| Error::application("the head of the audit is missing"))?;
    let last = of_head(last)?;
    let mut entry = Entry { number: last.number + 1, timestamp: tx.now_ms().await?, ..entry.clone() };
    entry.hash = hash(&last.hash, &entry);
    let row = params![
        entry.number as i64,
        entry.timestamp,
        &entry.action,
        entry.args.to_string(),
        &entry.user_id,
        entry.role.as_deref(),
        entry.tenant_id.as_deref(),
        entry.outcome.as_str(),
        entry.code.as_deref(),
        entry.trace_id.as_deref(),
        &entry.hash
    ];
    tx.execute(INSERT, row).await?;
    tx.execute(MOVE_HEAD, params![entry.number as i64, &entry.hash]).await.map(drop)
}

pub(super) async fn list(tx: &Tx, filter: &Filter, limit: usize) -> Result<Vec<Entry>> {
    let order = if filter.after.is_some() { "ASC" } else { "DESC" };
    let most = filter.before.map_or(i64::MAX, |before| before as i64);
    let mut values = vec![Value::Int(most), Value::Int(filter.after.unwrap_or(0) as i64)];
    let mut sql = format!("SELECT {COLUMNS} FROM mainstay_audit WHERE number < $1 AND number > $2");
    let wanted = [
        ("user_id", filter.user_id.as_deref()),
        ("outcome", filter.outcome.map(Outcome::as_str)),
        ("tenant_id", filter.tenant_id.as_deref()),
    ];
    for (column, value) in wanted {
        if let Some(value) = value {
            values.push(Value::from(value));
            sql.push_str(&format!(" AND {column} = ${}", values.len()));
        }
    }
    values.push(Value::Int(limit as i64));
    sql.push_str(&format!(" ORDER BY number {order} LIMIT ${}", values.len()));
    tx.query(&sql, &values).await?.iter().map(of).collect()
}

fn of(row: &Row) -> Result<Entry> {
    let outcome = Outcome::of(row.get(7)?);
    let hash: String = row.get(10)?;
    Ok(Entry {
        number: row.get(0)?,
        timestamp: row.get(1)?,
        action: row.get(2)?,
        // What is no JSON any more was changed, which its hash will tell.
        args: serde_json::from_str(row.get(3)?).unwrap_or_default(),
        user_id: row.get(4)?,
        role: row.get(5)?,
        tenant_id: row.get(6)?,
        outcome: outcome.unwrap_or(Outcome::Failed),
        code: row.get(8)?,
        trace_id: row.get(9)?,
        // What is no outcome was changed, too.
        hash: if outcome.is_some() { hash } else { String::new() },
    })
}
