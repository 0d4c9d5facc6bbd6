//! What is written down of a call.

use super::args;
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

    /// What an answer of this HTTP status comes to.
    pub fn of_status(status: u16) -> Self {
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
    /// The method and the path of the route; the verb of the command line where there is no route.
    pub action: String,
    /// What the call was given, without secrets.
    pub args: Value,
    /// The id of the token; `local` for somebody on the machine who needs none, `local:NAME` for a user of the operating
    /// system who did it to the store itself, `nobody` for one who was not known.
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

impl Entry {
    /// What somebody does where no server is asked, as it would be written down of a call with this path and body.
    pub fn of_deed(action: &str, user_id: &str, path: &str, body: Option<&Value>) -> Self {
        let body = body.map(Value::to_string);
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let args = args::of(path, query, body.as_deref().map(str::as_bytes));
        Self { args, ..Self::begun(action, user_id) }
    }

    /// Before anything else is known of it.
    pub(super) fn begun(action: &str, user_id: &str) -> Self {
        Self {
            number: 0,
            timestamp: 0,
            action: action.to_owned(),
            args: Value::Null,
            user_id: user_id.to_owned(),
            role: None,
            tenant_id: None,
            outcome: Outcome::Done,
            code: None,
            trace_id: None,
            hash: String::new(),
        }
    }
}
