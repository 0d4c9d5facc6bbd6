//! A span on its way to a collector.

use crate::spans::{Ids, Told};
use std::time::{Duration, Instant, SystemTime};

/// Most bytes of a text: what names something is short.
const MAX_TEXT_BYTES: usize = 256;

/// A span that is open or has ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finished {
    pub(super) kind: &'static str,
    pub(super) trace_id: String,
    pub(super) span_id: String,
    pub(super) parent_span_id: Option<String>,
    pub(super) correlation_id: Option<String>,
    pub(super) fields: Vec<(&'static str, Told)>,
    pub(super) began: SystemTime,
    /// The clock may be set meanwhile; how long it took is measured.
    pub(super) since: Instant,
    pub(super) took: Duration,
}

impl Finished {
    /// One that begins now; nothing if it has no ids that a collector understands.
    pub(super) fn begin(kind: &'static str, ids: &Ids, fields: Vec<(&'static str, Told)>) -> Option<Self> {
        let hex = |id: &Option<String>, length: usize| {
            id.clone().filter(|id| id.len() == length && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        };
        let mut span = Self {
            kind,
            trace_id: hex(&ids.trace_id, 32)?,
            span_id: hex(&ids.span_id, 16)?,
            parent_span_id: hex(&ids.parent_span_id, 16),
            correlation_id: None,
            fields: Vec::new(),
            began: SystemTime::now(),
            since: Instant::now(),
            took: Duration::ZERO,
        };
        span.add(ids, fields);
        Some(span)
    }

    /// Adds what became known later.
    pub(crate) fn add(&mut self, ids: &Ids, fields: Vec<(&'static str, Told)>) {
        if let Some(id) = &ids.correlation_id {
            cut(self.correlation_id.insert(id.clone()));
        }
        for (name, mut value) in fields {
            if let Told::Text(text) = &mut value {
                cut(text);
            }
            self.fields.retain(|(known, _)| *known != name);
            self.fields.push((name, value));
        }
    }

    /// Whether it belongs to the share of traces that is exported. Every node decides alike, from the trace's id.
    pub(super) fn is_sampled(&self, ratio: f64) -> bool {
        // 53 bits are what a double holds exactly; the end of an id is its most random part.
        let random = u64::from_str_radix(&self.trace_id[16..], 16).unwrap_or(0) & ((1 << 53) - 1);
        (random as f64) < ratio * (1_u64 << 53) as f64
    }

    pub(super) fn end(&mut self) {
        self.took = self.since.elapsed();
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| *known == name).and_then(|(_, value)| match value {
            Told::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        self.fields.iter().find(|(known, _)| *known == name).and_then(|(_, value)| match value {
            Told::Integer(number) => Some(*number),
            _ => None,
        })
    }
}

fn cut(text: &mut String) {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
}
