//! `[pools.NAME]`: how many items run at once, how fast, and how failures are tried again.

use super::table::FieldKind::{Integer, OneOf, Positive, Table as Nested};
use super::table::{Collection, Field, Given, Table};
use mainstay::work::pool::{LogLevel, MAX_PARALLELISM, MAX_RATE};
use mainstay::work::{Pool, RetryPolicy};

/// The kind of table.
pub static COLLECTION: Collection = Collection {
    name: "pools",
    doc: "A pool of work, declared when a server starts: how many of its items run at once, how fast, and how failures \
          are tried again. What was set over HTTP meanwhile is set back to what the file says. A pool that is taken \
          out of the file stays.",
    fields: &[
        Field {
            key: "maxParallelism",
            kind: Integer { least: 1, most: MAX_PARALLELISM as i64 },
            default: Some("10"),
            doc: "How many items run at once, over all nodes.",
        },
        Field {
            key: "retry",
            kind: Nested(RETRY),
            default: Some("{ maxAttempts = 5, initialBackoffMs = 250, base = 2.0, maxBackoffMs = 30000 }"),
            doc: "How failures are tried again, unless an item says otherwise. `maxAttempts` counts executions; 1 never \
                  repeats. The wait after the first is `initialBackoffMs`, and each further one is `base` times as \
                  long, up to `maxBackoffMs`; a random factor between a half and one and a half keeps them apart.",
        },
        Field {
            key: "logLevel",
            kind: OneOf(&["TRACE", "DEBUG", "INFO", "WARN", "ERROR"]),
            default: Some("\"WARN\""),
            doc: "How much is told of it.",
        },
        Field {
            key: "ratePerSecond",
            kind: Integer { least: 1, most: MAX_RATE as i64 },
            default: Some("no limit"),
            doc: "How many items may start per second, over all nodes.",
        },
    ],
    example: "[pools.emailPool]\nmaxParallelism = 10\nretry = { maxAttempts = 3, initialBackoffMs = 250, base = 2 }\n\
              ratePerSecond = 50\n",
};

const RETRY: &[Field] = &[
    Field {
        key: "maxAttempts",
        kind: Integer { least: 1, most: u32::MAX as i64 },
        default: Some("5"),
        doc: "Executions in all.",
    },
    Field {
        key: "initialBackoffMs",
        kind: Integer { least: 1, most: MONTH_MS },
        default: Some("250"),
        doc: "How long the first wait is.",
    },
    Field { key: "base", kind: Positive, default: Some("2.0"), doc: "What each wait is multiplied with." },
    Field {
        key: "maxBackoffMs",
        kind: Integer { least: 1, most: MONTH_MS },
        default: Some("30000"),
        doc: "The longest wait.",
    },
];

/// Nobody waits for longer; a larger number is a mistake in the unit.
const MONTH_MS: i64 = 30 * 24 * 3_600_000;

/// The pool that a table describes.
pub(super) fn read(table: &Table) -> Result<Pool, String> {
    let given = &table.given;
    let mut pool = Pool::new(&table.name);
    if let Some(at_once) = given.number("maxParallelism") {
        pool = pool.max_parallelism(u32::try_from(at_once).unwrap_or(u32::MAX));
    }
    if let Some(retry) = given.table("retry") {
        pool = pool.retry(policy(retry)?);
    }
    if let Some(level) = given.entry("logLevel") {
        let level: LogLevel =
            serde_json::from_value(level.value.clone()).map_err(|error| error.to_string())?;
        pool = pool.log_level(level);
    }
    if let Some(rate) = given.number("ratePerSecond") {
        pool = pool.rate_per_second(u32::try_from(rate).unwrap_or(u32::MAX));
    }
    Ok(pool)
}

fn policy(given: &Given) -> Result<RetryPolicy, String> {
    let usual = RetryPolicy::default();
    let policy = RetryPolicy::new(
        given
            .number("maxAttempts")
            .map_or(usual.max_attempts(), |most| u32::try_from(most).unwrap_or(u32::MAX)),
        given.number("initialBackoffMs").unwrap_or(usual.initial_backoff_ms()),
        given.fraction("base").unwrap_or(usual.base()),
        given.number("maxBackoffMs").unwrap_or(usual.max_backoff_ms()),
    );
    policy.map_err(|error| format!("retry: {error}"))
}
