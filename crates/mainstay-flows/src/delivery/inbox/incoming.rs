//! An inbox in axum: what was sent as an extractor, and what came of it as an answer.

use super::receive::{Inbox, Received, Reception};
use super::wire;
use crate::delivery::publications::CloudEvent;
use crate::error::Error;
use axum::extract::{FromRef, FromRequest, Request};
use axum::response::{IntoResponse, Response};
use mainstay_store::Tx;

/// An event that came to the [`Inbox`] of a router's state, from a sender who is known. A request whose signature is wrong
/// or old, or that is no event, is answered before the handler is called.
///
#[cfg_attr(feature = "sqlite", doc = "```")]
#[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
/// use axum::{Router, routing::post};
/// use mainstay_flows::delivery::inbox::{self, Inbox, Incoming, Received, Reception, Refused};
/// use mainstay_store::{Options, Tx, params};
/// use mainstay_work::http::Secret;
///
/// async fn take(incoming: Incoming) -> Result<Reception, Refused> {
///     let note = async |tx: Tx, received: Received| {
///         let sql = "INSERT INTO orders (event_id) VALUES ($1)";
///         tx.execute(sql, params![received.event.id]).await.map(drop)
///     };
///     incoming.once(note).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Options::new("sqlite::memory:").component(inbox::COMPONENT).open().await?;
/// let inbox = Inbox::new(&store, "inventory", Secret::new("whsec"))?;
/// let router: Router = Router::new().route("/events", post(take)).with_state(inbox);
/// # drop(router);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Incoming {
    inbox: Inbox,
    received: Received,
}

impl Incoming {
    /// The event, to decide by; what is written because of it belongs into [`once`](Self::once).
    pub fn event(&self) -> &CloudEvent {
        &self.received.event
    }

    /// The same for every attempt to deliver the event.
    pub fn idempotency_key(&self) -> &str {
        &self.received.idempotency_key
    }

    /// Gives the event to a handler unless one took it before, in one transaction with its key: see [`Inbox::receive`].
    pub async fn once<F, Fut>(self, handler: F) -> Result<Reception, Refused>
    where
        F: Fn(Tx, Received) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<()>> + Send + 'static,
    {
        Ok(self.inbox.receive(self.received, handler).await?)
    }
}

impl<S> FromRequest<S> for Incoming
where
    Inbox: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let inbox = Inbox::from_ref(state);
        let received = wire::read(&inbox, request).await?;
        Ok(Self { inbox, received })
    }
}

/// Why an event was not taken. As an answer it is a problem document with the error's code, whose status tells the sender
/// whether to try again.
#[derive(Debug)]
pub struct Refused(pub Error);

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        wire::problem(&self.0)
    }
}

impl IntoResponse for Reception {
    fn into_response(self) -> Response {
        wire::taken(self)
    }
}
