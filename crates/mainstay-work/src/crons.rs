//! Crons: work that the clock enqueues, once for each tick over all nodes.
//!
//! A cron's row holds its next tick. Whoever moves it on enqueues the work in the same transaction, so no tick is lost and
//! none comes twice.
//!
//! Each cron fires in a transaction of its own. One that cannot, because its function or its pool is gone, notes why in its
//! row and goes on with its next tick; nothing else waits for it.

use crate::bounds::{self, Bound, MAX_CRONS};
use crate::directory::{Directory, time_topic};
use crate::enqueue::{given, noted};
use crate::error::{Error, Result};
use crate::item::{NewWork, name, raw};
use crate::work::{Ground, Work};
use mainstay_core::names::{Reserved, check_unreserved, is_reserved};
use mainstay_core::schedule::Schedule;
use mainstay_store::{Row, Tx, Value, params};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// A tick that is later than this was missed.
const TOLERANCE_MS: i64 = 60_000;
/// Most ticks of a cron that are caught up in one transaction.
const MAX_TICKS: usize = 100;

/// What becomes of ticks at which no node was there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Missed {
    /// Nothing.
    #[default]
    Skip,
    /// Each is enqueued, in order, as soon as a node is there.
    CatchUp,
}

/// Work that is enqueued by the clock.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cron {
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// When.
    pub schedule: Schedule,
    /// Into which pool.
    pub pool: String,
    /// What.
    pub function: String,
    /// With what.
    pub args: Box<RawValue>,
    /// Under which key: with one, a tick never runs beside the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What becomes of ticks at which no node was there.
    #[serde(default)]
    pub missed: Missed,
}

impl Cron {
    /// Calls `function` with `args` in `pool`, whenever `schedule` says.
    pub fn new(
        name: impl Into<String>,
        schedule: Schedule,
        pool: impl Into<String>,
        function: impl Into<String>,
        args: &(impl Serialize + ?Sized),
    ) -> Result<Self> {
        Ok(Self {
            name: name.into(),
            schedule,
            pool: pool.into(),
            function: function.into(),
            args: raw("args", args)?,
            key: None,
            missed: Missed::default(),
        })
    }

    /// Ticks run one at a time and in order.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// What becomes of ticks at which no node was there.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    fn item(&self, tick_ms: i64) -> Result<NewWork> {
        let tick = Tick { cron: &self.name, scheduled_at: tick_ms };
        let mut item = NewWork::new(&self.pool, &self.function, &self.args)?.context(&tick)?;
        item.key.clone_from(&self.key);
        Ok(item)
    }
}

/// The context of the work of a tick.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tick<'a> {
    cron: &'a str,
    scheduled_at: i64,
}

/// A cron, and how it is doing.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CronStatus {
    /// Its name.
    pub name: String,
    /// What it does.
    #[serde(flatten)]
    pub cron: Cron,
    /// Its next tick.
    pub next_at: i64,
    /// Whether nothing is enqueued.
    pub is_paused: bool,
    /// How often it has enqueued something.
    pub fired: u64,
    /// The last tick that did.
    pub last_at: Option<i64>,
    /// The last tick that could not, unless a later one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<i64>,
    /// The reason, with its code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

const COLUMNS: &str = "name, cron, next_at, is_paused, fired, last_at, failed_at, error";
const FIND: &str = "SELECT cron FROM mainstay_crons WHERE name = $1";
const PUT: &str = "INSERT INTO mainstay_crons (name, cron, next_at, is_paused, fired, last_at, is_platform) \
     VALUES ($1, $2, $3, 0, 0, NULL, $4) ON CONFLICT (name) DO UPDATE SET cron = excluded.cron, \
     next_at = excluded.next_at, is_platform = excluded.is_platform, failed_at = NULL, error = NULL";
const MARK: &str = "UPDATE mainstay_crons SET is_platform = $2 WHERE name = $1 AND is_platform <> $2";
const NAMES: &str = "SELECT name FROM mainstay_crons";
const ALL: &str = "SELECT name, cron FROM mainstay_crons";
const REMOVE: &str = "DELETE FROM mainstay_crons WHERE name = $1";
const PAUSE: &str = "UPDATE mainstay_crons SET is_paused = $2, next_at = $3 WHERE name = $1";
const DUE: &str =
    "SELECT name FROM mainstay_crons WHERE is_paused = 0 AND next_at <= $1 ORDER BY next_at LIMIT 100";
const ONE_DUE: &str = "SELECT cron, next_at, is_platform FROM mainstay_crons \
     WHERE name = $1 AND is_paused = 0 AND next_at <= $2";
const MOVE: &str = "UPDATE mainstay_crons SET next_at = $3, fired = fired + $4, last_at = coalesce($5, last_at), \
     failed_at = CASE WHEN $4 > 0 THEN NULL ELSE failed_at END, error = CASE WHEN $4 > 0 THEN NULL ELSE error END \
     WHERE name = $1 AND next_at = $2";
const FAIL: &str =
    "UPDATE mainstay_crons SET next_at = $3, failed_at = $4, error = $5 WHERE name = $1 AND next_at = $2";
/// The next tick of all.
pub(crate) const NEXT: &str = "SELECT min(next_at) FROM mainstay_crons WHERE is_paused = 0";

impl Work {
    /// Declares a cron of this program, or changes it. One that is declared as it is already keeps its next tick. No bound
    /// refuses it.
    pub async fn cron(&self, cron: Cron) -> Result<()> {
        let name = cron.name.clone();
        self.put_unreserved(cron, Bound::Waived).await?;
        self.ground().declare_cron(&name);
        Ok(())
    }

    /// Makes a cron, or changes it, on behalf of an operator. Unlike one of [`cron`](Self::cron) it is refused when there are
    /// too many.
    pub async fn put_cron(&self, cron: Cron) -> Result<()> {
        self.put_unreserved(cron, Bound::Held).await
    }

    async fn put_unreserved(&self, cron: Cron, bound: Bound) -> Result<()> {
        check_unreserved("name", &cron.name)?;
        given(&self.ground().functions(), [cron.item(0)?])?;
        self.write_cron(cron, bound, false).await
    }

    /// Declares a cron of the platform, which calls a function of the platform. Only for code of the platform.
    #[doc(hidden)]
    pub async fn platform_cron(&self, cron: Cron) -> Result<()> {
        let item = NewWork { is_platform: true, ..cron.item(0)? };
        given(&self.ground().functions(), [item])?;
        self.write_cron(cron, Bound::Waived, true).await
    }

    async fn write_cron(&self, cron: Cron, bound: Bound, is_platform: bool) -> Result<()> {
        name("name", &cron.name)?;
        type New = (Arc<Ground>, Cron, Bound, bool);
        let put = async |tx: Tx, (ground, cron, bound, is_platform): New| {
            // Held, so that it is not deleted while a cron for it is on its way.
            let pools = Directory::hold_pools(&tx, [cron.pool.as_str()]).await?;
            let pool = *pools.get(&cron.pool).ok_or_else(|| Error::UnknownPool(cron.pool.clone()))?;
            ground.directory.function(&tx, &cron.function).await??;
            ground.promised_lane(&tx, pool, &cron.function).await?;
            let text = serde_json::to_string(&cron).map_err(mainstay_store::Error::application)?;
            let found = tx.query_optional(FIND, params![&cron.name]).await?;
            if found.is_none() && bound == Bound::Held {
                bounds::lock(&tx).await?;
                let is_counted = |name: &str| !is_reserved(name) && !ground.is_cron_declared(name);
                bounds::room_among(&tx, "crons", MAX_CRONS, NAMES, is_counted).await?;
            }
            let is_platform = i64::from(is_platform);
            if found.is_some_and(|row| row.get::<&str>(0).is_ok_and(|kept| kept == text)) {
                return tx.execute(MARK, params![&cron.name, is_platform]).await.map(drop);
            }
            let now_ms = tx.now_ms().await?;
            let next_at = next_tick(&cron, now_ms)?;
            tx.execute(PUT, params![&cron.name, text, next_at, is_platform]).await?;
            tx.wake(&time_topic())
        };
        Ok(self.store().transact_with((self.ground().clone(), cron, bound, is_platform), put).await?)
    }

    /// All crons, by name.
    pub async fn crons(&self) -> Result<Vec<CronStatus>> {
        let read = async |tx: Tx| {
            let rows = tx.query(&format!("SELECT {COLUMNS} FROM mainstay_crons ORDER BY name"), &[]).await?;
            rows.iter().map(status).collect::<mainstay_store::Result<Vec<_>>>()
        };
        Ok(self.store().read(read).await?)
    }

    /// Removes a cron. What it has enqueued stays. Crons of the platform are refused.
    pub async fn remove_cron(&self, name: &str) -> Result<()> {
        check_unreserved("name", name)?;
        let remove = async |tx: Tx, name: String| match tx.execute(REMOVE, params![&name]).await? {
            // Rolled back, so that nothing goes along that says that it was removed.
            0 => Err(Error::UnknownCron(name).into()),
            _ => Ok(()),
        };
        Ok(self.store().transact_with(name.to_owned(), remove).await?)
    }

    /// Lets a cron rest, or go on from its next tick. Crons of the platform are refused.
    pub async fn pause_cron(&self, name: &str, is_paused: bool) -> Result<()> {
        check_unreserved("name", name)?;
        let pause = async |tx: Tx, (name, is_paused): (String, bool)| {
            let row = tx.query_optional(FIND, params![&name]).await?;
            let row = row.ok_or_else(|| Error::UnknownCron(name.clone()))?;
            let cron = parse(&name, row.get(0)?)?;
            let next_at = next_tick(&cron, tx.now_ms().await?)?;
            tx.execute(PAUSE, params![&name, i64::from(is_paused), next_at]).await?;
            tx.wake(&time_topic())
        };
        Ok(self.store().transact_with((name.to_owned(), is_paused), pause).await?)
    }
}

/// Whether there is a cron of this kind. One that cannot be read enqueues nothing.
pub(crate) async fn any(tx: &Tx, is_it: impl Fn(&Cron) -> bool) -> mainstay_store::Result<bool> {
    let rows = tx.query(ALL, &[]).await?;
    let crons = rows.iter().filter_map(|row| parse(row.get(0).ok()?, row.get(1).ok()?).ok());
    Ok(crons.into_iter().any(|cron| is_it(&cron)))
}

fn next_tick(cron: &Cron, after_ms: i64) -> mainstay_store::Result<i64> {
    let next = cron.schedule.next_after(after_ms);
    next.ok_or_else(|| Error::invalid("schedule", "has no next tick").into())
}

fn parse(name: &str, text: &str) -> mainstay_store::Result<Cron> {
    let cron: Cron = serde_json::from_str(text).map_err(mainstay_store::Error::application)?;
    Ok(Cron { name: name.to_owned(), ..cron })
}

fn status(row: &Row) -> mainstay_store::Result<CronStatus> {
    let name: String = row.get(0)?;
    Ok(CronStatus {
        cron: parse(&name, row.get(1)?)?,
        name,
        next_at: row.get(2)?,
        is_paused: row.get(3)?,
        fired: row.get(4)?,
        last_at: row.get(5)?,
        failed_at: row.get(6)?,
        error: row.get(7)?,
    })
}

/// Names of crons with a tick that has come.
pub(crate) async fn due(tx: &Tx) -> mainstay_store::Result<Vec<String>> {
    let now_ms = tx.now_ms().await?;
    tx.query(DUE, params![now_ms]).await?.iter().map(|row| row.get(0)).collect()
}

/// A cron with a tick that has come.
struct Due {
    cron: Cron,
    is_platform: bool,
    next_at: i64,
    now_ms: i64,
}

/// Holds a cron against other nodes, and reads it if a tick of it has come. A cron that cannot be read rests.
async fn hold_due(tx: &Tx, name: &str) -> mainstay_store::Result<Option<Due>> {
    tx.lock("mainstay.work.crons").await?;
    let now_ms = tx.now_ms().await?;
    let Some(row) = tx.query_optional(ONE_DUE, params![name, now_ms]).await? else { return Ok(None) };
    let next_at: i64 = row.get(1)?;
    match parse(name, row.get(0)?) {
        Ok(cron) => Ok(Some(Due { cron, is_platform: row.get(2)?, next_at, now_ms })),
        Err(error) => {
            tracing::error!(cron = name, %error, "a cron cannot be read; it rests until it is declared anew");
            tx.execute(FAIL, params![name, next_at, i64::MAX, now_ms, error.to_string()]).await?;
            Ok(None)
        }
    }
}

/// Enqueues the work of a cron's ticks that have come.
pub(crate) async fn fire(ground: &Arc<Ground>, tx: &Tx, name: &str) -> mainstay_store::Result<()> {
    let Some(Due { cron, is_platform, next_at, now_ms }) = hold_due(tx, name).await? else { return Ok(()) };
    if is_reserved(&cron.function) && !is_platform {
        // Declared by a caller, before names of the platform were reserved.
        return Err(Error::from(Reserved { field: "function".to_owned() }).into());
    }
    let (ticks, next) = ticks(&cron, next_at, now_ms);
    let last = ticks.last().copied();
    // A cron that has no tick any more rests for good.
    let params = params![name, next_at, next.unwrap_or(i64::MAX), ticks.len() as i64, Value::from(last)];
    if tx.execute(MOVE, params).await? == 0 {
        return Ok(());
    }
    for tick in ticks {
        let item = cron.item(tick).map_err(mainstay_store::Error::from)?;
        drop(noted(ground, tx).add(vec![NewWork { is_platform, ..item }]));
    }
    Ok(())
}

/// Passes over the ticks of a cron that have come and that it could not fire.
pub(crate) async fn pass_over(tx: &Tx, name: &str, error: &Error) -> mainstay_store::Result<()> {
    let Some(Due { cron, next_at, now_ms, .. }) = hold_due(tx, name).await? else { return Ok(()) };
    let (ticks, next) = ticks(&cron, next_at, now_ms);
    let failed_at = ticks.last().copied().unwrap_or(next_at);
    let reason = format!("{}: {error}", error.code());
    let params = params![name, next_at, next.unwrap_or(i64::MAX), failed_at, reason];
    tx.execute(FAIL, params).await.map(drop)
}

/// Which ticks from `next_at` to now are to be enqueued, and the one after them.
fn ticks(cron: &Cron, next_at: i64, now_ms: i64) -> (Vec<i64>, Option<i64>) {
    let is_wanted = |tick: i64| cron.missed == Missed::CatchUp || now_ms - tick <= TOLERANCE_MS;
    let mut next = match cron.missed {
        // However long it was: what is long past is not even counted.
        Missed::Skip if !is_wanted(next_at) => cron.schedule.next_after(now_ms - TOLERANCE_MS - 1),
        _ => Some(next_at),
    };
    let mut ticks = Vec::new();
    while let Some(tick) = next.filter(|tick| *tick <= now_ms && ticks.len() < MAX_TICKS) {
        ticks.push(tick);
        next = cron.schedule.next_after(tick);
    }
    (ticks, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_minute(missed: Missed) -> Cron {
        let schedule = Schedule::interval(60_000, 0).unwrap();
        Cron::new("c", schedule, "p", "f", &()).unwrap().missed(missed)
    }

    #[test]
    fn missed_ticks_are_skipped_or_caught_up() {
        let late = 600_030;
        assert_eq!(ticks(&every_minute(Missed::Skip), 60_000, late), (vec![600_000], Some(660_000)));
        let (caught, next) = ticks(&every_minute(Missed::CatchUp), 60_000, late);
        assert_eq!((caught.len(), caught[0], next), (10, 60_000, Some(660_000)));
        assert_eq!(ticks(&every_minute(Missed::Skip), 60_000, 60_000), (vec![60_000], Some(120_000)));
    }
}
