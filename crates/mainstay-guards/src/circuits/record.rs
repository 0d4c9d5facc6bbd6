//! Circuits as the database has them.

use super::local::Core;
use super::shared::Shared;
use mainstay_core::circuit::{Answer, Forced, Probe, Settings, Standing, State};
use mainstay_store::{Hold, Result, Row, Tx, Value, params};
use serde::Serialize;

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) standing: Standing,
    pub(super) settings: Settings,
    pub(super) updated_at: i64,
    pub(super) version: i64,
}

/// A circuit as others see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Where it acts as being, whoever decided it.
    pub state: State,
    /// Failures since the last success.
    pub failure_count: u32,
    /// Probes that succeeded one after another.
    pub success_count: u32,
    /// When a call failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure_at: Option<i64>,
    /// When it opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<i64>,
    /// The probe that is out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_run_id: Option<String>,
    /// When an open circuit becomes half open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_scheduled_at: Option<i64>,
    /// When a refused call may be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What an operator decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced: Option<Forced>,
    /// How it is set.
    pub config: Settings,
    /// When it changed last; nothing when nothing was ever counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<i64>,
}

impl Status {
    pub(super) fn new(record: Record, now_ms: i64) -> Self {
        let Record { name, standing, settings, updated_at, version, .. } = record;
        let retry_after_ms = match standing.answer(&settings, now_ms) {
            Answer::Refuse { retry_after_ms } => Some(retry_after_ms),
            Answer::Admit | Answer::Probe => None,
        };
        let state = standing.effective(now_ms);
        let standing = standing.at(now_ms);
        Self {
            name,
            state,
            failure_count: standing.failure_count,
            success_count: standing.success_count,
            last_failure_at: standing.last_failure_at,
            opened_at: standing.opened_at,
            probe_run_id: standing.probe.map(|probe| probe.run_id),
            probe_scheduled_at: standing.probe_scheduled_at,
            retry_after_ms,
            forced: standing.forced,
            config: settings,
            updated_at: (version > 0).then_some(updated_at),
        }
    }
}

macro_rules! columns {
    () => {
        "name, state, failure_count, success_count, last_failure_at, opened_at, probe_scheduled_at, probe_run_id, \
         probe_until, forced, settings, updated_at, version"
    };
}

const ONE: &str = concat!("SELECT ", columns!(), " FROM mainstay_circuits WHERE name = $1");
const ALL: &str = concat!("SELECT ", columns!(), " FROM mainstay_circuits ORDER BY name");
const PAGE: &str =
    concat!("SELECT ", columns!(), " FROM mainstay_circuits WHERE name > $1 ORDER BY name LIMIT $2");
const BY_PROBE: &str = "SELECT name FROM mainstay_circuits WHERE probe_run_id = $1";
const NAMES: &str = "SELECT name FROM mainstay_circuits";
const BEGIN: &str = concat!(
    "INSERT INTO mainstay_circuits (",
    columns!(),
    ") VALUES ($1, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, $2, $3, 0) ON CONFLICT (name) DO NOTHING"
);
const DELETE: &str = "DELETE FROM mainstay_circuits WHERE name = $1";
const CHANGE: &str = "UPDATE mainstay_circuits SET state = $2, failure_count = $3, success_count = $4, \
     last_failure_at = $5, opened_at = $6, probe_scheduled_at = $7, probe_run_id = $8, probe_until = $9, forced = $10, \
     settings = $11, updated_at = $12, version = $13 WHERE name = $1";

impl Record {
    /// A circuit that never counted anything.
    pub(super) fn unheard_of(name: &str, settings: Settings) -> Self {
        let (name, standing) = (name.to_owned(), Standing::default());
        Self { name, standing, settings, updated_at: 0, version: 0 }
    }

    /// The version after this one. The first is the time, so that a circuit that was deleted and counts again has later
    /// versions than nodes may remember of it.
    pub(super) fn next_version(&self, now_ms: i64) -> i64 {
        if self.version == 0 { now_ms.max(1) } else { self.version + 1 }
    }

    pub(super) async fn find(tx: &Tx, name: &str) -> Result<Option<Self>> {
        tx.query_optional(ONE, params![name]).await?.as_ref().map(read).transpose()
    }

    pub(super) async fn all(tx: &Tx) -> Result<Vec<Self>> {
        tx.query(ALL, &[]).await?.iter().map(read).collect()
    }

    pub(super) async fn page(tx: &Tx, after: &str, limit: i64) -> Result<Vec<Self>> {
        tx.query(PAGE, params![after, limit]).await?.iter().map(read).collect()
    }

    /// The name of the circuit whose probe this is.
    pub(super) async fn name_of_probe(tx: &Tx, run_id: &str) -> Result<Option<String>> {
        let rows = tx.query(BY_PROBE, params![run_id]).await?;
        rows.first().map(|row| row.get(0)).transpose()
    }

    /// Holds a circuit that is there.
    pub(super) async fn hold(tx: &Tx, name: &str) -> Result<Option<Self>> {
        let rows = tx.query_holding(ONE, params![name], Hold::Alone).await?;
        rows.first().map(read).transpose()
    }

    /// Holds a circuit, and makes a row for one that has none yet.
    pub(super) async fn hold_or_begin(
        tx: &Tx,
        shared: &Shared,
        core: &Core,
        settings: &Settings,
    ) -> Result<Self> {
        let name = &*core.name;
        if let Some(record) = Self::hold(tx, name).await? {
            return Ok(record);
        }
        // One after another on all nodes, so that two do not pass the bound together.
        tx.lock("mainstay.circuits.names").await?;
        shared.check_room(tx, core).await?;
        tx.execute(BEGIN, params![name, written(settings)?, 0]).await?;
        Self::hold(tx, name).await?.ok_or(mainstay_store::Error::RowCount(0))
    }

    /// Names of all circuits.
    pub(super) async fn names(tx: &Tx) -> Result<Vec<String>> {
        tx.query(NAMES, &[]).await?.iter().map(|row| row.get(0)).collect()
    }

    pub(super) async fn delete(tx: &Tx, name: &str) -> Result<()> {
        tx.execute(DELETE, params![name]).await.map(drop)
    }

    pub(super) async fn write(&self, tx: &Tx) -> Result<()> {
        let Standing { state, failure_count, success_count, last_failure_at, opened_at, .. } = self.standing;
        let probe = self.standing.probe.as_ref();
        let forced = self.standing.forced.as_ref().map(written).transpose()?;
        let params = [
            Value::from(self.name.as_str()),
            Value::Int(number(state)),
            Value::Int(failure_count.into()),
            Value::Int(success_count.into()),
            Value::from(last_failure_at),
            Value::from(opened_at),
            Value::from(self.standing.probe_scheduled_at),
            Value::from(probe.map(|probe| probe.run_id.as_str())),
            Value::from(probe.map(|probe| probe.until_ms)),
            Value::from(forced),
            Value::Text(written(&self.settings)?),
            Value::Int(self.updated_at),
            Value::Int(self.version),
        ];
        tx.execute(CHANGE, &params).await.map(drop)
    }
}

const SIGN: &str = "UPDATE mainstay_circuit_writers SET mark = $2, at_ms = mainstay_now() WHERE node = $1";
const BEGIN_WRITER: &str = "INSERT INTO mainstay_circuit_writers (node, mark, at_ms) VALUES ($1, 0, mainstay_now()) \
     ON CONFLICT (node) DO NOTHING";
const WRITER: &str = "SELECT mark FROM mainstay_circuit_writers WHERE node = $1";
const FORGET_WRITERS: &str =
    "DELETE FROM mainstay_circuit_writers WHERE at_ms < mainstay_now() - CAST($1 AS BIGINT)";
/// A node that has written nothing for so long has heard of its last commit, or is gone.
const WRITER_KEPT_MS: i64 = 86_400_000;

/// Notes whose transaction this is. With the first one of a node, those are forgotten that are gone.
pub(super) async fn sign(tx: &Tx, node: i64, mark: i64) -> Result<()> {
    if tx.execute(BEGIN_WRITER, params![node]).await? > 0 {
        tx.execute(FORGET_WRITERS, params![WRITER_KEPT_MS]).await?;
    }
    tx.execute(SIGN, params![node, mark]).await.map(drop)
}

/// Whether a transaction of this node was committed; waits for it while it is on its way.
pub(super) async fn is_signed(tx: &Tx, node: i64, mark: i64) -> Result<bool> {
    tx.execute(BEGIN_WRITER, params![node]).await?;
    let rows = tx.query_holding(WRITER, params![node], Hold::Alone).await?;
    rows.first().map_or(Ok(false), |row| Ok(row.get::<i64>(0)? == mark))
}

fn written(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(mainstay_store::Error::application)
}

pub(super) fn number(state: State) -> i64 {
    match state {
        State::Closed => 0,
        State::Open => 1,
        State::HalfOpen => 2,
    }
}

pub(super) fn state_of(number: i64) -> Result<State> {
    match number {
        0 => Ok(State::Closed),
        1 => Ok(State::Open),
        2 => Ok(State::HalfOpen),
        other => {
            let reason = format!("{other} is no state of a circuit");
            Err(mainstay_store::Error::Decode { column: "state".into(), reason })
        }
    }
}

fn read(row: &Row) -> Result<Record> {
    let state = state_of(row.get(1)?)?;
    let count = |index: usize| row.get::<i64>(index).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let probe = match (row.get::<Option<String>>(7)?, row.get::<Option<i64>>(8)?) {
        (Some(run_id), Some(until_ms)) => Some(Probe { run_id, until_ms }),
        _ => None,
    };
    let decode = |column: &str, error: serde_json::Error| mainstay_store::Error::Decode {
        column: column.into(),
        reason: error.to_string(),
    };
    let forced: Option<String> = row.get(9)?;
    let forced = forced.map(|text| serde_json::from_str(&text).map_err(|error| decode("forced", error)));
    let settings: String = row.get(10)?;
    let standing = Standing {
        state,
        failure_count: count(2)?,
        success_count: count(3)?,
        last_failure_at: row.get(4)?,
        opened_at: row.get(5)?,
        probe_scheduled_at: row.get(6)?,
        probe,
        forced: forced.transpose()?,
    };
    Ok(Record {
        name: row.get(0)?,
        standing,
        settings: serde_json::from_str(&settings).map_err(|error| decode("settings", error))?,
        updated_at: row.get(11)?,
        version: row.get(12)?,
    })
}
