//! `[targets.NAME]`: contexts that events are delivered to, by webhooks.

use super::Error;
use super::endpoint::{Endpoint, SECRET, TIMEOUT, URL};
use super::table::FieldKind::{Boolean, Integer, Name, Positive, Table as Nested};
use super::table::{Collection, Field, Given, Table};
use mainstay::flows::delivery::publications::{Retry, Target as Registered};
use mainstay::work::http::Client;
use mainstay::work::pool::MAX_PARALLELISM;

/// How failed deliveries are tried again when nobody says otherwise (item 164).
pub const USUAL: Retry = Retry { max_retries: 5, initial_backoff_ms: 100, base: 2.0 };

/// The kind of table.
pub static COLLECTION: Collection = Collection {
    name: "targets",
    doc: "A context that events are delivered to when they are published: each is a `POST` of CloudEvents 1.0 in \
          structured JSON, with the headers `Idempotency-Key`, `traceparent` and `Mainstay-Signature`. Any 2xx says that \
          it came.",
    fields: &[
        URL,
        TIMEOUT,
        SECRET,
        Field {
            key: "retry",
            kind: Nested(RETRY),
            default: Some("{ maxRetries = 5, initialBackoffMs = 100, base = 2.0 }"),
            doc: "How failed deliveries are tried again. `maxRetries` counts those after the first try: 5 are at most six \
                  attempts, and then it is a dead letter.",
        },
        Field {
            key: "circuit",
            kind: Name("the name of a circuit"),
            default: Some("none"),
            doc: "The circuit that stands before it. While it is open, events wait and spend no attempts. Set it under \
                  `[circuits.NAME]`.",
        },
        Field {
            key: "ordered",
            kind: Boolean,
            default: Some("false"),
            doc: "Delivers events one at a time, in the order in which they were published. One that fails holds up the \
                  others until it comes or is a dead letter.",
        },
        Field {
            key: "maxParallelism",
            kind: Integer { least: 1, most: MAX_PARALLELISM as i64 },
            default: Some("those of `publicationPool`"),
            doc: "How many deliveries are under way at once, over all nodes, in a pool of its own. Without it, targets \
                  share `publicationPool`, and one that hangs leaves less of it to the others.",
        },
    ],
    example: "[targets.inventory]\nurl = \"http://127.0.0.1:9001/events\"\nsecret = \"env:INVENTORY_SECRET\"\n\
              retry = { maxRetries = 5, initialBackoffMs = 100, base = 2 }\n",
};

const RETRY: &[Field] = &[
    Field {
        key: "maxRetries",
        kind: Integer { least: 0, most: u32::MAX as i64 - 1 },
        default: Some("5"),
        doc: "Tries after the first.",
    },
    Field {
        key: "initialBackoffMs",
        kind: Integer { least: 1, most: 30 * 24 * 3_600_000 },
        default: Some("100"),
        doc: "How long the first wait is.",
    },
    Field { key: "base", kind: Positive, default: Some("2.0"), doc: "What each wait is multiplied with." },
];

/// A target as the configuration has it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// The circuit that stands before it.
    pub circuit: Option<String>,
    endpoint: Endpoint,
    pub(super) retry: Retry,
    is_ordered: bool,
    at_once: Option<u32>,
}

/// The target that a table describes.
pub(super) fn read(table: &Table) -> Result<Target, String> {
    let given = &table.given;
    let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(Target {
        name: table.name.clone(),
        circuit: given.text("circuit").map(str::to_owned),
        endpoint: Endpoint::read(table),
        retry: given.table("retry").map_or(USUAL, retry),
        is_ordered: given.entry("ordered").is_some_and(|entry| entry.value == true),
        at_once: given.number("maxParallelism").map(number),
    })
}

fn retry(given: &Given) -> Retry {
    Retry {
        max_retries: given
            .number("maxRetries")
            .map_or(USUAL.max_retries, |most| u32::try_from(most).unwrap_or(u32::MAX)),
        initial_backoff_ms: given.number("initialBackoffMs").unwrap_or(USUAL.initial_backoff_ms),
        base: given.fraction("base").unwrap_or(USUAL.base),
    }
}

impl Target {
    /// Whether it could be reached at all, which needs no secret.
    pub(super) fn check(&self, client: &Client) -> Result<(), Error> {
        self.endpoint.check(client)
    }

    /// The target, with its secrets from the environment and without its circuit.
    pub fn connect(&self, client: Client) -> Result<Registered, Error> {
        let target = Registered::webhook(&self.name, self.endpoint.connect(client)?.into()).retry(self.retry);
        let target = if self.is_ordered { target.ordered() } else { target };
        Ok(match self.at_once {
            Some(most) => target.at_once(most),
            None => target,
        })
    }
}
