//! Named functions with typed arguments and results.
//!
//! A *mutation* runs in the transaction that completes it, so its effect happens exactly once. An *action* runs outside of
//! any transaction and may do what it likes; its end is recorded exactly once, but it may have run more often.

use crate::item::{OnComplete, name};
use crate::{Error, MAX_VALUE_BYTES};
use mainstay_core::circuit::{Circuit, Gate};
use mainstay_core::failure::{Class, Failure};
use mainstay_core::json::{self, Bounds};
use mainstay_core::names::{Reserved, check_unreserved};
use mainstay_core::retry::RetryPolicy;
use mainstay_core::trace::TraceContext;
use mainstay_store::{Cause, Tx};
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
    /// The ended item that this call reports on, if it does. The engine says so, and no caller can: what has the right function,
    /// args and context but was enqueued like any other item has nothing here.
    pub completes: Option<Completes>,
    /// The dead letter that the item tries again, if it does.
    pub retry_of: Option<String>,
    /// Where this execution stands in the trace of its item: what it causes is caused by this step.
    pub trace: Option<TraceContext>,
    /// The correlation, causation, tenant and trace that records of this execution inherit while the function runs. A task
    /// that the function spawns is given them with [`Cause::scope`].
    pub cause: Cause,
    /// Tells when the item is to stop.
    pub cancel: Cancel,
}

impl Call {
    /// Whether this is an execution of an item, or of a retry of it.
    pub fn is_of(&self, work_id: &str) -> bool {
        self.work_id == work_id || self.retry_of.as_deref() == Some(work_id)
    }

    /// The same for every execution of the item, for whoever must recognise repeats.
    pub fn idempotency_key(&self) -> &str {
        &self.work_id
    }
}

/// The ended item that a call reports on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completes {
    /// The item.
    pub work_id: String,
    /// The item's function. Unknown in items that an earlier version enqueued.
    pub function: Option<String>,
    /// The dead letter that it tried again, if it did.
    pub retry_of: Option<String>,
}

impl Completes {
    /// Whether this is the end of an item, or of a retry of it.
    pub fn is_of(&self, work_id: &str) -> bool {
        self.work_id == work_id || self.retry_of.as_deref() == Some(work_id)
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
pub(crate) type MutationBody =
    dyn Fn(Tx, Call) -> Running<mainstay_store::Result<Box<RawValue>>> + Send + Sync;

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
    /// Its treatment of the failures that it is told of.
    pub(crate) recording: Recording,
    /// Whether it is one of the platform's that are told how items end, and that check the end by rows of their own.
    pub(crate) is_told: bool,
}

/// The treatment of failures by an `onComplete` function. It decides whether an operator may retry the failed item.
///
/// | recording | the item's dead letter |
/// |---|---|
/// | `Nothing` | is there at once |
/// | `Final` | there is none: the record is the item's end, and a retry would contradict it |
/// | `Correctable` | is there once the failure is recorded, so that a retry that succeeds can correct the record |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recording {
    /// Nothing that a retry could contradict.
    #[default]
    Nothing,
    /// A record that stays as it is.
    Final,
    /// A record that the success of a retry corrects.
    Correctable,
}

impl Recording {
    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Nothing => 0,
            Self::Final => 1,
            Self::Correctable => 2,
        }
    }

    pub(crate) fn of(number: i64) -> Self {
        match number {
            0 => Self::Nothing,
            2 => Self::Correctable,
            _ => Self::Final,
        }
    }
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
    fn new(body: Body, check: Arc<Check>) -> Self {
        Self { body, check, retry: None, recording: Recording::default(), is_told: false }
    }

    pub(crate) fn kind(&self) -> FunctionKind {
        match self.body {
            Body::Action { .. } => FunctionKind::Action,
            Body::Mutation(_) => FunctionKind::Mutation,
        }
    }
}

/// The functions that a node can run, by name.
#[derive(Clone, Default)]
pub struct Functions {
    all: BTreeMap<String, Function>,
    circuits: BTreeMap<String, Arc<dyn Circuit>>,
    /// The first function with a name of the platform. Work is not opened with such functions.
    reserved: Option<Reserved>,
}

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
    pub fn action_within<A, R, F, Fut>(self, timeout: Duration, name: impl Into<String>, run: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        F: Fn(Call, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        self.own(name, typed_action(timeout, run))
    }

    /// As [`action`](Self::action), for a function of the platform. Only for code of the platform.
    #[doc(hidden)]
    pub fn platform_action<A, R, F, Fut>(self, name: impl Into<String>, run: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        F: Fn(Call, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        self.platform_action_within(ACTION_TIMEOUT, name, run)
    }

    /// As [`action_within`](Self::action_within), for a function of the platform. Only for code of the platform.
    #[doc(hidden)]
    pub fn platform_action_within<A, R, F, Fut>(
        self,
        timeout: Duration,
        name: impl Into<String>,
        run: F,
    ) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        F: Fn(Call, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        self.put(name.into(), typed_action(timeout, run))
    }

    /// Adds an action over bare JSON, whose arguments nobody here knows the type of.
    pub fn raw_action<F, Fut>(self, timeout: Duration, name: impl Into<String>, run: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ActionAnswer> + Send + 'static,
    {
        let body = move |call: Call| -> Running<ActionAnswer> {
            let running = run(call);
            Box::pin(async move {
                let value = running.await?;
                check_returned(&value).map_err(Failure::permanent)?;
                Ok(value)
            })
        };
        let body = Body::Action { run: Arc::new(body), timeout };
        self.own(name, Function::new(body, Arc::new(|_| Ok(()))))
    }

    /// Adds a mutation. An `onComplete` is one whose argument is an [`OnComplete`](crate::OnComplete).
    ///
    /// It obeys the rules of a transaction. What it fails with counts as retryable, unless it is a
    /// [`Failure`] in [`Error::application`](mainstay_store::Error::application) that says otherwise.
    pub fn mutation<A, R, F, Fut>(self, name: impl Into<String>, run: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        F: Fn(Tx, Call, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<R>> + Send + 'static,
    {
        self.own(name, typed_mutation(run))
    }

    /// As [`mutation`](Self::mutation), for a function of the platform. Only for code of the platform.
    #[doc(hidden)]
    pub fn platform_mutation<A, R, F, Fut>(self, name: impl Into<String>, run: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        F: Fn(Tx, Call, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<R>> + Send + 'static,
    {
        self.put(name.into(), typed_mutation(run))
    }

    /// A mutation of the platform that is told how items end. It runs only when the engine says that the call tells the
    /// end of that very item; anything else is refused for good. Only for code of the platform.
    #[doc(hidden)]
    pub fn platform_on_complete<C, F, Fut>(self, name: impl Into<String>, run: F) -> Self
    where
        C: DeserializeOwned + Send + 'static,
        F: Fn(Tx, Call, OnComplete<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<()>> + Send + 'static,
    {
        self.put(name.into(), Function { is_told: true, ..typed_mutation(of_ended_items(run)) })
    }

    /// Adds a mutation that is told how items end. While it fails it is told again by itself, as `retry` says instead of the
    /// pool that the item was in; then it is a dead letter.
    ///
    /// It runs only when the engine tells the end of an item. A call that a caller enqueues with invented arguments is
    /// refused for good.
    pub fn on_complete<C, F, Fut>(self, name: impl Into<String>, retry: RetryPolicy, run: F) -> Self
    where
        C: DeserializeOwned + Send + 'static,
        F: Fn(Tx, Call, OnComplete<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<()>> + Send + 'static,
    {
        let name = name.into();
        let mut functions = self.mutation(name.clone(), of_ended_items(run));
        if let Some(function) = functions.all.get_mut(&name) {
            function.retry = Some(retry);
        }
        functions
    }

    /// Declares how a function treats the failures that it is told of. Without a function of this name nothing changes.
    pub fn recording(mut self, name: &str, recording: Recording) -> Self {
        if let Some(function) = self.all.get_mut(name) {
            function.recording = recording;
        }
        self
    }

    /// Puts a circuit before an action: while it is open, items wait and spend no attempts, and the first one that is
    /// taken afterwards is the probe.
    pub fn behind(mut self, name: impl Into<String>, circuit: Arc<dyn Circuit>) -> Self {
        let name = name.into();
        self.note_reserved(&name);
        self.platform_behind(name, circuit)
    }

    /// As [`behind`](Self::behind), for a function of the platform. Only for code of the platform.
    #[doc(hidden)]
    pub fn platform_behind(mut self, name: impl Into<String>, circuit: Arc<dyn Circuit>) -> Self {
        self.circuits.insert(name.into(), circuit);
        self
    }

    /// Adds a function that an author has written.
    fn own(mut self, name: impl Into<String>, function: Function) -> Self {
        let name = name.into();
        match self.note_reserved(&name) {
            true => self,
            false => self.put(name, function),
        }
    }

    fn put(mut self, name: String, function: Function) -> Self {
        self.all.insert(name, function);
        self
    }

    /// Notes a name that only the platform may use; whether it is one.
    fn note_reserved(&mut self, name: &str) -> bool {
        let reserved = check_unreserved(&format!("function {name:?}"), name).err();
        let is_reserved = reserved.is_some();
        self.reserved = self.reserved.take().or(reserved);
        is_reserved
    }

    /// These functions and `added`, if all of them can be registered.
    pub(crate) fn with(&self, added: &Self) -> crate::Result<Self> {
        if let Some(reserved) = &added.reserved {
            return Err(reserved.clone().into());
        }
        let mut all = self.clone();
        for (function, body) in &added.all {
            name("function", function)?;
            if all.all.insert(function.clone(), body.clone()).is_some() {
                return Err(Error::invalid("function", format!("{function:?} is registered already")));
            }
        }
        for (function, circuit) in &added.circuits {
            if all.get(function).map(Function::kind) != Some(FunctionKind::Action) {
                return Err(Error::invalid("circuit", format!("{function:?} is no action of this node")));
            }
            all.circuits.insert(function.clone(), circuit.clone());
        }
        Ok(all)
    }

    /// The circuit before a function.
    pub(crate) fn circuit(&self, name: &str) -> Option<&Arc<dyn Circuit>> {
        self.circuits.get(name)
    }

    /// The circuits, by the functions that they are before.
    pub(crate) fn circuits(&self) -> impl Iterator<Item = (&str, &Arc<dyn Circuit>)> {
        self.circuits.iter().map(|(name, circuit)| (name.as_str(), circuit))
    }

    /// Whether this node may carry a function out at this moment.
    pub(crate) fn gate(&self, name: &str) -> Option<Gate> {
        self.get(name).map(|_| self.circuit(name).map_or(Gate::Open, |circuit| circuit.gate()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Function> {
        self.all.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Function)> {
        self.all.iter().map(|(name, function)| (name.as_str(), function))
    }
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_set().entries(self.all.keys()).finish()
    }
}

/// An action over args of one type.
fn typed_action<A, R, F, Fut>(timeout: Duration, run: F) -> Function
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
    let body = Body::Action { run: Arc::new(body), timeout };
    Function::new(body, checking::<A>())
}

/// A mutation over args of one type.
fn typed_mutation<A, R, F, Fut>(run: F) -> Function
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
            let args = parse::<A>(&call.args).map_err(|reason| refused(format!("args: {reason}")))?;
            let value = run(tx, call, args).await?;
            returned(&value).map_err(refused)
        })
    };
    Function::new(Body::Mutation(Arc::new(body)), checking::<A>())
}

/// A mutation that is told how items end, and runs only for the end that the engine tells in this very call: what the arguments
/// claim decides nothing.
fn of_ended_items<C, F, Fut>(
    run: F,
) -> impl Fn(Tx, Call, OnComplete<C>) -> Running<mainstay_store::Result<()>> + Send + Sync + 'static
where
    C: Send + 'static,
    F: Fn(Tx, Call, OnComplete<C>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = mainstay_store::Result<()>> + Send + 'static,
{
    move |tx, call, mut told| {
        let Some(ended) = call.completes.as_ref().filter(|ended| ended.work_id == told.work_id) else {
            let reason = format!("work {} has not ended in this call", told.work_id);
            return Box::pin(async move { Err(refused(reason)) });
        };
        told.retry_of.clone_from(&ended.retry_of);
        Box::pin(run(tx, call, told))
    }
}

/// A failure that trying again cannot mend.
fn refused(reason: String) -> mainstay_store::Error {
    mainstay_store::Error::application(Failure::new(Class::ValidationError, reason))
}

fn checking<A: DeserializeOwned>() -> Arc<Check> {
    Arc::new(|args| parse::<A>(args).map(drop))
}

fn parse<A: DeserializeOwned>(args: &RawValue) -> Result<A, String> {
    serde_json::from_str(args.get()).map_err(|error| error.to_string())
}

fn returned(value: &impl Serialize) -> Result<Box<RawValue>, String> {
    let value = serde_json::value::to_raw_value(value).map_err(|error| format!("return value: {error}"))?;
    check_returned(&value)?;
    Ok(value)
}

fn check_returned(value: &RawValue) -> Result<(), String> {
    let checked = json::check(value.get().as_bytes(), Bounds::bytes(MAX_VALUE_BYTES));
    checked.map_err(|error| format!("return value: {error}"))
}
