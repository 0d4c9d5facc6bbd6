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
//!
//! # Failed actions
//!
//! An action that fails for good ends with an event. The event is what the rest of the system goes by, so an operator must
//! not try the action again behind its back: the failed action leaves no dead letter of its own.
//!
//! An outbox with a [correction](Outbox::retryable) allows a retry. The letter of the action appears in the commit that
//! appends the event of its failure, never before. The ends of a retry:
//!
//! | the retry, or another action of the same key | then |
//! |---|---|
//! | succeeds | the correction is appended, under the key of the failure and `:corrected` |
//! | fails or is cancelled | a retry adds nothing: the failure is in the log; another action is an `IDEMPOTENCY_CONFLICT` |

use super::Retries;
use crate::error::Result;
use mainstay_core::failure::{Class, Failure};
use mainstay_core::keys::{IdempotencyKey, KeyError};
use mainstay_core::retry::RetryPolicy;
use mainstay_events::{Append, Error as EventError, Event, Log, NewEvent};
use mainstay_store::{Error as StoreError, Tx};
use mainstay_work::{Call, Functions, OnComplete, Recording, WorkResult};
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
    actions: Vec<String>,
    bounded_context: String,
    policy: RetryPolicy,
    catch: Arc<Catch>,
    correction: Option<Arc<Catch>>,
}

impl Outbox {
    /// An outbox of a bounded context, for the ends of the named actions. The end of another item is refused, whatever its
    /// `onComplete` says: its result would become an event that no action stands behind. `key` makes the event recognisable, whoever tells the end and how often; `event` makes
    /// it of how the action ended (success, failed or canceled) and of the context that the action was started with. Both
    /// may be called more than once. `retries` are for what cannot be appended at once.
    pub fn new<C, K, E>(
        name: impl Into<String>,
        actions: impl IntoIterator<Item = impl Into<String>>,
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
            let context: C = context(told)?;
            let key = key(&context).map_err(|error| format!("key: {error}"))?;
            let event = event(&told.result, &context).map_err(|error| format!("event: {error}"))?;
            Ok(event.idempotent(&key))
        };
        let policy = retries.policy()?;
        Ok(Self {
            name: name.into(),
            actions: actions.into_iter().map(Into::into).collect(),
            bounded_context: bounded_context.into(),
            policy,
            catch: Arc::new(catch),
            correction: None,
        })
    }

    /// Lets operators try failed actions again. `correction` makes the event of a retry that succeeds after the failure was
    /// recorded. It gets a key of its own, `{key}:corrected`, so that the log has both: the failure and its correction.
    pub fn retryable<C, E>(self, correction: E) -> Self
    where
        C: DeserializeOwned,
        E: Fn(&WorkResult, &C) -> std::result::Result<NewEvent, Unmade> + Send + Sync + 'static,
    {
        let correct = move |told: &OnComplete| {
            let context: C = context(told)?;
            correction(&told.result, &context).map_err(|error| format!("correction: {error}"))
        };
        Self { correction: Some(Arc::new(correct)), ..self }
    }

    /// The function that actions are told to end with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds what the outbox does as work. Call it before the work is opened.
    pub fn functions(self, functions: Functions, log: &Log) -> Functions {
        let recording = match self.correction {
            Some(_) => Recording::Correctable,
            None => Recording::Final,
        };
        let (log, policy, name, outbox) = (log.clone(), self.policy, self.name.clone(), Arc::new(self));
        let functions =
            functions.on_complete(name.clone(), policy, move |tx: Tx, call: Call, told: OnComplete| {
                let (log, outbox) = (log.clone(), outbox.clone());
                async move { outbox.append(&log, &tx, &call, &told).await }
            });
        functions.recording(&name, recording)
    }

    async fn append(&self, log: &Log, tx: &Tx, call: &Call, told: &OnComplete) -> mainstay_store::Result<()> {
        self.check_action(call)?;
        let made = (self.catch)(told).map_err(refused)?;
        let mut event = self.placed(made, call);
        // Before a retry is possible at all: a key that is too long for its correction would be found out only then.
        let correction = match &self.correction {
            Some(correction) => Some((correction, corrected(&event)?)),
            None => None,
        };
        let (is_retry, was_tried) = (told.retry_of.is_some(), call.work_id != told.work_id);
        if (is_retry || was_tried)
            && let Some(recorded) = recorded(log, tx, &event).await?
            && !recorded.is_repeated_by(&event)
        {
            // Another item of the same key, started by the application, may succeed after a failure too.
            let is_of_other_type = recorded.event_type() != event.event_type;
            match (&told.result, correction) {
                (WorkResult::Success { .. }, Some((correction, key))) if is_retry || is_of_other_type => {
                    let made = correction(told).map_err(refused)?.idempotent(&key);
                    event = self.placed(made, call);
                }
                // The action failed, and the log says so.
                (WorkResult::Failed { .. } | WorkResult::Canceled, _) if is_retry => return Ok(()),
                _ => {}
            }
        }
        // It has failed before. What its key stands for is seen by now, and will not change.
        if was_tried
            && let Some(existing) = recorded(log, tx, &event).await?
            && !existing.is_repeated_by(&event)
        {
            let key = event.idempotency_key.unwrap_or_default();
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

    /// Refuses the end of an item that is none of the outbox's actions.
    fn check_action(&self, call: &Call) -> mainstay_store::Result<()> {
        match call.completes.as_ref().and_then(|ended| ended.function.as_ref()) {
            Some(function) if !self.actions.contains(function) => {
                Err(refused(format!("{} records ends of {:?}, not of {function:?}", self.name, self.actions)))
            }
            _ => Ok(()),
        }
    }

    /// An event where it belongs: in the outbox's bounded context, unless it names one, and caused by what caused the action.
    fn placed(&self, mut event: NewEvent, call: &Call) -> NewEvent {
        event.bounded_context.get_or_insert_with(|| self.bounded_context.clone());
        event.caused_by(&call.cause)
    }
}

/// The context that an action was started with.
fn context<C: DeserializeOwned>(told: &OnComplete) -> std::result::Result<C, String> {
    let context = told.context.as_deref().map_or("null", RawValue::get);
    serde_json::from_str(context).map_err(|error| format!("context: {error}"))
}

/// The event that the key of `event` stands for.
async fn recorded(log: &Log, tx: &Tx, event: &NewEvent) -> mainstay_store::Result<Option<Event>> {
    let Some(key) = &event.idempotency_key else { return Ok(None) };
    Ok(log.find_by_key_in(tx, event.tenant_id.as_deref(), key).await?)
}

/// The key of the event that corrects another one.
fn corrected(event: &NewEvent) -> mainstay_store::Result<IdempotencyKey> {
    let key = event.idempotency_key.as_deref().unwrap_or_default();
    IdempotencyKey::raw(&format!("{key}:corrected")).map_err(|error| refused(format!("key: {error}")))
}

/// What trying again cannot mend.
fn refused(reason: impl Display) -> StoreError {
    StoreError::application(Failure::new(Class::ValidationError, reason.to_string()))
}
