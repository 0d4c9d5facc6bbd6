//! An HTTP endpoint that tables name: functions and targets have one.

use super::table::FieldKind::{Integer, Secret as Secrets, Text};
use super::table::{Field, Table};
use super::{Error, Place};
use mainstay::work::egress::Egress;
use mainstay::work::http::{Client, HttpConfig, HttpFunction, Secret};
use std::sync::Arc;

/// What a secret begins with that is in the environment.
const VARIABLE: &str = "env:";

/// Where it is.
pub(super) const URL: Field = Field {
    key: "url",
    kind: Text("the URL of an endpoint"),
    default: None,
    doc: "Where it is: `http://` or `https://`. Only public addresses are reached, and those that `[egress]` allows.",
};

/// How long a call may take.
pub(super) const TIMEOUT: Field = Field {
    key: "timeoutMs",
    kind: Integer { least: 1, most: 24 * 3_600_000 },
    default: Some("10000"),
    doc: "How long a call may take, from looking up the name to the last byte of the answer.",
};

/// What calls are signed with.
pub(super) const SECRET: Field = Field {
    key: "secret",
    kind: Secrets,
    default: Some("not signed"),
    doc: "What calls are signed with. `env:NAME` takes it from the variable NAME when the server starts. A list of two \
          signs with both, while one replaces the other.",
};

/// An endpoint as the configuration has it.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// The table it stands in: `functions.sendEmail`.
    table: String,
    url: String,
    timeout_ms: Option<u64>,
    /// As they are written: themselves, or where they are.
    secrets: Vec<String>,
    secret_place: Option<Place>,
    /// Where the URL stands.
    place: Place,
}

impl Endpoint {
    pub(super) fn read(table: &Table) -> Self {
        let given = &table.given;
        let secret = given.entry("secret");
        let secrets = match secret.map(|entry| &entry.value) {
            Some(serde_json::Value::Array(both)) => {
                both.iter().filter_map(|one| one.as_str()).map(str::to_owned).collect()
            }
            Some(one) => one.as_str().map(str::to_owned).into_iter().collect(),
            None => Vec::new(),
        };
        Self {
            table: table.full_name(),
            url: given.text("url").unwrap_or_default().to_owned(),
            timeout_ms: given.number("timeoutMs"),
            secrets,
            secret_place: secret.map(|entry| entry.place.clone()),
            place: given.entry("url").map_or(&table.place, |entry| &entry.place).clone(),
        }
    }

    /// Whether it could be called at all, which needs no secret.
    pub(super) fn check(&self, client: &Client) -> Result<(), Error> {
        self.make(client.clone(), Vec::new()).map(drop)
    }

    /// The endpoint, with its secrets from the environment.
    pub(super) fn connect(&self, client: Client) -> Result<HttpFunction, Error> {
        let secrets = self.secrets.iter().map(|text| self.secret(text)).collect::<Result<_, _>>()?;
        self.make(client, secrets)
    }

    fn make(&self, client: Client, secrets: Vec<Secret>) -> Result<HttpFunction, Error> {
        let mut config = HttpConfig::new(&self.url);
        config.timeout_ms = self.timeout_ms.unwrap_or(config.timeout_ms);
        config.secrets = secrets;
        HttpFunction::with_client(config, client).map_err(|error| Error::Refused {
            place: self.place.clone(),
            name: self.table.clone(),
            reason: error.to_string(),
        })
    }

    fn secret(&self, text: &str) -> Result<Secret, Error> {
        let (value, variable) = match text.strip_prefix(VARIABLE) {
            Some(variable) => (std::env::var(variable).unwrap_or_default(), Some(variable)),
            None => (text.to_owned(), None),
        };
        Secret::new(value).ok_or_else(|| Error::Refused {
            place: self.secret_place.clone().unwrap_or_else(|| self.place.clone()),
            name: format!("{}.secret", self.table),
            reason: format!("the variable {} is not set, or not text", variable.unwrap_or_default()),
        })
    }
}

/// A secret as it may be shown: where it is, but not what it is.
pub fn shown(secret: &serde_json::Value) -> serde_json::Value {
    match secret {
        serde_json::Value::String(text) if !text.starts_with(VARIABLE) => "***".into(),
        serde_json::Value::Array(both) => both.iter().map(shown).collect(),
        plain => plain.clone(),
    }
}

/// A client that obeys the configuration's egress rules.
pub fn client(egress: Egress) -> Client {
    Client::new(Arc::new(egress))
}
