//! An answer that shows what other callers have given, such as the arguments of work that failed.
//!
//! Every route that reads such values answers with [`Masked`], below `/v1` as below `/admin`. Not masked are the events of the
//! log, and what a pull worker claims.

use crate::Problem;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use mainstay_core::{json, secrets};
use serde::Serialize;

/// A document whose members that are secret by their names are hidden.
pub(crate) struct Masked<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Masked<T> {
    fn into_response(self) -> Response {
        match masked(&self.0) {
            Ok(bytes) => {
                ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], bytes).into_response()
            }
            Err(error) => Problem::internal(error).into_response(),
        }
    }
}

/// What has nothing to hide is told as it was given, with every digit of its numbers.
fn masked(document: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let text = serde_json::to_string(document)?;
    // Earlier versions have kept values that no parser of a client takes.
    let text = json::readable(&text);
    let mut read = serde_json::from_str(&text)?;
    if secrets::hide(&mut read) { serde_json::to_vec(&read) } else { Ok(text.into_owned().into_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    #[test]
    fn a_value_that_was_kept_too_deep_is_told_as_far_as_a_client_can_read() {
        let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
        let given = RawValue::from_string(deep).unwrap();
        let told = String::from_utf8(masked(&[given]).unwrap()).unwrap();
        assert!(told.contains("[nested too deep]"));
        assert!(serde_json::from_str::<serde_json::Value>(&told).is_ok());
    }

    #[test]
    fn what_has_nothing_to_hide_is_told_as_it_was_given() {
        let told = |text: &str| {
            let given = RawValue::from_string(text.to_owned()).unwrap();
            String::from_utf8(masked(&given).unwrap()).unwrap()
        };
        let exact = r#"{"b":123456789012345678901234567890,"a":1.10}"#;
        assert_eq!(told(exact), exact);
        assert_eq!(told(r#"{"password":"canary"}"#), r#"{"password":"[hidden]"}"#);
    }
}
