//! What must be true, kept in memory: every command that was sent, and what its sender was told.

use mainstay_flows::Result;
use mainstay_flows::commands::{Command, ConflictRetry, Dispatched, Outcome};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

use super::house::SCOPE;

/// A command that somebody wants to happen.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// A handler's name, or `SellSeat` for the decider.
    pub(super) name: &'static str,
    pub(super) hall: u32,
    pub(super) seat: u32,
    /// How far behind the scope's version is that it is decided in; nothing when it is in no scope.
    pub(super) lag: Option<u64>,
    /// Whether it is decided again when it is overtaken, and its end is told.
    pub(super) is_retried: bool,
}

/// What is known of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// Whoever sent it has heard nothing, or that it may or may not have happened.
    Unknown,
    /// It was refused, and nothing may be there of it.
    Void,
    /// It is decided again later.
    Deferred,
    /// It has ended so: its status, and the code of a rejection.
    Ended(String, Option<String>),
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) wanted: Wanted,
    pub(super) command: Command,
    pub(super) fate: Fate,
    /// How often somebody was told that it was decided just now.
    decided: u32,
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) commands: BTreeMap<String, Entry>,
    /// Events that were left for good, or may have been.
    pub(super) ignored: BTreeSet<u64>,
    pub(super) maybe_ignored: BTreeSet<u64>,
}

impl Entry {
    /// Whether this can be what comes of it in the end.
    fn may_end(&self, status: &str, code: Option<&str>) -> bool {
        let is_overtaken = self.wanted.lag.is_some() || self.wanted.name == "SellSeat";
        if (status, code) == ("rejected", Some("DCB_MAX_RETRIES_EXCEEDED")) {
            return self.wanted.is_retried && is_overtaken;
        }
        match self.wanted.name {
            "Sell" | "Spoil" => (status, code) == ("success", None),
            "Refuse" => (status, code) == ("rejected", Some("REFUSED")),
            "Regret" => (status, code) == ("rejected", Some("REGRETTED")),
            "SellSeat" => ["success", "failed"].contains(&status),
            "Fail" => status == "failed",
            // Only one that was deferred is known to have been broken.
            _ => status == "failed" && self.wanted.is_retried && self.wanted.lag.is_some(),
        }
    }

    fn has_event(&self) -> bool {
        match &self.fate {
            Fate::Ended(status, _) if status == "success" => true,
            Fate::Ended(status, _) => status == "failed" && ["Fail", "SellSeat"].contains(&self.wanted.name),
            _ => false,
        }
    }

    /// The type of its event, if it has one.
    fn event_type(&self) -> Option<&'static str> {
        let Fate::Ended(status, _) = &self.fate else { return None };
        self.has_event().then_some(match (self.wanted.name, &**status) {
            ("Sell", _) => "Sold",
            ("Spoil", _) => "Spoilt",
            ("Fail", _) => "Failed",
            (_, "success") => "SeatSold",
            _ => "SeatRefused",
        })
    }
}

impl Model {
    /// Takes a command up that is about to be sent, decided at the scope's version `current` if it is in a scope.
    pub(super) fn add(&mut self, wanted: Wanted, current: u64) -> String {
        let id = format!("cmd-{:04}", self.commands.len());
        let payload = match wanted.name {
            "SellSeat" => json!({ "hall": wanted.hall, "seat": wanted.seat }),
            _ => json!(self.commands.len()),
        };
        let mut command = Command::new(wanted.name, &payload).unwrap().id(&id);
        if let Some(lag) = wanted.lag {
            command = command.within(SCOPE, current.saturating_sub(lag));
        }
        if wanted.is_retried {
            let retry =
                ConflictRetry { initial_backoff_ms: 1, max_backoff_ms: 4, ..ConflictRetry::default() };
            command = command.retrying(retry.on_complete("told", "context").unwrap());
        }
        self.commands.insert(id.clone(), Entry { wanted, command, fate: Fate::Unknown, decided: 0 });
        id
    }

    /// Holds an answer against what is known, and remembers it. A twin is the same command, sent at the same time.
    pub(super) fn answered(&mut self, id: &str, answer: &Result<Dispatched>, has_twin: bool) {
        let entry = self.commands.get_mut(id).unwrap();
        let told = match answer {
            Ok(dispatched) => {
                entry.decided += u32::from(!dispatched.is_duplicate);
                assert!(entry.decided < 2, "{id} is decided twice: {entry:?}");
                fate(&dispatched.outcome)
            }
            Err(error) => match error.code() {
                "HANDLER_ERROR" | "VERSION_CONFLICT" => Fate::Void,
                // Overtaken too often, or nobody had the time.
                _ if error.is_retryable() || error.code() == "APPEND_CONDITION_FAILED" => Fate::Unknown,
                code => panic!("{id}: {code}: {error}"),
            },
        };
        if told == Fate::Unknown {
            return self.unheard(id);
        }
        // A rejection of a handler that has written something is written down when that was taken back. Who moves the scope
        // on between the two refuses the twin, of which there is nothing then, as of the rejection.
        let is_rejection = |fate: &Fate| matches!(fate, Fate::Ended(status, _) if status == "rejected");
        let may_part = has_twin
            && entry.wanted.name == "Regret"
            && entry.wanted.lag.is_some()
            && !entry.wanted.is_retried;
        let is_possible = match (&entry.fate, &told) {
            (Fate::Void, Fate::Ended(status, code)) if may_part && is_rejection(&told) => {
                entry.may_end(status, code.as_deref())
            }
            (before, Fate::Void) if may_part && is_rejection(before) => return,
            (Fate::Unknown, Fate::Void) => {
                ["Break", "Panic"].contains(&entry.wanted.name)
                    || entry.wanted.lag.is_some() && !entry.wanted.is_retried
            }
            // What it was to be decided at has gone by since, or before its twin came to it.
            (Fate::Void, Fate::Deferred) => entry.wanted.is_retried && entry.wanted.lag.is_some(),
            (Fate::Deferred | Fate::Ended(..), Fate::Void)
                if ["Break", "Panic"].contains(&entry.wanted.name) =>
            {
                return;
            }
            (Fate::Unknown | Fate::Deferred, Fate::Deferred) => entry.wanted.is_retried,
            (Fate::Unknown | Fate::Deferred, Fate::Ended(status, code)) => {
                entry.may_end(status, code.as_deref())
            }
            (before, after) => before == after,
        };
        assert!(is_possible, "{id} is told {told:?}: {entry:?}");
        entry.fate = told;
    }

    /// Nobody knows what came of a command that was sent. One that was refused before may have been deferred this time.
    pub(super) fn unheard(&mut self, id: &str) {
        let entry = self.commands.get_mut(id).unwrap();
        if entry.fate == Fate::Void {
            entry.fate = Fate::Unknown;
        }
    }

    /// The commands that are in this state.
    pub(super) fn ids(&self, fate: &Fate) -> Vec<String> {
        let found = self.commands.iter().filter(|(_, entry)| entry.fate == *fate);
        found.map(|(id, _)| id.clone()).collect()
    }

    /// The ids of all commands that must be known.
    pub(super) fn known(&self) -> BTreeSet<String> {
        let known = self.commands.iter().filter(|(_, entry)| matches!(entry.fate, Fate::Ended(..)));
        known.map(|(id, _)| id.clone()).collect()
    }

    /// The events that must be in the log, by the command that caused them.
    pub(super) fn events(&self) -> Vec<(String, String)> {
        let types =
            self.commands.iter().map(|(id, entry)| Some((id.clone(), entry.event_type()?.to_owned())));
        types.flatten().collect()
    }

    /// What handlers, work and the end of commands must have written down, sorted.
    pub(super) fn notes(&self) -> Vec<(String, String)> {
        let mut notes = Vec::new();
        for (id, entry) in &self.commands {
            let Fate::Ended(status, _) = &entry.fate else { continue };
            if entry.has_event() && entry.wanted.name != "SellSeat" {
                notes.push(("row".to_owned(), id.clone()));
                if status == "success" {
                    notes.push(("shipped".to_owned(), id.clone()));
                }
            }
            if entry.wanted.is_retried {
                notes.push((format!("told {status}"), id.clone()));
            }
        }
        notes.sort();
        notes
    }
}

pub(super) fn fate(outcome: &Outcome) -> Fate {
    match outcome {
        Outcome::Deferred(_) => Fate::Deferred,
        Outcome::Rejected { code, .. } => Fate::Ended("rejected".to_owned(), Some(code.clone())),
        other => Fate::Ended(other.status().to_owned(), None),
    }
}
