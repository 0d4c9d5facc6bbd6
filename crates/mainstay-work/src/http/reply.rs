//! What a reply means: a value, or a failure that says whether calling again may help.
//!
//! | reply | meaning |
//! |---|---|
//! | 2xx with JSON, or with nothing | the value, or null |
//! | 2xx with anything else, or what is too long or nested too deep | fails for good: the function is wrong |
//! | 3xx | fails for good: redirects are not followed, who moves a function changes its URL |
//! | 408, 504 | took too long; may be tried again |
//! | 429 | asked too often; may be tried again, when the reply says |
//! | other 4xx | fails for good |
//! | 503 and other 5xx | may be tried again, a 503 when it says |

use super::client::failure;
use super::confided::printable;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{DATE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use hyper::{Response, StatusCode};
use mainstay_core::failure::{Class, Failure};
use mainstay_core::json;
use serde_json::value::RawValue;
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::{Instant, timeout_at};

/// How much of a refusal's body is told on.
const EXCERPT_BYTES: usize = 512;
/// Longest time a service can ask to be left alone. One that says more is wrong about the date, or wants work never to
/// be done again.
const MAX_RETRY_AFTER_MS: u64 = 24 * 60 * 60 * 1_000;

/// How long a connection is worth waiting for: a new one takes less.
const LEFTOVER_PATIENCE: Duration = Duration::from_millis(200);

/// The bounds of one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) deadline: Instant,
    pub(super) timeout_ms: u64,
    pub(super) max_reply_bytes: usize,
    pub(super) now_ms: i64,
}

impl Bounds {
    pub(super) fn late(&self) -> Failure {
        Failure::new(Class::NetworkTimeout, format!("no complete reply within {} ms", self.timeout_ms))
    }
}

/// Reads a reply to its end, or to where it goes beyond its bounds.
pub(super) async fn read(response: Response<Incoming>, bounds: &Bounds) -> Result<Box<RawValue>, Failure> {
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        let excerpt = excerpt(body, bounds.deadline).await;
        return Err(refusal(head.status, &head.headers, &excerpt, bounds.now_ms));
    }
    let bytes = timeout_at(bounds.deadline, whole(body, bounds.max_reply_bytes)).await;
    value(&bytes.map_err(|_| bounds.late())??, bounds.max_reply_bytes)
}

/// Whether something came, by the head of the reply alone. What stands below it is read only for the connection's sake,
/// which can be used again when it ends soon.
pub(super) async fn acknowledged(response: Response<Incoming>, bounds: &Bounds) -> Result<(), Failure> {
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        let excerpt = excerpt(body, bounds.deadline).await;
        return Err(refusal(head.status, &head.headers, &excerpt, bounds.now_ms));
    }
    let soon = bounds.deadline.min(Instant::now() + LEFTOVER_PATIENCE);
    drop(timeout_at(soon, whole(body, bounds.max_reply_bytes)).await);
    Ok(())
}

async fn whole(mut body: Incoming, max_bytes: usize) -> Result<Vec<u8>, Failure> {
    let too_long = || Failure::permanent(format!("the reply is longer than {max_bytes} bytes"));
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failure(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > max_bytes {
            return Err(too_long());
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}

/// The value that a function returned.
fn value(bytes: &[u8], max_bytes: usize) -> Result<Box<RawValue>, Failure> {
    if bytes.trim_ascii().is_empty() {
        return Ok(RawValue::NULL.to_owned());
    }
    let value = json::parse(bytes, json::Bounds::bytes(max_bytes));
    value.map_err(|error| Failure::permanent(format!("the reply {error}")))
}

/// The beginning of a body; whatever is wrong with the body does not change what its status says.
async fn excerpt(mut body: Incoming, deadline: Instant) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < EXCERPT_BYTES {
        let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await else { break };
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    beginning(&bytes)
}

/// The beginning of what a stranger sent, fit for a log line.
fn beginning(bytes: &[u8]) -> String {
    printable(String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_BYTES)]).trim())
}

fn refusal(status: StatusCode, headers: &HeaderMap, excerpt: &str, now_ms: i64) -> Failure {
    let class = match status.as_u16() {
        400 | 422 => Class::ValidationError,
        401 => Class::AuthenticationFailure,
        403 => Class::AuthorizationFailure,
        408 | 504 => Class::NetworkTimeout,
        429 => Class::RateLimitExceeded,
        500.. => Class::TemporaryServiceUnavailable,
        _ => Class::PermanentServiceError,
    };
    let mut message = format!("the reply is {status}");
    if status.is_redirection() {
        let location = headers.get(LOCATION).map_or_else(String::new, |value| beginning(value.as_bytes()));
        message.push_str(&format!(" to {location:?}; redirects are not followed"));
    }
    if !excerpt.is_empty() {
        message.push_str(&format!(": {excerpt}"));
    }
    let failure = Failure::new(class, message);
    let says_when = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    match retry_after_ms(headers, now_ms).filter(|_| says_when) {
        Some(wait_ms) => failure.with_retry_after_ms(wait_ms),
        None => failure,
    }
}

/// When to come back, given in seconds or as a date. A date is taken relative to the service's own, where it sends one:
/// then it does not matter whose clock is wrong. Nothing when that is now or past: the retry policy knows better.
fn retry_after_ms(headers: &HeaderMap, now_ms: i64) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait_ms = match text.parse::<u64>() {
        Ok(seconds) => seconds.saturating_mul(1_000),
        Err(_) => {
            let until = date_ms(headers, RETRY_AFTER)?;
            let now = date_ms(headers, DATE).unwrap_or(now_ms);
            u64::try_from(until.saturating_sub(now)).ok()?
        }
    };
    (wait_ms > 0).then_some(wait_ms.min(MAX_RETRY_AFTER_MS))
}

fn date_ms(headers: &HeaderMap, name: HeaderName) -> Option<i64> {
    let date = httpdate::parse_http_date(headers.get(name)?.to_str().ok()?.trim()).ok()?;
    i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT, the example of the specification.
    const THEN_MS: i64 = 784_111_777_000;

    fn wait(status: u16, fields: &[(HeaderName, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(name.clone(), value.parse().unwrap());
        }
        refusal(StatusCode::from_u16(status).unwrap(), &headers, "", THEN_MS).retry_after_ms()
    }

    #[test]
    fn every_status_has_its_class() {
        use Class::*;
        for (status, class) in [
            (101, PermanentServiceError),
            (300, PermanentServiceError),
            (304, PermanentServiceError),
            (400, ValidationError),
            (401, AuthenticationFailure),
            (403, AuthorizationFailure),
            (404, PermanentServiceError),
            (408, NetworkTimeout),
            (409, PermanentServiceError),
            (410, PermanentServiceError),
            (422, ValidationError),
            (429, RateLimitExceeded),
            (499, PermanentServiceError),
            (500, TemporaryServiceUnavailable),
            (502, TemporaryServiceUnavailable),
            (503, TemporaryServiceUnavailable),
            (504, NetworkTimeout),
            (599, TemporaryServiceUnavailable),
        ] {
            let failure = refusal(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), "", 0);
            assert_eq!(failure.class(), class, "{status}");
            let may_repeat = matches!(status, 408 | 429 | 500..);
            assert_eq!(failure.is_retryable(), may_repeat, "{status}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_any_date_of_http() {
        for status in [429, 503] {
            assert_eq!(wait(status, &[(RETRY_AFTER, "120")]), Some(120_000));
            for date in [
                "Sun, 06 Nov 1994 08:50:37 GMT",
                "Sunday, 06-Nov-94 08:50:37 GMT",
                "Sun Nov  6 08:50:37 1994",
            ] {
                assert_eq!(wait(status, &[(RETRY_AFTER, date)]), Some(60_000), "{date}");
            }
        }
        assert_eq!(wait(500, &[(RETRY_AFTER, "120")]), None, "only these two may say when");
        assert_eq!(wait(404, &[(RETRY_AFTER, "120")]), None);
    }

    #[test]
    fn a_date_is_measured_by_the_clock_of_who_sent_it() {
        let fields =
            [(DATE, "Wed, 09 Nov 1994 08:00:00 GMT"), (RETRY_AFTER, "Wed, 09 Nov 1994 08:00:30 GMT")];
        assert_eq!(wait(503, &fields), Some(30_000));
    }

    #[test]
    fn a_retry_after_without_sense_is_left_to_the_policy() {
        for text in
            ["0", "-5", "soon", "", "1.5", "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1990 08:49:37 GMT"]
        {
            assert_eq!(wait(429, &[(RETRY_AFTER, text)]), None, "{text}");
        }
        for text in ["86400", "99999999999", "18446744073709551615", "Fri, 31 Dec 9999 23:59:59 GMT"] {
            assert_eq!(wait(429, &[(RETRY_AFTER, text)]), Some(MAX_RETRY_AFTER_MS), "{text}");
        }
    }

    #[test]
    fn what_strangers_send_is_made_fit_for_a_line() {
        assert_eq!(beginning(b"  no\r\nforged: line\x1b[31m\xff "), "no  forged: line [31m\u{fffd}");
        assert_eq!(beginning(&[b'x'; 2_000]).len(), EXCERPT_BYTES);
    }
}
