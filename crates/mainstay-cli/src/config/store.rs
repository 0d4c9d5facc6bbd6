//! `[store]`: where everything durable lives.

use super::Config;
use super::setting::Kind::{self, Integer};
use super::setting::{Section, Setting, Value};
use mainstay::store::{Options, defaults};
use std::borrow::Cow;
use std::time::Duration;

/// The section.
pub static SECTION: Section = Section {
    name: "store",
    doc: "The database that everything durable lives in.",
    settings: &[
        &URL,
        &BUSY_TIMEOUT_MS,
        &TRANSACTION_TIMEOUT_MS,
        &READ_TIMEOUT_MS,
        &QUEUE_LIMIT,
        &READERS,
        &CONNECTIONS,
        &WAL_LIMIT_BYTES,
        &MIGRATE,
    ],
};

/// No call waits longer than an hour; a larger number is a mistake in the unit.
const TIMEOUT: Kind = Integer { least: 1, most: Some(3_600_000) };

/// Where the store is.
pub static URL: Setting = Setting {
    section: "store",
    key: "url",
    kind: Kind::StoreUrl,
    default: Value::Text(Cow::Borrowed("sqlite:mainstay.db")),
    flag: Some("--store"),
    doc: "Where the store is: `sqlite:FILE`, `sqlite::memory:` (gone when the process ends) or \
          `postgres://USER:PASSWORD@HOST/DATABASE`. A SQLite file has one owning process; PostgreSQL serves many.",
};
static BUSY_TIMEOUT_MS: Setting = setting(
    "busyTimeoutMs",
    TIMEOUT,
    Value::Integer(defaults::BUSY_TIMEOUT_MS as i64),
    "How long a call waits for its turn, or for the database to come back, before it ends with `STORE_BUSY` or \
     `STORE_UNAVAILABLE`.",
);
static TRANSACTION_TIMEOUT_MS: Setting = setting(
    "transactionTimeoutMs",
    TIMEOUT,
    Value::Integer(defaults::TRANSACTION_TIMEOUT_MS as i64),
    "How long one transaction may run before it is rolled back.",
);
static READ_TIMEOUT_MS: Setting = setting(
    "readTimeoutMs",
    TIMEOUT,
    Value::Integer(defaults::READ_TIMEOUT_MS as i64),
    "How long one read may run.",
);
static QUEUE_LIMIT: Setting = setting(
    "queueLimit",
    Integer { least: 1, most: Some(1_000_000) },
    Value::Integer(defaults::QUEUE_LIMIT as i64),
    "How many transactions may wait at once. Further ones wait outside, and end with `STORE_BUSY` when \
     `busyTimeoutMs` is over.",
);
pub(crate) static READERS: Setting = setting(
    "readers",
    Integer { least: 1, most: Some(64) },
    Value::Integer(defaults::READERS as i64),
    "How many reads run at once on SQLite. Less than 2 counts as 2: searches leave one to other reads.",
);
pub(crate) static CONNECTIONS: Setting = setting(
    "connections",
    Integer { least: 1, most: Some(1_000) },
    Value::Integer(defaults::CONNECTIONS as i64),
    "How many connections the pool keeps on PostgreSQL, besides one for wake-ups. Less than 2 counts as 2: searches leave one to \
     others.",
);
static WAL_LIMIT_BYTES: Setting = setting(
    "walLimitBytes",
    // A checkpoint every few thousand pages is normal operation; below that every long read would be ended.
    Integer { least: 16 << 20, most: None },
    Value::Integer(defaults::WAL_LIMIT_BYTES as i64),
    "How large the write-ahead log of SQLite may grow before the reads that keep it alive are ended.",
);
static MIGRATE: Setting = setting(
    "migrate",
    Kind::Boolean,
    Value::Boolean(true),
    "Whether opening the store brings its schema up to date. When false, a schema that is behind is refused until \
     `mainstay migrate` has run.",
);

const fn setting(key: &'static str, kind: Kind, default: Value, doc: &'static str) -> Setting {
    Setting { section: "store", key, kind, default, flag: None, doc }
}

/// The options of the store that the configuration asks for.
pub fn options(config: &Config) -> Options {
    options_at(config.text(&URL), config)
}

/// The same options for a store at another place.
pub fn options_at(url: &str, config: &Config) -> Options {
    let duration = |setting| Duration::from_millis(config.number(setting));
    let count = |setting| usize::try_from(config.number(setting)).unwrap_or(usize::MAX);
    let options = Options::new(url)
        .busy_timeout(duration(&BUSY_TIMEOUT_MS))
        .transaction_timeout(duration(&TRANSACTION_TIMEOUT_MS))
        .read_timeout(duration(&READ_TIMEOUT_MS))
        .queue_limit(count(&QUEUE_LIMIT))
        .readers(count(&READERS))
        .connections(count(&CONNECTIONS))
        .wal_limit_bytes(config.number(&WAL_LIMIT_BYTES))
        .migrate(config.flag(&MIGRATE));
    mainstay_server::equipped(options)
}
