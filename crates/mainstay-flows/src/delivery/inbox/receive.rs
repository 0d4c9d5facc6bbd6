//! Who sent an event, whether it is new, and giving it to its handler.

use super::claim::{claim, forget};
use super::{MAX_BODY_BYTES, MAX_KEY_BYTES};
use crate::delivery::publications::CloudEvent;
use crate::error::{Error, Result};
use mainstay_core::failpoints::Point;
use mainstay_core::failure::Failure;
use mainstay_core::json::{self, Bounds};
use mainstay_core::keys::has_control;
use mainstay_core::trace::TraceContext;
use mainstay_events::MAX_ID_BYTES;
use mainstay_store::{Cause, Store, Tx};
use mainstay_work::http::{Secret, SignatureError, verify_signature};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How far a signature's time may be from ours: as long as a request may travel, and clocks be apart.
const TOLERANCE: Duration = Duration::from_secs(300);
/// How long keys are kept: longer than a sender tries by itself, and than an operator takes to try again.
const RETENTION: Duration = Duration::from_secs(30 * 86_400);
/// After how many events old keys are forgotten.
const FORGET_EVERY: u64 = 256;

/// An event whose sender is known.
#[derive(Debug, Clone)]
pub struct Received {
    /// The event.
    pub event: CloudEvent,
    /// The same for every attempt to deliver it.
    pub idempotency_key: String,
}

impl Received {
    /// The cause of what is written because of the event: its correlation, tenant and trace, and its id as the causation.
    /// Ids of another program that records here cannot have are left out.
    pub fn cause(&self) -> Cause {
        let CloudEvent { id, correlationid, tenantid, traceparent, .. } = &self.event;
        let fits = |id: &&String| (1..=MAX_ID_BYTES).contains(&id.len()) && !has_control(id);
        let trace = traceparent.as_deref().and_then(|text| TraceContext::from_traceparent(text).ok());
        Cause {
            correlation_id: correlationid.as_ref().filter(fits).cloned(),
            causation_id: Some(id).filter(fits).cloned(),
            tenant_id: tenantid.as_ref().filter(fits).cloned(),
            trace,
        }
    }
}

/// What came of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reception {
    /// The handler has taken it.
    Handled,
    /// The handler took it before.
    Duplicate,
}

impl Reception {
    /// The name, as it stands in the answer.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Duplicate => "duplicate",
        }
    }
}

/// Takes events of those who know a secret, each once. Clones are the same.
#[derive(Clone)]
pub struct Inbox {
    store: Store,
    name: Arc<str>,
    secrets: Arc<[Secret]>,
    tolerance: Duration,
    retention: Duration,
    taken: Arc<AtomicU64>,
}

impl Inbox {
    /// An inbox in a store that was opened with [`COMPONENT`](super::COMPONENT). Whoever knows one of the secrets may
    /// send; two are for the time in which one replaces the other. Inboxes of different names do not share what they
    /// received.
    pub fn new(
        store: &Store,
        name: impl Into<String>,
        secrets: impl IntoIterator<Item = Secret>,
    ) -> Result<Self> {
        let (name, secrets): (String, Vec<Secret>) = (name.into(), secrets.into_iter().collect());
        if !(1..=128).contains(&name.len()) || name.contains(char::is_control) {
            return Err(Error::invalid("name", "must be 1 to 128 bytes without control characters"));
        }
        if secrets.is_empty() {
            return Err(Error::invalid("secrets", "without one anybody could send"));
        }
        Ok(Self {
            store: store.clone(),
            name: name.into(),
            secrets: secrets.into(),
            tolerance: TOLERANCE,
            retention: RETENTION,
            taken: Arc::default(),
        })
    }

    /// How far a signature's time may be from ours; five minutes unless said otherwise.
    pub fn tolerance(self, tolerance: Duration) -> Self {
        Self { tolerance, ..self }
    }

    /// How long keys are kept; thirty days unless said otherwise, and at least as long as a signature is good for.
    pub fn retention(self, retention: Duration) -> Self {
        Self { retention, ..self }
    }

    /// Reads a request: the headers `Mainstay-Signature` and `Idempotency-Key`, and the body.
    pub fn verify(
        &self,
        signature: Option<&str>,
        idempotency_key: Option<&str>,
        body: &[u8],
    ) -> Result<Received> {
        if body.len() > MAX_BODY_BYTES {
            return Err(Error::WebhookTooLarge { bytes: body.len() });
        }
        let signature = signature.ok_or(Error::Signature(SignatureError::Malformed))?;
        let tolerance_ms = u64::try_from(self.tolerance.as_millis()).unwrap_or(u64::MAX);
        verify_signature(&self.secrets, signature, body, self.store.clock().now_ms(), tolerance_ms)
            .map_err(Error::Signature)?;
        let event: CloudEvent =
            json::parse(body, Bounds::bytes(MAX_BODY_BYTES)).map_err(|error| match error {
                json::Error::Syntax(reason) => {
                    Error::WebhookMalformed(format!("the body is no CloudEvent: {reason}"))
                }
                error => Error::WebhookMalformed(format!("the body {error}")),
            })?;
        if event.specversion != "1.0" || event.id.is_empty() || event.source.is_empty() {
            let reason = "it must be of version 1.0 and have an id and a source";
            return Err(Error::WebhookMalformed(reason.to_owned()));
        }
        // Only what is signed counts: the header could be anybody's.
        let signed = match &event.idempotencykey {
            Some(key) => key.clone(),
            None => format!("{}:{}", event.source, event.id),
        };
        if idempotency_key.is_some_and(|header| event.idempotencykey.is_some() && header != signed) {
            let reason = "the Idempotency-Key is not that of the event";
            return Err(Error::WebhookMalformed(reason.to_owned()));
        }
        if signed.len() > MAX_KEY_BYTES || signed.contains('\0') {
            return Err(Error::WebhookMalformed(format!("its key is longer than {MAX_KEY_BYTES} bytes")));
        }
        Ok(Received { event, idempotency_key: signed })
    }

    /// Notes in a transaction that an event was received; whether it is new. What its author writes beside it happens once.
    pub async fn take_in(&self, tx: &Tx, received: &Received) -> mainstay_store::Result<bool> {
        claim(tx, &self.name, &received.idempotency_key).await
    }

    /// Gives an event to a handler, unless it was given before, in one transaction with its key. What the handler writes
    /// inherits the event's [cause](Received::cause). What the handler fails with may be tried again, unless it is a [`Failure`] in
    /// [`Error::application`](mainstay_store::Error::application) that says otherwise.
    pub async fn receive<F, Fut>(&self, received: Received, handler: F) -> Result<Reception>
    where
        F: Fn(Tx, Received) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<()>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let take = async |tx: Tx, (inbox, received, handler): (Self, Received, Arc<F>)| {
            if !inbox.take_in(&tx, &received).await? {
                return Ok(Reception::Duplicate);
            }
            let cause = received.cause();
            cause.scope(async move { handler(tx, received).await }).await?;
            inbox.store.failpoints().hit(Point::InboxHandled)?;
            Ok(Reception::Handled)
        };
        let taken =
            self.store.transact_with((self.clone(), received, handler), take).await.map_err(unhandled)?;
        if self.taken.fetch_add(1, Ordering::Relaxed).is_multiple_of(FORGET_EVERY)
            && let Err(error) = self.forget().await
        {
            tracing::warn!(%error, "old keys of an inbox were not forgotten");
        }
        Ok(taken)
    }

    /// Forgets keys that are older than the retention, as receiving does by itself; how many.
    pub async fn forget(&self) -> Result<u64> {
        // A signature from the future is good until twice the tolerance.
        let age = self.retention.max(2 * self.tolerance);
        let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let mut forgotten = 0;
        loop {
            let some = async |tx: Tx, (name, age_ms): (Arc<str>, i64)| forget(&tx, &name, age_ms).await;
            match self.store.transact_with((self.name.clone(), age_ms), some).await? {
                0 => return Ok(forgotten),
                count => forgotten += count,
            }
        }
    }
}

/// What a handler's transaction failed with.
fn unhandled(error: mainstay_store::Error) -> Error {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        let (reason, is_retryable) = (failure.to_string(), failure.is_retryable());
        return Error::NotReceived { reason, is_retryable };
    }
    match Error::from_handler(error) {
        Error::Handler { reason } => Error::NotReceived { reason, is_retryable: true },
        other => other,
    }
}
