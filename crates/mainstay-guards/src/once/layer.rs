//! The tower layer.

use super::body::AnswerBody;
use super::execution::{Settings, carry_out, refuse};
use super::keeper::{Id, Keeper};
use super::key::{self, Invalid};
use crate::error::{CALLER_UNKNOWN, GUARD_INVALID, IDEMPOTENCY_KEY_INVALID, IDEMPOTENCY_KEY_MISSING};
use crate::http::{Head, Key, WithoutKey};
use crate::limits::check_key;
use bytes::Bytes;
use http::header::{CONTENT_LOCATION, CONTENT_TYPE, ETAG, LINK, LOCATION};
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body::Body;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// Lets requests with an `Idempotency-Key` run once, and answers their repeats as the first one was answered.
///
/// Without being told otherwise: `POST` and `PATCH`, if they have a key; answers are kept for a day, up to 64 KiB each with
/// the headers that say what they are; a process that died holds a key for half a minute; bodies of requests have at most
/// 1 MiB. A repeat has the header `Idempotency-Replayed: true`.
#[derive(Clone)]
pub struct OnceLayer {
    settings: Arc<Settings>,
}

impl OnceLayer {
    /// Answers kept by `keeper`, for each caller apart. A request whose caller is not known is refused.
    pub fn new(keeper: impl Keeper + 'static, caller: Key) -> Self {
        let settings = Settings {
            keeper: Arc::new(keeper),
            caller,
            without_caller: WithoutKey::Refuse,
            methods: vec![Method::POST, Method::PATCH],
            is_required: false,
            lease: Duration::from_secs(30),
            keep: Duration::from_secs(24 * 3_600),
            max_body_bytes: 1024 * 1024,
            max_answer_bytes: 64 * 1024,
            headers: vec![CONTENT_TYPE, CONTENT_LOCATION, LOCATION, ETAG, LINK],
            keeps: Arc::new(says_that_something_was_done),
        };
        Self { settings: Arc::new(settings) }
    }

    /// What happens to requests with a key whose caller is not known. Those that share one can see each other's answers if
    /// they guess each other's keys.
    pub fn without_caller(self, without_caller: WithoutKey) -> Self {
        self.with(|settings| settings.without_caller = without_caller)
    }

    /// Other methods than `POST` and `PATCH`.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.with(|settings| settings.methods = methods.into_iter().collect())
    }

    /// Refuses requests of these methods that have no key.
    pub fn required(self) -> Self {
        self.with(|settings| settings.is_required = true)
    }

    /// How long a key is held by a process that has died. It is extended while a request runs.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|settings| settings.lease = lease.max(Duration::from_millis(3)))
    }

    /// How long answers are kept.
    pub fn keep_for(self, keep: Duration) -> Self {
        self.with(|settings| settings.keep = keep)
    }

    /// The largest body of a request with a key.
    pub fn max_body_bytes(self, max_body_bytes: usize) -> Self {
        self.with(|settings| settings.max_body_bytes = max_body_bytes)
    }

    /// The largest answer that is kept, headers included. A larger one is given once; its repeats are told that it was.
    pub fn max_answer_bytes(self, max_answer_bytes: usize) -> Self {
        self.with(|settings| settings.max_answer_bytes = max_answer_bytes)
    }

    /// Keeps a header too. What belongs to one answer only, such as a cookie or a date, should not be kept.
    pub fn keep_header(self, header: HeaderName) -> Self {
        self.with(|settings| settings.headers.push(header))
    }

    /// Which answers are kept, instead of all but 408, 425, 429 and 503. After one that is not, the same key runs again.
    pub fn keep_if(self, keeps: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.keeps = Arc::new(keeps))
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

fn says_that_something_was_done(status: StatusCode) -> bool {
    !matches!(status.as_u16(), 408 | 425 | 429 | 503)
}

impl<S> Layer<S> for OnceLayer {
    type Service = Once<S>;

    fn layer(&self, inner: S) -> Once<S> {
        Once { inner, settings: self.settings.clone() }
    }
}

/// A service whose requests with a key run once.
#[derive(Clone)]
pub struct Once<S> {
    inner: S,
    settings: Arc<Settings>,
}

type Answer<B> = Response<AnswerBody<B>>;

/// What is to be done with a request.
enum Way<B: Body> {
    Through,
    Once(Id),
    Refused(Answer<B>),
}

impl Settings {
    fn way<B: Body<Data = Bytes>>(&self, head: Head<'_>) -> Way<B> {
        if !self.methods.contains(head.method) {
            return Way::Through;
        }
        let key = match key::read(head.headers) {
            Ok(Some(key)) => key,
            Ok(None) if !self.is_required => return Way::Through,
            Ok(None) => {
                return Way::Refused(refuse(&IDEMPOTENCY_KEY_MISSING, IDEMPOTENCY_KEY_MISSING.meaning, None));
            }
            Err(Invalid) => {
                return Way::Refused(refuse(&IDEMPOTENCY_KEY_INVALID, IDEMPOTENCY_KEY_INVALID.meaning, None));
            }
        };
        let mut scope = String::new();
        if !self.caller.write(head, &mut scope) {
            match self.without_caller {
                WithoutKey::Share => {}
                WithoutKey::LetThrough => return Way::Through,
                WithoutKey::Refuse => {
                    return Way::Refused(refuse(&CALLER_UNKNOWN, CALLER_UNKNOWN.meaning, None));
                }
            }
        }
        match check_key(&scope) {
            Ok(()) => Way::Once(Id { scope, key }),
            Err(error) => Way::Refused(refuse(&GUARD_INVALID, &error.to_string(), None)),
        }
    }
}

impl<S, Q, B> Service<Request<Q>> for Once<S>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    Q: Body + From<Bytes> + Send + 'static,
    Q::Data: Send,
    Q::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Send,
{
    type Response = Answer<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Answer<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        match self.settings.way(Head::of(&request)) {
            Way::Through => {
                let future = self.inner.call(request);
                Box::pin(async move { future.await.map(|answer| answer.map(AnswerBody::through)) })
            }
            Way::Refused(answer) => Box::pin(std::future::ready(Ok(answer))),
            Way::Once(id) => {
                // The one that is ready makes the call; its clone may not be.
                let another = self.inner.clone();
                let inner = std::mem::replace(&mut self.inner, another);
                Box::pin(carry_out(self.settings.clone(), inner, request, id))
            }
        }
    }
}
