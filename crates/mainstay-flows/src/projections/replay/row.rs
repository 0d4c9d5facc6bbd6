//! The row of a replay.

use crate::error::Error;
use mainstay_store::{Hold, Row, Tx, params};
use serde::Serialize;

/// What a replay does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayStatus {
    /// Its chunks are applied.
    Running,
    /// Somebody has stopped it for a while.
    Paused,
    /// It is done.
    Completed,
    /// It cannot go on by itself.
    Failed,
    /// Somebody has ended it.
    Cancelled,
}

impl ReplayStatus {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    fn of(name: &str) -> Self {
        match name {
            "running" => Self::Running,
            "paused" => Self::Paused,
            "completed" => Self::Completed,
            "cancelled" => Self::Cancelled,
            _ => Self::Failed,
        }
    }
}

/// A replay (item 192). Events are counted as the log counts them, also those that the projection does not take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replay {
    /// Its id.
    pub replay_id: String,
    /// The projection.
    pub projection: String,
    /// What it does.
    pub status: ReplayStatus,
    /// The generation that is filled beside the one that readers see; nothing for a replay in place.
    pub generation: Option<i64>,
    /// What the tables of that generation are made of.
    #[serde(skip)]
    pub(crate) shape: String,
    /// It began after this position.
    pub start_position: u64,
    /// Everything up to here is applied.
    pub last_position: u64,
    /// It ends here.
    pub target_position: u64,
    /// How many events a chunk has.
    pub chunk_size: u32,
    /// How many events it goes through.
    pub total_events: u64,
    /// How many it has gone through.
    pub events_processed: u64,
    /// How many chunks are done.
    pub chunks_completed: u64,
    /// The number of the item of work that is to go on with it; all others are over.
    #[serde(skip)]
    pub(crate) step: i64,
    /// The item of that step, see `completion`.
    #[serde(skip)]
    pub(crate) item: Option<String>,
    /// Why it cannot go on.
    pub error: Option<String>,
    /// When it began.
    pub started_at: i64,
    /// When it last moved.
    pub updated_at: i64,
    /// When it ended.
    pub completed_at: Option<i64>,
}

const COLUMNS: &str = "replay_id, projection, status, generation, shape, start_position, last_position, \
     target_position, chunk_size, total_events, events_processed, chunks_completed, error, started_at, updated_at, \
     completed_at, step, item";
const INSERT: &str = "INSERT INTO mainstay_replays (replay_id, projection, status, generation, shape, start_position, \
     last_position, target_position, chunk_size, total_events, events_processed, chunks_completed, step, \
     started_at, updated_at, completed_at, item) VALUES ($1, $2, $3, $4, $5, $6, $6, $7, $8, $9, 0, 0, $10, \
     mainstay_now(), mainstay_now(), CASE WHEN $3 = 'completed' THEN mainstay_now() END, $11)";
const ADVANCE: &str = "UPDATE mainstay_replays SET last_position = $2, target_position = $3, total_events = $4, \
     events_processed = $5, chunks_completed = $6, step = $7, item = $8, updated_at = mainstay_now() WHERE replay_id = $1";
const SET: &str = "UPDATE mainstay_replays SET status = $2, error = $3, updated_at = mainstay_now(), \
     completed_at = CASE WHEN $2 IN ('completed', 'cancelled', 'failed') THEN mainstay_now() END \
     WHERE replay_id = $1";

/// Only one replay of a generation is completed.
const REPLACED: &str = "SELECT shape, coalesce(completed_at, updated_at) FROM mainstay_replays WHERE projection = $1 \
     AND status = 'completed' AND generation - 1 = $2";
const GIVE_WAY: &str = "UPDATE mainstay_replays SET status = 'cancelled', updated_at = mainstay_now(), \
     completed_at = coalesce(completed_at, mainstay_now()) WHERE replay_id = $1";
const FORGET_OLDEST: &str = "DELETE FROM mainstay_replays WHERE replay_id IN (SELECT replay_id FROM mainstay_replays \
     WHERE projection = $1 AND status IN ('completed', 'cancelled') \
     ORDER BY started_at DESC, replay_id DESC LIMIT $3 OFFSET $2)";
/// How many replays of a projection are kept that are over.
const KEPT: i64 = 100;
/// How many are forgotten with one statement, should there be more.
const FORGOTTEN_AT_ONCE: i64 = 1_000;

fn replay(row: &Row) -> mainstay_store::Result<Replay> {
    Ok(Replay {
        replay_id: row.get(0)?,
        projection: row.get(1)?,
        status: ReplayStatus::of(row.get(2)?),
        generation: row.get(3)?,
        shape: row.get(4)?,
        start_position: row.get(5)?,
        last_position: row.get(6)?,
        target_position: row.get(7)?,
        chunk_size: row.get(8)?,
        total_events: row.get(9)?,
        events_processed: row.get(10)?,
        chunks_completed: row.get(11)?,
        error: row.get(12)?,
        started_at: row.get(13)?,
        updated_at: row.get(14)?,
        completed_at: row.get(15)?,
        step: row.get(16)?,
        item: row.get(17)?,
    })
}

pub(crate) async fn insert(tx: &Tx, replay: &Replay) -> mainstay_store::Result<()> {
    let params = params![
        &replay.replay_id,
        &replay.projection,
        replay.status.as_str(),
        replay.generation,
        &replay.shape,
        replay.start_position as i64,
        replay.target_position as i64,
        replay.chunk_size,
        replay.total_events as i64,
        replay.step,
        replay.item.as_deref(),
    ];
    tx.execute(INSERT, params).await.map(drop)
}

/// A replay, held until the transaction ends.
pub(crate) async fn hold(tx: &Tx, replay_id: &str) -> mainstay_store::Result<Replay> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_replays WHERE replay_id = $1");
    let rows = tx.query_holding(&sql, params![replay_id], Hold::Alone).await?;
    replay(rows.first().ok_or_else(|| Error::ReplayNotFound(replay_id.to_owned()))?)
}

pub(crate) async fn look(tx: &Tx, replay_id: &str) -> mainstay_store::Result<Replay> {
    let sql = format!("SELECT {COLUMNS} FROM mainstay_replays WHERE replay_id = $1");
    let row = tx.query_optional(&sql, params![replay_id]).await?;
    replay(&row.ok_or_else(|| Error::ReplayNotFound(replay_id.to_owned()))?)
}

/// Replays of a projection that run or could go on, held until the transaction ends. There is one at most, because a new
/// one ends all others; which is the latest is nothing that a clock could tell.
pub(crate) async fn open(tx: &Tx, projection: &str) -> mainstay_store::Result<Vec<Replay>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_replays WHERE projection = $1 AND status IN ('running', 'paused', 'failed') \
         ORDER BY replay_id"
    );
    tx.query_holding(&sql, params![projection], Hold::Alone).await?.iter().map(replay).collect()
}

/// Of what tables a generation was made, and when the next one took its place, if that was of the same tables. Only then
/// the old ones stay for a while.
pub(crate) async fn replaced(
    tx: &Tx,
    projection: &str,
    generation: i64,
) -> mainstay_store::Result<Option<(String, i64)>> {
    let row = tx.query_optional(REPLACED, params![projection, generation]).await?;
    row.map(|row| Ok((row.get(0)?, row.get(1)?))).transpose()
}

/// Ends a replay, which is held and does not run, because another one begins; why it had failed stays.
pub(crate) async fn give_way(tx: &Tx, replay_id: &str) -> mainstay_store::Result<()> {
    tx.execute(GIVE_WAY, params![replay_id]).await.map(drop)
}

/// Forgets the oldest replays of a projection that are over.
pub(crate) async fn forget_oldest(tx: &Tx, projection: &str) -> mainstay_store::Result<()> {
    tx.execute(FORGET_OLDEST, params![projection, KEPT, FORGOTTEN_AT_ONCE]).await.map(drop)
}

/// Replays that have not ended.
pub(crate) async fn active(tx: &Tx) -> mainstay_store::Result<Vec<Replay>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_replays WHERE status IN ('running', 'paused') ORDER BY replay_id"
    );
    tx.query(&sql, &[]).await?.iter().map(replay).collect()
}

/// Replays of a projection that have ended, at most so many, the latest first. One begins when the one before is over, so
/// that the order in which they began, of which there is an index, is the order in which they ended.
pub(crate) async fn ended(tx: &Tx, projection: &str, most: i64) -> mainstay_store::Result<Vec<Replay>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_replays WHERE projection = $1 AND completed_at IS NOT NULL \
         ORDER BY started_at DESC, replay_id DESC LIMIT $2"
    );
    tx.query(&sql, params![projection, most]).await?.iter().map(replay).collect()
}

/// Writes down how far a replay is, which is held.
pub(crate) async fn advance(tx: &Tx, replay: &Replay) -> mainstay_store::Result<()> {
    let params = params![
        &replay.replay_id,
        replay.last_position as i64,
        replay.target_position as i64,
        replay.total_events as i64,
        replay.events_processed as i64,
        replay.chunks_completed as i64,
        replay.step,
        replay.item.as_deref(),
    ];
    tx.execute(ADVANCE, params).await.map(drop)
}

/// Sets the status of a replay, which is held.
pub(crate) async fn set(
    tx: &Tx,
    replay_id: &str,
    status: ReplayStatus,
    error: Option<&str>,
) -> mainstay_store::Result<()> {
    tx.execute(SET, params![replay_id, status.as_str(), error]).await.map(drop)
}
