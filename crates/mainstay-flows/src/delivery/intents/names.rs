//! What the events of an operation are called (decision C21).

use super::intent::CompletionStatus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the events of an operation are called; those that say nothing are `{operation}Started`, `…Completed`, `…Failed` and
/// `…Abandoned`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventNames {
    /// It was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// It was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<String>,
    /// It could not be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Nobody has ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned: Option<String>,
}

impl EventNames {
    /// Names for the beginning, the success and the failure of an operation.
    pub fn new(started: impl Into<String>, completed: impl Into<String>, failed: impl Into<String>) -> Self {
        Self {
            started: Some(started.into()),
            completed: Some(completed.into()),
            failed: Some(failed.into()),
            abandoned: None,
        }
    }

    /// And for its being abandoned.
    pub fn abandoned(self, abandoned: impl Into<String>) -> Self {
        Self { abandoned: Some(abandoned.into()), ..self }
    }

    /// These, and where they say nothing what `others` say.
    fn or(self, others: &Self) -> Self {
        Self {
            started: self.started.or_else(|| others.started.clone()),
            completed: self.completed.or_else(|| others.completed.clone()),
            failed: self.failed.or_else(|| others.failed.clone()),
            abandoned: self.abandoned.or_else(|| others.abandoned.clone()),
        }
    }
}

/// The names of an operation's events, all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    pub(super) started: String,
    completed: String,
    failed: String,
    abandoned: String,
}

impl Named {
    pub(super) fn of(&self, status: CompletionStatus) -> &str {
        match status {
            CompletionStatus::Success => &self.completed,
            CompletionStatus::Failure => &self.failed,
            CompletionStatus::Abandoned => &self.abandoned,
        }
    }
}

/// What the events of each operation are called. `OrderSubmission`, `PaymentProcessing` and `StockReservation` are known
/// (item 180).
#[derive(Debug, Clone)]
pub struct Operations(BTreeMap<String, EventNames>);

impl Default for Operations {
    fn default() -> Self {
        let order = EventNames::new("OrderSubmissionStarted", "OrderSubmitted", "OrderSubmissionFailed");
        let payment = EventNames::new("PaymentProcessingStarted", "PaymentCompleted", "PaymentFailed");
        let stock = EventNames::new("ReservationRequested", "StockReserved", "ReservationFailed");
        Self(BTreeMap::new())
            .named("OrderSubmission", order.abandoned("OrderSubmissionAbandoned"))
            .named("PaymentProcessing", payment)
            .named("StockReservation", stock)
    }
}

impl Operations {
    /// Those that are known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says what the events of an operation are called.
    pub fn named(mut self, operation_type: impl Into<String>, names: EventNames) -> Self {
        self.0.insert(operation_type.into(), names);
        self
    }

    /// The names of an operation's events, where `own` are those of one intent.
    pub(super) fn of(&self, operation_type: &str, own: EventNames) -> Named {
        let names = match self.0.get(operation_type) {
            Some(known) => own.or(known),
            None => own,
        };
        let or = |name: Option<String>, end: &str| name.unwrap_or_else(|| format!("{operation_type}{end}"));
        Named {
            started: or(names.started, "Started"),
            completed: or(names.completed, "Completed"),
            failed: or(names.failed, "Failed"),
            abandoned: or(names.abandoned, "Abandoned"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CompletionStatus::{Abandoned, Failure, Success};

    fn all(named: &Named) -> [&str; 4] {
        [&named.started, named.of(Success), named.of(Failure), named.of(Abandoned)]
    }

    #[test]
    fn b_180_c_021_events_are_called_by_the_table_and_else_by_their_operation() {
        let operations = Operations::new();
        let of = |operation: &str| operations.of(operation, EventNames::default());
        assert_eq!(
            all(&of("OrderSubmission")),
            ["OrderSubmissionStarted", "OrderSubmitted", "OrderSubmissionFailed", "OrderSubmissionAbandoned"]
        );
        assert_eq!(
            all(&of("PaymentProcessing")),
            ["PaymentProcessingStarted", "PaymentCompleted", "PaymentFailed", "PaymentProcessingAbandoned"]
        );
        assert_eq!(
            all(&of("StockReservation")),
            ["ReservationRequested", "StockReserved", "ReservationFailed", "StockReservationAbandoned"]
        );
        assert_eq!(
            all(&of("Refund")),
            ["RefundStarted", "RefundCompleted", "RefundFailed", "RefundAbandoned"]
        );
        let own = EventNames { completed: Some("Paid".to_owned()), ..EventNames::default() };
        assert_eq!(all(&operations.of("PaymentProcessing", own))[..2], ["PaymentProcessingStarted", "Paid"]);
    }
}
