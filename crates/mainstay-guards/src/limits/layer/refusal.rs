//! What a request is answered that is not let through.

use super::rules::{Rules, Standing};
use crate::error::{LIMIT_COST_TOO_LARGE, RATE_LIMITED};
use crate::http::{Head, problem_response, retry_after};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response};
use mainstay_api::Problem;
use mainstay_core::codes::ErrorCode;
use serde_json::Value;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Why a request is not let through.
pub(super) struct Refusal {
    entry: &'static ErrorCode,
    problem: Box<Problem>,
    retry_after_ms: Option<u64>,
}

impl Refusal {
    pub(super) fn new(entry: &'static ErrorCode, detail: impl Into<String>) -> Self {
        Self { entry, problem: Box::new(Problem::new(entry, detail)), retry_after_ms: None }
    }

    pub(super) fn retry_after(self, wait_ms: u64) -> Self {
        Self { retry_after_ms: Some(wait_ms), ..self }
    }

    /// Some limits deny. All of them must allow, so the longest wait counts; one that never will makes waiting useless.
    pub(super) fn denied(rules: &Rules, standings: &[Standing]) -> Self {
        let denied = || standings.iter().filter(|standing| !standing.decision.allowed);
        let is_impossible = denied().any(|standing| standing.decision.is_impossible());
        let refusal = if is_impossible {
            Self::new(&LIMIT_COST_TOO_LARGE, "Operation cost exceeds rate limit capacity")
        } else {
            let wait_ms = denied().filter_map(|standing| standing.decision.retry_after_ms).max();
            Self { retry_after_ms: wait_ms, ..Self::new(&RATE_LIMITED, "Rate limit exceeded") }
        };
        let violated: Vec<Value> = denied().map(|standing| (*rules.get(standing.rule).name).into()).collect();
        // The second member as the draft of the RateLimit fields spells it.
        let problem =
            refusal.problem.with("retryAfterMs", refusal.retry_after_ms).with("violated-policies", violated);
        Self { problem: Box::new(problem), ..refusal }
    }

    /// The answer: a problem document, or what clients of gRPC understand.
    pub(super) fn answer(self, is_grpc: bool) -> Response<String> {
        let Self { entry, problem, retry_after_ms } = self;
        if !is_grpc {
            return problem_response(&problem, retry_after_ms);
        }
        let mut answer = Response::new(String::new());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from_static(grpc_status(entry)));
        let message = format!("{}: {}", entry.code, problem.detail);
        headers.insert(
            GRPC_MESSAGE,
            HeaderValue::try_from(message).unwrap_or(HeaderValue::from_static(entry.code)),
        );
        if let Some(wait_ms) = retry_after_ms {
            headers.insert(RETRY_AFTER, retry_after(wait_ms));
        }
        answer
    }
}

/// Whether a request is one of gRPC, whose clients look for their status elsewhere.
pub(super) fn is_grpc(head: Head<'_>) -> bool {
    let is_grpc = |value: &HeaderValue| {
        value.as_bytes().get(..16).is_some_and(|kind| kind.eq_ignore_ascii_case(b"application/grpc"))
    };
    head.headers.get(CONTENT_TYPE).is_some_and(is_grpc)
}

/// `RESOURCE_EXHAUSTED`, `UNAVAILABLE`, `FAILED_PRECONDITION` (item 50) or `INVALID_ARGUMENT` (item 41).
fn grpc_status(entry: &ErrorCode) -> &'static str {
    match entry.status {
        429 => "8",
        503 => "14",
        422 => "9",
        _ => "3",
    }
}
