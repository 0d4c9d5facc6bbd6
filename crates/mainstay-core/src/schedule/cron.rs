//! A cron expression in a time zone, and what it does when clocks change.
//!
//! A zone's time is a row of stretches with one offset each, joined by changes. Within a stretch the times of the
//! expression are looked up on the calendar; at a change one of two rules holds, as in Vixie's cron:
//!
//! | the expression | clocks go forward | clocks go back |
//! |---|---|---|
//! | names hours (`30 2 * * *`) | what fell into the gap is due once, at the first instant after it | due in the first of the two passes only |
//! | takes every hour (`15 * * * *`) | follows the hours that there are | due in both passes: an hour lies between |

use super::ScheduleError;
use super::fields::Fields;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, civil::DateTime};
use std::sync::LazyLock;

/// The database that is compiled in. The machine's own would be IO, and might differ between two nodes.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The times of a cron expression in a time zone.
#[derive(Debug, Clone, PartialEq)]
pub struct Cron {
    text: String,
    zone: TimeZone,
    fields: Fields,
}

impl Cron {
    /// Reads an expression of five fields (minute, hour, day, month, weekday), of six with the second first, or a
    /// nickname such as `@daily`; the zone is a name of the IANA database, such as `Europe/Berlin`.
    ///
    /// An expression that no date fits is refused: a cron that never fires is a mistake that nobody would notice.
    pub fn new(text: &str, zone: &str) -> Result<Self, ScheduleError> {
        let fields = Fields::parse(text)?;
        let zone = ZONES
            .get(zone)
            .ok()
            .filter(|found| !found.is_unknown())
            .ok_or_else(|| ScheduleError::UnknownZone(zone.chars().take(64).collect()))?;
        Ok(Self { text: text.to_owned(), zone, fields })
    }

    /// The expression, as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name of the time zone.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The first due time after an instant, in milliseconds.
    pub(super) fn next_after(&self, at_ms: i64) -> Option<i64> {
        // Due times are whole seconds, so what comes after an instant comes after its second. Before the calendar
        // begins nothing is due, so the search may begin with it.
        let second = at_ms.div_euclid(1_000).max(Timestamp::MIN.as_second());
        let at = Timestamp::from_second(second).ok()?;
        self.next(at).map(Timestamp::as_millisecond)
    }

    fn next(&self, at: Timestamp) -> Option<Timestamp> {
        let hourly = self.fields.is_hourly();
        let mut offset = self.zone.to_offset(at);
        let mut from = self.start(at)?;
        let mut changes = self.zone.following(at);
        // Each turn crosses a change of the zone: a few a year, over the horizon of the fields.
        loop {
            let found = self.fields.first_from(from)?;
            let due = offset.to_timestamp(found).ok()?;
            let Some(change) = changes.next().filter(|change| due >= change.timestamp()) else {
                return Some(due);
            };
            let before = offset.to_datetime(change.timestamp());
            let after = change.offset().to_datetime(change.timestamp());
            if !hourly && found < after {
                return Some(change.timestamp()); // It fell into the gap from `before` to `after`.
            }
            from = if hourly { after } else { before.max(after) };
            offset = change.offset();
        }
    }

    /// The time on the zone's clock from which to search for what is due after `at`.
    fn start(&self, at: Timestamp) -> Option<DateTime> {
        let second = jiff::SignedDuration::from_secs(1);
        let start = self.zone.to_datetime(at).checked_add(second).ok()?;
        if self.fields.is_hourly() {
            return Some(start);
        }
        // In the second pass of a stretch that clocks repeat, everything of it was due in the first.
        let past = at.checked_add(second).ok().and_then(|next| self.zone.preceding(next).next());
        let repeated = past.and_then(|change| {
            let old = self.zone.to_offset(change.timestamp().checked_sub(second).ok()?);
            Some(old.to_datetime(change.timestamp()))
        });
        Some(repeated.map_or(start, |end| end.max(start)))
    }
}
