//! Which handler decides about which command.

use super::MAX_VALUE_BYTES;
use super::command::name;
use super::decision::Decision;
use super::dispatch::Shared;
use super::handling::Handling;
use super::pipeline::{Middleware, Pipeline};
use super::retry;
use crate::error::{Error, Result};
use mainstay_work::Functions;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};

/// A boxed future of a handler.
pub(super) type Deciding =
    Pin<Box<dyn Future<Output = mainstay_store::Result<Decision<Box<RawValue>>>> + Send>>;
type Decide = dyn Fn(Handling) -> Deciding + Send + Sync;
type Check = dyn Fn(&RawValue) -> std::result::Result<(), String> + Send + Sync;

/// What decides about commands of one type.
#[derive(Clone)]
pub(super) struct Handler {
    pub(super) decide: Arc<Decide>,
    /// Whether a payload is of the type that the handler takes.
    pub(super) check: Arc<Check>,
}

/// The commands that a node can decide about, and what they pass before that.
#[derive(Clone, Default)]
pub struct Commands {
    handlers: BTreeMap<String, Handler>,
    pipeline: Pipeline,
    /// What retries are carried out by, once it is there.
    dispatcher: Arc<OnceLock<Weak<Shared>>>,
}

impl Commands {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler. It runs in the transaction that records the command, may run more than once, and waits for nothing
    /// but its own statements.
    pub fn on<A, T, F, Fut>(mut self, command_type: impl Into<String>, decide: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        T: Serialize + 'static,
        F: Fn(Handling, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<Decision<T>>> + Send + 'static,
    {
        let decide = Arc::new(decide);
        let body = move |handling: Handling| -> Deciding {
            let decide = decide.clone();
            Box::pin(async move {
                let payload: A = parse(&handling.issued.payload)
                    .map_err(|reason| Error::Handler { reason: format!("payload: {reason}") })?;
                Ok(match decide(handling, payload).await? {
                    Decision::Success { data, events } => Decision::Success { data: result(&data)?, events },
                    Decision::Rejected { code, reason, context } => {
                        Decision::Rejected { code, reason, context }
                    }
                    Decision::Failed { reason, events } => Decision::Failed { reason, events },
                })
            })
        };
        let check = Arc::new(|payload: &RawValue| parse::<A>(payload).map(drop));
        self.handlers.insert(command_type.into(), Handler { decide: Arc::new(body), check });
        self
    }

    /// Puts something before every command.
    pub fn with(mut self, middleware: impl Middleware + 'static) -> Self {
        self.pipeline.add(Arc::new(middleware));
        self
    }

    /// Adds the functions by which commands that were overtaken are decided again. Give them to
    /// [`Work::open`](mainstay_work::Work::open).
    pub fn functions(&self, functions: Functions) -> Functions {
        retry::functions(functions, self.dispatcher.clone())
    }

    /// The types of command that there are handlers for.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }

    pub(super) fn check(&self) -> Result<()> {
        self.handlers.keys().try_for_each(|command_type| name("commandType", command_type))
    }

    pub(super) fn handler(&self, command_type: &str) -> Result<&Handler> {
        self.handlers.get(command_type).ok_or_else(|| Error::UnknownCommand(command_type.to_owned()))
    }

    pub(super) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    pub(super) fn carried_out_by(&self, dispatcher: &Arc<Shared>) -> Result<()> {
        let is_first = self.dispatcher.set(Arc::downgrade(dispatcher)).is_ok();
        is_first.then_some(()).ok_or_else(|| Error::invalid("commands", "are those of another dispatcher"))
    }
}

fn parse<A: DeserializeOwned>(payload: &RawValue) -> std::result::Result<A, String> {
    serde_json::from_str(payload.get()).map_err(|error| error.to_string())
}

fn result(data: &impl Serialize) -> Result<Box<RawValue>> {
    let data = to_raw_value(data).map_err(|error| Error::Handler { reason: format!("result: {error}") })?;
    match data.get().len() {
        bytes if bytes > MAX_VALUE_BYTES => Err(Error::TooLarge { field: "result".into(), bytes }),
        _ => Ok(data),
    }
}
