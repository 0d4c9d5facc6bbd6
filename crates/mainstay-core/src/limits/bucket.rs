//! The token bucket. It counts in parts: a token has as many as the rate has milliseconds, and every millisecond
//! brings back as many as the rate has tokens.

use super::{Decision, Limit, State};

#[inline]
pub(super) fn refresh(limit: &Limit, state: &mut State, now_ms: i64) {
    let back = (now_ms.wrapping_sub(state.at_ms)).saturating_mul(limit.rate.tokens as i64);
    state.missing = state.missing.saturating_sub(back).max(0);
    state.at_ms = now_ms;
}

#[inline]
pub(super) fn consume(limit: &Limit, state: &mut State, cost: u64) -> Decision {
    if cost > limit.capacity {
        return Decision::impossible(remaining(limit, state.missing));
    }
    let missing = state.missing + limit.parts(cost);
    let owed = missing - limit.parts(limit.capacity);
    if owed > 0 {
        return Decision::denied(remaining(limit, state.missing), wait_ms(limit, owed));
    }
    state.missing = missing;
    Decision::allowed(remaining(limit, missing))
}

pub(super) fn value(limit: &Limit, state: &State) -> i64 {
    (limit.parts(limit.capacity) - state.missing).div_euclid(limit.rate.per_ms as i64)
}

#[inline]
fn remaining(limit: &Limit, missing: i64) -> u64 {
    (limit.parts(limit.capacity) - missing).max(0) as u64 / limit.rate.per_ms
}

/// How long until so many parts have come back.
pub(super) fn wait_ms(limit: &Limit, parts: i64) -> u64 {
    (parts.max(0) as u64).div_ceil(limit.rate.tokens)
}
