//! `POST /v1/commands` and `GET /v1/commands/{commandId}`.

use super::problem::rejected;
use super::schema::commands as schema;
use crate::extract::{OfTenant, Whose};
use crate::masked::Masked;
use crate::{Answer, App, Json, Path, Principal, Trace};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use mainstay_events::{AppendedEvent, ScopeClaim};
use mainstay_flows::commands::{self, ConflictRetry, Deferred, Dispatched, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// What somebody wants to happen.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Command {
    /// What is wanted.
    #[schema(min_length = 1, max_length = 128)]
    command_type: String,
    /// What there is to know about it; at most 64 KiB.
    #[schema(value_type = schema::Payload)]
    payload: Box<RawValue>,
    /// What makes it recognisable when it is sent again; one is made when there is none.
    #[schema(min_length = 1, max_length = 256)]
    command_id: Option<String>,
    /// What it belongs together with; one is made when there is none.
    #[schema(min_length = 1, max_length = 256)]
    correlation_id: Option<String>,
    /// The command or event that caused it.
    #[schema(min_length = 1, max_length = 256)]
    causation_id: Option<String>,
    /// The scope that it is decided in.
    scope: Option<Scope>,
    /// When somebody else decides first, it is decided again later; without it, that is a conflict.
    retry: Option<Retry>,
}

/// A scope, and the version that the decision rests on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = CommandScope)]
struct Scope {
    /// `tenant:{tenantId}:{scopeType}:{scopeId}`.
    key: String,
    /// 0 for a scope that does not exist.
    expected_version: u64,
}

/// How often and how fast a command is decided again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = CommandRetry)]
struct Retry {
    /// How often at the most.
    #[schema(minimum = 0, maximum = 100, default = 5)]
    max_retries: Option<u32>,
    /// How long the first wait is.
    #[schema(minimum = 1, default = 100)]
    initial_backoff_ms: Option<u64>,
    /// What each wait is multiplied with.
    #[schema(exclusive_minimum = 0.0, default = 2)]
    base: Option<f64>,
    /// The longest wait.
    #[schema(minimum = 1, default = 30000)]
    max_backoff_ms: Option<u64>,
}

impl From<Retry> for ConflictRetry {
    fn from(asked: Retry) -> Self {
        let usual = Self::default();
        Self {
            max_retries: asked.max_retries.unwrap_or(usual.max_retries),
            initial_backoff_ms: asked.initial_backoff_ms.unwrap_or(usual.initial_backoff_ms),
            base: asked.base.unwrap_or(usual.base),
            max_backoff_ms: asked.max_backoff_ms.unwrap_or(usual.max_backoff_ms),
            ..usual
        }
    }
}

/// A command and what came of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    command_id: String,
    correlation_id: String,
    is_duplicate: bool,
    result: Told,
}

/// What is known of a command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    command_id: String,
    command_type: String,
    correlation_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<String>,
    state: commands::State,
    attempt: u32,
    created_at: i64,
    executed_at: Option<i64>,
    result: Told,
}

/// What came of a command. (serde cannot keep a raw value inside of a tagged enum.)
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Vec<AppendedEvent>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deferred: Option<Deferred>,
}

impl From<Outcome> for Told {
    fn from(outcome: Outcome) -> Self {
        let told = Self { status: outcome.status(), ..Self::default() };
        match outcome {
            Outcome::Success { data, events } => Self { data: Some(data), events: Some(events), ..told },
            Outcome::Rejected { code, reason, context } => {
                Self { code: Some(code), reason: Some(reason), context, ..told }
            }
            Outcome::Failed { reason, events } => Self { reason: Some(reason), events: Some(events), ..told },
            Outcome::Deferred(deferred) => Self { deferred: Some(deferred), ..told },
        }
    }
}

/// Let a command be decided, once for its id
///
/// Commands are handled by Rust code that is registered in the process. What the handler writes, its events, the work that
/// it starts and the record of the command are one transaction.
#[utoipa::path(post, path = "/v1/commands", operation_id = "dispatchCommand", tag = "commands", request_body = Command,
    responses(
        (status = 200, description = "It was decided; a business failure is one too.", body = schema::Dispatched),
        (status = 202, description = "Somebody else was first; it is decided again later.", body = schema::Dispatched),
        (status = 422, description = "It was rejected.", content_type = "application/problem+json",
            body = schema::Rejected)))]
pub(super) async fn dispatch(
    State(app): State<App>,
    principal: Principal,
    Trace(trace): Trace,
    Json(asked): Json<Command>,
) -> Answer<Response> {
    let mut command = commands::Command::raw(asked.command_type, asked.payload)
        .user(principal.name())
        .role(principal.role.name())
        .trace(trace);
    command.command_id = asked.command_id;
    command.correlation_id = asked.correlation_id;
    command.causation_id = asked.causation_id;
    command.tenant_id = principal.tenant;
    command.scope = asked.scope.map(|Scope { key, expected_version }| ScopeClaim { key, expected_version });
    command.retry = asked.retry.map(Into::into);
    let Dispatched { command_id, correlation_id, is_duplicate, outcome } =
        app.commands().dispatch(command).await?;
    tracing::Span::current().record("correlation_id", &correlation_id);
    let outcome = match outcome {
        Outcome::Rejected { code, reason, context } => {
            let wait_ms = context.as_ref().and_then(|context| context["retryAfterMs"].as_u64());
            let problem = rejected(code, reason, context)
                .with("commandId", command_id)
                .with("correlationId", correlation_id)
                .with("isDuplicate", is_duplicate);
            let mut response = problem.into_response();
            if let (StatusCode::TOO_MANY_REQUESTS, Some(ms)) = (response.status(), wait_ms) {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000)));
            }
            return Ok(response);
        }
        outcome => outcome,
    };
    let status = if matches!(outcome, Outcome::Deferred(_)) { StatusCode::ACCEPTED } else { StatusCode::OK };
    let answer = Answered { command_id, correlation_id, is_duplicate, result: outcome.into() };
    Ok((status, Json(answer)).into_response())
}

/// Look at a command
///
/// Members that are secret by their names are hidden.
#[utoipa::path(get, path = "/v1/commands/{commandId}", operation_id = "getCommand", tag = "commands",
    params(("commandId" = String, Path, description = "The command"), OfTenant),
    responses((status = 200, body = schema::Status)))]
pub(super) async fn get(
    State(app): State<App>,
    whose: Whose,
    Path(command_id): Path<String>,
) -> Answer<Masked<Status>> {
    let status = match whose.tenant() {
        Some(tenant) => app.commands().for_tenant(tenant).status(&command_id).await?,
        None => app.commands().status(&command_id).await?,
    };
    Ok(Masked(Status {
        command_id: status.command_id,
        command_type: status.command_type,
        correlation_id: status.correlation_id,
        tenant_id: status.tenant_id,
        state: status.state,
        attempt: status.attempt,
        created_at: status.created_at,
        executed_at: status.executed_at,
        result: status.outcome.into(),
    }))
}
