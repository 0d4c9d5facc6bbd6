//! Identifiers: a prefix that tells a person what it names, and a UUID v7 that sorts by time.

use crate::clock::Clock;
use crate::random::Random;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// Longest context name that may stand in an event id.
pub const MAX_CONTEXT_BYTES: usize = 64;

/// What an id names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `corr_…`: everything that one request caused.
    Correlation,
    /// `cmd_…`: a command.
    Command,
    /// `{context}_event_…`: an event of a bounded context.
    Event(Context),
    /// `int_evt_…`: an integration event.
    IntegrationEvent,
    /// `pub_…`: a publication.
    Publication,
    /// `apr_…`: an approval.
    Approval,
    /// `dec_…`: a decision.
    Decision,
    /// `ida_…`: the audit row of a refused reuse of an idempotency key.
    IdempotencyAudit,
    /// `work_…`: an item of work.
    Work,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Correlation => "corr",
            Self::Command => "cmd",
            Self::Event(context) => return write!(out, "{}_event", context.0),
            Self::IntegrationEvent => "int_evt",
            Self::Publication => "pub",
            Self::Approval => "apr",
            Self::Decision => "dec",
            Self::IdempotencyAudit => "ida",
            Self::Work => "work",
        })
    }
}

/// The name of a bounded context as it stands in an id: 1 to 64 of `a`–`z` and `0`–`9`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Context(String);

impl Context {
    /// Checks a context name.
    pub fn new(name: &str) -> Result<Self, IdError> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if (1..=MAX_CONTEXT_BYTES).contains(&name.len()) && name.bytes().all(fits) {
            Ok(Self(name.to_owned()))
        } else {
            Err(IdError::BadContext)
        }
    }
}

/// An identifier.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id {
    /// What it names.
    pub kind: Kind,
    /// When it was made, and which one it is.
    pub uuid: Uuid,
}

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}_{}", self.kind, self.uuid.hyphenated())
    }
}

/// Why a text is no id of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The part before the UUID is none of the known prefixes.
    #[error("id must begin with a known prefix, such as cmd_ or corr_")]
    BadPrefix,
    /// The part after the prefix is not a lower-case, hyphenated UUID v7.
    #[error("id must end in a lower-case UUID v7")]
    BadUuid,
    /// A context name has other characters than `a`–`z` and `0`–`9`, or is empty or too long.
    #[error("context must be 1 to 64 of a-z and 0-9")]
    BadContext,
}

impl FromStr for Id {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (prefix, tail) = text.rsplit_once('_').ok_or(IdError::BadPrefix)?;
        let kind = match prefix {
            "corr" => Kind::Correlation,
            "cmd" => Kind::Command,
            "int_evt" => Kind::IntegrationEvent,
            "pub" => Kind::Publication,
            "apr" => Kind::Approval,
            "dec" => Kind::Decision,
            "ida" => Kind::IdempotencyAudit,
            "work" => Kind::Work,
            other => Kind::Event(Context::new(other.strip_suffix("_event").ok_or(IdError::BadPrefix)?)?),
        };
        let uuid = Uuid::try_parse(tail).map_err(|_| IdError::BadUuid)?;
        // One id has one spelling: without this, braces or capitals would make two keys of it.
        if uuid.get_version_num() != 7 || uuid.hyphenated().to_string() != tail {
            return Err(IdError::BadUuid);
        }
        Ok(Self { kind, uuid })
    }
}

/// Makes ids that sort in the order they were made, also within one millisecond and when the clock steps back.
pub struct Ids {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    at_ms: u64,
    sequence: u16,
}

/// The field `rand_a` of a UUID v7 has 12 bits; RFC 9562 lets it carry a counter.
const MAX_SEQUENCE: u16 = 0x0FFF;

impl Ids {
    /// A maker of ids over a clock and a source of randomness.
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { clock, random, last: Mutex::default() }
    }

    /// A new id of `kind`.
    pub fn make(&self, kind: Kind) -> Id {
        Id { kind, uuid: self.uuid() }
    }

    /// A bare UUID v7.
    pub fn uuid(&self) -> Uuid {
        let (at_ms, sequence) = self.tick();
        let mut bytes = [0_u8; 10];
        bytes[..2].copy_from_slice(&sequence.to_be_bytes());
        bytes[2..].copy_from_slice(&self.random.next_u64().to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(at_ms, &bytes).into_uuid()
    }

    fn tick(&self) -> (u64, u16) {
        let now = u64::try_from(self.clock.now_ms()).unwrap_or(0);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if now > last.at_ms {
            *last = Last { at_ms: now, sequence: 0 };
        } else if last.sequence < MAX_SEQUENCE {
            last.sequence += 1;
        } else {
            // The millisecond is full: borrow from the next one rather than wait or repeat.
            *last = Last { at_ms: last.at_ms + 1, sequence: 0 };
        }
        (last.at_ms, last.sequence)
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ids").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::random::SeededRandom;

    fn ids_at(now_ms: i64) -> (Ids, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(now_ms));
        (Ids::new(clock.clone(), Arc::new(SeededRandom::new(1))), clock)
    }

    #[test]
    fn every_kind_has_its_prefix_and_reads_back() {
        let (ids, _) = ids_at(1_700_000_000_000);
        let orders = Context::new("orders").unwrap();
        for (kind, prefix) in [
            (Kind::Correlation, "corr_"),
            (Kind::Command, "cmd_"),
            (Kind::Event(orders), "orders_event_"),
            (Kind::IntegrationEvent, "int_evt_"),
            (Kind::Publication, "pub_"),
            (Kind::Approval, "apr_"),
            (Kind::Decision, "dec_"),
            (Kind::IdempotencyAudit, "ida_"),
            (Kind::Work, "work_"),
        ] {
            let id = ids.make(kind);
            assert!(id.to_string().starts_with(prefix), "{id}");
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn ids_sort_in_the_order_they_were_made_whatever_the_clock_does() {
        let (ids, clock) = ids_at(1_700_000_000_000);
        let mut made: Vec<Uuid> = (0..10_000).map(|_| ids.uuid()).collect();
        clock.advance(-86_400_000);
        made.extend((0..100).map(|_| ids.uuid()));
        clock.advance(2 * 86_400_000);
        made.extend((0..100).map(|_| ids.uuid()));
        assert!(made.is_sorted() && made.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(made.iter().all(|uuid| uuid.get_version_num() == 7));
    }

    #[test]
    fn refuses_what_is_no_id() {
        let uuid7 = "0190f3b8-7c1e-7abc-8def-0123456789ab";
        assert_eq!("cmd".parse::<Id>(), Err(IdError::BadPrefix));
        assert_eq!(format!("zzz_{uuid7}").parse::<Id>(), Err(IdError::BadPrefix));
        assert_eq!(format!("Orders_event_{uuid7}").parse::<Id>(), Err(IdError::BadContext));
        assert_eq!(format!("cmd_{}", uuid7.to_uppercase()).parse::<Id>(), Err(IdError::BadUuid));
        assert_eq!("cmd_0190f3b8-7c1e-4abc-8def-0123456789ab".parse::<Id>(), Err(IdError::BadUuid));
        assert_eq!("cmd_".parse::<Id>(), Err(IdError::BadUuid));
        assert_eq!(Context::new(&"a".repeat(65)), Err(IdError::BadContext));
    }
}
