//! One HTTP function, and a call of it.

use super::client::Client;
use super::confided::Confided;
use super::reply::{self, Bounds};
use super::signature::{Secret, sign};
use crate::egress::Egress;
use http_body_util::Full;
use hyper::Uri;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, USER_AGENT};
use mainstay_core::circuit::{Admitted, Circuit};
use mainstay_core::failure::{Class, Failure};
use mainstay_core::secrets::HIDDEN;
use mainstay_core::trace::TraceContext;
use serde::Serialize;
use serde_json::value::RawValue;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a call may take when nobody says otherwise.
const TIMEOUT_MS: u64 = 10_000;
/// Longest reply when nobody says otherwise: what an event may hold.
const MAX_REPLY_BYTES: usize = 64 << 10;

/// A day: longer than anybody should wait on one connection.
const MOST_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1_000;
/// A reply is held in memory, and many are at once.
const MOST_REPLY_BYTES: u64 = 64 << 20;

/// How a function is called.
#[derive(Clone)]
pub struct HttpConfig {
    /// Where it is: `http://` or `https://`, without credentials.
    pub url: String,
    /// The time for all of a call, from looking up the name to the last byte of the reply.
    pub timeout_ms: u64,
    /// What calls are signed with: nothing, one secret, or two while one replaces the other.
    pub secrets: Vec<Secret>,
    /// What is asked before a call and told how it ended.
    pub circuit: Option<Arc<dyn Circuit>>,
    /// Longest reply that is read.
    pub max_reply_bytes: usize,
}

impl HttpConfig {
    /// A function at a URL: ten seconds, 64 KiB, not signed, no circuit.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            timeout_ms: TIMEOUT_MS,
            secrets: Vec::new(),
            circuit: None,
            max_reply_bytes: MAX_REPLY_BYTES,
        }
    }
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HttpConfig")
            .field("url", &self.url.split('?').next())
            .field("timeout_ms", &self.timeout_ms)
            .field("secrets", &self.secrets)
            .field("circuit", &self.circuit.is_some())
            .field("max_reply_bytes", &self.max_reply_bytes)
            .finish()
    }
}

/// Why a function cannot be called as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The URL is none, or not one of HTTP.
    #[error("url: {0:?} is no URL of a function; one looks like https://example.com/send")]
    BadUrl(String),
    /// The URL holds a user or a password, which would end up in logs.
    #[error("url: credentials do not belong into the URL; calls are signed with `secret`")]
    Credentials,
    /// A time or a length of nothing, or beyond all reason.
    #[error("{name} must be 1 to {most}")]
    OutOfRange {
        /// Which one.
        name: &'static str,
        /// Its largest value.
        most: u64,
    },
    /// `https` without anybody to trust.
    #[error("url: https needs trusted certificates, and this machine has none; install ca-certificates")]
    NobodyTrusted,
}

/// One call of a function.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The work that is carried out.
    pub work_id: &'a str,
    /// The function's name.
    pub function: &'a str,
    /// Which execution this is, from 1.
    pub attempt: u32,
    /// Its arguments.
    pub args: &'a RawValue,
    /// What the caller wants to have beside them.
    pub context: Option<&'a RawValue>,
    /// Where the call stands in a trace.
    pub trace: &'a TraceContext,
    /// The same for every attempt of the same work.
    pub idempotency_key: &'a str,
    /// The time that the signature tells.
    pub now_ms: i64,
}

/// Something that is sent as it is, and whose receiver has nothing to say but that it came.
#[derive(Debug, Clone, Copy)]
pub struct Post<'a> {
    /// What is sent.
    pub body: &'a [u8],
    /// What it is: `application/cloudevents+json`.
    pub content_type: &'a str,
    /// Where it stands in a trace.
    pub trace: &'a TraceContext,
    /// The same for every attempt.
    pub idempotency_key: &'a str,
    /// The time that the signature tells.
    pub now_ms: i64,
}

/// The body of a call.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    work_id: &'a str,
    function: &'a str,
    attempt: u32,
    args: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a RawValue>,
    trace: &'a TraceContext,
}

/// A function that is carried out by an endpoint. Cheap to clone and to share.
#[derive(Clone)]
pub struct HttpFunction {
    config: Arc<HttpConfig>,
    uri: Uri,
    client: Client,
}

impl HttpFunction {
    /// A function with connections of its own.
    pub fn new(config: HttpConfig, egress: Arc<Egress>) -> Result<Self, ConfigError> {
        Self::with_client(config, Client::new(egress))
    }

    /// A function that shares the connections of a client.
    pub fn with_client(config: HttpConfig, client: Client) -> Result<Self, ConfigError> {
        let bad = || ConfigError::BadUrl(without_secrets(&config.url));
        let uri: Uri = config.url.parse().map_err(|_| bad())?;
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or_else(bad)?;
        if authority.as_str().contains('@') {
            return Err(ConfigError::Credentials);
        }
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") if client.trusts_somebody() => {}
            Some("https") => return Err(ConfigError::NobodyTrusted),
            _ => return Err(bad()),
        }
        let reply_bytes = config.max_reply_bytes as u64;
        for (name, value, most) in [
            ("timeoutMs", config.timeout_ms, MOST_TIMEOUT_MS),
            ("maxReplyBytes", reply_bytes, MOST_REPLY_BYTES),
        ] {
            if !(1..=most).contains(&value) {
                return Err(ConfigError::OutOfRange { name, most });
            }
        }
        Ok(Self { config: Arc::new(config), uri, client })
    }

    /// The function without its circuit, for whoever asks that before.
    pub(crate) fn without_circuit(self) -> (Self, Option<Arc<dyn Circuit>>) {
        let Some(circuit) = self.config.circuit.clone() else { return (self, None) };
        let config = HttpConfig { circuit: None, ..(*self.config).clone() };
        (Self { config: Arc::new(config), ..self }, Some(circuit))
    }

    /// The time for all of a call.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.config.timeout_ms)
    }

    /// Calls the function, and returns its value or why there is none.
    pub async fn call(&self, request: &Request<'_>) -> Result<Box<RawValue>, Failure> {
        let body = body(request)?;
        let Request { trace, idempotency_key, now_ms, .. } = *request;
        let post = Post { body: &body, content_type: "application/json", trace, idempotency_key, now_ms };
        let message = self.signed(&post)?;
        let admitted = match self.config.circuit.as_deref() {
            Some(circuit) => Some(Admitted::by(circuit).await?),
            None => None,
        };
        let ended = self.exchange(message, now_ms).await.map_err(|failure| self.named(&failure, &post));
        if let Some(admitted) = admitted {
            admitted.record((&ended).into());
        }
        ended
    }

    /// Sends something. Any 2xx says that it came, whatever stands below it. A circuit is not asked: whoever has one
    /// before this asks it.
    pub async fn post(&self, post: &Post<'_>) -> Result<(), Failure> {
        let message = self.signed(post)?;
        let sent = async {
            let (response, bounds) = self.send(message, post.now_ms).await?;
            reply::acknowledged(response, &bounds).await
        };
        sent.await.map_err(|failure| self.named(&failure, post))
    }

    async fn exchange(
        &self,
        message: hyper::Request<Full<Bytes>>,
        now_ms: i64,
    ) -> Result<Box<RawValue>, Failure> {
        let (response, bounds) = self.send(message, now_ms).await?;
        reply::read(response, &bounds).await
    }

    async fn send(
        &self,
        message: hyper::Request<Full<Bytes>>,
        now_ms: i64,
    ) -> Result<(hyper::Response<Incoming>, Bounds), Failure> {
        let HttpConfig { timeout_ms, max_reply_bytes, .. } = *self.config;
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        let bounds = Bounds { deadline, timeout_ms, max_reply_bytes, now_ms };
        let response = timeout_at(deadline, self.client.send(message)).await.map_err(|_| bounds.late())??;
        Ok((response, bounds))
    }

    fn signed(&self, post: &Post<'_>) -> Result<hyper::Request<Full<Bytes>>, Failure> {
        let unfit =
            |what: &str| Failure::new(Class::InvalidMessage, format!("{what} cannot be sent in a header"));
        let key = HeaderValue::from_bytes(post.idempotency_key.as_bytes());
        let mut message = hyper::Request::post(self.uri.clone())
            .header(CONTENT_TYPE, post.content_type)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("mainstay/", env!("CARGO_PKG_VERSION")))
            .header("idempotency-key", key.map_err(|_| unfit("the idempotency key"))?);
        if let Some(traceparent) = post.trace.to_traceparent() {
            message = message.header("traceparent", traceparent);
        }
        if !self.config.secrets.is_empty() {
            message =
                message.header("mainstay-signature", sign(&self.config.secrets, post.body, post.now_ms));
        }
        message.body(Full::new(Bytes::copy_from_slice(post.body))).map_err(|_| unfit("the request"))
    }

    /// The failure with where it happened, without what the endpoint was told in confidence.
    fn named(&self, failure: &Failure, post: &Post<'_>) -> Failure {
        let (scheme, authority) = (self.uri.scheme_str(), self.uri.authority());
        let (scheme, authority) =
            (scheme.unwrap_or_default(), authority.map_or("", |authority| authority.as_str()));
        // What cannot be read may be what the endpoint repeats.
        let told = self.confided(post).map(|confided| confided.hidden_in(failure.message()));
        let told = told.unwrap_or_else(|| HIDDEN.to_owned());
        let text = format!("POST {scheme}://{authority}{}: {told}", self.uri.path());
        let named = Failure::new(failure.class(), text);
        match failure.retry_after_ms() {
            Some(wait_ms) => named.with_retry_after_ms(wait_ms),
            None => named,
        }
    }

    /// Nothing if the body cannot be read: one with arguments that an earlier version has kept, nested too deep.
    fn confided(&self, post: &Post<'_>) -> Option<Confided> {
        let mut confided = Confided::new();
        self.uri.query().iter().for_each(|query| confided.add_query(query));
        confided.add_body(post.body)?;
        let secrets = &self.config.secrets;
        secrets.iter().filter_map(Secret::text).for_each(|secret| confided.add(secret));
        sign(secrets, post.body, post.now_ms).split(",v1=").skip(1).for_each(|code| confided.add(code));
        Some(confided)
    }
}

/// A URL that cannot be read, without what may be a password or a key in it.
fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.rsplit_once('@') {
        Some((_, rest)) => format!("…@{rest}"),
        None => url.to_owned(),
    }
}

fn body(request: &Request<'_>) -> Result<Vec<u8>, Failure> {
    let Request { work_id, function, attempt, args, context, trace, .. } = *request;
    serde_json::to_vec(&Body { work_id, function, attempt, args, context, trace })
        .map_err(|error| Failure::new(Class::InvalidMessage, error.to_string()))
}

impl fmt::Debug for HttpFunction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(out)
    }
}
