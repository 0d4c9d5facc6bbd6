//! Marks: when a lane had come how far, and what it was made to leave out.
//!
//! A checkpoint says that everything before it was applied, but not when, nor what an operator has passed over. For that,
//! the place that a lane leaves is noted before it moves on: after every pause, and every few seconds where there is none.
//! So the log of a busy lane grows with time instead of with its events, and a quiet one has a mark for each.

use mainstay_store::Column::{Int, Text};
use mainstay_store::{Bulk, Result, Row, Tx, Value, params};
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

/// A lane that has moved without a pause is marked this often.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// A lane that has stood still for this long is marked before it moves.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// How long marks are kept; what was passed over is known for good.
const KEPT_MS: i64 = 7 * 86_400_000;
/// How many old marks go for each new one.
const FORGOTTEN_AT_ONCE: i64 = 2;

const MARK: &str = "INSERT INTO mainstay_projection_marks (projection, lane, position, reached_at) \
     SELECT projection, lane, position, updated_at FROM mainstay_projection_lanes \
     WHERE projection = $1 AND lane = $2 AND position > 0 ON CONFLICT (projection, lane, position) DO NOTHING";
const FORGET_OLD: &str = "DELETE FROM mainstay_projection_marks WHERE projection = $1 AND lane = $2 \
     AND skipped_after IS NULL AND reached_at < mainstay_now() - $3 AND position IN (SELECT oldest.position \
     FROM mainstay_projection_marks oldest WHERE oldest.projection = $1 AND oldest.lane = $2 \
     AND oldest.skipped_after IS NULL ORDER BY oldest.position LIMIT $4)";
const SKIP: &str = "INSERT INTO mainstay_projection_marks (projection, lane, position, reached_at, skipped_after) \
     SELECT projection, lane, CAST($3 AS BIGINT), mainstay_now(), position FROM mainstay_projection_lanes \
     WHERE projection = $1 AND lane = $2";
const CUT: &str = "UPDATE mainstay_projection_marks SET position = $3 \
     WHERE projection = $1 AND lane = $2 AND position > $3 AND skipped_after < $3";
const BACK: &str =
    "DELETE FROM mainstay_projection_marks WHERE projection = $1 AND lane = $2 AND position > $3";
const FORGET: &str = "DELETE FROM mainstay_projection_marks WHERE projection = $1";
const FORGET_SKIPPED: &str =
    "DELETE FROM mainstay_projection_marks WHERE projection = $1 AND skipped_after IS NOT NULL";
static FIND: LazyLock<Bulk> = LazyLock::new(|| {
    let text = "WITH asked (projection, lane, position) AS (VALUES {rows}) \
         SELECT asked.projection, asked.lane, asked.position, mark.reached_at, mark.skipped_after FROM asked \
         JOIN mainstay_projection_marks mark ON mark.projection = asked.projection AND mark.lane = asked.lane \
         AND mark.position = (SELECT min(next.position) FROM mainstay_projection_marks next \
         WHERE next.projection = asked.projection AND next.lane = asked.lane AND next.position >= asked.position)";
    Bulk::rows(text, &[Text, Int, Int])
});

/// Notes where a lane is, which is held and about to move.
pub(super) async fn mark(tx: &Tx, projection: &str, lane: u32) -> Result<()> {
    tx.execute(MARK, params![projection, lane]).await?;
    tx.execute(FORGET_OLD, params![projection, lane, KEPT_MS, FORGOTTEN_AT_ONCE]).await.map(drop)
}

/// Notes that a lane, which is held, is put from where it is to another place: what lies between is left out, or what is
/// known of it is forgotten, since it is applied anew.
pub(super) async fn put(tx: &Tx, projection: &str, (lane, from): (u32, u64), to: u64) -> Result<()> {
    let params = params![projection, lane, to as i64];
    if to > from {
        mark(tx, projection, lane).await?;
        return tx.execute(SKIP, params).await.map(drop);
    }
    tx.execute(CUT, params).await?;
    tx.execute(BACK, params).await.map(drop)
}

/// Forgets all marks of a projection.
pub(super) async fn forget(tx: &Tx, projection: &str) -> Result<()> {
    tx.execute(FORGET, params![projection]).await.map(drop)
}

/// Forgets what was left out of a read model in whose place another one comes.
pub(super) async fn forget_skipped(tx: &Tx, projection: &str) -> Result<()> {
    tx.execute(FORGET_SKIPPED, params![projection]).await.map(drop)
}

/// A place in a lane of a projection.
pub(super) type Place = (String, u32, u64);

/// What is known of a place that a lane has passed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    /// The first moment at which the lane is known to have been there.
    pub(super) reached_at: i64,
    /// Whether it was left out.
    pub(super) is_skipped: bool,
}

/// What is known of places; nothing of those that lie behind the last mark.
pub(super) async fn find(tx: &Tx, places: &[Place]) -> Result<HashMap<Place, Passed>> {
    let values = places.iter().flat_map(|(projection, lane, position)| {
        [Value::from(projection.as_str()), Value::from(*lane), Value::from(*position as i64)]
    });
    let found = FIND.query(tx, &values.collect::<Vec<_>>()).await?;
    let passed = |row: &Row| {
        let place: Place = (row.get(0)?, row.get(1)?, row.get(2)?);
        let is_skipped = row.get::<Option<u64>>(4)?.is_some_and(|after| place.2 > after);
        Ok((place, Passed { reached_at: row.get(3)?, is_skipped }))
    };
    found.iter().map(passed).collect()
}
