//! `[health]`: from when on something is wrong.

use super::Config;
use super::setting::Kind::Integer;
use super::setting::{Section, Setting, Value};
use mainstay_server::HealthRules;

/// The section.
pub static SECTION: Section = Section {
    name: "health",
    doc: "From when on `/health/ready` says that the server is not ready, and `/health` that something is wrong.",
    settings: &[&MAX_LAG, &MAX_LETTERS, &PROJECTION_DEPTH, &RETRY_DEPTH, &REPLAY_DEPTH],
};

static MAX_LAG: Setting =
    setting("maxLag", 100, "How many events a projection may be behind before the server is not ready.");
static MAX_LETTERS: Setting = setting(
    "maxLetters",
    10,
    "From how many dead letters on, which nobody has dealt with, the system is degraded.",
);
static PROJECTION_DEPTH: Setting = setting(
    "projectionPoolDepth",
    0,
    "How many items may wait in `projectionPool` before the server is not ready; 0 is twice its parallelism.",
);
static RETRY_DEPTH: Setting = setting("dcbRetryPoolDepth", 0, "The same for `dcbRetryPool`.");
static REPLAY_DEPTH: Setting = setting("eventReplayPoolDepth", 0, "The same for `eventReplayPool`.");

const fn setting(key: &'static str, usual: i64, doc: &'static str) -> Setting {
    let kind = Integer { least: 0, most: Some(1_000_000_000) };
    Setting { section: "health", key, kind, default: Value::Integer(usual), flag: None, doc }
}

/// What the configuration asks for.
pub fn rules(config: &Config) -> HealthRules {
    let depths = [
        ("projectionPool", &PROJECTION_DEPTH),
        ("dcbRetryPool", &RETRY_DEPTH),
        ("eventReplayPool", &REPLAY_DEPTH),
    ];
    let said = depths.into_iter().map(|(pool, setting)| (pool.to_owned(), config.number(setting)));
    HealthRules {
        max_lag: config.number(&MAX_LAG),
        max_depth: said.filter(|(_, depth)| *depth > 0).collect(),
        max_letters: u32::try_from(config.number(&MAX_LETTERS)).unwrap_or(u32::MAX),
    }
}
