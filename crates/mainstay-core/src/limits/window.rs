//! The fixed window. It counts whole tokens; `at_ms` is when the window began.

use super::{Decision, Limit, State};

/// When the window began that `now_ms` is in.
pub(super) fn start(limit: &Limit, now_ms: i64) -> i64 {
    let into = now_ms.wrapping_sub(limit.start_ms).rem_euclid(limit.rate.per_ms as i64);
    now_ms.saturating_sub(into)
}

pub(super) fn refresh(limit: &Limit, state: &mut State, now_ms: i64) {
    let began = start(limit, now_ms);
    // Rounded up: after a change of period or start a window may have begun anywhere.
    let windows = (began.saturating_sub(state.at_ms).max(0) as u64).div_ceil(limit.rate.per_ms) as i64;
    state.missing = state.missing.saturating_sub(windows.saturating_mul(limit.rate.tokens as i64)).max(0);
    state.at_ms = began.max(state.at_ms);
}

pub(super) fn consume(limit: &Limit, state: &mut State, now_ms: i64, cost: u64) -> Decision {
    let remaining = |missing: i64| (limit.capacity as i64 - missing).max(0) as u64;
    if cost > limit.capacity {
        return Decision::impossible(remaining(state.missing));
    }
    let missing = state.missing + cost as i64;
    let owed = missing - limit.capacity as i64;
    if owed > 0 {
        return Decision::denied(remaining(state.missing), wait_ms(limit, state, now_ms, owed));
    }
    state.missing = missing;
    Decision::allowed(remaining(missing))
}

/// How long until the window that brings back the last of so many tokens.
pub(super) fn wait_ms(limit: &Limit, state: &State, now_ms: i64, tokens: i64) -> u64 {
    let windows = (tokens.max(0) as u64).div_ceil(limit.rate.tokens);
    let at_ms = state.at_ms.saturating_add((windows.saturating_mul(limit.rate.per_ms)) as i64);
    at_ms.saturating_sub(now_ms).max(0) as u64
}
