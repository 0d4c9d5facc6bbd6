//! `[circuits.NAME]`: what opens a circuit and what closes it.

use super::table::FieldKind::{Boolean, Integer, Positive};
use super::table::{Collection, Field, Table};
use mainstay::guards::circuits::Settings;

/// The kind of table.
pub static COLLECTION: Collection = Collection {
    name: "circuits",
    doc: "A circuit, set when a server starts: calls to a service that is not well are not made until one call has shown \
          that it is well again. What was set over HTTP meanwhile is set back to what the file says. A circuit that is \
          not written down is set as services of its name usually are.",
    fields: &[
        Field {
            key: "failureThreshold",
            kind: Integer { least: 1, most: 10_000 },
            default: Some("5"),
            doc: "So many failures one after another open it. Not together with a window.",
        },
        Field {
            key: "resetTimeoutMs",
            kind: Integer { least: 1, most: 7 * 24 * 3_600_000 },
            default: Some("30000"),
            doc: "How long it stays open before a probe is let through.",
        },
        Field {
            key: "successThreshold",
            kind: Integer { least: 1, most: 10_000 },
            default: Some("1"),
            doc: "So many probes that succeed one after another close it.",
        },
        Field {
            key: "probeTimeoutMs",
            kind: Integer { least: 1, most: DAY_MS },
            default: Some("60000"),
            doc: "A probe of which nothing is heard for so long makes room for another.",
        },
        Field {
            key: "metricsOnly",
            kind: Boolean,
            default: Some("false"),
            doc: "Whether it only counts and tells, and refuses nothing.",
        },
        Field {
            key: "maxRetries",
            kind: Integer { least: 0, most: 10_000 },
            default: Some("3"),
            doc: "How often a durable run behind it is tried again before that counts as one failure.",
        },
        Field {
            key: "initialBackoffMs",
            kind: Integer { least: 1, most: DAY_MS },
            default: Some("250"),
            doc: "How long such a run waits before it is tried again first.",
        },
        Field {
            key: "windowCalls",
            kind: Integer { least: 1, most: 10_000 },
            default: Some("none"),
            doc: "It goes by the last so many calls of a node instead of failures one after another.",
        },
        Field {
            key: "windowMs",
            kind: Integer { least: 100, most: 3_600_000 },
            default: Some("none"),
            doc: "It goes by the calls of the last so many milliseconds.",
        },
        Field {
            key: "minimumCalls",
            kind: Integer { least: 1, most: 10_000 },
            default: Some("10"),
            doc: "Fewer calls in the window say nothing.",
        },
        Field {
            key: "failurePercent",
            kind: Positive,
            default: Some("50 with a window"),
            doc: "So many of a hundred calls in the window that failed open it.",
        },
        Field {
            key: "slowAfterMs",
            kind: Integer { least: 1, most: DAY_MS },
            default: Some("none"),
            doc: "A call that takes longer is slow.",
        },
        Field {
            key: "slowPercent",
            kind: Positive,
            default: Some("none"),
            doc: "So many of a hundred calls in the window that were slow open it.",
        },
    ],
    example: "[circuits.sendgrid]\nfailureThreshold = 10\nresetTimeoutMs = 30000\nsuccessThreshold = 1\n",
};

const DAY_MS: i64 = 24 * 3_600_000;

/// A circuit as the configuration has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Circuit {
    /// Its name.
    pub name: String,
    /// How it is set.
    pub settings: Settings,
}

/// The circuit that a table describes.
pub(super) fn read(table: &Table) -> Result<Circuit, String> {
    let settings = serde_json::from_value(table.given.to_json().into()).map_err(|error| error.to_string())?;
    Ok(Circuit { name: table.name.clone(), settings })
}
