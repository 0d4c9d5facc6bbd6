//! Named functions with typed arguments and results.
//!
//! A *mutation* runs in the transaction that completes it, so its effect happens exactly once. An *action* runs outside of
//! any transaction and may do what it likes; its end is recorded exactly once, but it may have run more often.

use crate::MAX_VALUE_BYTES;
use crate::item::OnComplete;
use mainstay_core::circuit::{Circuit, Gate};
use mainstay_core::failure::{Class, Failure};
use mainstay_core::retry::RetryPolicy;
use mainstay_core::trace::TraceContext;
use mainstay_store::Tx;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// How long an action may run unless it says otherwise.
const ACTION_TIMEOUT: Duration = Duration::from_secs(300);

/// One execution of a function.
#[derive(Debug, Clone)]
pub struct Call {
    /// The item.
    pub work_id: String,
    /// The function.
    pub function: String,
    /// Which execution it is, from 1. After a crash a number may come again.
    pub attempt: u32,
    /// What the item was enqueued with.
    pub args: Box<RawValue>,
    /// What is kept beside the item.
    pub context: Option<Box<RawValue>>,
    /// The item's key.
    pub key: Option<String>,
    /// Where this execution stands in the trace of its item: what it causes is caused by this step.
    pub trace: Option<TraceContext>,
    /// Tells when the item is to stop.
    pub cancel: Cancel,
}

impl Call {
    /// The same for every execution of the item, for whoever must recognise repeats.
    pub fn idempotency_key(&self) -> &str {
        &self.work_id
    }
}

/// Tells when an item is to stop. Clones tell the same.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<(AtomicU8, Notify)>);

/// Why an item is to stop: somebody cancelled it, it was taken away from this node and is done by another one, or its time
/// is up.
const CANCELED: u8 = 1;
const LOST: u8 = 2;
const LATE: u8 = 3;

impl Cancel {
    /// Whether it is to stop.
    pub fn is_asked(&self) -> bool {
        self.0.0.load(Ordering::Acquire) != 0
    }

    /// Whether somebody cancelled it.
    pub(crate) fn is_canceled(&self) -> bool {
        self.0.0.load(Ordering::Acquire) == CANCELED
    }

    /// Whether its time was up.
    pub(crate) fn is_late(&self) -> bool {
        self.0.0.load(Ordering::Acquire) == LATE
    }

    /// Ready when it is to stop.
    pub async fn asked(&self) {
        let notified = self.0.1.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if !self.is_asked() {
            notified.await;
        }
    }

    /// Whether both are about the same execution.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn ask(&self) {
        self.stop(CANCELED);
    }

    /// It is not this node's any more: whatever comes of it here does not count.
    pub(crate) fn lose(&self) {
        self.stop(LOST);
    }

    /// It has taken too long.
    pub(crate) fn expire(&self) {
        self.stop(LATE);
    }

    fn stop(&self, why: u8) {
        // The first reason stays.
        if self.0.0.compare_exchange(0, why, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.0.1.notify_waiters();
        }
    }
}

/// A boxed future of a function.
pub type Running<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What an action returns: JSON, or why it failed.
pub type ActionAnswer = Result<Box<RawValue>, Failure>;

type Check = dyn Fn(&RawValue) -> Result<(), String> + Send + Sync;
pub(crate) type ActionBody = dyn Fn(Call) -> Running<ActionAnswer> + Send + Sync;
type MutationBody = dyn Fn(Tx, Call) -> Running<mainstay_store::Result<Box<RawValue>>> + Send + Sync;

/// What a function is.
#[derive(Clone)]
pub(crate) enum Body {
    Action { run: Arc<ActionBody>, timeout: Duration },
    Mutation(Arc<MutationBody>),
}

#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) body: Body,
    pub(crate) check: Arc<Check>,
    /// How it is tried again, instead of the pool's way.
    pub(crate) retry: Option<RetryPolicy>,
}

/// The kind of a function, as it is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// Runs outside of transactions.
    Action,
    /// Runs in the transaction that completes it.
    Mutation,
}

impl FunctionKind {
    /// The name it is declared under.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Mutation => "mutation",
        }
    }
}

impl Function {
    pub(crate) fn kind(&self) -> FunctionKind {
        match self.body {
            Body::Action { .. } => FunctionKind::Action,
            Body::Mutation(_) => FunctionKind::Mutation,
        }
    }
}

/// The functions that a node can run, by name.
#[derive(Clone, Default)]
pub struct Functions(BTreeMap<String, Function>, BTreeMap<String, Arc<dyn Circuit>>);

impl Functions {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an action.
    pub fn action<A, R, F, Fut>(self, name: impl Into<String>, run: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        F: Fn(Call, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        self.action_within(ACTION_TIMEOUT, name, run)
    }

    /// Adds an action that is ended, and counted as failed, when it runs longer than `timeout`.
    pub fn action_within<A, R, F, Fut>(mut self, timeout: Duration, name: impl Into<String>, run: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        F: Fn(Call, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let run = Arc::new(run);
        let body = move |call: Call| -> Running<ActionAnswer> {
            let run = run.clone();
            Box::pin(async move {
                let args = parse::<A>(&call.args)
                    .map_err(|reason| Failure::new(Class::ValidationError, format!("args: {reason}")))?;
                let value = run(call, args).await?;
                returned(&value).map_err(|reason| Failure::new(Class::ValidationError, reason))
            })
        };
        self.0.insert(
            name.into(),
            Function {
                body: Body::Action { run: Arc::new(body), timeout },
                check: checking::<A>(),
                retry: None,
            },
        );
        self
    }

    /// Adds an action over bare JSON, whose arguments nobody here knows the type of.
    pub fn raw_action<F, Fut>(mut self, timeout: Duration, name: impl Into<String>, run: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ActionAnswer> + Send + 'static,
    {
        let body = move |call: Call| -> Running<ActionAnswer> { Box::pin(run(call)) };
        let body = Body::Action { run: Arc::new(body), timeout };
        self.0.insert(name.into(), Function { body, check: Arc::new(|_| Ok(())), retry: None });
        self
    }

    /// Adds a mutation. An `onComplete` is one whose argument is an [`OnComplete`](crate::OnComplete).
    ///
    /// It obeys the rules of a transaction. What it fails with counts as retryable, unless it is a
    /// [`Failure`] in [`Error::application`](mainstay_store::Error::application) that says otherwise.
    pub fn mutation<A, R, F, Fut>(mut self, name: impl Into<String>, run: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        F: Fn(Tx, Call, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<R>> + Send + 'static,
    {
        let run = Arc::new(run);
        let body = move |tx: Tx, call: Call| -> Running<mainstay_store::Result<Box<RawValue>>> {
            let run = run.clone();
            Box::pin(async move {
                let refused = |reason: String| {
                    mainstay_store::Error::application(Failure::new(Class::ValidationError, reason))
                };
                let args = parse::<A>(&call.args).map_err(|reason| refused(format!("args: {reason}")))?;
                let value = run(tx, call, args).await?;
                returned(&value).map_err(refused)
            })
        };
        let body = Body::Mutation(Arc::new(body));
        self.0.insert(name.into(), Function { body, check: checking::<A>(), retry: None });
        self
    }

    /// Adds a mutation that is told how items end. While it fails it is told again by itself, as `retry` says instead of the
    /// pool that the item was in; then it is a dead letter.
    pub fn on_complete<C, F, Fut>(self, name: impl Into<String>, retry: RetryPolicy, run: F) -> Self
    where
        C: DeserializeOwned + Send + 'static,
        F: Fn(Tx, Call, OnComplete<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<()>> + Send + 'static,
    {
        let name = name.into();
        let mut functions = self.mutation(name.clone(), run);
        if let Some(function) = functions.0.get_mut(&name) {
            function.retry = Some(retry);
        }
        functions
    }

    /// Puts a circuit before an action: while it is open, items wait and spend no attempts, and the first one that is
    /// taken afterwards is the probe.
    pub fn behind(mut self, name: impl Into<String>, circuit: Arc<dyn Circuit>) -> Self {
        self.1.insert(name.into(), circuit);
        self
    }

    /// The circuit before a function.
    pub(crate) fn circuit(&self, name: &str) -> Option<&Arc<dyn Circuit>> {
        self.1.get(name)
    }

    /// The circuits, by the functions that they are before.
    pub(crate) fn circuits(&self) -> impl Iterator<Item = (&str, &Arc<dyn Circuit>)> {
        self.1.iter().map(|(name, circuit)| (name.as_str(), circuit))
    }

    /// Whether this node may carry a function out at this moment.
    pub(crate) fn gate(&self, name: &str) -> Option<Gate> {
        self.get(name).map(|_| self.circuit(name).map_or(Gate::Open, |circuit| circuit.gate()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Function> {
        self.0.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Function)> {
        self.0.iter().map(|(name, function)| (name.as_str(), function))
    }
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

fn checking<A: DeserializeOwned>() -> Arc<Check> {
    Arc::new(|args| parse::<A>(args).map(drop))
}

fn parse<A: DeserializeOwned>(args: &RawValue) -> Result<A, String> {
    serde_json::from_str(args.get()).map_err(|error| error.to_string())
}

fn returned(value: &impl Serialize) -> Result<Box<RawValue>, String> {
    let value = serde_json::value::to_raw_value(value).map_err(|error| format!("return value: {error}"))?;
    if value.get().len() > MAX_VALUE_BYTES {
        return Err(format!("return value: {} bytes are more than {MAX_VALUE_BYTES}", value.get().len()));
    }
    Ok(value)
}
