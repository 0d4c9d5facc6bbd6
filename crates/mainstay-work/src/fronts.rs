//! How far each lane has been taken, as this node knows it.
//!
//! On PostgreSQL what was deleted stays in the index for as long as anybody could still see it, and whoever looks from the
//! very front passes all of it by. So claims begin where the last one ended. Places are given out before they are
//! committed, though: somebody may come late to a place that was passed by. So it is looked behind again and again, as far
//! back as a transaction takes; and now and then from the very front, for those that take longer.

use crate::work::Ground;
use mainstay_store::{Result, Tx, params};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longer than transactions take, unless an application lends one of its own.
const BACK: Duration = Duration::from_secs(30);
/// How exactly it is known where a lane's front was.
const STEP: Duration = Duration::from_secs(1);

/// How often is looked behind.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How many times longer than it took is waited for the next look.
const LOOK_SHARE: u32 = 20;

const LEFT_BEHIND: &str = "SELECT place FROM mainstay_work WHERE lane = $1 AND state = 0 AND place > $2 AND place <= $3 \
     ORDER BY place LIMIT 1";

/// How far the lanes have been taken.
#[derive(Debug, Default)]
pub(crate) struct Fronts(Mutex<HashMap<i64, Front>>);

#[derive(Debug, Default)]
struct Front {
    reached: i64,
    /// Where it was before, the oldest first; the first one is the only one that may be older than [`BACK`].
    passed: VecDeque<(Instant, i64)>,
    /// When something was last taken.
    taken_at: Option<Instant>,
    /// When somebody may look behind again.
    look_at: Option<Instant>,
}

impl Front {
    /// Nobody comes late to a place up to this one, but for those who take very long.
    fn settled(&mut self, now: Instant) -> i64 {
        let is_long_ago = |at: Instant| now.saturating_duration_since(at) >= BACK;
        if self.taken_at.is_some_and(is_long_ago) {
            return self.reached;
        }
        let is_old = |(at, _): &(Instant, i64)| is_long_ago(*at);
        while self.passed.get(1).is_some_and(is_old) {
            self.passed.pop_front();
        }
        let settled = self.passed.front().filter(|first| is_old(first)).map_or(0, |(_, place)| *place);
        settled.min(self.reached)
    }
}

impl Fronts {
    /// The place after which none of these lanes has been taken.
    pub(crate) fn reached(&self, lanes: &[i64]) -> i64 {
        let fronts = self.all();
        lanes.iter().map(|lane| fronts.get(lane).map_or(0, |front| front.reached)).min().unwrap_or(0)
    }

    /// The place after which something of a lane may be left, and how far it has been taken.
    pub(crate) fn unsettled(&self, lane: i64, now: Instant) -> (i64, i64) {
        self.all().get_mut(&lane).map_or((0, 0), |front| (front.settled(now), front.reached))
    }

    /// Whether it is time to look behind in one of these lanes.
    pub(crate) fn is_look_due(&self, lanes: &[i64], now: Instant) -> bool {
        let fronts = self.all();
        lanes.iter().filter_map(|lane| fronts.get(lane)).any(|front| front.look_at.is_none_or(|at| at <= now))
    }

    /// What of a lane is to be looked at, if it is time; then it is the caller's turn.
    fn begin_look(&self, lane: i64, now: Instant) -> Option<(i64, i64)> {
        let mut fronts = self.all();
        let front = fronts.get_mut(&lane).filter(|front| front.look_at.is_none_or(|at| at <= now))?;
        front.look_at = Some(now + LOOK_EVERY);
        Some((front.settled(now), front.reached)).filter(|(low, high)| low < high)
    }

    fn end_look(&self, lane: i64, began: Instant) {
        if let Some(front) = self.all().get_mut(&lane) {
            front.look_at = Some(Instant::now() + LOOK_EVERY.max(began.elapsed() * LOOK_SHARE));
        }
    }

    /// Everything of these lanes that could be seen was taken, up to this place.
    pub(crate) fn advance(&self, lanes: &[i64], place: i64, now: Instant) {
        let mut fronts = self.all();
        for lane in lanes {
            let front = fronts.entry(*lane).or_default();
            front.reached = front.reached.max(place);
            front.taken_at = Some(now);
            let is_due = |(at, _): &(Instant, i64)| now.saturating_duration_since(*at) >= STEP;
            if front.passed.back().is_none_or(is_due) {
                front.passed.push_back((now, front.reached));
                front.settled(now);
            }
        }
    }

    /// Something is left behind at this place.
    pub(crate) fn go_back(&self, lane: i64, place: i64) {
        if let Some(front) = self.all().get_mut(&lane) {
            front.reached = front.reached.min(place - 1);
            front.passed.iter_mut().for_each(|(_, passed)| *passed = (*passed).min(place - 1));
        }
    }

    /// These lanes were deleted.
    pub(crate) fn forget(&self, lanes: &[i64]) {
        self.all().retain(|lane, _| !lanes.contains(lane));
    }

    fn all(&self) -> MutexGuard<'_, HashMap<i64, Front>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for those who came late to a place that was passed by, in lanes for which it is time.
pub(crate) async fn look_behind(ground: &Ground, tx: &Tx, lanes: &[i64]) -> Result<()> {
    for lane in lanes {
        let began = Instant::now();
        if let Some(stretch) = ground.fronts.begin_look(*lane, began) {
            look_between(ground, tx, *lane, stretch).await?;
            ground.fronts.end_look(*lane, began);
        }
    }
    Ok(())
}

/// Lets a lane begin again where something was left behind, if it was.
pub(crate) async fn look_between(ground: &Ground, tx: &Tx, lane: i64, (low, high): (i64, i64)) -> Result<()> {
    if let Some(row) = tx.query_optional(LEFT_BEHIND, params![lane, low, high]).await? {
        ground.fronts.go_back(lane, row.get(0)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_passed_by_a_while_ago_is_settled() {
        let (fronts, began) = (Fronts::default(), Instant::now());
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        for second in 0..100 {
            fronts.advance(&[1, 2], 10 * (second as i64 + 1), at(second));
        }
        assert_eq!(fronts.reached(&[1, 2]), 1_000);
        assert_eq!(fronts.reached(&[1, 3]), 0, "nothing of the third was taken");
        assert_eq!(fronts.unsettled(1, at(99)), (700, 1_000));
        assert_eq!(fronts.unsettled(1, at(200)), (1_000, 1_000), "nothing was passed by since");
    }

    #[test]
    fn a_lane_is_settled_however_little_time_was_between_the_last_claims() {
        let (fronts, began) = (Fronts::default(), Instant::now());
        fronts.advance(&[1], 10, began);
        fronts.advance(&[1], 20, began + STEP / 2);
        assert_eq!(fronts.unsettled(1, began + BACK), (10, 20));
        assert_eq!(fronts.unsettled(1, began + BACK + STEP), (20, 20), "or an idle node would look for ever");
    }

    #[test]
    fn what_is_found_behind_is_in_front_again() {
        let (fronts, now) = (Fronts::default(), Instant::now());
        fronts.advance(&[1], 50, now);
        fronts.go_back(1, 20);
        assert_eq!(fronts.reached(&[1]), 19);
        assert_eq!(fronts.unsettled(1, now + BACK), (19, 19));
        fronts.advance(&[1], 40, now + BACK);
        assert_eq!(fronts.reached(&[1]), 40);
    }
}
