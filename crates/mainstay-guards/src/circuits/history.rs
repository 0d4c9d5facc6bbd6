//! What circuits have been through: a row for each change of state, written with the change.
//!
//! Changes are rare, and so many of each circuit are kept; the oldest goes when a new one comes.

use super::circuits::Circuits;
use super::record::{number, state_of};
use super::{MAX_CIRCUITS, check_name};
use crate::Result;
use mainstay_core::circuit::{Event, Forced, Standing, State};
use mainstay_store::{Row, Tx, Value, params};
use serde::Serialize;

/// How many changes of a circuit are kept.
pub const MAX_CHANGES: usize = 200;

/// A change of a circuit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// For the next page.
    #[serde(skip)]
    pub number: i64,
    /// The circuit.
    pub name: String,
    /// How it acted before.
    pub from: State,
    /// How it acts since.
    pub to: State,
    /// When that was.
    pub at: i64,
    /// Why.
    pub reason: String,
    /// Who decided it, if it was somebody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// Who decided something, and why.
#[derive(Debug, Clone)]
pub(super) struct Decided {
    pub(super) actor: String,
    pub(super) reason: String,
}

const INSERT: &str = "INSERT INTO mainstay_circuit_changes (name, from_state, to_state, at_ms, reason, actor) \
     VALUES ($1, $2, $3, $4, $5, $6)";
const PRUNE: &str = "DELETE FROM mainstay_circuit_changes WHERE name = $1 AND number <= (SELECT number \
     FROM mainstay_circuit_changes WHERE name = $1 ORDER BY number DESC LIMIT 1 OFFSET $2)";
macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT number, name, from_state, to_state, at_ms, reason, actor FROM mainstay_circuit_changes WHERE ",
            $condition,
            " ORDER BY number DESC LIMIT $2"
        )
    };
}
const ALL: &str = select!("number < $1");
const OF_ONE: &str = select!("number < $1 AND name = $3");

impl Circuits {
    /// The changes of all circuits, or of one, the newest first; those before the one of a number.
    pub async fn changes(
        &self,
        name: Option<&str>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Change>> {
        if let Some(name) = name {
            check_name(name)?;
        }
        let limit = limit.clamp(1, MAX_CIRCUITS) as i64;
        let read = async |tx: Tx, (name, before, limit): (Option<String>, i64, i64)| {
            let rows = match name {
                Some(name) => tx.query(OF_ONE, params![before, limit, &name]).await?,
                None => tx.query(ALL, params![before, limit]).await?,
            };
            rows.iter().map(change).collect::<mainstay_store::Result<Vec<_>>>()
        };
        let context = (name.map(str::to_owned), before.unwrap_or(i64::MAX), limit);
        Ok(self.store().read_with(context, read).await?)
    }
}

fn change(row: &Row) -> mainstay_store::Result<Change> {
    Ok(Change {
        number: row.get(0)?,
        name: row.get(1)?,
        from: state_of(row.get(2)?)?,
        to: state_of(row.get(3)?)?,
        at: row.get(4)?,
        reason: row.get(5)?,
        actor: row.get(6)?,
    })
}

/// The changes that one transaction makes to a circuit.
#[derive(Debug, Default)]
pub(super) struct Noted(Vec<(State, State, String, Option<String>)>);

impl Noted {
    /// Notes a step, if it changed how the circuit acts or who decides that.
    pub(super) fn step(
        &mut self,
        before: &Standing,
        after: &Standing,
        event: &Event,
        decided: Option<&Decided>,
        now_ms: i64,
    ) {
        let (from, to) = (before.effective(now_ms), after.effective(now_ms));
        if from == to && before.forced == after.forced {
            return;
        }
        let (reason, actor) = why(event, decided);
        self.0.push((from, to, reason, actor));
    }

    /// What was forced for a while is over by itself.
    pub(super) fn over(&mut self, before: &Standing, after: &Standing, now_ms: i64) {
        let Some(forced) = &before.forced else { return };
        if after.forced.is_none() {
            let from = if forced.is_open { State::Open } else { State::Closed };
            let reason = "the time that it was forced for is over".to_owned();
            self.0.push((from, after.effective(now_ms), reason, None));
        }
    }

    pub(super) async fn write(&self, tx: &Tx, name: &str, now_ms: i64) -> mainstay_store::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        // More than are kept need not be written.
        for (from, to, reason, actor) in self.0.iter().rev().take(MAX_CHANGES).rev() {
            let values = [
                Value::from(name),
                Value::Int(number(*from)),
                Value::Int(number(*to)),
                Value::Int(now_ms),
                Value::from(reason.as_str()),
                Value::from(actor.as_deref()),
            ];
            tx.execute(INSERT, &values).await?;
        }
        tx.execute(PRUNE, params![name, MAX_CHANGES as i64]).await.map(drop)
    }
}

fn why(event: &Event, decided: Option<&Decided>) -> (String, Option<String>) {
    let decided_by = |otherwise: &str| match decided {
        Some(Decided { actor, reason }) => (reason.clone(), Some(actor.clone())),
        None => (otherwise.to_owned(), None),
    };
    let plain = |reason: &str| (reason.to_owned(), None);
    match event {
        Event::Forced(Forced { actor, reason, .. }) => (reason.clone(), Some(actor.clone())),
        Event::Released => decided_by("released"),
        Event::Reset => decided_by("reset"),
        Event::Failure => plain("too many calls failed in a row"),
        Event::Tripped => plain("too many of the last calls failed or were slow"),
        Event::Timeout { .. } => plain("its time to be open is over"),
        Event::ProbeSuccess { .. } => plain("a probe succeeded"),
        Event::ProbeFailure { .. } => plain("a probe failed"),
        Event::ProbeGivenUp { .. } => plain("nothing was heard of a probe"),
        Event::ProbeClaimed { .. } => plain("a probe began"),
        Event::Success => plain("a call succeeded"),
    }
}
