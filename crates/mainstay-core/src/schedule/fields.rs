//! The fields of a cron expression, and the times on a calendar that fit them.
//!
//! The language is that of Vixie's cron, with an optional second in front: `*`, values, lists, ranges, steps, names of
//! months and weekdays, and nicknames such as `@daily`. What different crons read in different ways (`5/15`, ranges
//! that run backwards, steps longer than the field) is refused with a hint instead of guessed.

use super::{MAX_TEXT_BYTES, ScheduleError};
use jiff::civil::{Date, DateTime, Time};

/// How many years are searched for a match. The rarest date that recurs is a 29 February on one weekday: usually after
/// 28 years, after 40 when a century without its leap year lies between.
const HORIZON_YEARS: i16 = 40;

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Which values a field takes: bit n for the value n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set(u64);

impl Set {
    fn has(self, value: i8) -> bool {
        self.0 >> value & 1 == 1
    }

    /// The first value of the set that is not below `from`, which is at most one beyond a field: 60.
    fn first_from(self, from: i8) -> Option<i8> {
        let rest = self.0 & u64::MAX << from;
        (rest != 0).then(|| rest.trailing_zeros() as i8)
    }
}

/// What a field may hold.
struct Kind {
    name: &'static str,
    low: u8,
    high: u8,
    names: &'static [&'static str],
}

const SECOND: Kind = Kind { name: "second", low: 0, high: 59, names: &[] };
const MINUTE: Kind = Kind { name: "minute", low: 0, high: 59, names: &[] };
const HOUR: Kind = Kind { name: "hour", low: 0, high: 23, names: &[] };
const DAY: Kind = Kind { name: "day", low: 1, high: 31, names: &[] };
const MONTH: Kind = Kind { name: "month", low: 1, high: 12, names: &MONTHS };
/// Sunday is 0 and 7; the latter so that a range can end with it.
const WEEKDAY: Kind = Kind { name: "weekday", low: 0, high: 7, names: &WEEKDAYS };

/// A cron expression, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    second: Set,
    minute: Set,
    hour: Set,
    day: Set,
    month: Set,
    weekday: Set,
    /// Either of day and weekday is enough. So it has been since Vixie's cron when both are restricted.
    either_day: bool,
}

impl Fields {
    /// Reads an expression, and refuses one that no date fits.
    pub(super) fn parse(text: &str) -> Result<Self, ScheduleError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(ScheduleError::TooLong(text.len()));
        }
        let parts: Vec<&str> = nickname(text.trim())?.split_ascii_whitespace().collect();
        let (second, [minute, hour, day, month, weekday]) = match parts[..] {
            [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday]),
            [second, minute, hour, day, month, weekday] => (second, [minute, hour, day, month, weekday]),
            _ => return Err(ScheduleError::FieldCount { text: text.to_owned(), count: parts.len() }),
        };
        let fields = Self {
            second: SECOND.parse(second)?,
            minute: MINUTE.parse(minute)?,
            hour: HOUR.parse(hour)?,
            day: DAY.parse(day)?,
            month: MONTH.parse(month)?,
            weekday: WEEKDAY.parse(weekday)?,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
        };
        // Any year would do: the horizon is longer than the longest wait.
        match fields.first_from(DateTime::constant(2001, 1, 1, 0, 0, 0, 0)) {
            Some(_) => Ok(fields),
            None => Err(ScheduleError::NeverFires(text.to_owned())),
        }
    }

    /// Whether no hour is left out.
    pub(super) fn is_hourly(&self) -> bool {
        (0..24).all(|hour| self.hour.has(hour))
    }

    /// The first time that fits and is not before `from`.
    pub(super) fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let last_year = from.year().saturating_add(HORIZON_YEARS);
        let (mut date, mut time) = (from.date(), from.time());
        while date.year() <= last_year {
            if !self.month.has(date.month()) {
                date = date.last_of_month();
            } else if self.has_date(date)
                && let Some(time) = self.time_from(time)
            {
                return Some(date.to_datetime(time));
            }
            (date, time) = (date.tomorrow().ok()?, Time::midnight());
        }
        None
    }

    fn has_date(&self, date: Date) -> bool {
        let (day, weekday) =
            (self.day.has(date.day()), self.weekday.has(date.weekday().to_sunday_zero_offset()));
        if self.either_day { day || weekday } else { day && weekday }
    }

    /// The first time of a day that fits and is not before `from`.
    fn time_from(&self, from: Time) -> Option<Time> {
        let (first_minute, first_second) = (self.minute.first_from(0)?, self.second.first_from(0)?);
        if self.hour.has(from.hour()) {
            if self.minute.has(from.minute())
                && let Some(second) = self.second.first_from(from.second())
            {
                return Time::new(from.hour(), from.minute(), second, 0).ok();
            }
            if let Some(minute) = self.minute.first_from(from.minute() + 1) {
                return Time::new(from.hour(), minute, first_second, 0).ok();
            }
        }
        Time::new(self.hour.first_from(from.hour() + 1)?, first_minute, first_second, 0).ok()
    }
}

fn nickname(text: &str) -> Result<&str, ScheduleError> {
    if !text.starts_with('@') {
        return Ok(text);
    }
    Ok(match text.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * SUN",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return Err(ScheduleError::UnknownNickname(text.to_owned())),
    })
}

impl Kind {
    fn parse(&self, field: &str) -> Result<Set, ScheduleError> {
        let mut bits = 0;
        for part in field.split(',') {
            let wrong = |reason| ScheduleError::BadField { field: self.name, part: part.to_owned(), reason };
            bits |= self.part(part).map_err(wrong)?;
        }
        if self.is_weekday() && bits >> 7 & 1 == 1 {
            bits = bits & !(1 << 7) | 1;
        }
        Ok(Set(bits))
    }

    /// The bits of `*`, `5`, `1-5`, `*/2` or `1-5/2`.
    fn part(&self, part: &str) -> Result<u64, String> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (part, None),
        };
        let (low, high) = match (range.split_once('-'), step) {
            (Some((low, high)), _) => self.range(low, high)?,
            (None, _) if range == "*" => (self.low, self.last()),
            (None, None) => (self.value(range)?, self.value(range)?),
            (None, Some(step)) => {
                return Err(format!(
                    "a step follows * or a range; write {}-{}/{step}",
                    self.value(range)?,
                    self.last()
                ));
            }
        };
        Ok((low..=high).step_by(step.unwrap_or(1)).fold(0, |bits, value| bits | 1 << value))
    }

    fn range(&self, low: &str, high: &str) -> Result<(u8, u8), String> {
        let (low, mut high) = (self.value(low)?, self.value(high)?);
        if self.is_weekday() && low > 0 && high == 0 {
            high = 7; // FRI-SUN
        }
        if low > high {
            let (first, last) = (self.low, self.last());
            return Err(format!("a range runs upwards; write {low}-{last},{first}-{high}"));
        }
        Ok((low, high))
    }

    fn step(&self, text: &str) -> Result<usize, String> {
        let count = usize::from(self.last() - self.low) + 1;
        match number(text).map(usize::from) {
            Some(step) if (1..=count).contains(&step) => Ok(step),
            _ => Err(format!("a step is a number from 1 to {count}")),
        }
    }

    fn value(&self, text: &str) -> Result<u8, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let value = named.map(|index| self.low + index as u8).or_else(|| number(text));
        value.filter(|value| (self.low..=self.high).contains(value)).ok_or_else(|| {
            let names = match self.names {
                [first, .., last] => format!(" or a name from {first} to {last}"),
                _ => String::new(),
            };
            format!("a value is a number from {} to {}{names}", self.low, self.high)
        })
    }

    fn is_weekday(&self) -> bool {
        self.high == WEEKDAY.high
    }

    /// The last value that is not another name of the first.
    fn last(&self) -> u8 {
        if self.is_weekday() { 6 } else { self.high }
    }
}

/// Digits only: `parse` alone would take a sign.
fn number(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
