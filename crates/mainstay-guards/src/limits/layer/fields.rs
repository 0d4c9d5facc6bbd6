//! What clients are told of their budgets: the fields `RateLimit-Policy` and `RateLimit`, as
//! draft-ietf-httpapi-ratelimit-headers has them since its version 08.

use http::{HeaderName, HeaderValue};
use mainstay_core::limits::{Decision, Kind, Limit};
use parking_lot::Mutex;
use std::fmt::Write;

/// What the limits are.
pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// How the budgets stand.
pub(super) const STANDING: HeaderName = HeaderName::from_static("ratelimit");

/// Whether a name can be written between quotes as it is.
pub(super) fn can_be_told(name: &str) -> bool {
    name.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\')
}

/// The policy as it was written down last: it seldom changes.
#[derive(Default)]
pub(super) struct Told(Mutex<Option<(Limit, HeaderValue)>>);

impl Told {
    pub(super) fn policy(&self, name: &str, limit: &Limit) -> HeaderValue {
        let mut last = self.0.lock();
        match &*last {
            Some((told, value)) if told == limit => value.clone(),
            _ => {
                let value = value(format!("\"{name}\";q={};w={}", limit.capacity(), window_seconds(limit)));
                *last = Some((*limit, value.clone()));
                value
            }
        }
    }
}

/// In how many seconds the whole capacity can be used, so that capacity and window make the rate that lasts.
fn window_seconds(limit: &Limit) -> u64 {
    let window_ms = match limit.kind() {
        Kind::TokenBucket | Kind::FixedWindow => limit.full_after_ms(),
        Kind::SlidingWindow => limit.period_ms(),
    };
    window_ms.div_ceil(1_000).max(1)
}

/// Adds how a budget stands. The time of a denial is when to come back; that of a bucket is in which its rate lets as much
/// be used, so that nobody takes what is left for a rate. When a window ends is known only to whoever keeps it.
pub(super) fn standing(name: &str, limit: &Limit, decision: &Decision, into: &mut String) {
    if !into.is_empty() {
        into.push_str(", ");
    }
    let remaining = decision.remaining;
    let _ = write!(into, "\"{name}\";r={remaining}");
    let wait_ms = match decision.retry_after_ms {
        Some(wait_ms) => Some(wait_ms),
        None if decision.allowed && limit.kind() == Kind::TokenBucket => {
            Some((remaining.max(1) * limit.period_ms()).div_ceil(limit.rate()))
        }
        None => None,
    };
    if let Some(wait_ms) = wait_ms {
        let _ = write!(into, ";t={}", wait_ms.div_ceil(1_000));
    }
}

/// The fields `RateLimit-Policy` and `RateLimit` for a decision of the limit of this name, if the name can be told.
pub fn fields(name: &str, limit: &Limit, decision: &Decision) -> Option<[(HeaderName, HeaderValue); 2]> {
    if !can_be_told(name) {
        return None;
    }
    let mut text = String::new();
    standing(name, limit, decision, &mut text);
    Some([(POLICY, Told::default().policy(name, limit)), (STANDING, value(text))])
}

/// Names are plain ASCII, and so is what is written beside them.
pub(super) fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(limit: &Limit, decision: Decision) -> (String, String) {
        let mut standing_text = String::new();
        standing("a", limit, &decision, &mut standing_text);
        (Told::default().policy("a", limit).to_str().unwrap().to_owned(), standing_text)
    }

    #[test]
    fn policies_and_standings_are_structured_fields() {
        let bucket = Limit::bucket(100.0, 5.0).unwrap();
        let pair = |policy: &str, standing: &str| (policy.to_owned(), standing.to_owned());
        assert_eq!(written(&bucket, Decision::allowed(99)), pair("\"a\";q=100;w=20", "\"a\";r=99;t=20"));
        assert_eq!(written(&bucket, Decision::allowed(0)), pair("\"a\";q=100;w=20", "\"a\";r=0;t=1"));
        assert_eq!(written(&bucket, Decision::denied(1, 1_001)).1, "\"a\";r=1;t=2");
        assert_eq!(written(&bucket, Decision::impossible(7)).1, "\"a\";r=7");
        let hourly = Limit::new(Kind::FixedWindow, 10.0, 3_600_000).unwrap();
        assert_eq!(written(&hourly, Decision::allowed(9)), pair("\"a\";q=10;w=3600", "\"a\";r=9"));
        let sliding = Limit::new(Kind::SlidingWindow, 10.0, 500).unwrap();
        assert_eq!(written(&sliding, Decision::allowed(9)), pair("\"a\";q=10;w=1", "\"a\";r=9"));
    }

    #[test]
    fn a_policy_that_changed_is_told_anew() {
        let told = Told::default();
        let limit = |capacity| Limit::bucket(capacity, 1.0).unwrap();
        assert_eq!(told.policy("a", &limit(10.0)), "\"a\";q=10;w=10");
        assert_eq!(told.policy("a", &limit(10.0)), "\"a\";q=10;w=10");
        assert_eq!(told.policy("a", &limit(20.0)), "\"a\";q=20;w=20");
    }
}
