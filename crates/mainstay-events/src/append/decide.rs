//! Which of several appends may go in, and where: pure, given what the database knows.
//!
//! The appends are decided one after another, each as if those before it that were accepted were in the log already.

use super::commit::{About, Ground};
use super::prepare::{Prepared, PreparedEvent};
use super::{Appended, AppendedEvent, Status};
use crate::error::{Error, Result, Reuse, Versioned, Witness};
use crate::event::Event;
use crate::index::{End, Segment, made_uuid};
use crate::record::{self, Head};
use mainstay_core::ids::Context;
use mainstay_store::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// What stands in an id when the event names no bounded context that could.
const DEFAULT_CONTEXT: &str = "app";

/// What the database knows of one append.
pub(super) struct Facts {
    /// For each event: who has its idempotency key, who has its id, the last of its stream.
    events: Vec<EventFacts>,
    /// The newest event that the condition forbids.
    forbidden: Option<Event>,
    /// The versions of the scopes.
    pub(super) scopes: HashMap<String, u64>,
    /// A damaged event stands in the way of an answer.
    damaged: Option<Error>,
}

#[derive(Default, Clone)]
struct EventFacts {
    by_key: Option<Event>,
    by_id: Option<Event>,
    last_of_stream: Option<Event>,
}

impl Facts {
    pub(super) fn new(events: usize) -> Self {
        Self {
            events: vec![EventFacts::default(); events],
            forbidden: None,
            scopes: HashMap::new(),
            damaged: None,
        }
    }

    pub(super) fn learn(&mut self, event: Option<usize>, about: About, answer: Result<Option<Event>>) {
        let found = match answer {
            Ok(found) => found,
            Err(error) => {
                self.damaged = Some(error);
                return;
            }
        };
        match (event, about) {
            (Some(number), About::Key) => self.events[number].by_key = found,
            (Some(number), About::Id) => self.events[number].by_id = found,
            (Some(number), About::Stream) => self.events[number].last_of_stream = found,
            (_, About::Item) | (None, _) => {
                let newest = |event: &Option<Event>| event.as_ref().map(Event::position);
                if newest(&found) > newest(&self.forbidden) {
                    self.forbidden = found;
                }
            }
        }
    }
}

/// What is to be written and answered.
pub(super) struct Decided {
    pub(super) answers: Vec<Result<Appended>>,
    /// `(position, header, payload)` of each new event.
    pub(super) rows: Vec<Value>,
    /// The terms of each new event, by position.
    pub(super) terms: Vec<(u64, Vec<i64>)>,
    /// `(key, version, position)` of each scope that moved.
    pub(super) scopes: Vec<(String, u64, u64)>,
    /// The parameters of each audit row.
    pub(super) audits: Vec<Vec<Value>>,
    pub(super) end: End,
}

/// Decides `appends` in order.
pub(super) fn decide(
    ground: &Ground,
    appends: &[Arc<Prepared>],
    facts: &[Facts],
    end: End,
    now_ms: i64,
) -> Decided {
    let mut state = State {
        ground,
        timestamp_ms: now_ms.max(end.last_ms),
        head: end.head,
        base: end.head,
        accepted: Vec::new(),
        by_term: Segment::default(),
        is_remembering: appends.len() > 1,
        streams: HashMap::new(),
        scopes: HashMap::new(),
        rows: Vec::new(),
        terms: Vec::new(),
        audits: Vec::new(),
    };
    let answers = appends.iter().zip(facts).map(|(append, facts)| state.decide(append, facts)).collect();
    let scopes =
        state.scopes.into_iter().map(|(key, (version, position))| (key.to_owned(), version, position));
    Decided {
        answers,
        scopes: scopes.collect(),
        rows: state.rows,
        terms: state.terms,
        audits: state.audits,
        end: End { head: state.head, last_ms: state.timestamp_ms },
    }
}

type StreamKey<'a> = (Option<&'a str>, &'a str, &'a str);

struct State<'a> {
    ground: &'a Ground,
    timestamp_ms: i64,
    head: u64,
    /// The head before the first append.
    base: u64,
    /// The new events, in order; the first is at `base + 1`.
    accepted: Vec<Event>,
    /// Which of them have a term, so that later appends find them.
    by_term: Segment,
    /// Whether there are later appends at all.
    is_remembering: bool,
    streams: HashMap<StreamKey<'a>, u64>,
    scopes: HashMap<&'a str, (u64, u64)>,
    rows: Vec<Value>,
    terms: Vec<(u64, Vec<i64>)>,
    audits: Vec<Vec<Value>>,
}

impl<'a> State<'a> {
    fn decide(&mut self, append: &'a Prepared, facts: &Facts) -> Result<Appended> {
        if let Some(error) = &facts.damaged {
            return Err(error.clone());
        }
        if let Some(duplicate) = self.applied_before(append, facts)? {
            return Ok(duplicate);
        }
        self.check_ids(append, facts)?;
        let versions = self.check_streams(append, facts)?;
        let scopes = self.check_scopes(append, facts)?;
        self.check_condition(append, facts)?;
        Ok(self.accept(append, &versions, &scopes))
    }

    /// The first receipt, when all of it is there already.
    fn applied_before(&mut self, append: &'a Prepared, facts: &Facts) -> Result<Option<Appended>> {
        // Either every event has a key, or none.
        if append.events.iter().all(|event| event.new.idempotency_key.is_none()) {
            return Ok(None);
        }
        let mut found: Vec<Option<Event>> = Vec::new();
        for (event, facts) in append.events.iter().zip(&facts.events) {
            let (tenant, key) = (event.new.tenant_id.as_deref(), event.new.idempotency_key.as_deref());
            let Some(key) = key else {
                found.push(None);
                continue;
            };
            let term = self.ground.terms.idempotency(tenant, key);
            let is_same = |other: &Event| other.idempotency_key() == Some(key) && other.tenant() == tenant;
            let among = self.newest(&[term], is_same).cloned();
            found.push(among.or_else(|| facts.by_key.clone()));
        }
        let Some(index) = found.iter().position(Option::is_some) else { return Ok(None) };
        let differing = append.events.iter().zip(&found).find(|(event, existing)| {
            existing.as_ref().is_some_and(|existing| existing.fingerprint() != event.fingerprint)
        });
        if let Some((event, Some(existing))) = differing {
            return Err(self.refuse_key(event, existing, Reuse::DifferentPayload));
        }
        if let (Some(_), event, Some(existing)) =
            (found.iter().position(Option::is_none), &append.events[index], &found[index])
        {
            return Err(self.refuse_key(event, existing, Reuse::PartialBatch));
        }
        let events = found.iter().flatten().map(|existing| AppendedEvent {
            event_id: existing.id().to_owned(),
            position: existing.position(),
            version: existing.stream().map(|stream| stream.version),
        });
        Ok(Some(Appended { status: Status::Duplicate, events: events.collect(), head: self.head }))
    }

    fn refuse_key(&mut self, event: &PreparedEvent, existing: &Event, reason: Reuse) -> Error {
        let audit_id = format!(
            "ida_{}",
            made_uuid(self.timestamp_ms, self.ground.random.next_u64(), self.ground.random.next_u64())
        );
        let key = event.new.idempotency_key.clone().unwrap_or_default();
        self.audits.push(vec![
            Value::from(&audit_id),
            Value::from(&key),
            Value::from(event.new.tenant_id.as_deref()),
            Value::from(reason.as_str()),
            Value::from(existing.id()),
            Value::Int(existing.position() as i64),
            Value::from(&event.new.event_type),
            Value::from(event.new.correlation_id.as_deref()),
        ]);
        Error::IdempotencyConflict {
            key,
            existing_event_id: existing.id().to_owned(),
            existing_position: existing.position(),
            reason,
            audit_id,
        }
    }

    fn check_ids(&self, append: &Prepared, facts: &Facts) -> Result<()> {
        for (event, facts) in append.events.iter().zip(&facts.events) {
            let Some(id) = event.new.event_id.as_ref().filter(|_| !event.has_made_id) else { continue };
            let tenant = event.new.tenant_id.as_deref();
            let is_same = |other: &Event| other.id() == id && other.tenant() == tenant;
            let among = || self.newest(&[self.ground.terms.event_id(id)], is_same);
            if let Some(taken) = facts.by_id.as_ref().or_else(among) {
                return Err(Error::EventIdTaken { event_id: id.clone(), position: taken.position() });
            }
        }
        Ok(())
    }

    /// The version of each event in its stream.
    fn check_streams(&self, append: &'a Prepared, facts: &Facts) -> Result<Vec<Option<u64>>> {
        let mut moved: HashMap<StreamKey<'_>, u64> = HashMap::new();
        let mut versions = Vec::with_capacity(append.events.len());
        for (event, facts) in append.events.iter().zip(&facts.events) {
            let Some(stream) = &event.new.stream else {
                versions.push(None);
                continue;
            };
            let key = stream_key(event);
            let stored = || {
                let last = facts.last_of_stream.as_ref().and_then(Event::stream);
                last.map_or(0, |stream| stream.version)
            };
            let current = key.and_then(|key| moved.get(&key).or_else(|| self.streams.get(&key)).copied());
            let current = current.unwrap_or_else(stored);
            if let Some(expected) = stream.expected_version.filter(|expected| *expected != current) {
                let of = Versioned::Stream { stream_type: stream.stream_type.clone(), id: stream.id.clone() };
                return Err(Error::VersionConflict { of, expected, current, head: self.head });
            }
            if let Some(key) = key {
                moved.insert(key, current + 1);
            }
            versions.push(Some(current + 1));
        }
        Ok(versions)
    }

    /// The scopes and the versions they move to.
    fn check_scopes(&self, append: &'a Prepared, facts: &Facts) -> Result<HashMap<&'a str, u64>> {
        let mut moved = HashMap::new();
        for scope in append.events.iter().filter_map(|event| event.new.scope.as_ref()) {
            let stored = facts.scopes.get(&scope.key).copied().unwrap_or(0);
            let current = self.scopes.get(scope.key.as_str()).map_or(stored, |(version, _)| *version);
            if current != scope.expected_version {
                let of = Versioned::Scope { key: scope.key.clone() };
                let expected = scope.expected_version;
                return Err(Error::VersionConflict { of, expected, current, head: self.head });
            }
            moved.insert(scope.key.as_str(), current + 1);
        }
        Ok(moved)
    }

    fn check_condition(&self, append: &Prepared, facts: &Facts) -> Result<()> {
        let Some(condition) = &append.condition else { return Ok(()) };
        if condition.after > self.head {
            return Err(Error::AfterBeyondHead { after: condition.after, head: self.head });
        }
        let query = &condition.condition.fail_if_events_match;
        let tenant = append.tenant.as_deref();
        let is_forbidden = |event: &Event| {
            let tags: Vec<&str> = event.tags().collect();
            event.position() > condition.after
                && query.matches(event.event_type(), &tags)
                && (tenant.is_none() || event.tenant() == tenant)
        };
        // What was accepted a moment ago is newer than anything in the database.
        let among = condition.items.iter().filter_map(|groups| match groups.first() {
            Some(any_of) => self.newest(any_of, is_forbidden),
            None => self.accepted.iter().rev().find(|event| is_forbidden(event)),
        });
        let witness = among.max_by_key(|event| event.position()).or(facts.forbidden.as_ref());
        witness.map_or(Ok(()), |event| {
            let witness = Witness {
                position: event.position(),
                event_id: event.id().to_owned(),
                event_type: event.event_type().to_owned(),
            };
            Err(Error::ConditionFailed { witness, head: self.head })
        })
    }

    /// The newest event among the accepted that has one of these terms and is meant.
    fn newest(&self, any_of: &[i64], is_meant: impl Fn(&Event) -> bool) -> Option<&Event> {
        let event_at = |position: &u64| self.accepted.get((position - self.base - 1) as usize);
        let newest_of = |term: &i64| {
            let mut events = self.by_term.positions(*term).iter().rev().filter_map(event_at);
            events.find(|event| is_meant(event))
        };
        any_of.iter().filter_map(newest_of).max_by_key(|event| event.position())
    }

    fn accept(
        &mut self,
        append: &'a Prepared,
        versions: &[Option<u64>],
        scopes: &HashMap<&'a str, u64>,
    ) -> Appended {
        let first = self.head + 1;
        let mut correlation = None;
        let mut events = Vec::with_capacity(append.events.len());
        for (event, version) in append.events.iter().zip(versions) {
            let position = self.head + 1;
            self.head = position;
            let made = |position| made_uuid(self.timestamp_ms, self.ground.random.next_u64(), position);
            let event_id = event.new.event_id.clone().unwrap_or_else(|| {
                let context = event.new.bounded_context.as_deref();
                let context = context.filter(|name| Context::new(name).is_ok()).unwrap_or(DEFAULT_CONTEXT);
                format!("{context}_event_{}", made(position))
            });
            let correlation_id = match &event.new.correlation_id {
                Some(given) => given,
                None => correlation.get_or_insert_with(|| format!("corr_{}", made(first))),
            };
            let scope = event.new.scope.as_ref().map(|scope| scope.key.as_str());
            let scope = scope.and_then(|key| scopes.get(key).map(|version| (key, *version)));
            if let Some((key, version)) = scope {
                self.scopes.insert(key, (version, position));
            }
            if let (Some(key), Some(version)) = (stream_key(event), version) {
                self.streams.insert(key, *version);
            }
            let header =
                encode(event, position, self.timestamp_ms, &event_id, correlation_id, *version, scope);
            self.store(position, header, event.payload.clone());
            events.push(AppendedEvent { event_id, position, version: *version });
        }
        Appended { status: Status::Appended, events, head: self.head }
    }

    fn store(&mut self, position: u64, header: Vec<u8>, payload: Vec<u8>) {
        // Read back, so that the index is made from what is stored and from nothing else.
        let event = record::decode(position, header, None).expect("what was just written can be read");
        let mut terms = Vec::with_capacity(4);
        self.ground.terms.of(&event, &mut terms);
        if self.is_remembering {
            self.by_term.add(position, &terms);
            self.accepted.push(event.clone());
        }
        let header = event.into_header();
        self.terms.push((position, terms));
        self.rows.extend([Value::Int(position as i64), Value::Blob(header), Value::Blob(payload)]);
    }
}

fn stream_key(event: &PreparedEvent) -> Option<StreamKey<'_>> {
    let stream = event.new.stream.as_ref()?;
    Some((event.new.tenant_id.as_deref(), &stream.stream_type, &stream.id))
}

fn encode(
    event: &PreparedEvent,
    position: u64,
    timestamp_ms: i64,
    id: &str,
    correlation_id: &str,
    version: Option<u64>,
    scope: Option<(&str, u64)>,
) -> Vec<u8> {
    let new = &event.new;
    let stream = new.stream.as_ref().zip(version);
    let trace = new.trace.as_ref();
    record::encode_header(&Head {
        position,
        timestamp_ms,
        payload_checksum: event.payload_checksum,
        category: new.category,
        schema_version: new.schema_version,
        id,
        event_type: &new.event_type,
        correlation_id,
        context: new.bounded_context.as_deref(),
        tenant: new.tenant_id.as_deref(),
        stream: stream.map(|(stream, version)| (&*stream.stream_type, &*stream.id, version)),
        causation_id: new.causation_id.as_deref(),
        trace: trace.map(|trace| (&*trace.trace_id, &*trace.span_id, trace.parent_span_id.as_deref())),
        idempotency: new.idempotency_key.as_deref().zip(event.fingerprint),
        scope,
        tags: &new.tags,
    })
}
