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
            Error::Invalid { field, .. } => problem.of_field(field),
            Error::Reserved(reserved) => problem.of_field(reserved.field),
            Error::BadCost => problem.of_field("cost"),
            Error::UnknownLimit(limit) => problem.with("limit", limit),
            Error::InUse { name, reason } => problem.with("name", name).with("reason", reason),
            Error::UnknownCircuit(circuit) => problem.with("circuit", circuit),
            _ => problem,
        }
    }
}
