//! `[access]`: how long tokens and sessions live, and what is written into the audit.

use super::Config;
use super::setting::Kind::{self, Boolean, Integer};
use super::setting::{Section, Setting, Value};
use mainstay_server::tokens::{Lives, USUAL_LIFE};
use mainstay_server::{Options, defaults};
use std::time::Duration;

/// The section.
pub static SECTION: Section = Section {
    name: "access",
    doc: "Lifetimes of tokens and console sessions, and the content of the audit.",
    settings: &[&TOKEN_LIFE_MS, &MAX_TOKEN_LIFE_MS, &SESSION_LIFE_MS, &SESSION_IDLE_MS, &AUDIT_V1],
};

/// Ten years, as for a token that is asked for; 0 is for ever.
const LIFE: Kind = Integer { least: 0, most: Some(10 * 366 * 24 * 3_600_000) };
/// From a minute, below which no person could work, to a month.
const SESSION: Kind = Integer { least: 60_000, most: Some(30 * 24 * 3_600_000) };

static TOKEN_LIFE_MS: Setting = setting(
    "tokenLifeMs",
    LIFE,
    Value::Integer(USUAL_LIFE.as_millis() as i64),
    "Lifetime of a token that names none: a year by default; 0 means no expiry.",
);
static MAX_TOKEN_LIFE_MS: Setting = setting(
    "maxTokenLifeMs",
    LIFE,
    Value::Integer(0),
    "Longest lifetime of a new token; 0 means no bound. Tokens that are there \
     already keep their time.",
);
static SESSION_LIFE_MS: Setting = setting(
    "sessionLifeMs",
    SESSION,
    Value::Integer(defaults::SESSION_LIFE_MS as i64),
    "Longest lifetime of a console session.",
);
static SESSION_IDLE_MS: Setting = setting(
    "sessionIdleMs",
    SESSION,
    Value::Integer(defaults::SESSION_IDLE_MS as i64),
    "Lifetime of a console session without a request of its reader. A page that is open and follows what changes is \
     no request.",
);
static AUDIT_V1: Setting = setting(
    "auditV1",
    Boolean,
    Value::Boolean(false),
    "Whether calls below `/v1` that change something are written into the audit, without what applications keep in them. Each \
     costs a row, and rows are written one after another.",
);

const fn setting(key: &'static str, kind: Kind, default: Value, doc: &'static str) -> Setting {
    Setting { section: "access", key, kind, default, flag: None, doc }
}

/// Length of life of tokens that are made now.
pub fn token_lives(config: &Config) -> Lives {
    let life = |setting| Some(duration(config, setting)).filter(|life| !life.is_zero());
    Lives { usual: life(&TOKEN_LIFE_MS), most: life(&MAX_TOKEN_LIFE_MS) }
}

/// The options of a server, with what the section asks for.
pub fn apply(options: Options, config: &Config) -> Options {
    options
        .token_lives(token_lives(config))
        .sessions(duration(config, &SESSION_LIFE_MS), duration(config, &SESSION_IDLE_MS))
        .audit_v1(config.flag(&AUDIT_V1))
}

fn duration(config: &Config, setting: &Setting) -> Duration {
    Duration::from_millis(config.number(setting))
}
