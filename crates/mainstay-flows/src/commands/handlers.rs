//! Which handler decides about which command.

use super::batch::Pace;
use super::command::{check_value, name};
use super::decider::{Decider, Decision};
use super::fold::decide_in;
use super::handling::Handling;
use super::pipeline::{Middleware, Pipeline};
use super::variant::{self, Shape};
use crate::error::{Error, Result};
use mainstay_events::NewEvent;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A boxed future of a handler.
pub(super) type Deciding =
    Pin<Box<dyn Future<Output = mainstay_store::Result<Decision<NewEvent, Box<RawValue>>>> + Send>>;
type Decide = dyn Fn(Handling) -> Deciding + Send + Sync;
type Check = dyn Fn(&str, &RawValue) -> std::result::Result<(), String> + Send + Sync;
/// Reads the payload of a command of this type.
type Read<A> = fn(&str, &RawValue) -> std::result::Result<A, String>;

/// What decides about commands of one type.
#[derive(Clone)]
pub(super) struct Handler {
    pub(super) decide: Arc<Decide>,
    /// Whether a payload is of the type that the handler takes.
    pub(super) check: Arc<Check>,
    /// How long it usually takes.
    pub(super) pace: Arc<Pace>,
    /// Whether it reads the log without saying what its decision rests on; such handlers are decided alone.
    pub(super) reads_log: Arc<AtomicBool>,
}

/// The commands that a node can decide about, and what they pass before that.
#[derive(Clone, Default)]
pub struct Commands {
    handlers: BTreeMap<String, Handler>,
    pipeline: Pipeline,
    /// What was wrong with something that was added.
    fault: Option<&'static str>,
}

impl Commands {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler. It runs in the transaction that records the command, may run more than once, and waits for nothing
    /// but its own statements. It rejects a command by a [`Rejection`](super::Rejection) as its error.
    pub fn on<A, T, F, Fut>(mut self, command_type: impl Into<String>, decide: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        T: Serialize + 'static,
        F: Fn(Handling, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<Decision<NewEvent, T>>> + Send + 'static,
    {
        self.add(command_type.into(), |_, payload| parse::<A>(payload), Arc::new(decide));
        self
    }

    /// Adds a decider. What it takes is a struct, whose name is then the type of the command, or an enum, the names of whose
    /// variants are. The state is folded in the transaction, and the events are appended only if nothing came in between.
    pub fn decider<D: Decider>(mut self, decider: D) -> Self {
        let decider = Arc::new(decider);
        let decide = move |handling: Handling, command: D::Command| {
            let decider = decider.clone();
            async move {
                let moment = handling.moment();
                let considered =
                    decide_in(handling.tx(), &handling.log, &*decider, &command, &moment).await?;
                let boundary = serde_json::to_string(&considered.condition.fail_if_events_match);
                handling.decides_on(boundary.map_err(mainstay_store::Error::application)?);
                handling.unless(considered.condition);
                Ok(considered.decided?)
            }
        };
        let decide = Arc::new(decide);
        match variant::shape::<D::Command>() {
            Shape::Struct(name) => self.add(name.to_owned(), |_, payload| parse(payload), decide),
            Shape::Enum(names) => {
                for name in names {
                    let read = |name: &str, payload: &RawValue| {
                        variant::read(name, payload.get()).map_err(|reason| reason.to_string())
                    };
                    self.add((*name).to_owned(), read, decide.clone());
                }
            }
            Shape::Other => {
                self.fault = Some("a decider takes a struct or an enum, without serde's tag or untagged");
            }
        }
        self
    }

    fn add<A, T, F, Fut>(&mut self, command_type: String, read: Read<A>, decide: Arc<F>)
    where
        A: Send + 'static,
        T: Serialize + 'static,
        F: Fn(Handling, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<Decision<NewEvent, T>>> + Send + 'static,
    {
        let body = move |handling: Handling| -> Deciding {
            let decide = decide.clone();
            Box::pin(async move {
                let payload = read(&handling.issued.command_type, &handling.issued.payload)
                    .map_err(|reason| Error::Handler { reason: format!("payload: {reason}") })?;
                Ok(match decide(handling, payload).await? {
                    Decision::Success { data, events } => Decision::Success { data: result(&data)?, events },
                    Decision::Failed { reason, events } => Decision::Failed { reason, events },
                })
            })
        };
        let check = Arc::new(move |name: &str, payload: &RawValue| read(name, payload).map(drop));
        let (pace, reads_log) = (Arc::default(), Arc::default());
        self.handlers.insert(command_type, Handler { decide: Arc::new(body), check, pace, reads_log });
    }

    /// Puts something before every command.
    pub fn with(mut self, middleware: impl Middleware + 'static) -> Self {
        self.pipeline.add(Arc::new(middleware));
        self
    }

    /// The types of command that there are handlers for.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }

    pub(super) fn check(&self) -> Result<()> {
        if let Some(fault) = self.fault {
            return Err(Error::invalid("commands", fault));
        }
        self.handlers.keys().try_for_each(|command_type| name("commandType", command_type))
    }

    pub(super) fn handler(&self, command_type: &str) -> Result<&Handler> {
        self.handlers.get(command_type).ok_or_else(|| Error::UnknownCommand(command_type.to_owned()))
    }

    pub(super) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }
}

fn parse<A: DeserializeOwned>(payload: &RawValue) -> std::result::Result<A, String> {
    serde_json::from_str(payload.get()).map_err(|error| error.to_string())
}

fn result(data: &impl Serialize) -> Result<Box<RawValue>> {
    let data = to_raw_value(data).map_err(|error| Error::Handler { reason: format!("result: {error}") })?;
    check_value("result", &data)?;
    Ok(data)
}
