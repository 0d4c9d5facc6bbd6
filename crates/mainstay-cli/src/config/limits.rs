//! `[limits.NAME]`: how much of something a key may have.

use super::table::FieldKind::{Integer, OneOf, Positive, Text};
use super::table::{Collection, Field, Table};
use mainstay::guards::limits::{Definition, MAX_SHARDS};

/// The kind of table.
pub static COLLECTION: Collection = Collection {
    name: "limits",
    doc: "A rate limit with a name, defined when a server starts. What was set over HTTP meanwhile is set back to what the \
          file says; what was used stays used. A limit that is taken out of the file stays. `commandDispatch` and \
          `adminOperations` are there without being written down.",
    fields: &[
        Field {
            key: "kind",
            kind: OneOf(&["token bucket", "fixed window", "sliding window"]),
            default: Some("\"token bucket\""),
            doc: "How tokens come back: one by one, all at once when a window ends, or as they were taken a period ago.",
        },
        Field {
            key: "rate",
            kind: Positive,
            default: None,
            doc: "How many tokens come in each period; of a window a whole number.",
        },
        Field {
            key: "period",
            kind: Text("a time, as in \"1m\""),
            default: None,
            doc: "How long a period is: `500ms`, `1s`, `5m`, `1h`, `30d`.",
        },
        Field {
            key: "capacity",
            kind: Integer { least: 1, most: i64::MAX },
            default: Some("the rate"),
            doc: "The most tokens there can be.",
        },
        Field {
            key: "shards",
            kind: Integer { least: 1, most: MAX_SHARDS as i64 },
            default: Some("1"),
            doc: "In how many parts a budget is kept. Keys that more than fifty calls a second ask for on PostgreSQL want \
                  about half as many parts as that; what is allowed is then approximate.",
        },
        Field {
            key: "start",
            kind: Integer { least: 0, most: i64::MAX },
            default: Some("the epoch"),
            doc: "When the first window begins, in milliseconds since the epoch.",
        },
        Field {
            key: "maxReserved",
            kind: Integer { least: 0, most: i64::MAX },
            default: Some("0"),
            doc: "How many tokens of a part may be reserved ahead of their coming.",
        },
    ],
    example: "[limits.commandDispatch]\nkind = \"token bucket\"\nrate = 100\nperiod = \"1m\"\ncapacity = 150\nshards = 50\n",
};

/// A limit as the configuration has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// What it is.
    pub definition: Definition,
}

/// The limit that a table describes.
pub(super) fn read(table: &Table) -> Result<Limit, String> {
    let mut given = table.given.to_json();
    given.entry("kind").or_insert_with(|| "token bucket".into());
    let definition = serde_json::from_value(given.into()).map_err(|error| error.to_string())?;
    Ok(Limit { name: table.name.clone(), definition })
}
