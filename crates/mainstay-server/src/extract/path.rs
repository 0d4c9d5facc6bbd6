//! The parts of the path.

use crate::{Problem, error};
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{self, FromRequestParts};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

/// The parts of the path that its route names.
#[derive(Debug, Clone)]
pub struct Path<T>(pub T);

impl<T, S> FromRequestParts<S> for Path<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        // Neither database can hold it, so there is nothing to be found under it.
        if parts.uri.path().contains("%00") {
            return Err(Problem::new(&error::PATH_INVALID, "The path has a NUL character."));
        }
        match extract::Path::from_request_parts(parts, state).await {
            Ok(extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(problem(&rejection)),
        }
    }
}

fn problem(rejection: &PathRejection) -> Problem {
    let PathRejection::FailedToDeserializePathParams(error) = rejection else {
        return Problem::internal(rejection);
    };
    let problem = Problem::new(&error::PATH_INVALID, error.body_text());
    match error.kind() {
        ErrorKind::ParseErrorAtKey { key, .. }
        | ErrorKind::InvalidUtf8InPathParam { key }
        | ErrorKind::DeserializeError { key, .. } => problem.of_field(key.clone()),
        _ => problem,
    }
}
