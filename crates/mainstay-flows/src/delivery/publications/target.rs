//! A context that events are delivered to, and how.

use super::event::PublicEvent;
use super::targets::Retry;
use super::webhook::Webhook;
use super::{MAX_NAME_BYTES, POOL};
use crate::error::{Error, Result};
use futures_util::future::BoxFuture;
use mainstay_core::circuit::Circuit;
use mainstay_core::failure::Failure;
use mainstay_core::trace::TraceContext;
use mainstay_store::Tx;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long a delivery may take unless its transport says otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An event on its way to a target.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The event.
    pub event: PublicEvent,
    /// The context it comes from.
    pub source_context: String,
    /// The context it goes to.
    pub target_context: String,
    /// `pub:{eventId}:{target}`: the same for every attempt, so that a target can recognise repeats.
    pub idempotency_key: String,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// Where the attempt stands in a trace.
    pub trace: TraceContext,
    /// When the attempt was made.
    pub now_ms: i64,
}

/// A way to a target.
pub trait Transport: Send + Sync + 'static {
    /// Brings an event there. It may be brought again if nobody heard that it came; a failure says whether trying again
    /// may help.
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, std::result::Result<(), Failure>>;

    /// How long that may take.
    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}

type Handler = dyn Fn(Tx, Delivery) -> BoxFuture<'static, mainstay_store::Result<()>> + Send + Sync;
type Translator = dyn Fn(&PublicEvent) -> std::result::Result<PublicEvent, String> + Send + Sync;

/// How events come to a target.
#[derive(Clone)]
pub(super) enum Way {
    /// Outside of any transaction: at least once.
    Out(Arc<dyn Transport>),
    /// In the transaction that notes the delivery: exactly once.
    In(Arc<Handler>),
}

/// A closure as a transport.
struct Subscriber<F>(F);

impl<F, Fut> Transport for Subscriber<F>
where
    F: Fn(Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = std::result::Result<(), Failure>> + Send + 'static,
{
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, std::result::Result<(), Failure>> {
        Box::pin((self.0)(delivery))
    }
}

/// A context that events are delivered to.
#[derive(Clone)]
pub struct Target {
    pub(super) name: String,
    pub(super) way: Way,
    pub(super) circuit: Option<Arc<dyn Circuit>>,
    pub(super) is_ordered: bool,
    pub(super) translator: Option<Arc<Translator>>,
    pub(super) retry: Option<Retry>,
    pub(super) at_once: Option<u32>,
}

impl Target {
    /// A target that is reached over a transport.
    pub fn over(name: impl Into<String>, transport: impl Transport) -> Self {
        Self::new(name, Way::Out(Arc::new(transport)))
    }

    /// A target elsewhere, whose events are posted to it.
    pub fn webhook(name: impl Into<String>, webhook: Webhook) -> Self {
        Self::over(name, webhook)
    }

    /// A target in this process that does what it likes with an event, and may be given it again: after a crash, or when
    /// it failed.
    pub fn subscriber<F, Fut>(name: impl Into<String>, run: F) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<(), Failure>> + Send + 'static,
    {
        Self::over(name, Subscriber(run))
    }

    /// A target in this process that writes to the same store, in the transaction that notes the delivery: exactly once.
    /// It obeys the rules of a transaction, and has no circuit: there is nobody to wait for.
    pub fn handler<F, Fut>(name: impl Into<String>, run: F) -> Self
    where
        F: Fn(Tx, Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<()>> + Send + 'static,
    {
        Self::new(name, Way::In(Arc::new(move |tx, delivery| Box::pin(run(tx, delivery)))))
    }

    fn new(name: impl Into<String>, way: Way) -> Self {
        Self {
            name: name.into(),
            way,
            circuit: None,
            is_ordered: false,
            translator: None,
            retry: None,
            at_once: None,
        }
    }

    /// Puts a circuit before it: while that is open, events wait and spend no attempts.
    pub fn behind(self, circuit: Arc<dyn Circuit>) -> Self {
        Self { circuit: Some(circuit), ..self }
    }

    /// Delivers its events one at a time, in the order in which they were published. One that fails holds up the others
    /// until it comes or is a dead letter.
    pub fn ordered(self) -> Self {
        Self { is_ordered: true, ..self }
    }

    /// What it sees of an event of the source: another type, other data, less of both. It runs when the event is
    /// published; an event that it fails for is not delivered but a letter, and other targets are not affected.
    pub fn translate<F>(self, translator: F) -> Self
    where
        F: Fn(&PublicEvent) -> std::result::Result<PublicEvent, String> + Send + Sync + 'static,
    {
        Self { translator: Some(Arc::new(translator)), ..self }
    }

    /// How failed deliveries are tried again, instead of the way of all targets.
    pub fn retry(self, retry: Retry) -> Self {
        Self { retry: Some(retry), ..self }
    }

    /// A pool of its own, `publicationPool.{name}`, in which so many deliveries are under way at once. Without, targets
    /// share `publicationPool`, and one that hangs leaves less of it to the others.
    pub fn at_once(self, most: u32) -> Self {
        Self { at_once: Some(most), ..self }
    }

    /// The pool that its deliveries are in.
    pub(super) fn pool(&self) -> String {
        match self.at_once {
            Some(_) => format!("{POOL}.{}", self.name),
            None => POOL.to_owned(),
        }
    }

    /// The function that delivers to it: one for each target, since circuits stand before functions.
    pub(super) fn function(&self) -> String {
        format!("mainstay.publication.deliver:{}", self.name)
    }

    /// The partition key of an event's delivery (decision C19).
    pub(super) fn key(&self, event_id: &str) -> String {
        if self.is_ordered { format!("pub:{}", self.name) } else { idempotency_key(event_id, &self.name) }
    }

    /// The event as this target sees it.
    pub(super) fn translated(&self, event: &PublicEvent) -> std::result::Result<PublicEvent, Failure> {
        let Some(translator) = &self.translator else { return Ok(event.clone()) };
        let translated = catch_unwind(AssertUnwindSafe(|| translator(event)))
            .unwrap_or_else(|_| Err("it panicked".to_owned()))
            .and_then(|public| {
                let checked = public.check().map_err(|(field, reason)| format!("{field}: {reason}"));
                checked.map(|()| public)
            });
        translated.map_err(|reason| {
            let failure = format!("the translator of {} failed: {reason}", self.name);
            Failure::new(mainstay_core::failure::Class::ValidationError, failure)
        })
    }

    pub(super) fn check(&self) -> Result<()> {
        name("target", &self.name)?;
        if let (Way::In(_), Some(_)) = (&self.way, &self.circuit) {
            let reason =
                format!("{:?} is a handler of this process, before which no circuit stands", self.name);
            return Err(Error::invalid("circuit", reason));
        }
        Ok(())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Target")
            .field("name", &self.name)
            .field("is_ordered", &self.is_ordered)
            .field("circuit", &self.circuit.is_some())
            .field("translator", &self.translator.is_some())
            .finish_non_exhaustive()
    }
}

/// What makes a delivery recognisable (decision C19).
pub(super) fn idempotency_key(event_id: &str, target: &str) -> String {
    format!("pub:{event_id}:{target}")
}

/// Checks the name of a context.
pub(super) fn name(field: &str, text: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(());
    }
    Err(Error::invalid(field, format!("must be 1 to {MAX_NAME_BYTES} letters, digits or . _ -")))
}
