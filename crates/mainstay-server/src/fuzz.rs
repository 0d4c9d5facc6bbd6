//! Private parsers of the edge, made reachable for the fuzz targets of `mainstay-fuzz`. Nothing else uses this module.

use crate::extract::{json, query};
use crate::routes::{failure_cursor, item_cursor};
use crate::tokens::After;
use mainstay_flows::delivery::intents::Place;
use mainstay_work::inbox::Listed;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A body with each kind of field that real ones have: text, number, list, choice, and a payload that is kept as text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Body {
    /// Text.
    pub name: Option<String>,
    /// A number.
    pub version: Option<u32>,
    /// A nested list.
    #[serde(default)]
    pub events: Vec<Body>,
    /// A payload that is stored as it was written.
    pub data: Option<Box<RawValue>>,
    /// A payload that is parsed.
    pub args: Option<serde_json::Value>,
}

/// Parameters of each kind: text, number, list, flag and choice.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Parameters {
    pub after: Option<u64>,
    pub before: Option<i64>,
    #[serde(rename = "type")]
    pub types: Vec<String>,
    pub text: Option<String>,
    pub verbose: bool,
    pub order: Option<Order>,
}

/// A choice.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Order {
    Up,
    Down,
}

/// A body of JSON, as a route reads it; `None` when it is refused.
pub fn body(bytes: &[u8]) -> Option<Body> {
    json::parse(bytes).ok()
}

/// The parameters of a query, as a route reads them; `None` when they are refused.
pub fn parameters(text: &str) -> Option<Parameters> {
    query::parse(text).ok()
}

/// Reads a cursor and writes it again; `None` when it is refused.
pub type Cursor = fn(&str) -> Option<String>;

/// The kinds of cursors that routes give out, by name.
pub const CURSORS: [(&str, Cursor); 5] = [
    ("tokens", |text| After::parse(text).map(|after| after.to_string())),
    ("intents", |text| text.parse::<Place>().ok().map(|place| place.to_string())),
    ("failures", failure_cursor),
    ("work", item_cursor),
    ("dead letters", |text| Listed::parse_id(text).map(Listed::id)),
];
