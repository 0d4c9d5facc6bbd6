//! `[deadLetters]`: what is done about dead letters by itself.

use super::Config;
use super::setting::Kind::Integer;
use super::setting::{Section, Setting, Value};
use mainstay::flows::dead_letters::{Again, Kind as LetterKind, Upkeep};
use std::time::Duration;

/// The section.
pub static SECTION: Section = Section {
    name: "deadLetters",
    doc: "What is done by itself about work that failed for good. Nothing is, unless it is asked for here; what is done \
          about publications is in `[publications]`.",
    settings: &[
        &WORK_RETRIES,
        &ON_COMPLETE_RETRIES,
        &APPEND_RETRIES,
        &PROJECTION_RETRIES,
        &QUARANTINED_EVENT_RETRIES,
        &INITIAL_BACKOFF_MS,
        &BACKOFF_BASE,
        &MAX_BACKOFF_MS,
        &IGNORE_AFTER_DAYS,
        &INTERVAL_MS,
    ],
};

const DAY: Duration = Duration::from_secs(86_400);
/// Ten years; a larger number is a mistake in the unit.
const MOST_DAYS: i64 = 3_650;
/// What the inbox allows.
const MOST_RETRIES: i64 = 100;
const MOST_MS: i64 = 30 * 24 * 3_600_000;

static WORK_RETRIES: Setting =
    setting("workRetries", 0, MOST_RETRIES, 0, "How often a letter of work is tried again; 0 is never.");
static ON_COMPLETE_RETRIES: Setting = setting(
    "onCompleteRetries",
    0,
    MOST_RETRIES,
    0,
    "How often a letter of an `onComplete` is tried again; 0 is never.",
);
static APPEND_RETRIES: Setting = setting(
    "appendRetries",
    0,
    MOST_RETRIES,
    0,
    "How often a letter of an append is tried again; 0 is never.",
);
static PROJECTION_RETRIES: Setting = setting(
    "projectionRetries",
    0,
    MOST_RETRIES,
    0,
    "How often a letter of a projection is tried again; 0 is never.",
);
static QUARANTINED_EVENT_RETRIES: Setting = setting(
    "quarantinedEventRetries",
    0,
    MOST_RETRIES,
    0,
    "How often a quarantined event is tried again; 0 is never.",
);
static INITIAL_BACKOFF_MS: Setting = setting(
    "initialBackoffMs",
    1,
    MOST_MS,
    60_000,
    "How long after its failure a letter is tried again for the first time.",
);
static BACKOFF_BASE: Setting =
    setting("backoffBase", 1, 100, 2, "What each further wait is multiplied with.");
static MAX_BACKOFF_MS: Setting =
    setting("maxBackoffMs", 1, MOST_MS, 86_400_000, "The longest wait before a letter is tried again.");
static IGNORE_AFTER_DAYS: Setting = setting(
    "ignoreAfterDays",
    0,
    MOST_DAYS,
    0,
    "When a pending letter, of any kind, is left for good; 0 is never.",
);
static INTERVAL_MS: Setting = setting(
    "intervalMs",
    1_000,
    86_400_000,
    60_000,
    "Interval between two looks for dead letters that are due.",
);

const fn setting(key: &'static str, least: i64, most: i64, usual: i64, doc: &'static str) -> Setting {
    let kind = Integer { least, most: Some(most) };
    Setting { section: "deadLetters", key, kind, default: Value::Integer(usual), flag: None, doc }
}

/// What the configuration asks for.
pub fn upkeep(config: &Config) -> Upkeep {
    let kinds = [
        (LetterKind::Work, &WORK_RETRIES),
        (LetterKind::OnComplete, &ON_COMPLETE_RETRIES),
        (LetterKind::Append, &APPEND_RETRIES),
        (LetterKind::Projection, &PROJECTION_RETRIES),
        (LetterKind::QuarantinedEvent, &QUARANTINED_EVENT_RETRIES),
    ];
    let retry = kinds.into_iter().filter_map(|(kind, retries)| {
        let max_retries = u32::try_from(config.number(retries)).unwrap_or(u32::MAX);
        let again = Again {
            max_retries,
            initial_backoff_ms: config.number(&INITIAL_BACKOFF_MS),
            base: config.number(&BACKOFF_BASE) as f64,
            max_backoff_ms: config.number(&MAX_BACKOFF_MS),
        };
        (max_retries > 0).then_some((kind, again))
    });
    let days = u32::try_from(config.number(&IGNORE_AFTER_DAYS)).unwrap_or(u32::MAX);
    let every = Duration::from_millis(config.number(&INTERVAL_MS));
    Upkeep { every, retry: retry.collect(), ignore_after: (days > 0).then(|| DAY * days) }
}
