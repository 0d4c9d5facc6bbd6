//! The layer, its service and its future.

use super::fields::{self, POLICY, STANDING};
use super::refusal::{Refusal, is_grpc};
use super::rule::Rule;
use super::rules::{Rules, Standing, Verdict, WhenAway};
use crate::Result;
use crate::http::Head;
use http::{HeaderMap, HeaderValue, Request, Response};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// Puts rate limits before a service of HTTP. A request takes from all of them or from none.
///
/// Clients are told of their budgets in the fields `RateLimit-Policy` and `RateLimit` of every answer. A request that is
/// denied is answered with 429, `Retry-After` and a problem document of the code `RATE_LIMITED`; one of gRPC with
/// `RESOURCE_EXHAUSTED`.
pub struct RateLimitLayer<B> {
    rules: Arc<Rules>,
    body: Arc<dyn Fn(String) -> B + Send + Sync>,
    tells: bool,
}

impl<B: From<String> + 'static> RateLimitLayer<B> {
    /// A layer without limits.
    pub fn http() -> Self {
        Self::with_body(B::from)
    }
}

impl<B> RateLimitLayer<B> {
    /// A layer without limits, for services whose bodies are not made from texts as they are: with tonic,
    /// `RateLimitLayer::with_body(tonic::body::Body::new)`.
    pub fn with_body(body: impl Fn(String) -> B + Send + Sync + 'static) -> Self {
        Self { rules: Arc::new(Rules::new()), body: Arc::new(body), tells: true }
    }

    /// One more limit. They are asked one after another, those of one store together.
    pub fn rule(mut self, rule: Rule) -> Result<Self> {
        Arc::make_mut(&mut self.rules).add(rule)?;
        Ok(self)
    }

    /// What happens to requests when a limiter does not answer.
    pub fn when_away(mut self, when_away: WhenAway) -> Self {
        Arc::make_mut(&mut self.rules).when_away = when_away;
        self
    }

    /// How long a limiter may take before it counts as away, instead of a second.
    pub fn patience(mut self, patience: Duration) -> Self {
        Arc::make_mut(&mut self.rules).patience = patience;
        self
    }

    /// Tells nobody of budgets, but those who are denied when to come back.
    pub fn without_fields(self) -> Self {
        Self { tells: false, ..self }
    }

    fn refuse(&self, refusal: Refusal, is_grpc: bool, fields: Option<Fields>) -> Response<B> {
        let mut answer = refusal.answer(is_grpc).map(|text| (self.body)(text));
        if let Some(fields) = fields {
            fields.add_to(answer.headers_mut());
        }
        answer
    }

    /// What is told of budgets.
    fn fields(&self, standings: &[Standing]) -> Option<Fields> {
        if !self.tells || standings.is_empty() {
            return None;
        }
        let mut standing_text = String::with_capacity(48 * standings.len());
        let mut tell =
            |standing: &Standing| self.rules.get(standing.rule).tell(&standing.decision, &mut standing_text);
        let policy = match standings {
            [only] => tell(only),
            several => {
                let told: Vec<HeaderValue> = several.iter().map(tell).collect();
                let texts: Vec<&str> = told.iter().filter_map(|value| value.to_str().ok()).collect();
                fields::value(texts.join(", "))
            }
        };
        Some(Fields { policy, standing: fields::value(standing_text) })
    }

    /// What becomes of a request: fields for its answer, or an answer.
    fn judge(&self, verdict: Verdict, is_grpc: bool) -> std::result::Result<Option<Fields>, Response<B>> {
        match verdict {
            Verdict::Through(standings) => Ok(self.fields(&standings)),
            Verdict::Denied(standings) => {
                let refusal = Refusal::denied(&self.rules, &standings);
                Err(self.refuse(refusal, is_grpc, self.fields(&standings)))
            }
            Verdict::Refused(refusal) => Err(self.refuse(refusal, is_grpc, None)),
        }
    }
}

impl<B> fmt::Debug for RateLimitLayer<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RateLimitLayer").field("when_away", &self.rules.when_away).finish_non_exhaustive()
    }
}

impl<B> Clone for RateLimitLayer<B> {
    fn clone(&self) -> Self {
        Self { rules: self.rules.clone(), body: self.body.clone(), tells: self.tells }
    }
}

impl<S, B> Layer<S> for RateLimitLayer<B> {
    type Service = Limited<S, B>;

    fn layer(&self, inner: S) -> Self::Service {
        Limited { inner, layer: self.clone() }
    }
}

/// A service behind rate limits.
pub struct Limited<S, B> {
    inner: S,
    layer: RateLimitLayer<B>,
}

impl<S: Clone, B> Clone for Limited<S, B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, Q, B> Service<Request<Q>> for Limited<S, B>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    Q: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Limiting<S::Future, B, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let head = Head::of(&request);
        let is_grpc = is_grpc(head);
        let wants = match self.layer.rules.wants(head) {
            Ok(wants) => wants,
            Err(refusal) => return Limiting::answered(self.layer.refuse(refusal, is_grpc, None)),
        };
        let begun = self.layer.rules.begin(&wants);
        if begun.is_done(&wants) {
            let fields = self.layer.fields(&begun.standings);
            // This service, which is ready, makes the call.
            return Limiting { state: State::Through { future: self.inner.call(request), fields } };
        }
        let deciding = self.layer.rules.clone().decide(wants, begun);
        let another = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, another);
        let layer = self.layer.clone();
        let future = Box::pin(async move {
            match layer.judge(deciding.await, is_grpc) {
                Ok(fields) => {
                    let mut answer = inner.call(request).await?;
                    if let Some(fields) = fields {
                        fields.add_to(answer.headers_mut());
                    }
                    Ok(answer)
                }
                Err(answer) => Ok(answer),
            }
        });
        Limiting { state: State::Later { future } }
    }
}

/// What is told of budgets.
struct Fields {
    policy: HeaderValue,
    standing: HeaderValue,
}

impl Fields {
    /// Layers inside may have told of theirs.
    fn add_to(self, headers: &mut HeaderMap) {
        headers.append(POLICY, self.policy);
        headers.append(STANDING, self.standing);
    }
}

type Boxed<B, E> = Pin<Box<dyn Future<Output = std::result::Result<Response<B>, E>> + Send>>;

pin_project_lite::pin_project! {
    /// The answer of a service behind rate limits.
    pub struct Limiting<F, B, E> {
        #[pin]
        state: State<F, B, E>,
    }
}

pin_project_lite::pin_project! {
    #[project = Now]
    enum State<F, B, E> {
        Through { #[pin] future: F, fields: Option<Fields> },
        Answered { answer: Option<Response<B>> },
        Later { future: Boxed<B, E> },
    }
}

impl<F, B, E> Limiting<F, B, E> {
    fn answered(answer: Response<B>) -> Self {
        Self { state: State::Answered { answer: Some(answer) } }
    }
}

impl<F, B, E> Future for Limiting<F, B, E>
where
    F: Future<Output = std::result::Result<Response<B>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.project().state.project() {
            Now::Through { future, fields } => {
                let mut ended = ready!(future.poll(context));
                if let (Ok(answer), Some(fields)) = (&mut ended, fields.take()) {
                    fields.add_to(answer.headers_mut());
                }
                Poll::Ready(ended)
            }
            Now::Answered { answer } => {
                Poll::Ready(Ok(answer.take().expect("a future is polled until it is ready, and once")))
            }
            Now::Later { future } => future.as_mut().poll(context),
        }
    }
}
