//! The outbox: an action's end becomes an event.
//!
//! An action calls somebody else, who answers once. What was answered must become an event, whatever dies. So the outbox is
//! the action's `onComplete`, a mutation: the event, the end of the action and its record are one commit. What cannot be
//! appended does not hold up the end: it is told again by itself.
//!
//! | the event | then |
//! |---|---|
//! | is new | it is appended in the commit that ends the action |
//! | is in the log already | nothing is added |
//! | meets another version of its stream, or what its condition forbids | it is tried again after a wait, until it is in |
//! | has a key that stands for something else, or cannot be made | a dead letter at once |
//! | could not be appended however often it was tried | a dead letter |
//!
//! The dead letter is one of work, of the kind `onComplete`: it has the result and the whole context, and can be retried.

use super::Retries;
use crate::error::Result;
use mainstay_core::failure::{Class, Failure};
use mainstay_core::keys::{IdempotencyKey, KeyError};
use mainstay_core::retry::RetryPolicy;
use mainstay_events::{Append, Error as EventError, Log, NewEvent};
use mainstay_store::{Error as StoreError, Tx};
use mainstay_work::{Call, Functions, OnComplete, WorkResult};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::fmt::Display;
use std::sync::Arc;

/// Why an event could not be made of a result: whatever an author's code fails with.
pub type Unmade = Box<dyn std::error::Error + Send + Sync>;

type Catch = dyn Fn(&OnComplete) -> std::result::Result<NewEvent, String> + Send + Sync;

/// Turns the ends of actions into events. Its name is that of the function which actions are told to end with:
/// `NewWork::on_complete(name, &context)` or [`RunOptions::on_complete`](mainstay_work::RunOptions).
#[derive(Clone)]
pub struct Outbox {
    name: String,
    bounded_context: String,
    policy: RetryPolicy,
    catch: Arc<Catch>,
}

impl Outbox {
    /// An outbox of a bounded context. `key` makes the event recognisable, whoever tells the end and how often; `event` makes
    /// it of how the action ended (success, failed or canceled) and of the context that the action was started with. Both
    /// may be called more than once. `retries` are for what cannot be appended at once.
    pub fn new<C, K, E>(
        name: impl Into<String>,
        bounded_context: impl Into<String>,
        retries: Retries,
        key: K,
        event: E,
    ) -> Result<Self>
    where
        C: DeserializeOwned,
        K: Fn(&C) -> std::result::Result<IdempotencyKey, KeyError> + Send + Sync + 'static,
        E: Fn(&WorkResult, &C) -> std::result::Result<NewEvent, Unmade> + Send + Sync + 'static,
    {
        let catch = move |told: &OnComplete| {
            let context = told.context.as_deref().map_or("null", RawValue::get);
            let context: C = serde_json::from_str(context).map_err(|error| format!("context: {error}"))?;
            let key = key(&context).map_err(|error| format!("key: {error}"))?;
            let event = event(&told.result, &context).map_err(|error| format!("event: {error}"))?;
            Ok(event.idempotent(&key))
        };
        let policy = retries.policy()?;
        Ok(Self {
            name: name.into(),
            bounded_context: bounded_context.into(),
            policy,
            catch: Arc::new(catch),
        })
    }

    /// The function that actions are told to end with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds what the outbox does as work. Call it before the work is opened.
    pub fn functions(self, functions: Functions, log: &Log) -> Functions {
        let (log, policy, outbox) = (log.clone(), self.policy, Arc::new(self));
        functions.on_complete(outbox.name.clone(), policy, move |tx: Tx, call: Call, told: OnComplete| {
            let (log, outbox) = (log.clone(), outbox.clone());
            async move { outbox.append(&log, &tx, &call, &told).await }
        })
    }

    async fn append(&self, log: &Log, tx: &Tx, call: &Call, told: &OnComplete) -> mainstay_store::Result<()> {
        let mut event = (self.catch)(told).map_err(refused)?;
        event.bounded_context.get_or_insert_with(|| self.bounded_context.clone());
        if event.trace.is_none() {
            event.trace.clone_from(&call.trace);
        }
        // It has failed before. What its key stands for is seen by now, and will not change.
        if call.work_id != told.work_id
            && let (tenant, Some(key)) = (event.tenant_id.as_deref(), event.idempotency_key.as_deref())
            && let Some(existing) = log.find_by_key_in(tx, tenant, key).await?
            && !existing.is_repeated_by(&event)
        {
            let reason = format!(
                "IDEMPOTENCY_CONFLICT: idempotency key {key:?} was used by event {}: other content",
                existing.id()
            );
            return Err(refused(reason));
        }
        match log.append_once_in(tx, Append::from(event)) {
            Ok(_) => Ok(()),
            Err(EventError::Store(error)) => Err(EventError::Store(error).into()),
            Err(error) => Err(refused(format!("{}: {error}", error.code()))),
        }
    }
}

/// What trying again cannot mend.
fn refused(reason: impl Display) -> StoreError {
    StoreError::application(Failure::new(Class::ValidationError, reason.to_string()))
}
