//! What is kept of intents.

use super::MAX_PAGE;
use super::intent::{Completion, Intent, IntentStatus, OnTimeout};
use super::names::Named;
use crate::error::Error;
use crate::tenants::{self, FIRST_TWO};
use mainstay_core::trace::TraceContext;
use mainstay_store::{Cause, Hold, Row, Tx, Value, params};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use std::fmt;
use std::str::FromStr;

/// How long an intent is kept after it has ended.
const KEPT_MS: i64 = 7 * 86_400_000;

/// All that is kept of an intent beside the columns that it is found by.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    pub(super) stream_type: String,
    pub(super) stream_id: String,
    pub(super) bounded_context: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tenant_id: Option<String>,
    pub(super) timeout_ms: u64,
    pub(super) on_timeout: OnTimeout,
    pub(super) names: Named,
    pub(super) trace: TraceContext,
    pub(super) intent_event_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) completion_event_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// A row.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) intent_key: String,
    pub(super) operation_type: String,
    pub(super) correlation_id: String,
    pub(super) status: IntentStatus,
    pub(super) started_at: i64,
    pub(super) timeout_at: i64,
    pub(super) timeouts: u32,
    pub(super) ended_at: Option<i64>,
    pub(super) kept: Kept,
}

/// Where a page of intents ends. Its text is what a client gives back for the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// When the last one began.
    started_at: i64,
    /// Its key.
    intent_key: String,
    /// Its tenant: several may have intents of one key.
    tenant: String,
}

/// `{when}.{key}`, and of a tenant `{when}~{length}.{tenant}{key}`.
impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { started_at, intent_key, tenant } = self;
        match tenant.len() {
            0 => write!(out, "{started_at:x}.{intent_key}"),
            length => write!(out, "{started_at:x}~{length}.{tenant}{intent_key}"),
        }
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once('.').filter(|(_, key)| !key.contains(char::is_control));
        let place = parts.and_then(|(at, rest)| {
            let (at, length) = at.split_once('~').unwrap_or((at, "0"));
            // A moment before 1970 would be written in another form.
            let started_at = i64::from_str_radix(at, 16).ok().filter(|at| *at >= 0)?;
            let (tenant, key) = rest.split_at_checked(length.parse().ok()?)?;
            Some(Self { started_at, intent_key: key.to_owned(), tenant: tenant.to_owned() })
        });
        place.ok_or_else(|| Error::invalid("cursor", "is not the `next` of a page"))
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Which intents are wanted, the newest first.
#[derive(Debug, Clone, Default)]
pub struct IntentFilter {
    /// Of this status.
    pub status: Option<IntentStatus>,
    /// Of this operation.
    pub operation_type: Option<String>,
    /// That belong together under this id.
    pub correlation_id: Option<String>,
    /// The `next` of the page before.
    pub after: Option<Place>,
}

/// Which intents without completion are wanted, the oldest first.
#[derive(Debug, Clone, Default)]
pub struct Orphans {
    /// Of this operation.
    pub operation_type: Option<String>,
    /// That began at least so long ago.
    pub older_than_ms: u64,
    /// The `next` of the page before.
    pub after: Option<Place>,
}

/// A page of intents.
#[derive(Debug, Clone, Serialize)]
pub struct IntentPage {
    /// The intents.
    pub intents: Vec<Intent>,
    /// Where the next page begins, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Place>,
}

const COLUMNS: &str =
    "intent_key, operation_type, correlation_id, status, started_at, timeout_at, timeouts, ended_at, intent";
const INSERT: &str = "INSERT INTO mainstay_intents (intent_key, operation_type, correlation_id, status, started_at, \
     timeout_at, timeouts, intent, tenant) VALUES ($1, $2, $3, 0, $4, $5, 0, $6, $7) \
     ON CONFLICT (intent_key, tenant) DO NOTHING";
const END: &str = "UPDATE mainstay_intents SET status = $2, ended_at = mainstay_now(), \
     expires_at = mainstay_now() + $3, intent = $4 WHERE intent_key = $1 AND tenant = $5 AND status = 0";
const NEXT_TIMEOUT: &str = "UPDATE mainstay_intents SET timeouts = timeouts + 1, timeout_at = $2 WHERE intent_key = $1 AND tenant = $3";
const PRUNE: &str = "DELETE FROM mainstay_intents WHERE (intent_key, tenant) IN \
     (SELECT intent_key, tenant FROM mainstay_intents \
     WHERE expires_at <= mainstay_now() ORDER BY expires_at LIMIT $1)";

const COUNT_PENDING: &str =
    "SELECT count(*) FROM (SELECT 1 AS one FROM mainstay_intents WHERE status = 0 LIMIT $1) AS some_of_them";
const COUNT_OVERDUE: &str = "SELECT count(*) FROM (SELECT 1 AS one FROM mainstay_intents WHERE status = 0 \
     AND timeout_at <= mainstay_now() LIMIT $1) AS some_of_them";

/// Intents that nobody has ended, each number counted no further than was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenIntents {
    /// All of them.
    pub pending: u64,
    /// Those whose time is up: nobody has completed them, and they were left among the orphans.
    pub overdue: u64,
}

pub(super) async fn count_open(tx: &Tx, most: u32) -> mainstay_store::Result<OpenIntents> {
    let count = async |sql: &str| tx.query_one(sql, params![i64::from(most)]).await?.get(0);
    Ok(OpenIntents { pending: count(COUNT_PENDING).await?, overdue: count(COUNT_OVERDUE).await? })
}

/// Writes an intent down whose key is free; whether it is.
pub(super) async fn insert(tx: &Tx, record: &Record) -> mainstay_store::Result<bool> {
    let params = params![
        &record.intent_key,
        &record.operation_type,
        &record.correlation_id,
        record.started_at,
        record.timeout_at,
        json(&record.kept)?,
        record.tenant(),
    ];
    Ok(tx.execute(INSERT, params).await? == 1)
}

/// The intent of a tenant (of none if it is empty), or the one that its key means among those of all tenants.
pub(super) async fn find(
    tx: &Tx,
    tenant: Option<&str>,
    intent_key: &str,
) -> mainstay_store::Result<Option<Record>> {
    if let Some(tenant) = tenant {
        let sql = format!("SELECT {COLUMNS} FROM mainstay_intents WHERE intent_key = $1 AND tenant = $2");
        return tx.query_optional(&sql, params![intent_key, tenant]).await?.as_ref().map(record).transpose();
    }
    let sql = format!("SELECT {COLUMNS} FROM mainstay_intents WHERE intent_key = $1 {FIRST_TWO}");
    let rows = tx.query(&sql, params![intent_key]).await?;
    let rows = rows.iter().map(record).collect::<mainstay_store::Result<Vec<_>>>()?;
    Ok(tenants::chosen(rows, Record::tenant, "intent key", intent_key)?)
}

/// As [`find`], and no other transaction decides about it until this one has ended.
pub(super) async fn hold(
    tx: &Tx,
    tenant: Option<&str>,
    intent_key: &str,
) -> mainstay_store::Result<Option<Record>> {
    let tenant = match tenant {
        Some(tenant) => tenant.to_owned(),
        None => match find(tx, None, intent_key).await? {
            Some(found) => found.tenant().to_owned(),
            None => return Ok(None),
        },
    };
    let sql = format!("SELECT {COLUMNS} FROM mainstay_intents WHERE intent_key = $1 AND tenant = $2");
    let rows = tx.query_holding(&sql, params![intent_key, tenant], Hold::Alone).await?;
    rows.first().map(record).transpose()
}

/// Ends an intent that is held and pending.
pub(super) async fn end(
    tx: &Tx,
    record: &Record,
    completion: &Completion,
    event_id: &str,
) -> mainstay_store::Result<()> {
    let kept = Kept {
        completion_event_id: Some(event_id.to_owned()),
        result: completion.result.clone(),
        error: completion.error.clone(),
        ..record.kept.clone()
    };
    let status = completion.status.makes().number();
    let params = params![&record.intent_key, status, KEPT_MS, json(&kept)?, record.tenant()];
    tx.execute(END, params).await.map(drop)
}

/// Notes that an intent's time was up; it is up again at `timeout_at`.
pub(super) async fn timed_out(tx: &Tx, record: &Record, timeout_at: i64) -> mainstay_store::Result<()> {
    tx.execute(NEXT_TIMEOUT, params![&record.intent_key, timeout_at, record.tenant()]).await.map(drop)
}

/// Forgets intents that ended long ago; how many.
pub(super) async fn prune(tx: &Tx, limit: u64) -> mainstay_store::Result<u64> {
    tx.execute(PRUNE, params![limit as i64]).await
}

/// A page of intents, the newest first; of a tenant, if there is one. Each status has its place in the indexes, so one is
/// looked at after the other.
pub(super) async fn list(
    tx: &Tx,
    tenant: Option<&str>,
    filter: &IntentFilter,
    limit: usize,
) -> mainstay_store::Result<IntentPage> {
    let limit = limit.clamp(1, MAX_PAGE);
    let mut records = Vec::new();
    for status in IntentStatus::ALL {
        if filter.status.is_some_and(|wanted| wanted != status) {
            continue;
        }
        let mut wanted = Wanted::new(status, tenant);
        wanted.operation_type(filter.operation_type.as_ref());
        if let Some(id) = &filter.correlation_id {
            wanted.and("correlation_id =", id.as_str().into());
        }
        if let Some(after) = &filter.after {
            wanted.beyond("<", after, tenant);
        }
        records.extend(wanted.read(tx, "DESC", limit).await?);
    }
    records.sort_by(|one, other| place(other).cmp(&place(one)));
    page(tx, records, limit).await
}

/// A page of intents that nobody has completed, the oldest first; of a tenant, if there is one.
pub(super) async fn orphans(
    tx: &Tx,
    tenant: Option<&str>,
    orphans: &Orphans,
    limit: usize,
) -> mainstay_store::Result<IntentPage> {
    let limit = limit.clamp(1, MAX_PAGE);
    let mut wanted = Wanted::new(IntentStatus::Pending, tenant);
    wanted.operation_type(orphans.operation_type.as_ref());
    let latest = tx.now_ms().await?.saturating_sub_unsigned(orphans.older_than_ms);
    // One bound, not two: without figures SQLite takes an index of fewer columns for as good, and reads other operations.
    match &orphans.after {
        Some(after) => wanted.beyond(">", after, tenant),
        None => wanted.and("started_at <=", latest.into()),
    }
    let mut records = wanted.read(tx, "ASC", limit).await?;
    records.retain(|record| record.started_at <= latest);
    page(tx, records, limit).await
}

/// A statement that grows by what is wanted.
struct Wanted {
    sql: String,
    values: Vec<Value>,
}

impl Wanted {
    fn new(status: IntentStatus, tenant: Option<&str>) -> Self {
        let sql = format!("SELECT {COLUMNS} FROM mainstay_intents WHERE status = $1");
        let mut wanted = Self { sql, values: vec![Value::Int(status.number())] };
        if let Some(tenant) = tenant {
            wanted.and("tenant <> '' AND tenant =", tenant.into());
        }
        wanted
    }

    fn and(&mut self, condition: &str, value: Value) {
        self.values.push(value);
        self.sql.push_str(&format!(" AND {condition} ${}", self.values.len()));
    }

    fn operation_type(&mut self, operation_type: Option<&String>) {
        if let Some(operation_type) = operation_type {
            self.and("operation_type =", operation_type.as_str().into());
        }
    }

    /// Only those beyond a place; the order of a page must be that of the comparison.
    fn beyond(&mut self, comparison: &str, place: &Place, tenant: Option<&str>) {
        self.values.extend([Value::Int(place.started_at), place.intent_key.as_str().into()]);
        let count = self.values.len();
        let (columns, values) = match tenant {
            // Of one tenant there is one intent of a key, and its index has no other order.
            Some(_) => ("started_at, intent_key", format!("${}, ${count}", count - 1)),
            None => {
                self.values.push(place.tenant.as_str().into());
                ("started_at, intent_key, tenant", format!("${}, ${count}, ${}", count - 1, count + 1))
            }
        };
        self.sql.push_str(&format!(" AND ({columns}) {comparison} ({values})"));
    }

    /// One more than a page, by which the last one is known.
    fn statement(mut self, order: &str, limit: usize) -> (String, Vec<Value>) {
        self.values.push(Value::Int(limit as i64 + 1));
        let limit = self.values.len();
        let order = format!("started_at {order}, intent_key {order}, tenant {order}");
        self.sql.push_str(&format!(" ORDER BY {order} LIMIT ${limit}"));
        (self.sql, self.values)
    }

    async fn read(self, tx: &Tx, order: &str, limit: usize) -> mainstay_store::Result<Vec<Record>> {
        let (sql, values) = self.statement(order, limit);
        tx.query(&sql, &values).await?.iter().map(record).collect()
    }
}

fn place(record: &Record) -> (i64, &str, &str) {
    (record.started_at, &record.intent_key, record.tenant())
}

async fn page(tx: &Tx, mut records: Vec<Record>, limit: usize) -> mainstay_store::Result<IntentPage> {
    let is_more = records.len() > limit;
    records.truncate(limit);
    let next = records.last().filter(|_| is_more);
    let next = next.map(|last| Place {
        started_at: last.started_at,
        intent_key: last.intent_key.clone(),
        tenant: last.tenant().to_owned(),
    });
    let now_ms = tx.now_ms().await?;
    Ok(IntentPage { intents: records.into_iter().map(|record| record.seen(now_ms)).collect(), next })
}

impl Record {
    /// The cause of the intent's timer and of its handler's work.
    pub(super) fn cause(&self) -> Cause {
        Cause {
            correlation_id: Some(self.correlation_id.clone()),
            causation_id: Some(self.kept.intent_event_id.clone()),
            tenant_id: self.kept.tenant_id.clone(),
            trace: Some(self.kept.trace.clone()),
        }
    }

    /// Its tenant, as the column has it.
    pub(super) fn tenant(&self) -> &str {
        tenants::column(self.kept.tenant_id.as_deref())
    }

    /// The intent as it is seen at a moment.
    pub(super) fn seen(self, now_ms: i64) -> Intent {
        Intent {
            intent_key: self.intent_key,
            operation_type: self.operation_type,
            stream_type: self.kept.stream_type,
            stream_id: self.kept.stream_id,
            bounded_context: self.kept.bounded_context,
            tenant_id: self.kept.tenant_id,
            correlation_id: self.correlation_id,
            status: self.status,
            timeout_ms: self.kept.timeout_ms,
            on_timeout: self.kept.on_timeout,
            started_at: self.started_at,
            timeout_at: self.timeout_at,
            timeouts: self.timeouts,
            time_since_intent: now_ms - self.started_at,
            ended_at: self.ended_at,
            intent_event_id: self.kept.intent_event_id,
            completion_event_id: self.kept.completion_event_id,
            result: self.kept.result,
            error: self.kept.error,
            metadata: self.kept.metadata,
        }
    }
}

fn record(row: &Row) -> mainstay_store::Result<Record> {
    let timeouts: i64 = row.get(6)?;
    Ok(Record {
        intent_key: row.get(0)?,
        operation_type: row.get(1)?,
        correlation_id: row.get(2)?,
        status: IntentStatus::of(row.get(3)?),
        started_at: row.get(4)?,
        timeout_at: row.get(5)?,
        timeouts: u32::try_from(timeouts).unwrap_or_default(),
        ended_at: row.get(7)?,
        kept: serde_json::from_str(row.get(8)?).map_err(mainstay_store::Error::application)?,
    })
}

fn json(value: &impl Serialize) -> mainstay_store::Result<String> {
    serde_json::to_string(value).map_err(mainstay_store::Error::application)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_store::Store;
    use mainstay_testkit::stores::{Kind, Place as Ground, for_each_store};

    /// How a database goes about a statement, in one line. PostgreSQL would read so small a table from its beginning to its
    /// end and sort it, so it is told that this is dear.
    async fn plan(ground: &Ground, store: &Store, wanted: Wanted, order: &str) -> String {
        let is_postgres = ground.kind() == Kind::Postgres;
        let explain = async |tx: Tx, (is_postgres, sql, values): (bool, String, Vec<Value>)| {
            if is_postgres {
                for dear in ["enable_seqscan", "enable_bitmapscan", "enable_sort"] {
                    tx.query("SELECT set_config($1, 'off', true)", params![dear]).await?;
                }
            }
            let column = if is_postgres { "QUERY PLAN" } else { "detail" };
            let rows = tx.query(&sql, &values).await?;
            rows.iter().map(|row| row.get(column)).collect::<mainstay_store::Result<Vec<String>>>()
        };
        let (sql, values) = wanted.statement(order, 50);
        let explained = if is_postgres { "EXPLAIN" } else { "EXPLAIN QUERY PLAN" };
        store
            .read_with((is_postgres, format!("{explained} {sql}"), values), explain)
            .await
            .unwrap()
            .join("; ")
    }

    /// The statement of a page of orphans.
    fn pending(tenant: Option<&str>, operation: Option<&str>, after: Option<&Place>) -> Wanted {
        let mut wanted = Wanted::new(IntentStatus::Pending, tenant);
        wanted.operation_type(operation.map(str::to_owned).as_ref());
        match after {
            None => wanted.and("started_at <=", 7_i64.into()),
            Some(place) => wanted.beyond(">", place, tenant),
        }
        wanted
    }

    #[test]
    fn b_184_every_page_is_read_from_an_index_in_its_order() {
        for_each_store(async |ground| {
            let store = ground.options().component(super::super::COMPONENT).open().await.unwrap();
            let place: Place = "3e8.Op:Order:1:1000".parse().unwrap();
            assert_eq!(place.to_string(), "3e8.Op:Order:1:1000");
            let correlated = || {
                let mut wanted = Wanted::new(IntentStatus::Failed, None);
                wanted.and("correlation_id =", "corr".into());
                wanted.beyond("<", &place, None);
                wanted
            };
            let mut newest = Wanted::new(IntentStatus::Failed, Some("acme"));
            newest.beyond("<", &place, Some("acme"));
            let (op, acme, after) = (Some("Op"), Some("acme"), Some(&place));
            let pages = [
                (pending(None, None, None), "ASC", "by_status", "status started_at"),
                (pending(None, None, after), "ASC", "by_status", "status started_at intent_key"),
                (pending(None, op, None), "ASC", "by_operation", "operation_type status started_at"),
                (
                    pending(None, op, after),
                    "ASC",
                    "by_operation",
                    "operation_type status started_at intent_key",
                ),
                (correlated(), "DESC", "by_correlation", "correlation_id status started_at intent_key"),
                (pending(acme, None, None), "ASC", "of_tenants", "tenant status started_at"),
                (pending(acme, None, after), "ASC", "of_tenants", "tenant status started_at intent_key"),
                (newest, "DESC", "of_tenants", "tenant status started_at intent_key"),
                (
                    pending(acme, op, None),
                    "ASC",
                    "of_tenants_by_operation",
                    "tenant operation_type status started_at",
                ),
                (
                    pending(acme, op, after),
                    "ASC",
                    "of_tenants_by_operation",
                    "tenant operation_type status started_at intent_key",
                ),
            ];
            for (wanted, order, index, columns) in pages {
                let plan = plan(&ground, &store, wanted, order).await;
                let (index, condition) = match ground.kind() {
                    Kind::Postgres => {
                        (format!(" mainstay_intents_{index} on "), plan.split("Index Cond: ").nth(1))
                    }
                    _ => (
                        format!("INDEX mainstay_intents_{index} ("),
                        plan.split(&*format!("{index} (")).nth(1),
                    ),
                };
                assert!(plan.contains(&index), "{plan} is not {index}");
                let condition = condition.and_then(|text| text.split("; ").next()).unwrap_or_default();
                assert!(
                    columns.split(' ').all(|column| condition.contains(column)),
                    "{plan} is not {columns}"
                );
                let dear = ["SCAN ", "TEMP B-TREE", "Seq Scan", "Sort", "Filter:"];
                assert!(!dear.iter().any(|dear| plan.contains(dear)), "{plan}");
            }
        });
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for bad in ["", "x", "1", "zz.key", "1.a\0b"] {
            assert_eq!(bad.parse::<Place>().unwrap_err().code(), "FLOW_INVALID", "{bad:?}");
        }
    }
}
