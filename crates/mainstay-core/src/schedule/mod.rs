//! When something that repeats is due: at a steady interval, or by a cron expression in a time zone.
//!
//! [`Schedule::next_after`] is a pure function of an instant, so every node computes the same ticks and a test can ask
//! about any of them. `fields` reads expressions and finds times on a calendar without zones; `cron` lays those over the
//! offsets of a zone and says what happens when clocks change.

mod cron;
#[cfg(test)]
mod cron_tests;
mod fields;

pub use cron::Cron;
use serde::{Deserialize, Serialize};

/// Longest cron expression. The longest sensible one lists every minute.
pub const MAX_TEXT_BYTES: usize = 512;

/// When something is due, again and again. Only valid ones exist.
///
/// ```
/// use mainstay_core::schedule::Schedule;
///
/// let nightly = Schedule::cron("30 2 * * *", "Europe/Berlin").unwrap();
/// let noon: jiff::Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
/// let next = nightly.next_after(noon.as_millisecond()).unwrap();
/// assert_eq!(jiff::Timestamp::from_millisecond(next).unwrap().to_string(), "2026-06-02T00:30:00Z");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub enum Schedule {
    /// Every so many milliseconds.
    Interval(Interval),
    /// At the times of a cron expression.
    Cron(Cron),
}

/// Every so many milliseconds, counted from an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    every_ms: u64,
    from_ms: i64,
}

/// Why a schedule was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// An interval of nothing.
    #[error("an interval must be 1 ms or longer")]
    EmptyInterval,
    /// Neither five nor six fields.
    #[error(
        "a cron has 5 fields (minute hour day month weekday), or 6 with the second first; {text:?} has {count}"
    )]
    FieldCount {
        /// The expression.
        text: String,
        /// How many fields it has.
        count: usize,
    },
    /// A field cannot be read.
    #[error("{field} {part:?}: {reason}")]
    BadField {
        /// Which one.
        field: &'static str,
        /// The part of it that is wrong.
        part: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A nickname that nobody knows.
    #[error("{0:?} is none of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly")]
    UnknownNickname(String),
    /// An expression beyond [`MAX_TEXT_BYTES`].
    #[error("a cron has at most {MAX_TEXT_BYTES} bytes; this one has {0}")]
    TooLong(usize),
    /// No date has such a day, as with 30 February.
    #[error("{0:?} never fires: no month that it names has such a day")]
    NeverFires(String),
    /// A zone that the database does not have.
    #[error("{0:?} is no time zone; zones have names such as UTC or Europe/Berlin")]
    UnknownZone(String),
    /// Written down neither as an interval nor as a cron.
    #[error("a schedule has either everyMs (and fromMs), or cron (and timeZone)")]
    NoKind,
}

impl Schedule {
    /// Every `every_ms`, at `from_ms` and from there on.
    pub fn interval(every_ms: u64, from_ms: i64) -> Result<Self, ScheduleError> {
        if every_ms == 0 {
            return Err(ScheduleError::EmptyInterval);
        }
        Ok(Self::Interval(Interval { every_ms, from_ms }))
    }

    /// The times of a cron expression in a zone; see [`Cron::new`].
    pub fn cron(text: &str, zone: &str) -> Result<Self, ScheduleError> {
        Cron::new(text, zone).map(Self::Cron)
    }

    /// The first due time after an instant, both in milliseconds since 1970. None when time itself ends first: an
    /// interval beyond what 64 bits hold, a date beyond the year 9999.
    pub fn next_after(&self, at_ms: i64) -> Option<i64> {
        match self {
            Self::Interval(interval) => interval.next_after(at_ms),
            Self::Cron(cron) => cron.next_after(at_ms),
        }
    }
}

impl Interval {
    /// The length of a period.
    pub fn every_ms(&self) -> u64 {
        self.every_ms
    }

    /// The first due time.
    pub fn from_ms(&self) -> i64 {
        self.from_ms
    }

    fn next_after(&self, at_ms: i64) -> Option<i64> {
        let (at, from, every) = (i128::from(at_ms), i128::from(self.from_ms), i128::from(self.every_ms));
        let periods = if at < from { 0 } else { (at - from) / every + 1 };
        i64::try_from(from + periods * every).ok()
    }
}

/// A schedule as it is written down.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Form {
    #[serde(skip_serializing_if = "Option::is_none")]
    every_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<String>,
}

impl TryFrom<Form> for Schedule {
    type Error = ScheduleError;

    fn try_from(form: Form) -> Result<Self, ScheduleError> {
        match form {
            Form { every_ms: Some(every_ms), from_ms, cron: None, time_zone: None } => {
                Self::interval(every_ms, from_ms.unwrap_or(0))
            }
            Form { every_ms: None, from_ms: None, cron: Some(text), time_zone } => {
                Self::cron(&text, time_zone.as_deref().unwrap_or("UTC"))
            }
            _ => Err(ScheduleError::NoKind),
        }
    }
}

impl From<Schedule> for Form {
    fn from(schedule: Schedule) -> Self {
        match schedule {
            Schedule::Interval(Interval { every_ms, from_ms }) => {
                Self { every_ms: Some(every_ms), from_ms: Some(from_ms), ..Self::default() }
            }
            Schedule::Cron(cron) => Self {
                cron: Some(cron.text().to_owned()),
                time_zone: Some(cron.zone().to_owned()),
                ..Self::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_interval_is_due_at_its_beginning_and_each_period_after() {
        let every = Schedule::interval(60_000, 1_000).unwrap();
        for (at, next) in
            [(-500_000, 1_000), (999, 1_000), (1_000, 61_000), (60_999, 61_000), (61_000, 121_000)]
        {
            assert_eq!(every.next_after(at), Some(next), "{at}");
        }
        assert_eq!(every.next_after(i64::MAX), None);
        assert_eq!(Schedule::interval(0, 0), Err(ScheduleError::EmptyInterval));
    }

    #[test]
    fn reads_and_writes_the_wire_form() {
        let read = serde_json::from_str::<Schedule>;
        for text in [
            r#"{"everyMs":60000,"fromMs":-5}"#,
            r#"{"cron":"30 2 * * MON-FRI","timeZone":"America/New_York"}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(text).unwrap()).unwrap(), text);
        }
        assert_eq!(read(r#"{"cron":"@daily"}"#).unwrap(), Schedule::cron("@daily", "UTC").unwrap());
        assert_eq!(read(r#"{"everyMs":5}"#).unwrap(), Schedule::interval(5, 0).unwrap());
        for (bad, reason) in [
            ("{}", "either everyMs"),
            (r#"{"everyMs":5,"cron":"@daily"}"#, "either everyMs"),
            (r#"{"everyMs":5,"timeZone":"UTC"}"#, "either everyMs"),
            (r#"{"everyMs":0}"#, "1 ms or longer"),
            (r#"{"every":5}"#, "unknown field"),
            (r#"{"cron":"0 0 30 2 *"}"#, "never fires"),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn an_interval_skips_nothing(every in 1_u64.., from in any::<i64>(), at in any::<i64>()) {
            let schedule = Schedule::interval(every, from).unwrap();
            if let Some(next) = schedule.next_after(at) {
                let (next, at, from, every) = (i128::from(next), i128::from(at), i128::from(from), i128::from(every));
                prop_assert!(next > at && next >= from);
                prop_assert_eq!((next - from) % every, 0);
                prop_assert!(next == from || next - every <= at);
            }
        }
    }
}
