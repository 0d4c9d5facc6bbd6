//! `[crons.NAME]`: work that the clock enqueues.

use super::table::FieldKind::{Any, Integer, Name, OneOf, Table as Nested, Text};
use super::table::{Collection, Field, Given, Table};
use mainstay::work::{Cron, Missed, Schedule};

/// The kind of table.
pub static COLLECTION: Collection = Collection {
    name: "crons",
    doc: "Work that the clock enqueues, once for each tick over all nodes; declared when a server starts. One that is \
          taken out of the file goes on until `DELETE /v1/crons/NAME` or `mainstay work crons --remove NAME`.",
    fields: &[
        Field {
            key: "schedule",
            kind: Nested(SCHEDULE),
            default: None,
            doc: "When: `cron` with five fields (minute, hour, day, month, weekday), six with the second first, or a \
                  nickname such as `@daily`, in a `timeZone` of the IANA database, UTC unless given; or `everyMs`, \
                  counted from `fromMs`.",
        },
        Field { key: "pool", kind: Name("the name of a pool"), default: None, doc: "Into which pool." },
        Field {
            key: "function",
            kind: Name("the name of a function"),
            default: None,
            doc: "What is to be done.",
        },
        Field {
            key: "args",
            kind: Any,
            default: Some("null"),
            doc: "With what; tables, lists, texts and numbers become JSON.",
        },
        Field {
            key: "key",
            kind: Text("a text"),
            default: Some("none"),
            doc: "Under which key. With one, a tick never runs beside the one before.",
        },
        Field {
            key: "missed",
            kind: OneOf(&["skip", "catchUp"]),
            default: Some("\"skip\""),
            doc: "What becomes of ticks at which no node was there: nothing, or each is enqueued as soon as one is.",
        },
    ],
    example: "[crons.nightlyReport]\nschedule = { cron = \"30 2 * * *\", timeZone = \"Europe/Berlin\" }\n\
              pool = \"emailPool\"\nfunction = \"sendEmail\"\nargs = { report = \"nightly\" }\nkey = \"nightlyReport\"\n",
};

const SCHEDULE: &[Field] = &[
    Field {
        key: "cron",
        kind: Text("a cron expression, as in \"30 2 * * *\""),
        default: Some("none"),
        doc: "A cron expression.",
    },
    Field {
        key: "timeZone",
        kind: Text("a time zone, as in \"Europe/Berlin\""),
        default: Some("\"UTC\""),
        doc: "The zone of the expression.",
    },
    Field {
        key: "everyMs",
        kind: Integer { least: 1, most: i64::MAX },
        default: Some("none"),
        doc: "Every so many milliseconds.",
    },
    Field {
        key: "fromMs",
        kind: Integer { least: 0, most: i64::MAX },
        default: Some("0"),
        doc: "Counted from this moment, in milliseconds since the epoch.",
    },
];

/// The cron that a table describes.
pub(super) fn read(table: &Table) -> Result<Cron, String> {
    let given = &table.given;
    let schedule = given.table("schedule").map(schedule).transpose()?.ok_or("schedule: is missing")?;
    let args = given.entry("args").map_or(serde_json::Value::Null, |entry| entry.value.clone());
    let (pool, function) =
        (given.text("pool").unwrap_or_default(), given.text("function").unwrap_or_default());
    let mut cron =
        Cron::new(&table.name, schedule, pool, function, &args).map_err(|error| error.to_string())?;
    if let Some(key) = given.text("key") {
        cron = cron.key(key);
    }
    if given.text("missed") == Some("catchUp") {
        cron = cron.missed(Missed::CatchUp);
    }
    Ok(cron)
}

fn schedule(given: &Given) -> Result<Schedule, String> {
    let has = |key: &str| given.entry(key).is_some();
    let made = match (given.text("cron"), given.number("everyMs")) {
        (Some(text), None) if !has("fromMs") => Schedule::cron(text, given.text("timeZone").unwrap_or("UTC")),
        (None, Some(every_ms)) if !has("timeZone") => {
            let from_ms = given.number("fromMs").unwrap_or(0);
            Schedule::interval(every_ms, i64::try_from(from_ms).unwrap_or(i64::MAX))
        }
        _ => Err(mainstay::work::ScheduleError::NoKind),
    };
    made.map_err(|error| format!("schedule: {error}"))
}
