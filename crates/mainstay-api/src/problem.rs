//! Problem documents, as RFC 9457 has them.

use mainstay_core::codes::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The media type of a problem document.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// A problem document (RFC 9457). Further members have details: `maxBytes`, the current state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Path of the page that explains this kind of problem. Every server serves it.
    pub r#type: String,
    /// Kind of problem, in a sentence.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Cause of this occurrence.
    pub detail: String,
    /// The stable name of this kind of problem.
    pub code: String,
    /// The field, parameter or part of the path that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Further members.
    #[serde(flatten)]
    pub members: BTreeMap<String, Value>,
}

impl Problem {
    /// A problem of this kind; `detail` is the cause of this occurrence. Title, status and type follow from the code.
    ///
    /// ```
    /// # mainstay_core::codes! { pub static CODES: OVEN_COLD "OVEN_COLD" 503 true "The oven is cold." "Wait."; }
    /// # fn main() {
    /// let problem = mainstay_api::Problem::new(&OVEN_COLD, "it has 20 °C").with("celsius", 20);
    /// assert_eq!(problem.r#type, "/docs/errors/OVEN_COLD");
    /// assert_eq!(problem.members["celsius"], 20);
    /// # }
    /// ```
    pub fn new(entry: &ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            r#type: format!("/docs/errors/{}", entry.code),
            title: entry.meaning.to_owned(),
            status: entry.status,
            detail: detail.into(),
            code: entry.code.to_owned(),
            field: None,
            members: BTreeMap::new(),
        }
    }

    /// Names the field, parameter or part of the path that is wrong.
    #[must_use]
    pub fn of_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Adds a member, such as the state that was found.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// The document as text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and JSON values are always JSON")
    }
}
