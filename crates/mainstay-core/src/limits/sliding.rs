//! The sliding window. It knows how much was used in the window that `now` is in and in the one before, and takes the
//! use of the one before to have been even: `at_ms` is when the present one began.

use super::{Decision, Limit, State, window};

/// Both counts share the state's one number.
const BITS: u32 = 31;
const MOST: i64 = (1 << BITS) - 1;

struct Counts {
    before: i64,
    now: i64,
}

impl Counts {
    fn of(state: &State) -> Self {
        Self { before: state.missing >> BITS, now: state.missing & MOST }
    }

    fn store(self, state: &mut State) {
        state.missing = (self.before.min(MOST) << BITS) | self.now.clamp(0, MOST);
    }
}

pub(super) fn refresh(limit: &Limit, state: &mut State, now_ms: i64) {
    let began = window::start(limit, now_ms);
    let windows = (began.saturating_sub(state.at_ms).max(0) as u64).div_ceil(limit.rate.per_ms);
    match windows {
        0 => return,
        1 => Counts { before: Counts::of(state).now, now: 0 }.store(state),
        _ => state.missing = 0,
    }
    state.at_ms = began;
}

/// How much counts as used at `now_ms`, rounded up.
pub(super) fn used(limit: &Limit, state: &State, now_ms: i64) -> i64 {
    let Counts { before, now } = Counts::of(state);
    let left = (limit.rate.per_ms as i64 - now_ms.saturating_sub(state.at_ms)).max(0);
    let still = (i128::from(before) * i128::from(left)) as u128;
    now + still.div_ceil(u128::from(limit.rate.per_ms)) as i64
}

pub(super) fn consume(limit: &Limit, state: &mut State, now_ms: i64, cost: u64) -> Decision {
    let used = used(limit, state, now_ms);
    let remaining = |used: i64| (limit.capacity as i64 - used).max(0) as u64;
    if cost > limit.capacity {
        return Decision::impossible(remaining(used));
    }
    let cost = cost as i64;
    if used + cost > limit.capacity as i64 {
        return Decision::denied(remaining(used), wait_ms(limit, state, now_ms, cost));
    }
    let Counts { before, now } = Counts::of(state);
    Counts { before, now: now + cost }.store(state);
    Decision::allowed(remaining(used + cost))
}

pub(super) fn refund(state: &mut State, amount: u64) {
    let Counts { before, now } = Counts::of(state);
    let amount = i64::try_from(amount).unwrap_or(i64::MAX);
    // What the present window did not use was used in the one before.
    let from_before = (amount - now).clamp(0, before);
    Counts { before: before - from_before, now: now.saturating_sub(amount).max(0) }.store(state);
}

pub(super) fn penalize(limit: &Limit, state: &mut State, amount: u64) {
    let Counts { before, now } = Counts::of(state);
    let most = 2 * limit.capacity as i64;
    let amount = i64::try_from(amount).unwrap_or(i64::MAX);
    Counts { before, now: now.saturating_add(amount).min(most.max(now)) }.store(state);
}

/// How long until `cost` fits. In the present window only what was used in the one before goes away; if that is not
/// enough, it is the present one's turn in the next.
fn wait_ms(limit: &Limit, state: &State, now_ms: i64, cost: i64) -> u64 {
    let Counts { before, now } = Counts::of(state);
    let (capacity, period) = (limit.capacity as i64, limit.rate.per_ms as i64);
    let room = capacity - cost - now;
    let at_ms = if room >= 0 {
        state.at_ms + fits_at(before, room, period)
    } else {
        state.at_ms + period + fits_at(now, capacity - cost, period)
    };
    at_ms.saturating_sub(now_ms).max(0) as u64
}

/// How far into a window no more than `room` is left of the `before` that were used in the one before.
fn fits_at(before: i64, room: i64, period: i64) -> i64 {
    if before <= room {
        return 0;
    }
    period - (i128::from(room) * i128::from(period) / i128::from(before)) as i64
}
