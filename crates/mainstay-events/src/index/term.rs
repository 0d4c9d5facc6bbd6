//! Terms: what an event can be found by, as numbers.

use crate::event::Event;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use uuid::Uuid;

/// What a term is made of. The numbers are stored: they are never changed or reused.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Kind {
    Tag = 1,
    Type = 2,
    Stream = 3,
    Correlation = 4,
    Idempotency = 5,
    EventId = 6,
    Tenant = 7,
    Scope = 8,
}

/// Makes terms. The key is the log's own, so that nobody outside can make texts whose terms coincide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    key: (u64, u64),
}

impl Terms {
    pub(crate) fn new(key: (u64, u64)) -> Self {
        Self { key }
    }

    fn term(self, kind: Kind, parts: &[&str]) -> i64 {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        for part in parts {
            hasher.write_u64(part.len() as u64);
            hasher.write(part.as_bytes());
        }
        // The kind in front keeps the terms of a kind together in the table.
        ((hasher.finish() >> 4) | (kind as u64) << 60) as i64
    }

    pub(crate) fn tag(self, tag: &str) -> i64 {
        self.term(Kind::Tag, &[tag])
    }

    pub(crate) fn event_type(self, event_type: &str) -> i64 {
        self.term(Kind::Type, &[event_type])
    }

    pub(crate) fn stream(self, tenant: Option<&str>, stream_type: &str, id: &str) -> i64 {
        self.term(Kind::Stream, &[tenant.unwrap_or_default(), stream_type, id])
    }

    pub(crate) fn correlation(self, id: &str) -> i64 {
        self.term(Kind::Correlation, &[id])
    }

    pub(crate) fn idempotency(self, tenant: Option<&str>, key: &str) -> i64 {
        self.term(Kind::Idempotency, &[tenant.unwrap_or_default(), key])
    }

    pub(crate) fn event_id(self, id: &str) -> i64 {
        self.term(Kind::EventId, &[id])
    }

    pub(crate) fn tenant(self, tenant: &str) -> i64 {
        self.term(Kind::Tenant, &[tenant])
    }

    pub(crate) fn scope(self, key: &str) -> i64 {
        self.term(Kind::Scope, &[key])
    }

    /// Every term under which an event must be in the index, in order.
    ///
    /// Ids that hold the event's own position find it by themselves and are left out: that halves the index of
    /// events that came with a tag and nothing else.
    pub(crate) fn of(self, event: &Event, out: &mut Vec<i64>) {
        out.clear();
        out.push(self.event_type(event.event_type()));
        out.extend(event.tags().map(|tag| self.tag(tag)));
        let tenant = event.tenant();
        out.extend(tenant.map(|tenant| self.tenant(tenant)));
        out.extend(event.stream().map(|stream| self.stream(tenant, stream.stream_type, stream.id)));
        out.extend(event.idempotency_key().map(|key| self.idempotency(tenant, key)));
        out.extend(event.scope().map(|(key, _)| self.scope(key)));
        if position_in(event.id()) != Some(event.position()) {
            out.push(self.event_id(event.id()));
        }
        if position_in(event.correlation_id()) != Some(event.position()) {
            out.push(self.correlation(event.correlation_id()));
        }
        out.sort_unstable();
        out.dedup();
    }
}

/// What a term is made of, in a word.
pub(crate) fn kind_of(term: i64) -> &'static str {
    const NAMES: [&str; 9] =
        ["", "tag", "type", "stream", "correlation id", "idempotency key", "id", "tenant", "scope"];
    NAMES.get((term as u64 >> 60) as usize).copied().unwrap_or_default()
}

const POSITION_BITS: u32 = 48;

/// A UUID v7 whose last bits are a position.
pub(crate) fn made_uuid(at_ms: i64, random: u64, position: u64) -> Uuid {
    let position = position & ((1 << POSITION_BITS) - 1);
    let mut bytes = [0; 10];
    bytes[..4].copy_from_slice(&((random >> 32) as u32).to_be_bytes());
    bytes[4..].copy_from_slice(&position.to_be_bytes()[2..]);
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(at_ms).unwrap_or(0), &bytes).into_uuid()
}

/// The position that an id may hold in its last bits. Whether the event there has this id is another question.
pub(crate) fn position_in(id: &str) -> Option<u64> {
    let uuid = Uuid::try_parse(id.get(id.len().checked_sub(36)?..)?).ok()?;
    let low = uuid.as_u128() as u64 & ((1 << POSITION_BITS) - 1);
    (uuid.get_version_num() == 7).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_holds_its_position() {
        for position in [1, 77, (1 << 48) - 1] {
            let id = format!("app_event_{}", made_uuid(1_700_000_000_000, u64::MAX, position));
            assert_eq!(position_in(&id), Some(position));
        }
        for other in ["", "evt-1", "ä", "app_event_4bf92f35-77b3-4da6-a3ce-929d0e0e4736"] {
            assert_eq!(position_in(other), None, "{other}");
        }
    }

    #[test]
    fn terms_differ_by_kind_by_parts_and_by_key() {
        let terms = Terms::new((1, 2));
        assert_ne!(terms.tag("x"), terms.event_type("x"));
        assert_ne!(terms.stream(None, "ab", "c"), terms.stream(None, "a", "bc"));
        assert_ne!(terms.tag("x"), Terms::new((1, 3)).tag("x"));
        assert_eq!(terms.tag("x"), Terms::new((1, 2)).tag("x"));
        assert_eq!((kind_of(terms.tag("x")), kind_of(terms.scope("x"))), ("tag", "scope"));
    }
}
