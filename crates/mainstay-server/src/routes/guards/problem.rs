//! What guards say, as a problem document.

use crate::Problem;
use mainstay_guards::Error;

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        if let Error::Store(error) = &error {
            return Self::from(&**error);
        }
        let problem = Self::new(error.entry(), error.to_string());
        match error {
            Error::Invalid { field, .. } => problem.with("field", field),
            Error::BadCost => problem.with("field", "cost"),
            Error::UnknownLimit(limit) => problem.with("limit", limit),
            _ => problem,
        }
    }
}
