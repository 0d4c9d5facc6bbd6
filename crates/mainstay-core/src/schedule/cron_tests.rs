//! What a cron does, by example around changes of clocks, and against a walk over every minute.

use super::{Schedule, ScheduleError};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashSet};

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;

fn zone(name: &str) -> TimeZone {
    jiff::tz::TimeZoneDatabase::bundled().get(name).unwrap()
}

fn ms(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

/// The next due times after an instant, in UTC.
fn due(text: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = Schedule::cron(text, zone).unwrap();
    let mut at = ms(after);
    let mut next = || {
        at = schedule.next_after(at)?;
        Some(Timestamp::from_millisecond(at).unwrap().to_string())
    };
    std::iter::from_fn(&mut next).take(count).collect()
}

#[test]
fn reads_values_lists_ranges_steps_names_and_nicknames() {
    let one = |text, after| due(text, "UTC", after, 1).remove(0);
    let new_year = "2026-01-01T00:00:00Z"; // A Thursday.
    for (text, expected) in [
        ("5 4 * * *", "2026-01-01T04:05:00Z"),
        ("*/20 * * * *", "2026-01-01T00:20:00Z"),
        ("10-20/7,50 * * * *", "2026-01-01T00:10:00Z"),
        ("0 0 * * MON", "2026-01-05T00:00:00Z"),
        ("0 0 * * fri-SUN", "2026-01-02T00:00:00Z"),
        ("0 0 * * 7", "2026-01-04T00:00:00Z"),
        ("0 0 * * 0", "2026-01-04T00:00:00Z"),
        ("0 0 1 feb-mar *", "2026-02-01T00:00:00Z"),
        ("*/15 * * * * *", "2026-01-01T00:00:15Z"),
        ("59 59 23 31 12 *", "2026-12-31T23:59:59Z"),
        ("@yearly", "2027-01-01T00:00:00Z"),
        ("@annually", "2027-01-01T00:00:00Z"),
        ("@monthly", "2026-02-01T00:00:00Z"),
        ("@weekly", "2026-01-04T00:00:00Z"),
        ("@daily", "2026-01-02T00:00:00Z"),
        ("@midnight", "2026-01-02T00:00:00Z"),
        (" @Hourly ", "2026-01-01T01:00:00Z"),
    ] {
        assert_eq!(one(text, new_year), expected, "{text}");
    }
}

#[test]
fn either_day_is_enough_when_both_are_named_and_both_count_otherwise() {
    let days = |text| due(text, "UTC", "2026-01-01T12:00:00Z", 3);
    let thirteenth = ["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z"];
    assert_eq!(days("0 0 13 * FRI"), thirteenth, "the 13th, and Fridays");
    let odd = ["2026-01-09T00:00:00Z", "2026-01-23T00:00:00Z", "2026-02-13T00:00:00Z"];
    assert_eq!(days("0 0 */2 * FRI"), odd, "Fridays with an odd date");
    assert_eq!(days("0 0 9-31/14 * */5")[..2], odd[..2], "Sundays and Fridays, of these dates");
}

#[test]
fn refuses_what_cannot_be_read_and_says_what_could() {
    for (text, reason) in [
        ("", "has 0"),
        ("* * * *", "has 4"),
        ("* * * * * * *", "has 7"),
        ("60 * * * *", r#"minute "60": a value is a number from 0 to 59"#),
        ("* 24 * * *", "0 to 23"),
        ("* * 0 * *", "1 to 31"),
        ("* * * 13 *", r#"month "13": a value is a number from 1 to 12 or a name from JAN to DEC"#),
        ("* * * * 8", "0 to 7 or a name from SUN to SAT"),
        ("* * * * MONDAY", "a name from SUN to SAT"),
        ("5/15 * * * *", "a step follows * or a range; write 5-59/15"),
        ("*/0 * * * *", "a step is a number from 1 to 60"),
        ("*/90 * * * *", "a step is a number from 1 to 60"),
        ("* * * * */8", "a step is a number from 1 to 7"),
        ("* 22-4 * * *", "a range runs upwards; write 22-23,0-4"),
        ("* * * * SAT-MON", "write 6-6,0-1"),
        ("1,,2 * * * *", r#"minute "": a value"#),
        ("+5 * * * *", "a value is a number"),
        ("1--3 * * * *", "a value is a number"),
        ("* * L * *", "a value is a number"),
        ("* * * * 5#2", "a value is a number"),
        ("256 * * * *", "a value is a number"),
        ("@reboot", "none of @yearly"),
        (&"1,".repeat(300), "at most 512 bytes"),
    ] {
        let error = Schedule::cron(text, "UTC").unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    for name in ["Mars/Olympus", "", "Etc/Unknown", "+02:00", "../etc/passwd"] {
        assert_eq!(Schedule::cron("@daily", name), Err(ScheduleError::UnknownZone(name.to_owned())));
    }
}

#[test]
fn refuses_a_cron_that_never_fires() {
    for text in ["0 0 30 2 *", "0 0 30,31 feb *", "0 0 31 4,6,9,11 *", "0 0 30 2 */2"] {
        assert_eq!(Schedule::cron(text, "UTC"), Err(ScheduleError::NeverFires(text.to_owned())));
    }
    assert!(Schedule::cron("0 0 30 2 MON", "UTC").is_ok(), "Mondays in February are enough");
}

#[test]
fn finds_the_rarest_dates() {
    assert_eq!(due("0 0 29 2 *", "UTC", "2097-01-01T00:00:00Z", 1), ["2104-02-29T00:00:00Z"]);
    // Day and weekday both count, because the latter has a star: a 29 February that is a Sunday.
    assert_eq!(due("0 0 29 2 */7", "UTC", "2088-02-29T00:00:00Z", 1), ["2128-02-29T00:00:00Z"]);
    assert_eq!(due("0 0 29 2 */7", "Africa/Casablanca", "2088-03-01T00:00:00Z", 1).len(), 1);
}

#[test]
fn a_named_time_that_falls_into_a_gap_is_due_once_right_after_it() {
    // Berlin, 29 March 2026: after 01:59:59 comes 03:00:00, which is 01:00 UTC.
    let nightly = due("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 4);
    let expected =
        ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"];
    assert_eq!(nightly, expected);
    // Six times of the hour that is missing are one.
    let often = due("*/10 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 2);
    assert_eq!(often, ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
    // Due itself when the gap ends: not twice.
    let both = due("0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 2);
    assert_eq!(both, ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
    // Asked in the very second before.
    assert_eq!(due("30 2 * * *", "Europe/Berlin", "2026-03-29T00:59:59.999Z", 1), ["2026-03-29T01:00:00Z"]);
    // A gap at midnight (Cairo, 24 April 2026), and one of a whole day (Apia had no 30 December 2011).
    assert_eq!(due("0 0 24 4 *", "Africa/Cairo", "2026-04-01T00:00:00Z", 1), ["2026-04-23T22:00:00Z"]);
    assert_eq!(due("0 9 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", 1), ["2011-12-30T10:00:00Z"]);
}

#[test]
fn a_named_time_that_happens_twice_is_due_the_first_time() {
    // Berlin, 25 October 2026: 02:00 to 02:59:59 happens at 00:00 UTC and again at 01:00 UTC.
    let nightly = due("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(nightly, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    for inside_the_second_pass in ["2026-10-25T01:00:00Z", "2026-10-25T01:15:00Z", "2026-10-25T01:59:59Z"] {
        let next = due("30 2 * * *", "Europe/Berlin", inside_the_second_pass, 1);
        assert_eq!(next, ["2026-10-26T01:30:00Z"], "{inside_the_second_pass}");
    }
    let later = due("0 3 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", 1);
    assert_eq!(later, ["2026-10-25T02:00:00Z"], "what comes after the second pass is not lost");
}

#[test]
fn a_cron_of_every_hour_follows_the_hours_that_there_are() {
    let spring = due("15 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 3);
    assert_eq!(spring, ["2026-03-29T00:15:00Z", "2026-03-29T01:15:00Z", "2026-03-29T02:15:00Z"]);
    let autumn = due("15 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", 3);
    assert_eq!(autumn, ["2026-10-25T00:15:00Z", "2026-10-25T01:15:00Z", "2026-10-25T02:15:00Z"]);
}

#[test]
fn the_ends_of_time_are_no_trouble() {
    for text in ["* * * * * *", "30 2 * * *", "0 0 29 2 */7"] {
        for zone in ["UTC", "Europe/Berlin", "Pacific/Kiritimati", "Etc/GMT+12"] {
            let schedule = Schedule::cron(text, zone).unwrap();
            assert_eq!(schedule.next_after(i64::MAX), None);
            assert_eq!(schedule.next_after(Timestamp::MAX.as_millisecond()), None);
            assert!(schedule.next_after(i64::MIN).is_some());
        }
    }
}

/// A field as text, with the values it means, made without the parser.
fn field(low: u8, high: u8) -> impl Strategy<Value = (String, BTreeSet<i8>)> {
    let part = prop_oneof![
        (low..=high).prop_map(|value| (value.to_string(), BTreeSet::from([value as i8]))),
        (low..=high, low..=high, 1..=high - low).prop_map(|(a, b, step)| {
            let (a, b) = (a.min(b), a.max(b));
            (format!("{a}-{b}/{step}"), (a..=b).step_by(step.into()).map(|value| value as i8).collect())
        }),
    ];
    let list = proptest::collection::vec(part, 1..3).prop_map(|parts| {
        let (texts, values): (Vec<_>, Vec<BTreeSet<i8>>) = parts.into_iter().unzip();
        (texts.join(","), values.into_iter().flatten().collect())
    });
    let every = move |step: u8| (low..=high).step_by(step.into()).map(|value| value as i8).collect();
    prop_oneof![
        Just(("*".to_owned(), every(1))),
        (1..=high - low).prop_map(move |step| (format!("*/{step}"), every(step))),
        list,
    ]
}

/// What an expression means, told by five sets.
#[derive(Debug, Clone)]
struct Meaning {
    text: String,
    sets: [BTreeSet<i8>; 5],
    either_day: bool,
}

impl Meaning {
    fn fits(&self, time: DateTime) -> bool {
        let [minute, hour, day, month, weekday] = &self.sets;
        let (day, weekday) =
            (day.contains(&time.day()), weekday.contains(&time.weekday().to_sunday_zero_offset()));
        let date = if self.either_day { day || weekday } else { day && weekday };
        minute.contains(&time.minute())
            && hour.contains(&time.hour())
            && month.contains(&time.month())
            && date
    }
}

fn meaning() -> impl Strategy<Value = Meaning> {
    // Days and months are mostly free, or a walk of days would meet nothing.
    let star = |low: u8, high: u8| Just(("*".to_owned(), (low as i8..=high as i8).collect::<BTreeSet<i8>>()));
    let day = prop_oneof![3 => star(1, 31).boxed(), 1 => field(1, 31).boxed()];
    let month = prop_oneof![9 => star(1, 12).boxed(), 1 => field(1, 12).boxed()];
    let weekday = prop_oneof![3 => star(0, 6).boxed(), 1 => field(0, 6).boxed()];
    (field(0, 59), field(0, 23), day, month, weekday).prop_map(|fields| {
        let (minute, hour, day, month, weekday) = fields;
        let either_day = !day.0.starts_with('*') && !weekday.0.starts_with('*');
        let text = [minute.0, hour.0, day.0, month.0, weekday.0].join(" ");
        Meaning { text, sets: [minute.1, hour.1, day.1, month.1, weekday.1], either_day }
    })
}

/// Zones with their changes of clocks: whole hours, half an hour (Lord Howe), a whole day (Apia in 2011), at midnight
/// (Cairo), four times a year (Casablanca), offsets of quarters (Chatham), none.
const PLACES: [(&str, &str); 12] = [
    ("Europe/Berlin", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Africa/Cairo", "2026-04-23T22:00:00Z"),
    ("Africa/Casablanca", "2026-02-15T02:00:00Z"),
    ("Pacific/Chatham", "2026-09-26T14:00:00Z"),
    ("Europe/Berlin", "2080-03-31T01:00:00Z"),
    ("Asia/Kathmandu", "2026-05-05T05:05:00Z"),
    ("UTC", "2027-12-31T00:00:00Z"),
];

/// Every due time of a window, found by looking at each of its minutes.
fn walk(meaning: &Meaning, zone: &TimeZone, from: i64, to: i64) -> Vec<i64> {
    let clock = |at: i64| zone.to_datetime(Timestamp::from_millisecond(at).unwrap());
    let hourly = meaning.sets[1].len() == 24;
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    // Begins earlier, to have seen what is seen for a second time.
    let mut last = clock(from - DAY_MS);
    for at in (from - DAY_MS..=to).step_by(MINUTE_MS as usize) {
        let now = clock(at);
        let minute = jiff::SignedDuration::from_mins(1);
        let mut skipped = last.checked_add(minute).unwrap();
        let mut is_due = meaning.fits(now) && (hourly || !seen.contains(&now));
        while !hourly && skipped < now && last < now {
            is_due |= meaning.fits(skipped);
            skipped = skipped.checked_add(minute).unwrap();
        }
        seen.insert(now);
        last = now;
        if is_due && at > from {
            found.push(at);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_skipped_and_nothing_is_due_that_should_not_be(
        meaning in meaning(), place in 0..PLACES.len(), before in 0..2 * 24 * 60_i64, within in 0..MINUTE_MS,
    ) {
        let (name, change) = PLACES[place];
        let (from, zone) = (ms(change) - before * MINUTE_MS, zone(name));
        let Ok(schedule) = Schedule::cron(&meaning.text, name) else {
            // Refused because it never fires; then no minute of a leap year fits.
            let year = ms("2028-01-01T00:00:00Z");
            let fits = |day| meaning.sets[2].contains(&DateTime::from(day).day());
            let days = (0..366).map(|day| Timestamp::from_millisecond(year + day * DAY_MS).unwrap());
            prop_assert!(!days.map(|day| TimeZone::UTC.to_datetime(day).date())
                .any(|day| meaning.sets[3].contains(&day.month()) && fits(day)), "{}", meaning.text);
            return Ok(());
        };
        let to = from + 3 * DAY_MS;
        let mut at = from + within;
        let mut found = Vec::new();
        while let Some(next) = schedule.next_after(at) {
            prop_assert!(next > at, "{} is not after {at}", next);
            if next > to {
                break;
            }
            at = next;
            found.push(next);
        }
        prop_assert_eq!(found, walk(&meaning, &zone, from, to), "{} in {}", meaning.text, name);
    }

    #[test]
    fn seconds_are_found_too(seconds in field(0, 59), start in 0..1_000_000_i64) {
        let schedule = Schedule::cron(&format!("{} * * * * *", seconds.0), "Europe/Berlin").unwrap();
        let expected = (start + 1..start + 120).find(|at| seconds.1.contains(&(at.rem_euclid(60) as i8)));
        prop_assert_eq!(schedule.next_after(start * 1_000 + 999), expected.map(|at| at * 1_000));
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,30}|[-0-9*/, A-Z@]{0,30}", zone in "\\PC{0,20}", at in any::<i64>()) {
        let _ = Schedule::cron(&text, &zone);
        if let Ok(schedule) = Schedule::cron(&text, "Europe/Berlin") {
            prop_assert!(schedule.next_after(at).is_none_or(|next| next > at));
        }
    }

    #[test]
    fn any_instant_has_a_later_one(meaning in meaning(), place in 0..PLACES.len(), at in any::<i64>(), year in -9998..9950_i64) {
        if let Ok(schedule) = Schedule::cron(&meaning.text, PLACES[place].0) {
            prop_assert!(schedule.next_after(at).is_none_or(|next| next > at));
            let at = (year - 1970) * 365 * DAY_MS;
            prop_assert!(schedule.next_after(at).is_some_and(|next| next > at));
        }
    }
}
