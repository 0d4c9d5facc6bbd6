//! What the workshop says, as a problem document.

use crate::Problem;
use mainstay_core::names::Reserved;
use mainstay_work::Error;

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        if let Error::Store(error) = &error {
            return Self::from(&**error);
        }
        let problem = Self::new(error.entry(), error.to_string());
        match error {
            Error::Invalid { field, .. } | Error::TooLarge { field, .. } | Error::BadArgs { field, .. } => {
                problem.of_field(field)
            }
            Error::Reserved(reserved) => problem.of_field(reserved.field),
            Error::TooMany { .. } => problem.of_field("items"),
            Error::TooManyNames { what, most } => problem.with("what", what).with("limit", most),
            Error::InUse { name, reason, .. } => problem.with("name", name).with("reason", reason),
            Error::UnknownPool(pool) => problem.with("pool", pool),
            Error::UnknownFunction(function) => problem.with("function", function),
            Error::DeadLetterNotPending { letter_id, status } => {
                problem.with("letterId", letter_id).with("currentStatus", status)
            }
            Error::LetterOperationNotFound(id) | Error::LetterPreviewExpired(id) => {
                problem.with("operationId", id)
            }
            Error::LetterOperationStatus { operation_id, current_status } => {
                problem.with("operationId", operation_id).with("currentStatus", current_status)
            }
            Error::LeaseLost(lease) => problem.with("lease", lease),
            Error::NotWaiting { id, .. } => problem.with("workId", id),
            Error::NotHeld { id, lease } => problem.with("workId", id).with("lease", lease),
            _ => problem,
        }
    }
}

/// The same error about another field.
pub(super) fn about(error: Error, rename: impl Fn(&str) -> Option<String>) -> Error {
    match error {
        Error::Invalid { field, reason } => Error::Invalid { field: rename(&field).unwrap_or(field), reason },
        Error::Reserved(Reserved { field }) => Reserved { field: rename(&field).unwrap_or(field) }.into(),
        Error::TooLarge { field, bytes } => Error::TooLarge { field: rename(&field).unwrap_or(field), bytes },
        Error::BadArgs { field, function, reason } => {
            Error::BadArgs { field: rename(&field).unwrap_or(field), function, reason }
        }
        other => other,
    }
}
