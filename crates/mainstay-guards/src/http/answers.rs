//! What HTTP answers mean to a guard, and what a guard answers by itself.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use mainstay_core::codes::ErrorCode;
use mainstay_core::failure::{Class, Failure};
use serde_json::{Map, Value};
use std::fmt::Display;

/// Longest wait that a service can ask for: a day.
const MOST_WAIT_SECONDS: u64 = 24 * 3_600;

/// What is wrong with the end of a call, if anything. A service that answers with what is the caller's own mistake is
/// well; one that is busy, broken or silent is not.
pub fn failure_of<B>(ended: &Result<Response<B>, impl Display>) -> Option<Failure> {
    let answer = match ended {
        Ok(answer) => answer,
        Err(error) => return Some(Failure::retryable(error.to_string())),
    };
    let status = answer.status();
    let class = match status {
        StatusCode::TOO_MANY_REQUESTS => Class::RateLimitExceeded,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => Class::NetworkTimeout,
        StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => return None,
        status if status.is_server_error() => Class::TemporaryServiceUnavailable,
        _ => return None,
    };
    let failure = Failure::new(class, format!("the service answered {status}"));
    // Only these two say when to come back.
    let may_say = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    match wait_ms(answer.headers()).filter(|_| may_say) {
        Some(wait_ms) => Some(failure.with_retry_after_ms(wait_ms)),
        None => Some(failure),
    }
}

fn wait_ms(headers: &HeaderMap) -> Option<u64> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(seconds.min(MOST_WAIT_SECONDS) * 1_000)
}

/// A problem document for a call that a guard did not make.
pub(crate) fn problem<B: From<String>>(
    entry: &ErrorCode,
    detail: &str,
    retry_after_ms: Option<u64>,
) -> Response<B> {
    let mut members = Map::new();
    members.insert("retryAfterMs".to_owned(), retry_after_ms.into());
    problem_with(entry, detail, retry_after_ms, members).map(B::from)
}

/// A problem document with members of its own, in the shape that all answers of Mainstay have.
pub(crate) fn problem_with(
    entry: &ErrorCode,
    detail: &str,
    retry_after_ms: Option<u64>,
    members: Map<String, Value>,
) -> Response<String> {
    let mut document = Map::new();
    document.insert("type".to_owned(), format!("/docs/errors/{}.md", entry.code).into());
    document.insert("title".to_owned(), entry.meaning.into());
    document.insert("status".to_owned(), entry.status.into());
    document.insert("detail".to_owned(), detail.into());
    document.insert("code".to_owned(), entry.code.into());
    document.extend(members);
    let mut answer = Response::new(Value::Object(document).to_string());
    *answer.status_mut() = StatusCode::from_u16(entry.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(wait_ms) = retry_after_ms {
        answer.headers_mut().insert(RETRY_AFTER, retry_after(wait_ms));
    }
    answer
}

/// Whole seconds, and never too early.
pub(crate) fn retry_after(wait_ms: u64) -> HeaderValue {
    wait_ms.div_ceil(1_000).into()
}
