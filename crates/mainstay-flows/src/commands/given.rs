//! Given what happened, when a command comes, then this happens: the tests of a decider, without a store.

use super::codec::{decode_data, encode};
use super::decider::{Decided, Decider, Decision, Moment};
use mainstay_events::Query;
use serde_json::Value;
use std::fmt::Debug;

/// What happened before. Events go through JSON and the decider's boundary as they do in a store: what does not survive
/// the one or is outside of the other is not there.
///
/// Everything that is wrong panics, in the line of the test that asked.
#[derive(Debug)]
pub struct Given<D: Decider> {
    decider: D,
    events: Vec<D::Event>,
    moment: Moment,
}

/// What a command came to.
#[derive(Debug)]
pub struct Then<D: Decider> {
    decider: D,
    state: D::State,
    decided: Decided<D::Event, D::Data>,
    query: Query,
    /// Of how many given events how many are in the boundary, for people who wonder why.
    seen: String,
}

impl<D: Decider> Given<D> {
    /// Nothing, so far.
    pub fn decider(decider: D) -> Self {
        let moment =
            Moment { now_ms: 0, command_id: "cmd_1".to_owned(), correlation_id: "corr_1".to_owned() };
        Self { decider, events: Vec::new(), moment }
    }

    /// These happened, after what was given before.
    pub fn events(mut self, events: impl IntoIterator<Item = D::Event>) -> Self {
        self.events.extend(events);
        self
    }

    /// This was written by an older program: it goes through the upcasters.
    #[track_caller]
    pub fn recorded(mut self, event_type: &str, schema_version: u32, data: &Value) -> Self {
        match decode_data(event_type, schema_version, &data.to_string()) {
            Ok(event) => self.events.push(event),
            Err(reason) => panic!("the event {event_type} {reason}"),
        }
        self
    }

    /// The command comes at this time, in milliseconds since the epoch.
    pub fn at(mut self, now_ms: i64) -> Self {
        self.moment.now_ms = now_ms;
        self
    }

    /// The command comes.
    #[track_caller]
    pub fn when(self, command: D::Command) -> Then<D> {
        let Self { decider, events, moment } = self;
        let query = match decider.boundary(&command).query::<D::Event>() {
            Ok(query) => query,
            Err(error) => panic!("the decider's boundary cannot be read: {error}"),
        };
        let mut state = D::State::default();
        let (given, mut seen) = (events.len(), 0);
        for event in &events {
            seen += u32::from(evolve(&decider, &mut state, &query, event));
        }
        let state = through_snapshot(&decider, state);
        let decided = decider.decide(&state, &command, &moment);
        let seen = format!("{seen} of {given} given events are in the decider's boundary");
        Then { decider, state, decided, query, seen }
    }
}

/// What an event means once it was written and read. Tells whether it is in the boundary.
#[track_caller]
fn evolve<D: Decider>(decider: &D, state: &mut D::State, query: &Query, event: &D::Event) -> bool {
    let written = match encode(event) {
        Ok(written) => written,
        Err(error) => panic!("an event cannot be written: {error}"),
    };
    if !query.matches(&written.event_type, &written.tags) {
        return false;
    }
    match decode_data(&written.event_type, written.schema_version, written.data.get()) {
        Ok(event) => decider.evolve(state, event),
        Err(reason) => panic!("the event {} cannot be read again: it {reason}", written.event_type),
    }
    true
}

/// The state as it comes back from a snapshot, if the decider keeps any.
#[track_caller]
fn through_snapshot<D: Decider>(decider: &D, state: D::State) -> D::State {
    let Some(how) = decider.snapshots() else { return state };
    match (how.write)(&state).and_then(|json| (how.read)(&json)) {
        Ok(state) => state,
        Err(error) => panic!("the state does not survive a snapshot: {error}"),
    }
}

impl<D: Decider> Then<D> {
    /// What was decided is as `check` wants it.
    pub fn then(self, check: impl FnOnce(&Decided<D::Event, D::Data>)) -> Self {
        check(&self.decided);
        self
    }
}

impl<D: Decider> Then<D>
where
    D::Event: Debug + PartialEq,
    D::Data: Debug + PartialEq,
{
    /// What was wanted happened, and these are the events of it; none is fine too.
    #[track_caller]
    pub fn then_events(self, events: impl IntoIterator<Item = D::Event>) -> Self {
        let expected: Vec<_> = events.into_iter().collect();
        match &self.decided {
            Ok(Decision::Success { events, .. }) if *events == expected => self,
            _ => self.wrong(&format!("success with {}", list(&expected))),
        }
    }

    /// What was wanted happened, and this is what its sender is told.
    #[track_caller]
    pub fn then_data(self, data: &D::Data) -> Self {
        match &self.decided {
            Ok(Decision::Success { data: told, .. }) if told == data => self,
            _ => self.wrong(&format!("success with the data {data:?}")),
        }
    }

    /// The command was rejected with this code.
    #[track_caller]
    pub fn then_rejected(self, code: &str) -> Self {
        match &self.decided {
            Err(rejection) if rejection.code == code => self,
            _ => self.wrong(&format!("a rejection with {code}")),
        }
    }

    /// Something else happened, for this reason, and these are the events of it.
    #[track_caller]
    pub fn then_failed(self, reason: &str, events: impl IntoIterator<Item = D::Event>) -> Self {
        let expected: Vec<_> = events.into_iter().collect();
        match &self.decided {
            Ok(Decision::Failed { reason: told, events }) if told == reason && *events == expected => self,
            _ => self.wrong(&format!("failure for {reason:?} with {}", list(&expected))),
        }
    }

    /// The state after it is as `check` wants it.
    #[track_caller]
    pub fn then_state(mut self, check: impl FnOnce(&D::State)) -> Self {
        for event in self.decided.as_ref().map(Decision::events).unwrap_or_default() {
            evolve(&self.decider, &mut self.state, &self.query, event);
        }
        check(&self.state);
        self
    }

    #[track_caller]
    fn wrong(&self, expected: &str) -> ! {
        let found = match &self.decided {
            Ok(Decision::Success { data, events }) => {
                format!("success with {} and the data {data:?}", list(events))
            }
            Ok(Decision::Failed { reason, events }) => {
                format!("failure for {reason:?} with {}", list(events))
            }
            Err(rejection) => format!("a rejection with {rejection}"),
        };
        panic!("expected {expected}\n   found {found}\n   where {}", self.seen)
    }
}

fn list(events: &[impl Debug]) -> String {
    if events.is_empty() {
        return "no events".to_owned();
    }
    let lines: Vec<String> = events.iter().map(|event| format!("\n    {event:?}")).collect();
    format!("the events{}", lines.concat())
}
