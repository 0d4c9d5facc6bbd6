//! What a handler decides.

use mainstay_events::NewEvent;
use serde_json::Value;

/// What was decided about a command: it happens, it does not, or something else happens instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<T = (), E = NewEvent> {
    /// It happens.
    Success {
        /// For the caller.
        data: T,
        /// What happened.
        events: Vec<E>,
    },
    /// It does not, and leaves no trace but its own record.
    Rejected {
        /// Why, for programs.
        code: String,
        /// Why, for people.
        reason: String,
        /// What else there is to know.
        context: Option<Value>,
    },
    /// It failed in a way that is worth an event.
    Failed {
        /// Why.
        reason: String,
        /// What happened instead.
        events: Vec<E>,
    },
}

impl<T, E> Decision<T, E> {
    /// It happens.
    pub fn success(data: T, events: impl IntoIterator<Item = E>) -> Self {
        Self::Success { data, events: events.into_iter().collect() }
    }

    /// It does not.
    pub fn rejected(code: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Rejected { code: code.into(), reason: reason.into(), context: None }
    }

    /// It failed in a way that is worth an event.
    pub fn failed(reason: impl Into<String>, events: impl IntoIterator<Item = E>) -> Self {
        Self::Failed { reason: reason.into(), events: events.into_iter().collect() }
    }

    /// The same with other data.
    pub fn map<U>(self, data: impl FnOnce(T) -> U) -> Decision<U, E> {
        match self {
            Self::Success { data: old, events } => Decision::Success { data: data(old), events },
            Self::Rejected { code, reason, context } => Decision::Rejected { code, reason, context },
            Self::Failed { reason, events } => Decision::Failed { reason, events },
        }
    }
}
