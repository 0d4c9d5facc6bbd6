//! `[publications]`: what is done about publications by itself.

use super::Config;
use super::setting::Kind::Integer;
use super::setting::{Section, Setting, Value};
use mainstay::flows::delivery::publications::{Retry, Upkeep};
use std::time::Duration;

/// The section.
pub static SECTION: Section = Section {
    name: "publications",
    doc: "What is done by itself about events that were published to `[targets.NAME]`.",
    settings: &[&KEEP_DELIVERED_DAYS, &IGNORE_LETTERS_AFTER_DAYS, &LETTER_RETRIES, &LETTER_BACKOFF_MS],
};

const DAY: Duration = Duration::from_secs(86_400);
/// Often enough for waits of minutes, and seldom enough to be free.
const EVERY: Duration = Duration::from_secs(60);
/// Ten years; a larger number is a mistake in the unit.
const MOST_DAYS: i64 = 3_650;

static KEEP_DELIVERED_DAYS: Setting = setting(
    "keepDeliveredDays",
    MOST_DAYS,
    30,
    "How long it is known that an event was delivered; 0 is for ever. An event that is published again after that is \
     delivered again.",
);
static IGNORE_LETTERS_AFTER_DAYS: Setting = setting(
    "ignoreLettersAfterDays",
    MOST_DAYS,
    0,
    "When a publication that was not delivered is left for good; 0 is never.",
);
static LETTER_RETRIES: Setting = setting(
    "letterRetries",
    1_000,
    0,
    "How often a publication that was not delivered is tried again, after the retries of its target are used up.",
);
static LETTER_BACKOFF_MS: Setting = setting(
    "letterBackoffMs",
    30 * 24 * 3_600_000,
    60_000,
    "How long the first wait before that is; each further one is twice as long.",
);

const fn setting(key: &'static str, most: i64, usual: i64, doc: &'static str) -> Setting {
    let kind = Integer { least: 0, most: Some(most) };
    Setting { section: "publications", key, kind, default: Value::Integer(usual), flag: None, doc }
}

/// What the configuration asks for.
pub fn upkeep(config: &Config) -> Upkeep {
    let days = |setting| match config.number(setting) {
        0 => None,
        days => Some(DAY * u32::try_from(days).unwrap_or(u32::MAX)),
    };
    let max_retries = u32::try_from(config.number(&LETTER_RETRIES)).unwrap_or(u32::MAX);
    let initial_backoff_ms = config.number(&LETTER_BACKOFF_MS).max(1);
    Upkeep {
        every: EVERY,
        retry: (max_retries > 0).then_some(Retry { max_retries, initial_backoff_ms, base: 2.0 }),
        ignore_after: days(&IGNORE_LETTERS_AFTER_DAYS),
        forget_after: days(&KEEP_DELIVERED_DAYS),
    }
}
