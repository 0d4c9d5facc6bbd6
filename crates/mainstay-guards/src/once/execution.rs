//! One request with a key.

use super::body::{AnswerBody, Read};
use super::keeper::{Begun, Id, Keeper, Kept};
use super::key::fingerprint;
use crate::error::{
    GUARD_INVALID, IDEMPOTENCY_KEY_IN_USE, IDEMPOTENCY_KEY_REUSED, IDEMPOTENT_ANSWER_NOT_KEPT,
    IDEMPOTENT_BODY_TOO_LARGE,
};
use crate::http::{Key, WithoutKey, problem_response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use mainstay_api::Problem;
use mainstay_core::codes::ErrorCode;
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tower_service::Service;
use tracing::Instrument;

/// Says that an answer was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// When to ask again for an answer that is being made.
const IN_USE_RETRY_MS: u64 = 1_000;

/// How a layer is set.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) keeper: Arc<dyn Keeper>,
    pub(super) caller: Key,
    pub(super) without_caller: WithoutKey,
    pub(super) methods: Vec<Method>,
    pub(super) is_required: bool,
    pub(super) lease: Duration,
    pub(super) keep: Duration,
    pub(super) max_body_bytes: usize,
    pub(super) max_answer_bytes: usize,
    pub(super) headers: Vec<HeaderName>,
    pub(super) keeps: Arc<dyn Fn(StatusCode) -> bool + Send + Sync>,
}

type Answer<B> = Response<AnswerBody<B>>;

/// Carries a request out, or answers it as it was answered before.
pub(super) async fn carry_out<S, Q, B>(
    settings: Arc<Settings>,
    inner: S,
    request: Request<Q>,
    id: Id,
) -> Result<Answer<B>, S::Error>
where
    S: Service<Request<Q>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    Q: Body + From<Bytes> + Send + 'static,
    Q::Data: Send,
    Q::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Send,
{
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, settings.max_body_bytes).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("at most {} bytes are taken", settings.max_body_bytes);
            return Ok(refuse(&IDEMPOTENT_BODY_TOO_LARGE, &detail, None));
        }
        Err(_) => return Ok(refuse(&GUARD_INVALID, "body: it broke off", None)),
    };
    let run = match settings.keeper.begin(&id, &fingerprint(&parts, &body), settings.lease).await {
        Ok(Begun::Mine(run)) => run,
        Ok(Begun::Done(kept)) => return Ok(replay(kept)),
        Ok(Begun::Running) => {
            let entry = &IDEMPOTENCY_KEY_IN_USE;
            return Ok(refuse(entry, entry.meaning, Some(IN_USE_RETRY_MS)));
        }
        Ok(Begun::Reused) => {
            return Ok(refuse(&IDEMPOTENCY_KEY_REUSED, IDEMPOTENCY_KEY_REUSED.meaning, None));
        }
        Err(error) => {
            tracing::warn!(%error, code = error.code(), "a request with a key was refused, because its key cannot be kept");
            let entry = error.entry();
            return Ok(refuse(entry, entry.meaning, entry.retryable.then_some(IN_USE_RETRY_MS)));
        }
    };
    let request = Request::from_parts(parts, Q::from(body));
    let execution = Execution { settings, id, run };
    // A task of its own: a client that goes away is the one that sends its request again.
    let task = tokio::spawn(execution.run(inner, request).in_current_span());
    match task.await {
        Ok(ended) => ended,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and the answer reaches nobody.
            Err(_) => Ok(refuse(&IDEMPOTENCY_KEY_IN_USE, "the server stops", Some(IN_USE_RETRY_MS))),
        },
    }
}

/// A request that runs.
struct Execution {
    settings: Arc<Settings>,
    id: Id,
    run: i64,
}

impl Execution {
    async fn run<S, Q, B>(self, mut inner: S, request: Request<Q>) -> Result<Answer<B>, S::Error>
    where
        S: Service<Request<Q>, Response = Response<B>>,
        B: Body<Data = Bytes> + Unpin,
    {
        let answer = match self.held(inner.call(request)).await {
            Ok(answer) => answer,
            Err(error) => {
                self.forget().await;
                return Err(error);
            }
        };
        if !(self.settings.keeps)(answer.status()) {
            self.forget().await;
            return Ok(answer.map(AnswerBody::through));
        }
        let headers = self.headers(&answer);
        let header_bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let room = self.settings.max_answer_bytes.checked_sub(header_bytes);
        let (parts, body) = answer.into_parts();
        let read = self.held(AnswerBody::read(body, room.unwrap_or(0))).await;
        let (kept, headers, body) = match read {
            Read::Whole(bytes) if room.is_some() => (Some(bytes.clone()), headers, AnswerBody::whole(bytes)),
            Read::Whole(bytes) => (None, Vec::new(), AnswerBody::whole(bytes)),
            Read::Part(body) => (None, Vec::new(), body),
        };
        self.finish(Kept { status: parts.status.as_u16(), headers, body: kept }).await;
        Ok(Response::from_parts(parts, body))
    }

    /// Holds the key while something goes on.
    async fn held<T>(&self, going_on: impl Future<Output = T>) -> T {
        let Self { settings, id, run } = self;
        let mut going_on = pin!(going_on);
        loop {
            match tokio::time::timeout(settings.lease / 3, &mut going_on).await {
                Ok(ended) => return ended,
                Err(_) => match settings.keeper.extend(id, *run, settings.lease).await {
                    Ok(true) => {}
                    Ok(false) => {
                        tracing::warn!(key = id.key, "an idempotency key was lost while its request runs");
                    }
                    Err(error) => tracing::warn!(%error, "an idempotency key could not be held on to"),
                },
            }
        }
    }

    fn headers<B>(&self, answer: &Response<B>) -> Vec<(String, Vec<u8>)> {
        let is_kept = |name: &HeaderName| self.settings.headers.contains(name);
        let kept = answer.headers().iter().filter(|(name, _)| is_kept(name));
        kept.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
    }

    async fn finish(&self, kept: Kept) {
        match self.settings.keeper.finish(&self.id, self.run, kept, self.settings.keep).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(key = self.id.key, "an answer came after its idempotency key was lost");
            }
            Err(error) => tracing::error!(%error, "an answer was not kept: a repeat may run again"),
        }
    }

    async fn forget(&self) {
        if let Err(error) = self.settings.keeper.forget(&self.id, self.run).await {
            tracing::warn!(%error, "an idempotency key was not given back; it is free when its lease is over");
        }
    }
}

fn replay<B: Body<Data = Bytes>>(kept: Kept) -> Answer<B> {
    let Some(body) = kept.body else {
        let entry = &IDEMPOTENT_ANSWER_NOT_KEPT;
        let problem = Problem::new(entry, entry.meaning).with("originalStatus", kept.status);
        return answer(problem_response(&problem, None));
    };
    let mut answer = Response::new(AnswerBody::whole(body));
    *answer.status_mut() = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in kept.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            answer.headers_mut().append(name, value);
        }
    }
    answer.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    answer
}

/// A problem document.
pub(super) fn refuse<B: Body<Data = Bytes>>(
    entry: &ErrorCode,
    detail: &str,
    retry_after_ms: Option<u64>,
) -> Answer<B> {
    let mut problem = Problem::new(entry, detail);
    if let Some(wait_ms) = retry_after_ms {
        problem = problem.with("retryAfterMs", wait_ms);
    }
    answer(problem_response(&problem, retry_after_ms))
}

fn answer<B: Body<Data = Bytes>>(text: Response<String>) -> Answer<B> {
    text.map(|text| AnswerBody::whole(text.into()))
}
