//! What operators decide about a circuit.

use super::MAX_REASON_BYTES;
use super::change::topic;
use super::circuits::{Circuits, check_name};
use super::history::Decided;
use super::local::Core;
use super::record::{Record, Status};
use super::shared::Shared;
use crate::{Error, Result};
use mainstay_core::circuit::{Event, Forced, State};
use mainstay_store::{Tx, params};
use std::sync::Arc;

/// What an operator decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Force {
    /// Open or closed.
    pub is_open: bool,
    /// Who decides.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// For how long; until it is released unless given.
    pub for_ms: Option<u64>,
}

/// What is decided at a moment.
type Decide = Arc<dyn Fn(i64) -> Event + Send + Sync>;

const DELETE_CHANGES: &str = "DELETE FROM mainstay_circuit_changes WHERE name = $1";

/// Longest time that a circuit is forced for: a year.
const MOST_FORCED_MS: u64 = 366 * 24 * 3_600_000;

impl Circuits {
    /// Lets a circuit be open or closed on all nodes, whatever calls say.
    pub async fn force(&self, name: &str, force: Force) -> Result<Status> {
        let Force { is_open, actor, reason, for_ms } = force;
        check_text("actor", &actor)?;
        check_text("reason", &reason)?;
        if for_ms.is_some_and(|ms| !(1..=MOST_FORCED_MS).contains(&ms)) {
            return Err(Error::invalid("forMs", format!("must be 1 to {MOST_FORCED_MS}")));
        }
        let event = move |now_ms: i64| {
            let until_ms = for_ms.map(|ms| now_ms.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)));
            let (actor, reason) = (actor.clone(), reason.clone());
            Event::Forced(Forced { is_open, actor, reason, at_ms: now_ms, until_ms })
        };
        self.decide(name, Arc::new(event), None).await
    }

    /// Lets calls decide again about a circuit that was forced.
    pub async fn release(&self, name: &str, actor: &str, reason: &str) -> Result<Status> {
        self.decide_for(name, Event::Released, actor, reason).await
    }

    /// Lets a circuit begin anew: closed, nothing counted, not forced.
    pub async fn reset(&self, name: &str, actor: &str, reason: &str) -> Result<Status> {
        self.decide_for(name, Event::Reset, actor, reason).await
    }

    /// Deletes a circuit that is closed and not forced, with its history: other nodes forget it when they look next. A call
    /// that fails makes it anew.
    pub async fn delete(&self, name: &str) -> Result<()> {
        check_name(name)?;
        if self.shared.known_core(name).is_some_and(|core| core.declared().is_some()) {
            return Err(Error::InUse { name: name.to_owned(), reason: "this program declares it" });
        }
        let delete = async |tx: Tx, (shared, name): (Arc<Shared>, String)| {
            let record = Record::hold(&tx, &name).await?;
            let record = record.ok_or_else(|| Error::UnknownCircuit(name.clone()))?;
            let standing = record.standing.at(shared.now_in(&tx).await?);
            if standing.state != State::Closed || standing.forced.is_some() {
                return Err(Error::InUse { name, reason: "it is not closed, or forced" }.into());
            }
            Record::delete(&tx, &name).await?;
            tx.execute(DELETE_CHANGES, params![&name]).await?;
            tx.wake(&topic())?;
            tx.after_commit(Arc::new(move || {
                if let Some(core) = shared.known_core(&name) {
                    core.forget(shared.now_ms());
                }
            }))
        };
        Ok(self.shared.store.transact_with((self.shared.clone(), name.to_owned()), delete).await?)
    }

    async fn decide_for(&self, name: &str, event: Event, actor: &str, reason: &str) -> Result<Status> {
        check_text("actor", actor)?;
        check_text("reason", reason)?;
        let decided = if event == Event::Reset { "reset" } else { "released" };
        let by = Decided { actor: actor.to_owned(), reason: reason.to_owned() };
        let status = self.decide(name, Arc::new(move |_| event.clone()), Some(by)).await?;
        tracing::warn!(circuit = name, actor, reason, state = %status.state, "circuit {decided}");
        Ok(status)
    }

    async fn decide(&self, name: &str, event: Decide, by: Option<Decided>) -> Result<Status> {
        check_name(name)?;
        type Decision = (Arc<Shared>, Arc<Core>, Decide, Option<Decided>);
        let decide = async |tx: Tx, (shared, core, event, by): Decision| {
            let now_ms = shared.now_in(&tx).await?;
            let changed = shared.change_by(&tx, &core, vec![event(now_ms)], by.as_ref()).await?;
            let unheard_of = || Record::unheard_of(&core.name, core.settings());
            Ok(Status::new(changed.unwrap_or_else(unheard_of), now_ms))
        };
        let status = self
            .shared
            .store
            .transact_with((self.shared.clone(), self.shared.core(name), event, by), decide)
            .await?;
        self.shared.figures.forced.increment();
        Ok(status)
    }
}

fn check_text(field: &str, text: &str) -> Result<()> {
    if text.is_empty() || text.len() > MAX_REASON_BYTES || text.chars().any(char::is_control) {
        let reason = format!("must have 1 to {MAX_REASON_BYTES} bytes and no control characters");
        return Err(Error::invalid(field, reason));
    }
    Ok(())
}
