//! Targets elsewhere: events are posted to them, signed.

use super::cloud::{CONTENT_TYPE, CloudEvent};
use super::target::{Delivery, Transport};
use crate::error::{Error, Result};
use futures_util::future::BoxFuture;
use mainstay_core::failure::{Class, Failure};
use mainstay_work::egress::Egress;
use mainstay_work::http::{Client, HttpConfig, HttpFunction, Post};
use std::sync::Arc;
use std::time::Duration;

/// A target's endpoint. An event is a `POST` of CloudEvents 1.0 in structured JSON, with `Idempotency-Key`,
/// `traceparent` and `Mainstay-Signature`; any 2xx says that it came. It obeys the rules of HTTP functions: only
/// addresses that [`Egress`] lets through are reached, redirects are not followed, and all of it has one timeout.
#[derive(Debug, Clone)]
pub struct Webhook(HttpFunction);

impl Webhook {
    /// An endpoint with connections of its own. The secrets of `config` are all signed with: two while one replaces the
    /// other.
    pub fn new(config: HttpConfig, egress: Arc<Egress>) -> Result<Self> {
        Self::with_client(config, Client::new(egress))
    }

    /// An endpoint that shares the connections of a client.
    pub fn with_client(config: HttpConfig, client: Client) -> Result<Self> {
        if config.circuit.is_some() {
            return Err(Error::invalid("circuit", "stands before the target: Target::behind"));
        }
        let function = HttpFunction::with_client(config, client);
        Ok(Self(function.map_err(|error| Error::invalid("webhook", error.to_string()))?))
    }
}

impl From<HttpFunction> for Webhook {
    /// An endpoint that is called as an HTTP function is; its circuit, if it has one, is not asked.
    fn from(function: HttpFunction) -> Self {
        Self(function)
    }
}

impl Transport for Webhook {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'static, std::result::Result<(), Failure>> {
        let function = self.0.clone();
        Box::pin(async move {
            let Delivery { event, source_context, idempotency_key, trace, now_ms, .. } = &delivery;
            let body = serde_json::to_vec(&CloudEvent::new(event, source_context, idempotency_key))
                .map_err(|error| Failure::new(Class::InvalidMessage, error.to_string()))?;
            let (content_type, now_ms) = (CONTENT_TYPE, *now_ms);
            function.post(&Post { body: &body, content_type, trace, idempotency_key, now_ms }).await
        })
    }

    fn timeout(&self) -> Duration {
        self.0.timeout()
    }
}
