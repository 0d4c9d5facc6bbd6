//! Looking at items, and cancelling them.

use crate::claim::{Held, Taken, unpack};
use crate::directory::{cancels_topic, ended_topic};
use crate::enqueue::{change, parse, text};
use crate::error::Result;
use crate::functions::Cancel;
use crate::item::{Item, WorkResult};
use crate::keys;
use crate::next::Outcome;
use crate::schema::waiting;
use crate::settle::{Ending, Plan, Settlement, end_waiting};
use crate::work::{Ground, Work};
use mainstay_store::{Tx, Value, params};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Where an item stands, in four words (decision C31).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It waits.
    Pending,
    /// Somebody works on it.
    Running,
    /// It ended, well or cancelled.
    Completed,
    /// It ended failed.
    Failed,
}

/// Where an item stands, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Native {
    /// It may start at any moment.
    Ready,
    /// It waits for its time.
    Delayed,
    /// It waits behind another item of its key.
    Behind,
    /// Somebody works on it.
    Running,
    /// It returned.
    Success,
    /// It ended failed.
    Failed,
    /// It was cancelled.
    Canceled,
}

impl Native {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Ready,
        Self::Delayed,
        Self::Behind,
        Self::Running,
        Self::Success,
        Self::Failed,
        Self::Canceled,
    ];

    /// Those that a name means: `pending`, `running`, `completed`, `failed`, or one of them exactly.
    pub fn named(name: &str) -> Option<Vec<Self>> {
        Some(match name {
            "pending" => vec![Self::Ready, Self::Delayed, Self::Behind],
            "ready" => vec![Self::Ready],
            "delayed" => vec![Self::Delayed],
            "behind" => vec![Self::Behind],
            "running" => vec![Self::Running],
            "completed" => vec![Self::Success, Self::Canceled],
            "success" => vec![Self::Success],
            "failed" => vec![Self::Failed],
            "canceled" => vec![Self::Canceled],
            _ => return None,
        })
    }

    /// Whether an item in this state has ended.
    pub(crate) fn is_ended(self) -> bool {
        matches!(self, Self::Success | Self::Failed | Self::Canceled)
    }

    pub(crate) fn state(self) -> State {
        match self {
            Self::Ready | Self::Delayed | Self::Behind => State::Pending,
            Self::Running => State::Running,
            Self::Success | Self::Canceled => State::Completed,
            Self::Failed => State::Failed,
        }
    }
}

/// What is known of an item.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The item.
    pub work_id: String,
    /// Its pool.
    pub pool: String,
    /// Its function.
    pub function: String,
    /// Where it stands.
    pub state: State,
    /// Where it stands, exactly.
    pub native: Native,
    /// Executions that have ended, and count.
    pub attempts: u32,
    /// What the last one that failed failed with.
    pub last_error: Option<String>,
    /// What is kept beside it.
    pub context: Option<Box<RawValue>>,
    /// Its key.
    pub key: Option<String>,
    /// When it was enqueued.
    pub enqueued_at: i64,
    /// When it may start, while it waits.
    pub due_at: Option<i64>,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// What came of it.
    pub result: Option<WorkResult>,
}

/// What came of cancelling an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Canceled {
    /// It waited, and has ended cancelled.
    AtOnce,
    /// It runs, and was told to stop.
    Asked,
    /// It had ended before.
    TooLate,
}

/// How long a wait goes on without being woken before it looks by itself.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

pub(crate) const WAITING: &str = "SELECT pool, state, due_at, item FROM mainstay_work WHERE id = $1";
pub(crate) const ENDED: &str = "SELECT pool, state, ended_at, record FROM mainstay_ended WHERE id = $1";
pub(crate) const HELD: &str = "SELECT batch.number, batch.pool, batch.ids, marks.done FROM mainstay_batches AS batch \
     LEFT JOIN mainstay_batch_marks AS marks ON marks.batch = batch.number";
const HELD_ITEMS: &str = "SELECT items FROM mainstay_batches WHERE number = $1";
const TAKE: &str = "DELETE FROM mainstay_work WHERE id = $1 RETURNING pool, state, item";
const ASK: &str =
    "INSERT INTO mainstay_work_cancels (id, asked_at) VALUES ($1, mainstay_now()) ON CONFLICT DO NOTHING";
const FORGET: &str = "DELETE FROM mainstay_ended WHERE id = $1";

/// What was kept of an item that ended.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) function: String,
    #[serde(default)]
    pub(crate) key: Option<String>,
    #[serde(default)]
    context: Option<Box<RawValue>>,
    attempts: u32,
    enqueued_at: i64,
    result: WorkResult,
    #[serde(default)]
    last_error: Option<crate::Failure>,
    #[serde(default)]
    pub(crate) retry_of: Option<String>,
    #[serde(default)]
    pub(crate) correlation: Option<String>,
}

impl Record {
    /// What is known of the item.
    pub(crate) fn status(self, id: Uuid, pool: String, ended_at: i64) -> Status {
        let native = match self.result {
            WorkResult::Success { .. } => Native::Success,
            WorkResult::Failed { .. } => Native::Failed,
            WorkResult::Canceled => Native::Canceled,
        };
        Status {
            work_id: text(id),
            pool,
            function: self.function,
            state: native.state(),
            native,
            attempts: self.attempts,
            last_error: self.last_error.map(|failure| failure.to_string()),
            context: self.context,
            key: self.key,
            enqueued_at: self.enqueued_at,
            due_at: None,
            ended_at: Some(ended_at),
            result: Some(self.result),
        }
    }
}

impl Work {
    /// What is known of an item; nothing when it never was, or was forgotten.
    pub async fn status(&self, work_id: &str) -> Result<Option<Status>> {
        let Some(id) = parse(work_id) else { return Ok(None) };
        let read = async |tx: Tx, (ground, id): (Arc<Ground>, Uuid)| status(&ground, &tx, id).await;
        Ok(self.store().read_with((self.ground().clone(), id), read).await?)
    }

    /// Waits until an item has ended, for at most `patience`.
    pub async fn wait_for(&self, work_id: &str, patience: Duration) -> Result<Status> {
        let deadline = tokio::time::Instant::now() + patience;
        let mut woken = self.store().listen(ended_topic());
        loop {
            let not_found = || crate::Error::NotFound(work_id.to_owned());
            let status = self.status(work_id).await?.ok_or_else(not_found)?;
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            if status.ended_at.is_some() {
                return Ok(status);
            }
            if left.is_zero() {
                let waited_ms = patience.as_millis() as u64;
                return Err(crate::Error::NotEnded { id: work_id.to_owned(), waited_ms });
            }
            woken.woken(left.min(LOOK_AGAIN)).await;
        }
    }

    /// Cancels an item: one that waits never starts, one that runs is told to stop. Its `onComplete` is told.
    pub async fn cancel(&self, work_id: &str) -> Result<Canceled> {
        let id = parse(work_id).ok_or_else(|| crate::Error::NotFound(work_id.to_owned()))?;
        match self.cancel_once(id, false).await {
            Err(crate::Error::NotFound(id)) => Err(crate::Error::NotFound(id)),
            // Its `onComplete` is the only stranger in there; whatever it fails with must not save the item.
            Err(error) if !error.is_retryable() => self.cancel_once(id, true).await,
            done => done,
        }
    }

    async fn cancel_once(&self, id: Uuid, is_told_later: bool) -> Result<Canceled> {
        let cancel = async |tx: Tx, (ground, id, is_told_later): (Arc<Ground>, Uuid, bool)| {
            let done = cancel(&ground, &tx, id, is_told_later).await?;
            // Nothing was done, and nothing is to go along with it.
            Ok(done.ok_or_else(|| crate::Error::NotFound(text(id)))?)
        };
        Ok(self.store().transact_with((self.ground().clone(), id, is_told_later), cancel).await?)
    }

    /// Forgets an item that ended; false when there is none.
    pub async fn forget(&self, work_id: &str) -> Result<bool> {
        let Some(id) = parse(work_id) else { return Ok(false) };
        let forget = async |tx: Tx, id: Uuid| tx.execute(FORGET, params![&id.as_bytes()[..]]).await;
        Ok(self.store().transact_with(id, forget).await? > 0)
    }
}

pub(crate) fn native_of(state: i64) -> Native {
    match state {
        waiting::DELAYED => Native::Delayed,
        waiting::BEHIND => Native::Behind,
        _ => Native::Ready,
    }
}

pub(crate) fn of_item(id: Uuid, pool: &str, item: Item, native: Native, due_at: Option<i64>) -> Status {
    Status {
        work_id: text(id),
        pool: pool.to_owned(),
        state: native.state(),
        native,
        attempts: item.attempts,
        last_error: item.errors.last().map(|last| last.failure.to_string()),
        function: item.function,
        context: item.context,
        key: item.key,
        enqueued_at: item.enqueued_at,
        due_at,
        ended_at: None,
        result: None,
    }
}

async fn status(ground: &Ground, tx: &Tx, id: Uuid) -> mainstay_store::Result<Option<Status>> {
    let own = params![&id.as_bytes()[..]];
    if let Some(row) = tx.query_optional(WAITING, own).await? {
        let pool = ground.directory.pool_name(tx, row.get(0)?).await?;
        let item = serde_json::from_str(row.get(3)?).map_err(mainstay_store::Error::application)?;
        return Ok(Some(of_item(id, &pool, item, native_of(row.get(1)?), Some(row.get(2)?))));
    }
    if let Some(row) = tx.query_optional(ENDED, own).await? {
        let record: Record = serde_json::from_str(row.get(3)?).map_err(mainstay_store::Error::application)?;
        let pool = ground.directory.pool_name(tx, row.get(0)?).await?;
        return Ok(Some(record.status(id, pool, row.get(2)?)));
    }
    let Some((pool, taken)) = held(tx, id).await? else { return Ok(None) };
    let pool = ground.directory.pool_name(tx, pool).await?;
    Ok(Some(of_item(id, &pool, Arc::unwrap_or_clone(taken.item), Native::Running, None)))
}

/// An item that somebody works on. There are as few batches as there are items running.
pub(crate) async fn held(tx: &Tx, id: Uuid) -> mainstay_store::Result<Option<(i64, Taken)>> {
    for row in tx.query(HELD, &[]).await? {
        let (batch, ids): (i64, &[u8]) = (row.get(0)?, row.get(2)?);
        let Some(index) = ids.chunks_exact(16).position(|one| one == id.as_bytes()) else { continue };
        let done: Option<Vec<u8>> = row.get(3)?;
        let held = Held { batch, lease: 0, size: ids.len() / 16, done: done.unwrap_or_default() };
        if held.is_done(index) {
            continue;
        }
        let Some(items) = tx.query_optional(HELD_ITEMS, params![batch]).await? else { continue };
        return Ok(Some((row.get(1)?, unpack(ids, items.get(0)?)?.swap_remove(index))));
    }
    Ok(None)
}

/// How often an item is looked for that is nowhere. Whoever moves it from one table to another may commit between two
/// looks; it would have to be moved again and again not to be found.
pub(crate) const LOOKS: usize = 3;

async fn cancel(
    ground: &Arc<Ground>,
    tx: &Tx,
    id: Uuid,
    is_told_later: bool,
) -> mainstay_store::Result<Option<Canceled>> {
    for _ in 0..LOOKS {
        let canceled = cancel_where_it_is(ground, tx, id, is_told_later).await?;
        if canceled.is_some() {
            return Ok(canceled);
        }
    }
    Ok(None)
}

async fn cancel_where_it_is(
    ground: &Arc<Ground>,
    tx: &Tx,
    id: Uuid,
    is_told_later: bool,
) -> mainstay_store::Result<Option<Canceled>> {
    let own = params![&id.as_bytes()[..]];
    if let Some(row) = tx.query(TAKE, own).await?.pop() {
        let now_ms = tx.now_ms().await?;
        let (pool, state): (i64, i64) = (row.get(0)?, row.get(1)?);
        let mut item: Item = serde_json::from_str(row.get(2)?).map_err(mainstay_store::Error::application)?;
        if state == waiting::BEHIND
            && let Some(key) = item.key.take()
        {
            // It never came to the front, so nobody behind it does now.
            keys::leave_behind(tx, pool, &key).await?;
        }
        change(tx, pool, now_ms, -1, 0, 0).await?;
        let (pool_name, settings) = ground.pool(tx, pool).await?;
        let taken = Taken { id, item: Arc::new(item), index: 0 };
        let ending = Ending::new(taken, Plan::Ended(Outcome::Canceled), Cancel::default());
        let ending = Ending { is_told_later, ..ending };
        let settlement = Settlement {
            pool,
            pool_name,
            settings,
            lease: None,
            endings: vec![(0, ending)],
            held: Vec::new(),
            progress: Arc::default(),
        };
        end_waiting(ground, tx, &settlement, now_ms).await?;
        return Ok(Some(Canceled::AtOnce));
    }
    if tx.query_optional(ENDED, own).await?.is_some() {
        return Ok(Some(Canceled::TooLate));
    }
    if held(tx, id).await?.is_none() {
        return Ok(None);
    }
    tx.execute(ASK, &[Value::Blob(id.as_bytes().to_vec())]).await?;
    tx.wake(&cancels_topic())?;
    Ok(Some(Canceled::Asked))
}
