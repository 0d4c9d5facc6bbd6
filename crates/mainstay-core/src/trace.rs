//! Trace context: which request something belongs to, across processes, retries and restarts.

use crate::random::Random;
use serde::{Deserialize, Serialize};

/// Longest id accepted from outside. W3C ids have 32 and 16 characters; other systems name theirs freely.
pub const MAX_ID_BYTES: usize = 64;

/// Where a piece of work stands in a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceContext {
    /// Shared by everything that one request caused.
    pub trace_id: String,
    /// This step.
    pub span_id: String,
    /// The step that caused this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
}

/// Why a trace context was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Not `version-traceid-parentid-flags` as the W3C recommendation has it.
    #[error("traceparent must look like 00-<32 hex>-<16 hex>-<2 hex>, with ids that are not all zero")]
    BadTraceparent,
    /// An id is empty, too long, or has characters that would break a header or a log line.
    #[error("{0} must be 1 to 64 letters, digits, '-' or '_'")]
    BadId(&'static str),
}

impl TraceContext {
    /// Starts a new trace.
    pub fn root(random: &dyn Random) -> Self {
        let trace_id = format!("{:016x}{:016x}", non_zero(random), random.next_u64());
        Self { trace_id, span_id: format!("{:016x}", non_zero(random)), parent_span_id: None }
    }

    /// The next step of this trace.
    pub fn child(&self, random: &dyn Random) -> Self {
        Self {
            trace_id: self.trace_id.clone(),
            span_id: format!("{:016x}", non_zero(random)),
            parent_span_id: Some(self.span_id.clone()),
        }
    }

    /// Reads a W3C `traceparent` header. The sender's span becomes the span of the context, so that a
    /// [`child`](Self::child) of it names the sender as its parent.
    pub fn from_traceparent(header: &str) -> Result<Self, TraceError> {
        let mut parts = header.trim().split('-');
        let mut part = |length| parts.next().filter(|part| is_lower_hex(part, length));
        let (Some(version), Some(trace_id), Some(span_id), Some(_flags)) =
            (part(2), part(32), part(16), part(2))
        else {
            return Err(TraceError::BadTraceparent);
        };
        let more = parts.next().is_some();
        // Version 00 has exactly four fields; later versions may append some, which we are told to ignore.
        if version == "ff" || (version == "00" && more) || all_zero(trace_id) || all_zero(span_id) {
            return Err(TraceError::BadTraceparent);
        }
        Ok(Self { trace_id: trace_id.to_owned(), span_id: span_id.to_owned(), parent_span_id: None })
    }

    /// Writes a W3C `traceparent` header with the sampled flag, or nothing when the ids come from a system
    /// that names them another way.
    pub fn to_traceparent(&self) -> Option<String> {
        let fits = is_lower_hex(&self.trace_id, 32) && is_lower_hex(&self.span_id, 16);
        (fits && !all_zero(&self.trace_id) && !all_zero(&self.span_id))
            .then(|| format!("00-{}-{}-01", self.trace_id, self.span_id))
    }

    /// Checks ids that a caller supplied.
    pub fn validate(&self) -> Result<(), TraceError> {
        plain_id("traceId", &self.trace_id)?;
        plain_id("spanId", &self.span_id)?;
        self.parent_span_id.as_deref().map_or(Ok(()), |id| plain_id("parentSpanId", id))
    }
}

fn non_zero(random: &dyn Random) -> u64 {
    random.next_u64().max(1)
}

fn is_lower_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn all_zero(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'0')
}

fn plain_id(name: &'static str, id: &str) -> Result<(), TraceError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    // All of them, whatever the first one is: without a way out it is done many at a time, and this is done often.
    if (1..=MAX_ID_BYTES).contains(&id.len())
        && id.bytes().fold(true, |is_plain, byte| is_plain & plain(byte))
    {
        Ok(())
    } else {
        Err(TraceError::BadId(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;
    use proptest::prelude::*;

    const W3C_EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn reads_and_writes_the_example_of_the_recommendation() {
        let context = TraceContext::from_traceparent(W3C_EXAMPLE).unwrap();
        assert_eq!(context.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.to_traceparent().as_deref(), Some(W3C_EXAMPLE));
    }

    #[test]
    fn refuses_headers_that_are_not_traceparents() {
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::from_traceparent(bad), Err(TraceError::BadTraceparent), "{bad}");
        }
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes-later";
        assert!(TraceContext::from_traceparent(later).is_ok());
    }

    #[test]
    fn a_child_keeps_the_trace_and_names_its_parent() {
        let random = SeededRandom::new(3);
        let root = TraceContext::root(&random);
        let child = root.child(&random);
        assert_eq!(child.trace_id, root.trace_id);
        assert_eq!(child.parent_span_id.as_deref(), Some(root.span_id.as_str()));
        assert_ne!(child.span_id, root.span_id);
    }

    #[test]
    fn ids_of_other_systems_pass_but_make_no_header() {
        let context =
            TraceContext { trace_id: "trace-abc".into(), span_id: "span-001".into(), parent_span_id: None };
        assert_eq!(context.validate(), Ok(()));
        assert_eq!(context.to_traceparent(), None);
        let forged = TraceContext { span_id: "a\r\nSet-Cookie: x".into(), ..context };
        assert_eq!(forged.validate(), Err(TraceError::BadId("spanId")));
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic_and_what_is_read_is_written_back(header in "\\PC{0,80}|[0-9a-f-]{40,70}") {
            if let Ok(context) = TraceContext::from_traceparent(&header) {
                prop_assert!(context.to_traceparent().is_some());
            }
        }
    }
}
