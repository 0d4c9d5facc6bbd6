//! What HTTP answers mean to a guard, and what a guard answers by itself.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use mainstay_api::Problem;
use mainstay_api::problem::MEDIA_TYPE;
use mainstay_core::codes::ErrorCode;
use mainstay_core::failure::{Class, Failure};
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
    let problem = Problem::new(entry, detail).with("retryAfterMs", retry_after_ms);
    problem_response(&problem, retry_after_ms).map(B::from)
}

/// A response that carries a problem document.
pub(crate) fn problem_response(problem: &Problem, retry_after_ms: Option<u64>) -> Response<String> {
    let mut answer = Response::new(problem.to_json());
    *answer.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    if let Some(wait_ms) = retry_after_ms {
        answer.headers_mut().insert(RETRY_AFTER, retry_after(wait_ms));
    }
    answer
}

/// Whole seconds, and never too early.
pub(crate) fn retry_after(wait_ms: u64) -> HeaderValue {
    wait_ms.div_ceil(1_000).into()
}
