//! What is written down of a call.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was not let in, or not as it was asked.
    Refused,
    /// It went wrong.
    Failed,
}

impl Outcome {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }

    /// The outcome of this name.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Done, Self::Refused, Self::Failed].into_iter().find(|outcome| outcome.as_str() == name)
    }

    pub(super) fn of_status(status: u16) -> Self {
        match status {
            ..400 => Self::Done,
            400..500 => Self::Refused,
            _ => Self::Failed,
        }
    }
}

/// A call, as it is written down (item 232).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its number, from 1; 0 before it is written down.
    #[serde(default)]
    pub number: u64,
    /// When, by the database's clock, in milliseconds since the epoch.
    #[serde(default)]
    pub timestamp: i64,
    /// The method and the path of the route.
    pub action: String,
    /// What the call was given, without secrets.
    pub args: Value,
    /// The id of the token; `local` for somebody on the machine who needs none, `nobody` for one who was not known.
    pub user_id: String,
    /// What that token allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The tenant it is confined to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// What came of it.
    pub outcome: Outcome,
    /// The code of what was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The trace that the call was part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// What makes a change of this entry, or of one before it, show.
    #[serde(default)]
    pub hash: String,
}
