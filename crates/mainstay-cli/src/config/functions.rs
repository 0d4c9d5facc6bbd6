//! `[functions.NAME]`: functions that are HTTP endpoints.

use super::Error;
use super::endpoint::{Endpoint, SECRET, TIMEOUT, URL};
use super::table::FieldKind::Name;
use super::table::{Collection, Field, Table};
use mainstay::work::http::{Client, HttpFunction};

/// The kind of table.
pub static COLLECTION: Collection = Collection {
    name: "functions",
    doc: "A function that is an HTTP endpoint: an action that is carried out by a `POST` with the JSON body `{workId, \
          function, attempt, args, context?, trace}` and the headers `Idempotency-Key`, `traceparent` and \
          `Mainstay-Signature`. A 2xx answer of JSON is what it returns.",
    fields: &[
        URL,
        TIMEOUT,
        SECRET,
        Field {
            key: "circuit",
            kind: Name("the name of a circuit"),
            default: Some("none"),
            doc: "The circuit that is asked before a call. While it is open, items of this function wait and spend no \
                  attempts; the first one that is taken afterwards is the probe. Set it under `[circuits.NAME]`.",
        },
    ],
    example: "[functions.sendEmail]\nurl = \"http://127.0.0.1:9000/send\"\ntimeoutMs = 10000\n\
              secret = \"env:SEND_EMAIL_SECRET\"\ncircuit = \"sendgrid\"\n",
};

/// A function as the configuration has it.
#[derive(Debug, Clone)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The circuit that is asked before a call.
    pub circuit: Option<String>,
    endpoint: Endpoint,
}

/// The function that a table describes.
pub(super) fn read(table: &Table) -> Result<Function, String> {
    Ok(Function {
        name: table.name.clone(),
        circuit: table.given.text("circuit").map(str::to_owned),
        endpoint: Endpoint::read(table),
    })
}

impl Function {
    /// Whether it could be called at all, which needs no secret.
    pub(super) fn check(&self, client: &Client) -> Result<(), Error> {
        self.endpoint.check(client)
    }

    /// The function, with its secrets from the environment.
    pub fn connect(&self, client: Client) -> Result<HttpFunction, Error> {
        self.endpoint.connect(client)
    }
}
