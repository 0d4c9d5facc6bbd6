//! `[work]`: bounds of what callers may name.

use super::Config;
use super::setting::Kind::Integer;
use super::setting::{Section, Setting, Value};
use mainstay::work::bounds::MAX_POOLS;

/// The section.
pub static SECTION: Section = Section {
    name: "work",
    doc: "Bounds of what callers may name. Give every node the same.",
    settings: &[&MAX_POOLS_SETTING],
};

static MAX_POOLS_SETTING: Setting = Setting {
    section: "work",
    key: "maxPools",
    // An idle pool takes a few kilobytes on each node.
    kind: Integer { least: 1, most: Some(100_000) },
    default: Value::Integer(MAX_POOLS as i64),
    flag: None,
    doc: "Maximum number of pools that callers make. Pools of the platform and of this file are not counted. One more is \
          refused with `WORK_NAMES_TOO_MANY`; pools that exist go on.",
};

/// Maximum number of pools that callers make.
pub fn max_pools(config: &Config) -> usize {
    usize::try_from(config.number(&MAX_POOLS_SETTING)).unwrap_or(usize::MAX)
}
