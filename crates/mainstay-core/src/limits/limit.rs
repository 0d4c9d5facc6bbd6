//! A limit, checked once, and what is done with it.

use super::rate::Rate;
use super::{Decision, bucket, sliding, window};
use std::fmt;

/// Largest capacity, and largest rate of a window.
pub const MAX_CAPACITY: u64 = 1_000_000_000;
/// Longest period: a leap year.
pub const MAX_PERIOD_MS: u64 = 366 * 86_400_000;
/// Highest rate, in tokens a second.
pub const MAX_PER_SECOND: u64 = 1_000_000;
/// Most parts that a budget may be counted in. Twice as many, which may be missing from one that owes, are what a double
/// holds exactly: scripts count in doubles.
const MAX_PARTS: u64 = 1 << 52;
/// By how much a clock may go back before it is believed. Callers on different threads and nodes meet a few
/// milliseconds out of order, and must not be given that time twice; a clock that was put back is another thing.
const TOLERATED_STEP_BACK_MS: i64 = 1_000;

/// How a budget comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bit by bit.
    TokenBucket,
    /// By `rate` at the start of each period, and up to the capacity: what was not used rolls over into it.
    FixedWindow,
    /// As what was used leaves the last period: at most the capacity in any period, where the use of the period before
    /// counts as if it had been even.
    SlidingWindow,
}

impl Kind {
    /// The name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TokenBucket => "token bucket",
            Self::FixedWindow => "fixed window",
            Self::SlidingWindow => "sliding window",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::TokenBucket, Self::FixedWindow, Self::SlidingWindow]
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// How much of something may be had. Only valid ones exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    pub(super) kind: Kind,
    pub(super) capacity: u64,
    /// Of a bucket in lowest terms; of a window as it was given.
    pub(super) rate: Rate,
    pub(super) start_ms: i64,
}

/// What is kept for a key. A fresh one is the same as none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    /// What is missing from a full budget, in the limit's own parts; 0 when nothing is.
    pub missing: i64,
    /// When that was so; of a window, when it began.
    pub at_ms: i64,
}

/// Why a limit was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Nothing could ever be had.
    #[error("Rate limit capacity must be ≥ 1")]
    NoCapacity,
    /// More than can be counted.
    #[error("Rate limit capacity must be ≤ {most}")]
    CapacityTooLarge {
        /// The largest for this rate.
        most: u64,
    },
    /// Nothing would ever come back.
    #[error("tokensPerSecond must be > 0")]
    NoRate,
    /// Faster than can be counted.
    #[error("a rate must be at most {MAX_PER_SECOND} per second, and at most {MAX_CAPACITY} per period")]
    RateTooHigh,
    /// Slower than can be counted.
    #[error("a rate must be at least one in 366 days")]
    RateTooLow,
    /// The rate of a window counts whole tokens.
    #[error("the rate of a window must be a whole number")]
    FractionalRate,
    /// A period that is none.
    #[error("a period must be 1 ms to 366 days")]
    BadPeriod,
    /// A shard would have less than one token.
    #[error(
        "shards must be 1 or more, and few enough that each has a token of the capacity and of a window's rate"
    )]
    TooManyShards,
}

impl Limit {
    /// A token bucket (items 18 and 19). The capacity is taken without its fraction.
    pub fn bucket(capacity: f64, tokens_per_second: f64) -> Result<Self, LimitError> {
        Self::new(Kind::TokenBucket, tokens_per_second, 1_000)?.with_capacity(capacity)
    }

    /// `rate` in `period_ms`, with a capacity of as much.
    pub fn new(kind: Kind, rate: f64, period_ms: u64) -> Result<Self, LimitError> {
        if !(1..=MAX_PERIOD_MS).contains(&period_ms) {
            return Err(LimitError::BadPeriod);
        }
        if rate.is_nan() || rate <= 0.0 {
            return Err(LimitError::NoRate);
        }
        let per_ms = rate / period_ms as f64;
        if per_ms > MAX_PER_SECOND as f64 / 1_000.0 || rate > MAX_CAPACITY as f64 {
            return Err(LimitError::RateTooHigh);
        }
        if per_ms < 1.0 / MAX_PERIOD_MS as f64 {
            return Err(LimitError::RateTooLow);
        }
        let is_whole = rate.fract() == 0.0;
        let rate_parts = match kind {
            Kind::TokenBucket if is_whole => Rate::new(rate as u64, period_ms),
            Kind::TokenBucket => Rate::nearest(per_ms, MAX_PERIOD_MS),
            _ if !is_whole => return Err(LimitError::FractionalRate),
            _ => Rate { tokens: rate as u64, per_ms: period_ms },
        };
        let limit = Self { kind, capacity: 1, rate: rate_parts, start_ms: 0 };
        limit.with_capacity(rate.max(1.0))
    }

    /// The same with another capacity, which is taken without its fraction.
    pub fn with_capacity(self, capacity: f64) -> Result<Self, LimitError> {
        if capacity.is_nan() || capacity < 1.0 {
            return Err(LimitError::NoCapacity);
        }
        let most = match self.kind {
            Kind::TokenBucket | Kind::SlidingWindow => MAX_CAPACITY.min(MAX_PARTS / self.rate.per_ms),
            Kind::FixedWindow => MAX_CAPACITY,
        };
        if capacity.floor() > most as f64 {
            return Err(LimitError::CapacityTooLarge { most });
        }
        let capacity = capacity as u64;
        // All that a sliding window has is its capacity.
        let tokens = if self.kind == Kind::SlidingWindow { capacity } else { self.rate.tokens };
        Ok(Self { capacity, rate: Rate { tokens, ..self.rate }, ..self })
    }

    /// The same with windows that begin at `start_ms` and every period before and after it. Otherwise they do so at
    /// the epoch, so that hours begin with the hours of UTC.
    pub fn starting_at(self, start_ms: i64) -> Self {
        Self { start_ms: start_ms.rem_euclid(self.rate.per_ms as i64), ..self }
    }

    /// The part of shard `index` when the budget is split evenly over so many.
    pub fn share(&self, shards: u64, index: u64) -> Result<Self, LimitError> {
        let part = |whole: u64| whole / shards + u64::from(index < whole % shards);
        if shards == 0 || self.capacity < shards {
            return Err(LimitError::TooManyShards);
        }
        let rate = match self.kind {
            Kind::TokenBucket => Rate::new(self.rate.tokens, self.rate.per_ms.saturating_mul(shards)),
            Kind::FixedWindow if self.rate.tokens < shards => return Err(LimitError::TooManyShards),
            Kind::FixedWindow | Kind::SlidingWindow => Rate { tokens: part(self.rate.tokens), ..self.rate },
        };
        let capacity = part(self.capacity);
        if self.kind == Kind::TokenBucket && capacity.saturating_mul(rate.per_ms) > MAX_PARTS {
            return Err(LimitError::TooManyShards);
        }
        Ok(Self { capacity, rate, ..*self })
    }

    /// How the budget comes back.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The most that can be had at once.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many tokens come back in [`period_ms`](Self::period_ms).
    pub fn rate(&self) -> u64 {
        self.rate.tokens
    }

    /// In how many milliseconds [`rate`](Self::rate) tokens come back; of a bucket in lowest terms.
    pub fn period_ms(&self) -> u64 {
        self.rate.per_ms
    }

    /// How many tokens come back in a second.
    pub fn tokens_per_second(&self) -> f64 {
        self.rate.tokens as f64 * 1_000.0 / self.rate.per_ms as f64
    }

    /// When windows begin, counted from the start of the period that the epoch began with.
    pub fn start_ms(&self) -> i64 {
        self.start_ms
    }

    /// How long an empty budget takes to be full again.
    pub fn full_after_ms(&self) -> u64 {
        match self.kind {
            Kind::TokenBucket => (self.capacity * self.rate.per_ms).div_ceil(self.rate.tokens),
            Kind::FixedWindow => self.capacity.div_ceil(self.rate.tokens) * self.rate.per_ms,
            Kind::SlidingWindow => 2 * self.rate.per_ms,
        }
    }

    /// What is kept for a key that nobody has used.
    pub fn fresh(&self, now_ms: i64) -> State {
        let at_ms = match self.kind {
            Kind::TokenBucket => now_ms,
            Kind::FixedWindow | Kind::SlidingWindow => window::start(self, now_ms),
        };
        State { missing: 0, at_ms }
    }

    /// Takes `cost` tokens if they are there, and otherwise nothing.
    #[inline]
    pub fn consume(&self, state: &mut State, now_ms: i64, cost: u64) -> Decision {
        self.refresh(state, now_ms);
        match self.kind {
            Kind::TokenBucket => bucket::consume(self, state, cost),
            Kind::FixedWindow | Kind::SlidingWindow => self.consume_of_window(state, now_ms, cost),
        }
    }

    /// Apart, so that the bucket, which most limits are, is small enough to become part of its callers.
    #[inline(never)]
    fn consume_of_window(&self, state: &mut State, now_ms: i64, cost: u64) -> Decision {
        match self.kind {
            Kind::SlidingWindow => sliding::consume(self, state, now_ms, cost),
            Kind::FixedWindow | Kind::TokenBucket => window::consume(self, state, now_ms, cost),
        }
    }

    /// What [`consume`](Self::consume) would say.
    pub fn check(&self, state: &State, now_ms: i64, cost: u64) -> Decision {
        self.consume(&mut state.clone(), now_ms, cost)
    }

    /// How many whole tokens are there now. Below 0 when more was taken than there was, which a penalty and a
    /// reservation do.
    pub fn value(&self, state: &State, now_ms: i64) -> i64 {
        let mut state = *state;
        self.refresh(&mut state, now_ms);
        match self.kind {
            Kind::TokenBucket => bucket::value(self, &state),
            Kind::FixedWindow => self.capacity as i64 - state.missing,
            Kind::SlidingWindow => self.capacity as i64 - sliding::used(self, &state, now_ms),
        }
    }

    /// Gives `amount` tokens back, never beyond the capacity.
    pub fn refund(&self, state: &mut State, now_ms: i64, amount: u64) {
        self.refresh(state, now_ms);
        match self.kind {
            Kind::SlidingWindow => sliding::refund(state, amount),
            Kind::TokenBucket | Kind::FixedWindow => {
                state.missing = state.missing.saturating_sub(self.parts(amount)).max(0);
            }
        }
    }

    /// Takes `amount` tokens whether they are there or not. What is owed is never more than a whole capacity.
    pub fn penalize(&self, state: &mut State, now_ms: i64, amount: u64) {
        self.refresh(state, now_ms);
        match self.kind {
            Kind::SlidingWindow => sliding::penalize(self, state, amount),
            Kind::TokenBucket | Kind::FixedWindow => {
                let most = 2 * self.parts(self.capacity);
                // What a reservation owes already stays owed.
                state.missing = (state.missing + self.parts(amount)).min(most.max(state.missing));
            }
        }
    }

    /// Takes `cost` tokens now or ahead of their coming, as long as no more than `max_reserved` are then owed; tells how
    /// long to wait until they are there. Otherwise takes nothing and tells what [`consume`](Self::consume) would.
    /// A sliding window lends nothing.
    pub fn reserve(&self, state: &mut State, now_ms: i64, cost: u64, max_reserved: u64) -> (Decision, u64) {
        let decision = self.consume(state, now_ms, cost);
        if decision.allowed || self.kind == Kind::SlidingWindow {
            return (decision, 0);
        }
        let missing = state.missing.saturating_add(self.parts(cost));
        let owed = missing - self.parts(self.capacity);
        if owed > self.parts(max_reserved.min(MAX_CAPACITY)) {
            return (decision, 0);
        }
        state.missing = missing;
        let wait_ms = match self.kind {
            Kind::TokenBucket => bucket::wait_ms(self, owed),
            Kind::FixedWindow | Kind::SlidingWindow => window::wait_ms(self, state, now_ms, owed),
        };
        (Decision::allowed(0), wait_ms)
    }

    /// Whether nothing would be lost if the state were forgotten.
    pub fn is_full(&self, state: &State, now_ms: i64) -> bool {
        let mut state = *state;
        self.refresh(&mut state, now_ms);
        state.missing == 0
    }

    /// The state under this limit of a key that was used under `before`: what was used stays used, and no more.
    pub fn convert(&self, before: &Self, state: &State, now_ms: i64) -> State {
        let mut state = *state;
        before.refresh(&mut state, now_ms);
        if self == before {
            return state;
        }
        let used = match before.kind {
            Kind::TokenBucket if self.kind == Kind::TokenBucket => {
                let parts = i128::from(state.missing) * i128::from(self.rate.per_ms);
                let missing = (parts + i128::from(before.rate.per_ms) - 1) / i128::from(before.rate.per_ms);
                let most = 2 * self.parts(self.capacity);
                return State { missing: missing.min(i128::from(most)) as i64, at_ms: state.at_ms };
            }
            Kind::TokenBucket => (state.missing as u64).div_ceil(before.rate.per_ms),
            Kind::FixedWindow => state.missing as u64,
            Kind::SlidingWindow => sliding::used(before, &state, now_ms) as u64,
        };
        let mut fresh = self.fresh(now_ms);
        self.penalize(&mut fresh, now_ms, used);
        fresh
    }

    /// Lets time pass. A clock that goes back adds nothing and takes nothing, and when it stays there the budget comes
    /// back by the new time.
    #[inline]
    pub(super) fn refresh(&self, state: &mut State, now_ms: i64) {
        if self.kind == Kind::TokenBucket && now_ms >= state.at_ms {
            return bucket::refresh(self, state, now_ms);
        }
        self.refresh_seldom(state, now_ms);
    }

    /// Windows, and clocks that went back.
    #[inline(never)]
    fn refresh_seldom(&self, state: &mut State, now_ms: i64) {
        if now_ms < state.at_ms {
            if now_ms < state.at_ms - TOLERATED_STEP_BACK_MS {
                state.at_ms = self.fresh(now_ms).at_ms;
            }
            return;
        }
        match self.kind {
            Kind::TokenBucket => bucket::refresh(self, state, now_ms),
            Kind::FixedWindow => window::refresh(self, state, now_ms),
            Kind::SlidingWindow => sliding::refresh(self, state, now_ms),
        }
    }

    /// So many tokens in the parts that a bucket or a fixed window counts in.
    #[inline]
    pub(super) fn parts(&self, tokens: u64) -> i64 {
        let per_token = if self.kind == Kind::TokenBucket { self.rate.per_ms } else { 1 };
        i64::try_from(tokens.saturating_mul(per_token)).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
    }
}
