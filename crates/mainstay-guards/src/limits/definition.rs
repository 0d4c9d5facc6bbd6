//! Limits with a name, as they are written down.

use crate::{Error, Result};
use mainstay_core::limits::{Kind, Limit, LimitError, MAX_CAPACITY, parse_period, show_period};
use mainstay_core::names::check_unreserved;
use serde::{Deserialize, Serialize};

/// Longest name.
pub const MAX_NAME_BYTES: usize = 128;
/// Most limits of a store that callers name. Those that a program declares are not counted.
pub const MAX_LIMITS: usize = 10_000;
/// Most shards.
pub const MAX_SHARDS: u64 = 1_024;

/// A limit with a name: how much, and how it is kept (item 1). Only valid ones exist.
///
/// ```
/// use mainstay_guards::limits::Definition;
///
/// let dispatch: Definition =
///     serde_json::from_str(r#"{"kind":"token bucket","rate":100,"period":"1m","capacity":150,"shards":50}"#).unwrap();
/// assert_eq!((dispatch.limit().capacity(), dispatch.shards()), (150, 50));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Definition {
    limit: Limit,
    rate: f64,
    period_ms: u64,
    shards: u64,
    max_reserved: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Form {
    kind: String,
    rate: f64,
    period: Period,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capacity: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shards: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_reserved: Option<u64>,
}

/// `"1m"`, or milliseconds.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Period {
    Text(String),
    Milliseconds(u64),
}

impl Definition {
    /// `rate` in `period_ms`, in one shard, with a capacity of as much.
    pub fn new(kind: Kind, rate: f64, period_ms: u64) -> Result<Self> {
        let limit = Limit::new(kind, rate, period_ms)?;
        Ok(Self { limit, rate, period_ms, shards: 1, max_reserved: 0 })
    }

    /// A definition of a limit that is there.
    pub fn of(limit: Limit) -> Self {
        Self { limit, rate: limit.rate() as f64, period_ms: limit.period_ms(), shards: 1, max_reserved: 0 }
    }

    /// The same with another limit.
    pub fn with_limit(&self, limit: Limit) -> Result<Self> {
        let Self { shards, max_reserved, .. } = *self;
        Self { max_reserved, ..Self::of(limit) }.with_shards(shards)
    }

    /// The same with another capacity.
    pub fn with_capacity(self, capacity: f64) -> Result<Self> {
        Ok(Self { limit: self.limit.with_capacity(capacity)?, ..self })
    }

    /// The same in so many shards, each with an even part. Many callers of one key then seldom meet, and what is
    /// allowed is approximate: by about one part. A cost must fit a part. A rule of thumb is half as many shards as
    /// calls a second (item 11); fewer than fifty calls a second need none.
    pub fn with_shards(self, shards: u64) -> Result<Self> {
        if shards > MAX_SHARDS {
            return Err(LimitError::TooManyShards.into());
        }
        self.limit.share(shards, 0)?;
        Ok(Self { shards, ..self })
    }

    /// The same with windows that begin at `start_ms`.
    pub fn starting_at(self, start_ms: i64) -> Self {
        Self { limit: self.limit.starting_at(start_ms), ..self }
    }

    /// The same with reservations of up to so many tokens ahead of their coming.
    pub fn with_max_reserved(self, max_reserved: u64) -> Result<Self> {
        if max_reserved > MAX_CAPACITY || (max_reserved > 0 && self.limit.kind() == Kind::SlidingWindow) {
            let reason = format!("is at most {MAX_CAPACITY}, and 0 for a sliding window");
            return Err(Error::invalid("maxReserved", reason));
        }
        Ok(Self { max_reserved, ..self })
    }

    /// How much.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// In how many shards it is kept.
    pub fn shards(&self) -> u64 {
        self.shards
    }

    /// How many tokens of a shard may be reserved ahead.
    pub fn max_reserved(&self) -> u64 {
        self.max_reserved
    }

    /// The limit of one shard.
    pub(super) fn shard(&self, index: u64) -> Limit {
        self.limit.share(self.shards, index).unwrap_or(self.limit)
    }
}

/// The limits that are there without anybody defining them (item 2).
pub(super) fn shipped() -> [(&'static str, Definition); 2] {
    let dispatch = Definition::new(Kind::TokenBucket, 100.0, 60_000)
        .and_then(|limit| limit.with_capacity(150.0)?.with_shards(50));
    let operations = Definition::new(Kind::FixedWindow, 10.0, 3_600_000);
    [
        ("commandDispatch", dispatch.expect("constants that fit")),
        ("adminOperations", operations.expect("constants that fit")),
    ]
}

/// Refuses names of the platform, and names that are empty, too long or not fit to be shown.
pub(super) fn check_name(name: &str) -> Result<()> {
    check_unreserved("name", name)?;
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(char::is_control) {
        let reason = format!("has 1 to {MAX_NAME_BYTES} bytes and no control characters");
        return Err(Error::invalid("name", reason));
    }
    Ok(())
}

impl TryFrom<Form> for Definition {
    type Error = Error;

    fn try_from(form: Form) -> Result<Self> {
        let kind = Kind::parse(&form.kind).ok_or_else(|| {
            Error::invalid("kind", "is \"token bucket\", \"fixed window\" or \"sliding window\"")
        })?;
        let period_ms = match form.period {
            Period::Milliseconds(period_ms) => period_ms,
            Period::Text(text) => parse_period(&text)
                .ok_or_else(|| Error::invalid("period", "is written like 500ms, 1s, 5m, 1h or 30d"))?,
        };
        let mut definition = Self::new(kind, form.rate, period_ms)?;
        if let Some(capacity) = form.capacity {
            definition = definition.with_capacity(capacity)?;
        }
        if let Some(start) = form.start {
            definition = definition.starting_at(start);
        }
        definition.with_shards(form.shards.unwrap_or(1))?.with_max_reserved(form.max_reserved.unwrap_or(0))
    }
}

impl From<Definition> for Form {
    fn from(definition: Definition) -> Self {
        let Definition { limit, rate, period_ms, shards, max_reserved } = definition;
        Self {
            kind: limit.kind().to_string(),
            rate,
            period: Period::Text(show_period(period_ms)),
            capacity: Some(limit.capacity() as f64),
            shards: Some(shards),
            start: (limit.start_ms() != 0).then(|| limit.start_ms()),
            max_reserved: (max_reserved > 0).then_some(max_reserved),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_001_a_limit_is_written_down_and_read_again() {
        let read = serde_json::from_str::<Definition>;
        let plain = read(r#"{"kind":"token bucket","rate":100,"period":"1m"}"#).unwrap();
        assert_eq!((plain.limit().capacity(), plain.shards(), plain.max_reserved()), (100, 1, 0));
        assert_eq!(read(r#"{"kind":"token bucket","rate":100,"period":60000}"#).unwrap(), plain);
        let all = r#"{"kind":"fixed window","rate":10.0,"period":"1h","capacity":25.0,"shards":2,"start":900000,"maxReserved":5}"#;
        assert_eq!(serde_json::to_string(&read(all).unwrap()).unwrap(), all);
        for (_, definition) in shipped() {
            let written = serde_json::to_string(&definition).unwrap();
            assert_eq!(serde_json::from_str::<Definition>(&written).unwrap(), definition);
        }
    }

    #[test]
    fn b_001_what_makes_no_sense_is_refused_and_named() {
        let read = serde_json::from_str::<Definition>;
        for (bad, reason) in [
            (r#"{"kind":"leaky","rate":1,"period":"1m"}"#, "kind: is \"token bucket\""),
            (r#"{"kind":"token bucket","rate":0,"period":"1m"}"#, "tokensPerSecond must be > 0"),
            (r#"{"kind":"token bucket","rate":1,"period":"soon"}"#, "period: is written like"),
            (r#"{"kind":"token bucket","rate":1,"period":"367d"}"#, "a period must be 1 ms to 366 days"),
            (r#"{"kind":"token bucket","rate":1,"period":"1m","capacity":0}"#, "capacity must be ≥ 1"),
            (r#"{"kind":"token bucket","rate":1,"period":"1m","shards":2}"#, "shards must be"),
            (r#"{"kind":"token bucket","rate":1,"period":"1m","shards":0}"#, "shards must be"),
            (r#"{"kind":"fixed window","rate":1.5,"period":"1m"}"#, "must be a whole number"),
            (r#"{"kind":"sliding window","rate":1,"period":"1m","maxReserved":1}"#, "maxReserved: is"),
            (r#"{"kind":"token bucket","rate":1,"period":"1m","burst":1}"#, "unknown field `burst`"),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }
}
