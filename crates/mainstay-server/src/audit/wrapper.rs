//! The one way to every admin route (items 229 to 234): who it is, what it may, how often, and what is written down of it.

use super::args;
use super::entry::{Entry, Outcome};
use super::seldom::{Due, Seldom};
use super::witness::{witness, write};
use crate::access::Principal;
use crate::access::guard::Refused;
use crate::app::App;
use crate::problem::Code;
use crate::{Problem, error};
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::RETRY_AFTER;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use mainstay_core::codes::ErrorCode;
use mainstay_core::trace::TraceContext;
use mainstay_guards::limits::limited_code;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The limit that counts what changes something (item 233).
pub(crate) const LIMIT: &str = "adminOperations";
/// Longest body of which anything is written down.
const MAX_BODY_BYTES: usize = 64 << 10;
/// How many refusals are written down in a minute: of each token, and of all whom nobody knows.
const REFUSALS: u32 = 60;
/// How often it is written down in a minute that somebody came, went or was not let in: of each token, and of all whom nobody
/// knows.
const LOGINS: u32 = 60;
/// How many reads are written down in a minute, of each token.
const READS: u32 = 300;
/// What says in an entry that from there on not everything of the minute was written down.
const CUT: &str = "AUDIT_CUT";

/// What the wrapper remembers. What is refused has a memory of its own, so that no read hides it.
#[derive(Default)]
pub(crate) struct Auditor {
    refusals: Seldom,
    reads: Seldom,
    logins: Seldom,
}

/// What a call does.
pub(crate) struct Deed<'a> {
    /// The method and the path of the route.
    pub(crate) action: &'a str,
    /// Whether it counts if it changes something.
    pub(crate) is_counted: bool,
}

/// Lets an admitted call in, or refuses it, and writes down what came of it.
pub(crate) async fn audited(
    app: &App,
    deed: Deed<'_>,
    admitted: Result<Option<Principal>, Refused>,
    request: Request,
    answer: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let (parts, body) = request.into_parts();
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let (body, heard) = overheard(body);
    let mut call = Call { entry: entry(deed.action, &parts), uri: parts.uri.clone(), heard };
    let principal = match admitted {
        Ok(principal) => principal,
        Err(refused) => return refuse(app, call, refused).await,
    };
    let entry = &mut call.entry;
    if let Some(principal) = &principal {
        entry.identify(principal);
    }
    // Neither a limit nor a note about reads holds a user who may open the database.
    let is_user = principal.is_some_and(|principal| principal.user.is_some());
    if is_read && is_user {
        return answer(Request::from_parts(parts, body)).await;
    }
    if deed.is_counted
        && !is_user
        && !is_read
        && let Err(problem) = limit(app, &entry.user_id).await
    {
        entry.code = code_of(&problem);
        entry.outcome = Outcome::Refused;
        write_seldom(app, call).await;
        return problem;
    }
    let request = Request::from_parts(parts, body);
    if is_read {
        let response = answer(request).await;
        entry.outcome = Outcome::of_status(response.status().as_u16());
        let question = format!("{}\0{}", entry.outcome.as_str(), call.uri);
        let due = app.auditor().reads.ask(&entry.user_id, Some(&question), READS, Instant::now());
        if let Some(call) = call.unless_too_many(app, due) {
            let app = app.clone();
            // Nobody waits for it: it changes nothing.
            tokio::spawn(async move { write(app.store(), call.told()).await });
        }
        return response;
    }
    let told = call.clone();
    let answering = AssertUnwindSafe(answer(request)).catch_unwind();
    let (answered, left) = witness(move || told.told(), answering, judge).await;
    if let Some(entry) = left {
        // Nothing else bounds how often somebody is refused who need not count.
        match entry.outcome == Outcome::Refused && !deed.is_counted {
            true => write_seldom(app, Call { entry, ..call }).await,
            false => write(app.store(), entry).await,
        }
    }
    // Whoever stands around this answers for a panic, and counts it.
    answered.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Refuses a call, and writes that down.
async fn refuse(app: &App, mut call: Call, Refused { problem, principal }: Refused) -> Response {
    if let Some(principal) = &principal {
        call.entry.identify(principal);
    }
    call.entry.code = Some(problem.code().to_owned());
    call.entry.outcome = Outcome::Refused;
    write_seldom(app, call).await;
    problem.into_response()
}

/// Refuses a call of a route that is written down when something is changed, and writes that down.
pub(crate) async fn refused(app: &App, action: &str, parts: &Parts, refused: Refused) -> Response {
    let call = Call { entry: entry(action, parts), uri: parts.uri.clone(), heard: Heard::default() };
    refuse(app, call, refused).await
}

fn judge(answered: &std::thread::Result<Response>) -> (Outcome, Option<String>) {
    match answered {
        Ok(response) => (Outcome::of_status(response.status().as_u16()), code_of(response)),
        Err(_) => (Outcome::Failed, Some(error::INTERNAL_ERROR.code.to_owned())),
    }
}

fn code_of(response: &Response) -> Option<String> {
    response.extensions().get::<Code>().map(|code| code.0.to_owned())
}

/// A call, with what was heard of it so far.
#[derive(Clone)]
struct Call {
    entry: Entry,
    uri: Uri,
    heard: Heard,
}

/// The first part of a body, as far as somebody has read it.
type Heard = Arc<Mutex<Vec<u8>>>;

impl Call {
    fn told(&self) -> Entry {
        let body = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        Entry { args: args::of(self.uri.path(), self.uri.query(), Some(&body)), ..self.entry.clone() }
    }

    /// What is to be written down of it, if anything is. The first that is too many says so in place of its code.
    fn unless_too_many(mut self, app: &App, due: Due) -> Option<Self> {
        if matches!(due, Due::NoMore | Due::StillNoMore) {
            app.figures().unaudited.increment();
        }
        match due {
            Due::Now => Some(self),
            Due::NoMore => {
                self.entry.code = Some(CUT.to_owned());
                Some(self)
            }
            Due::Already | Due::StillNoMore => None,
        }
    }
}

impl Entry {
    /// Says who it was.
    fn identify(&mut self, principal: &Principal) {
        self.user_id = principal.name().to_owned();
        self.role = Some(principal.role.name().to_owned());
        self.tenant_id.clone_from(&principal.tenant);
    }
}

fn entry(action: &str, parts: &Parts) -> Entry {
    let trace = parts.extensions.get::<TraceContext>();
    Entry { trace_id: trace.map(|trace| trace.trace_id.clone()), ..Entry::begun(action, "nobody") }
}

/// A body of which the first part is heard while the action reads it.
fn overheard(body: Body) -> (Body, Heard) {
    let heard = Heard::default();
    let hearing = heard.clone();
    let body = body.map_frame(move |frame| {
        if let Some(data) = frame.data_ref() {
            let mut heard = hearing.lock().unwrap_or_else(PoisonError::into_inner);
            let room = MAX_BODY_BYTES.saturating_sub(heard.len());
            heard.extend_from_slice(&data[..data.len().min(room)]);
        }
        frame
    });
    (Body::new(body), heard)
}

/// Counts an operation; the answer when there were too many.
async fn limit(app: &App, user: &str) -> Result<(), Response> {
    let decision = app.limits().consume(LIMIT, user, 1).await;
    let decision = decision.map_err(|error| Problem::from(error).into_response())?;
    if decision.allowed {
        return Ok(());
    }
    let wait_ms = decision.retry_after_ms.unwrap_or_default();
    let problem = Problem::new(limited_code(), "There were too many admin operations of this token.");
    let mut response = problem.with("retryAfterMs", wait_ms).into_response();
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait_ms.div_ceil(1_000)));
    Err(response)
}

/// Writes down something that is no call of the API: that somebody came in, or went, or was not let in, which has a code.
pub(crate) async fn note(
    app: &App,
    action: &'static str,
    principal: Option<&Principal>,
    refused: Option<&'static ErrorCode>,
) {
    let (parts, ()) = axum::http::Request::new(()).into_parts();
    let outcome = if refused.is_some() { Outcome::Refused } else { Outcome::Done };
    let code = refused.map(|refused| refused.code.to_owned());
    let mut entry = Entry { outcome, code, ..entry(action, &parts) };
    if let Some(principal) = principal {
        entry.identify(principal);
    }
    let due = app.auditor().logins.ask(&entry.user_id, None, LOGINS, Instant::now());
    let path = action.split_once(' ').map_or("/", |(_, path)| path);
    let call = Call { entry, uri: Uri::from_static(path), heard: Heard::default() };
    if let Some(call) = call.unless_too_many(app, due) {
        write(app.store(), call.told()).await;
    }
}

/// Writes down a call that was refused, unless there were too many of them.
async fn write_seldom(app: &App, call: Call) {
    let due = app.auditor().refusals.ask(&call.entry.user_id, None, REFUSALS, Instant::now());
    if let Some(call) = call.unless_too_many(app, due) {
        write(app.store(), call.told()).await;
    }
}
