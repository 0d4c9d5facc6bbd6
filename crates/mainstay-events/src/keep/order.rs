//! What must hold from one event to the next: along the log, and along the entries of a term.

use super::report::{Damage, Report};
use crate::event::Event;
use crate::index::Terms;
use std::collections::{BTreeSet, HashMap};

/// What must hold along the log.
pub(super) struct Order {
    pub(super) expected: u64,
    pub(super) last_ms: i64,
}

impl Order {
    /// Positions between what was expected and `position` are missing.
    pub(super) fn reach(&mut self, position: u64, report: &mut Report) {
        let expected = self.expected;
        if position > expected {
            let sentence = match position - 1 {
                last if last == expected => format!("the event at {expected} is missing"),
                last => format!("the events at {expected} to {last} are missing"),
            };
            report.note(expected, Damage::Missing, sentence);
            self.expected = position;
        }
    }

    pub(super) fn unreadable(&mut self, position: u64, reason: &str, report: &mut Report) {
        self.reach(position, report);
        self.expected = self.expected.max(position + 1);
        let sentence = format!("the event at {position} cannot be read: {reason}");
        report.note(position, Damage::Unreadable, sentence);
    }

    pub(super) fn at(&mut self, event: &Event, report: &mut Report) {
        if event.timestamp_ms() < self.last_ms {
            let sentence = format!(
                "time goes back at {}: from {} to {}",
                event.position(),
                self.last_ms,
                event.timestamp_ms()
            );
            report.note(event.position(), Damage::Time, sentence);
        }
        self.last_ms = self.last_ms.max(event.timestamp_ms());
    }
}

type StreamKey = (Option<String>, String, String);

/// The entries of one term, one after another.
#[derive(Default)]
pub(super) struct Run {
    term: Option<i64>,
    /// Streams whose term this is: one, but for texts whose terms coincide.
    versions: HashMap<StreamKey, u64>,
    /// Ids and keys whose term this is.
    texts: BTreeSet<String>,
    /// An event of the run could not be read, so that the next version is anybody's guess.
    pub(super) has_gap: bool,
}

impl Run {
    pub(super) fn turn_to(&mut self, term: i64) {
        if self.term != Some(term) {
            *self = Self { term: Some(term), ..Self::default() };
        }
    }

    /// Whether the event's version follows; a sentence when it does not.
    pub(super) fn follow(&mut self, terms: Terms, event: &Event) -> Option<String> {
        let stream = event.stream()?;
        if Some(terms.stream(event.tenant(), stream.stream_type, stream.id)) != self.term {
            return None;
        }
        let key = (event.tenant().map(str::to_owned), stream.stream_type.to_owned(), stream.id.to_owned());
        let before = self.versions.insert(key, stream.version).unwrap_or(0);
        let is_right = stream.version == before + 1 || (self.has_gap && stream.version > before);
        (!is_right).then(|| {
            format!(
                "stream {}/{} goes from version {before} to {}",
                stream.stream_type, stream.id, stream.version
            )
        })
    }

    /// Whether an id or key was there before; a sentence when it was.
    pub(super) fn unique(&mut self, terms: Terms, event: &Event) -> Option<String> {
        let term = self.term?;
        let key = event.idempotency_key().filter(|key| terms.idempotency(event.tenant(), key) == term);
        let (what, text) = if let Some(key) = key {
            ("idempotency key", format!("{:?} {key}", event.tenant()))
        } else if terms.event_id(event.id()) == term {
            ("id", format!("{:?} {}", event.tenant(), event.id()))
        } else {
            return None;
        };
        let is_new = self.texts.insert(text);
        (!is_new).then(|| format!("the {what} of the event at {} was there before", event.position()))
    }
}
