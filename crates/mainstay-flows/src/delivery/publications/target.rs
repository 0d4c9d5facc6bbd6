//! A context that events are delivered to, and how.

use super::event::PublicEvent;
use super::targets::Retry;
use super::webhook::Webhook;
use super::{MAX_NAME_BYTES, POOL};
use crate::error::{Error, Result};
use futures_util::future::BoxFuture;
use mainstay_core::circuit::Circuit;
use mainstay_core::failure::Failure;
use mainstay_core::names::check_unreserved;
use mainstay_core::trace::TraceContext;
use mainstay_store::Tx;
use sha2::{Digest, Sha256};
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
    /// `pub:{eventId}:{target}`, or `pub@{tenant}:{eventId}:{target}` for the event of a tenant: the same for every attempt,
    /// so that a target can recognise repeats.
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
    pub(super) fn key(&self, key: DeliveryKey) -> String {
        if self.is_ordered { format!("pub:{}", self.name) } else { key.into_text() }
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
        check_unreserved("target", &self.name).map_err(mainstay_work::Error::from)?;
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

/// The key of a delivery, for receivers and among items of work: `pub:{eventId}:{target}` (decision C19). For
/// the event of a tenant it is `pub@{tenant}:{eventId}:{target}`, with `%` and `:` of the tenant percent-encoded, so that
/// no two events have the same; where that is too long, `pub@{hash}:{target}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeliveryKey(String);

impl DeliveryKey {
    /// The key of an event of a tenant; of none if it is empty.
    pub(super) fn new(event_id: &str, target: &str, tenant: &str) -> Self {
        if tenant.is_empty() {
            return Self(format!("pub:{event_id}:{target}"));
        }
        let tenant = tenant.replace('%', "%25").replace(':', "%3A");
        let key = format!("pub@{tenant}:{event_id}:{target}");
        if key.len() <= MAX_DELIVERY_KEY_BYTES {
            return Self(key);
        }
        let hash: String = Sha256::digest(&key).iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("pub@{hash}:{target}"))
    }

    /// The key of a publication, of which only what is not usual is kept.
    pub(super) fn read(kept: Option<String>, event_id: &str, target: &str) -> Self {
        kept.map_or_else(|| Self::new(event_id, target, ""), Self)
    }

    /// The text that the row keeps.
    pub(super) fn kept(&self) -> Option<&str> {
        Some(&*self.0).filter(|key| key.starts_with("pub@"))
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// Longest key of a delivery: what an event without a tenant can have at the most.
const MAX_DELIVERY_KEY_BYTES: usize = 326;

/// Checks the name of a context.
pub(super) fn name(field: &str, text: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(());
    }
    Err(Error::invalid(field, format!("must be 1 to {MAX_NAME_BYTES} letters, digits or . _ -")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_events_have_the_same_key() {
        let long = "x".repeat(256);
        let parts = ["a", "b", "a:b", "b:a", "@a", "a%3Ab", "%", "25", &long];
        let mut keys = HashSet::new();
        for tenant in parts.iter().chain(&[""]) {
            for event_id in parts {
                let key = DeliveryKey::new(event_id, "inventory", tenant);
                assert!(key.0.len() <= MAX_DELIVERY_KEY_BYTES, "{}", key.0);
                assert!(keys.insert(key.clone().into_text()), "{tenant} {event_id}");
                let read = DeliveryKey::read(key.kept().map(str::to_owned), event_id, "inventory");
                assert_eq!(read, key);
            }
        }
        assert_eq!(DeliveryKey::new("evt-1", "inventory", "").into_text(), "pub:evt-1:inventory");
        assert_eq!(DeliveryKey::new("evt-1", "inventory", "acme").into_text(), "pub@acme:evt-1:inventory");
    }
}
