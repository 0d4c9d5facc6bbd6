//! Decisions within a versioned scope: load what is decided on, decide, and commit only if nobody else did meanwhile.
//!
//! A scope is what several streams are decided on together: all seats of a flight, all products of a reservation. Its
//! version moves with every decision, so two that overlap cannot both commit.

use crate::append::{Append, NewEvent, Receipt, ScopeClaim};
use crate::error::{Error, Result, Versioned};
use crate::log::Log;
use crate::read::scope_version;
use mainstay_core::keys::{KeyError, ScopeKey};
use mainstay_store::Tx;
use std::future::Future;
use std::sync::Arc;

/// What a decision is about.
#[derive(Debug, Clone)]
pub struct Scope {
    /// `tenant:{tenantId}:{scopeType}:{scopeId}`.
    pub key: String,
    /// The version that the decision rests on; 0 for a scope that does not exist.
    pub expected_version: u64,
    /// The streams that must exist: type and id of each.
    pub entities: Vec<(String, String)>,
}

/// A stream that is decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    /// Its type.
    pub stream_type: String,
    /// Which one.
    pub id: String,
    /// Its version.
    pub version: u64,
}

/// What was decided.
#[derive(Debug)]
pub enum Decision<T> {
    /// It happens: the events are appended.
    Success {
        /// For the caller.
        data: T,
        /// What happened.
        events: Vec<NewEvent>,
    },
    /// It does not, and leaves no trace.
    Rejected {
        /// Why, for programs.
        code: String,
        /// Why, for people.
        reason: String,
    },
    /// It failed in a way that is worth an event.
    Failed {
        /// Why.
        reason: String,
        /// What happened instead.
        events: Vec<NewEvent>,
    },
}

/// What came of a decision.
#[derive(Debug)]
pub enum Outcome<T> {
    /// It was committed.
    Success {
        /// What the decision said.
        data: T,
        /// Where its events are.
        receipt: Receipt,
        /// The scope's version after it.
        version: u64,
    },
    /// It was not made; nothing was changed.
    Rejected {
        /// Why, for programs.
        code: String,
        /// Why, for people.
        reason: String,
    },
    /// Its failure was committed.
    Failed {
        /// Why.
        reason: String,
        /// Where its events are.
        receipt: Receipt,
        /// The scope's version after it.
        version: u64,
    },
    /// Somebody else decided first; nothing was changed.
    Conflict {
        /// The scope's version.
        current_version: u64,
    },
}

/// Takes a transaction back for a decision that was not made.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {reason}")]
struct Rejection {
    code: String,
    reason: String,
}

impl Log {
    /// Decides within a scope, in one transaction with whatever `decide` writes through its `Tx`.
    pub async fn execute_with_dcb<T, F, Fut>(&self, scope: Scope, decide: F) -> Result<Outcome<T>>
    where
        T: Send + 'static,
        F: Fn(Tx, Vec<Entity>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<Decision<T>>> + Send + 'static,
    {
        if let Err(rejected) = self.check(&scope) {
            return Ok(rejected);
        }
        let context = (self.clone(), Arc::new(scope), Arc::new(decide));
        let run = async |tx: Tx, (log, scope, decide): (Self, Arc<Scope>, Arc<F>)| {
            log.decide_in(&tx, &scope, &*decide).await
        };
        let error = match self.store().transact_with(context, run).await {
            Ok(outcome) => return Ok(outcome),
            Err(error) => error,
        };
        if let Some(Rejection { code, reason }) = error.downcast_ref() {
            return Ok(Outcome::Rejected { code: code.clone(), reason: reason.clone() });
        }
        match Error::from(error) {
            Error::VersionConflict { of: Versioned::Scope { .. }, current, .. } => {
                Ok(Outcome::Conflict { current_version: current })
            }
            other => Err(other),
        }
    }

    fn check<T>(&self, scope: &Scope) -> std::result::Result<ScopeKey, Outcome<T>> {
        let key: ScopeKey = scope.key.parse().map_err(|error: KeyError| {
            let code = match error {
                KeyError::ScopeKeyEmpty => "SCOPE_KEY_EMPTY",
                _ => "INVALID_SCOPE_KEY_FORMAT",
            };
            Outcome::Rejected { code: code.to_owned(), reason: error.to_string() }
        })?;
        if self.tenant().is_some_and(|tenant| tenant != key.tenant_id) {
            let reason = "the scope belongs to another tenant".to_owned();
            return Err(Outcome::Rejected { code: "TENANT_MISMATCH".to_owned(), reason });
        }
        Ok(key)
    }

    async fn decide_in<T, F, Fut>(
        &self,
        tx: &Tx,
        scope: &Scope,
        decide: &F,
    ) -> mainstay_store::Result<Outcome<T>>
    where
        F: Fn(Tx, Vec<Entity>) -> Fut,
        Fut: Future<Output = mainstay_store::Result<Decision<T>>>,
    {
        let current_version = scope_version(tx, &scope.key).await?;
        if current_version != scope.expected_version {
            return Ok(Outcome::Conflict { current_version });
        }
        let (mut entities, mut missing) = (Vec::new(), Vec::new());
        for (stream_type, id) in &scope.entities {
            match self.stream_version_in(tx, stream_type, id).await? {
                0 => missing.push(format!("{stream_type}/{id}")),
                version => {
                    let (stream_type, id) = (stream_type.clone(), id.clone());
                    entities.push(Entity { stream_type, id, version });
                }
            }
        }
        if !missing.is_empty() {
            let reason = format!("not found: {}", missing.join(", "));
            return Ok(Outcome::Rejected { code: "ENTITIES_NOT_FOUND".to_owned(), reason });
        }
        let version = current_version + 1;
        Ok(match decide(tx.clone(), entities).await? {
            Decision::Success { data, events } => {
                Outcome::Success { data, receipt: self.claim(tx, scope, events)?, version }
            }
            Decision::Failed { reason, events } => {
                Outcome::Failed { reason, receipt: self.claim(tx, scope, events)?, version }
            }
            Decision::Rejected { code, reason } => {
                // Nothing that it wrote on the way may stay.
                return Err(mainstay_store::Error::application(Rejection { code, reason }));
            }
        })
    }

    fn claim(&self, tx: &Tx, scope: &Scope, mut events: Vec<NewEvent>) -> Result<Receipt> {
        for event in &mut events {
            event.scope =
                Some(ScopeClaim { key: scope.key.clone(), expected_version: scope.expected_version });
        }
        self.append_in(tx, Append::new(events))
    }
}
