//! `/v1/limits` and `/admin/limits`.

use super::{Deleted, Guards, Page, schema};
use crate::routes::limit;
use crate::{Answer, Json, Path, Problem, Query, audit, error};
use axum::http::HeaderMap;
use mainstay_guards::limits::store::{Reservation, Standing, Wanted};
use mainstay_guards::limits::{Decision, Definition, MostDenied, Verb, fields};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A limit and its name.
#[derive(Debug, Serialize)]
pub(super) struct Named {
    name: String,
    #[serde(flatten)]
    definition: Definition,
}

/// A page of limits.
#[derive(Debug, Serialize)]
pub(super) struct Limits {
    limits: Vec<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What is asked of a limit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask {
    /// Whose budget: 1 to 512 bytes without control characters.
    #[schema(min_length = 1, max_length = 512, example = "user:alice")]
    key: String,
    /// How many tokens.
    #[serde(default = "one")]
    #[schema(minimum = 1, default = 1)]
    cost: u64,
}

/// Whose budget, and by how much it changes.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    /// Whose budget.
    #[schema(min_length = 1, max_length = 512)]
    key: String,
    /// How many tokens.
    #[schema(minimum = 0)]
    amount: u64,
}

/// Whose budget is shut, and for how long.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Block {
    /// Whose budget.
    #[schema(min_length = 1, max_length = 512)]
    key: String,
    /// For so long; 0 lifts it.
    #[schema(minimum = 0)]
    for_ms: u64,
}

/// Whose budget.
#[derive(Debug, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[schema(as = LimitKey)]
pub(super) struct Key {
    /// Whose budget.
    #[schema(min_length = 1, max_length = 512)]
    key: String,
}

/// What is wanted of several limits at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Many {
    limits: Vec<Wanted>,
}

/// What several limits said.
#[derive(Debug, Serialize)]
pub(super) struct ManyDecided {
    allowed: bool,
    decisions: Vec<Decision>,
}

/// Who is denied most.
#[derive(Debug, Serialize)]
pub(super) struct Denied {
    denied: Vec<MostDenied>,
}

fn one() -> u64 {
    1
}

/// List the limits
#[utoipa::path(get, path = "/v1/limits", operation_id = "listLimits", tag = "limits", params(Page),
    responses((status = 200, body = schema::Limits)))]
pub(super) async fn list(Guards { limits, .. }: Guards, Query(asked): Query<Page>) -> Answer<Json<Limits>> {
    let limit = limit(asked.limit)?;
    let found = limits.list(asked.cursor.as_deref(), limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|(name, _)| name.clone());
    let limits = found.into_iter().map(|(name, definition)| Named { name, definition }).collect();
    Ok(Json(Limits { limits, next }))
}

/// Take from several limits: from all of them, or from none
#[utoipa::path(post, path = "/v1/limits", operation_id = "consumeLimits", tag = "limits",
    request_body = schema::ConsumeMany, responses((status = 200, body = schema::ManyDecided)))]
pub(super) async fn consume_many(
    Guards { limits, .. }: Guards,
    Json(many): Json<Many>,
) -> Answer<Json<ManyDecided>> {
    many.limits.iter().try_for_each(|wanted| refuse_reserved(&wanted.name))?;
    let decisions = limits.consume_many(&many.limits).await?;
    Ok(Json(ManyDecided { allowed: decisions.iter().all(|decision| decision.allowed), decisions }))
}

/// Look at a limit
#[utoipa::path(get, path = "/v1/limits/{name}", operation_id = "getLimit", tag = "limits",
    params(("name" = String, Path, description = "The limit")), responses((status = 200, body = schema::Limit)))]
pub(super) async fn get(Guards { limits, .. }: Guards, Path(name): Path<String>) -> Answer<Json<Named>> {
    let definition = limits.definition(&name).await?;
    Ok(Json(Named { name, definition }))
}

/// Look at a key's budget
#[utoipa::path(get, path = "/v1/limits/{name}/value", operation_id = "getLimitValue", tag = "limits",
    params(("name" = String, Path, description = "The limit"), Key),
    responses((status = 200, body = schema::LimitValue)))]
pub(super) async fn value(
    Guards { limits, .. }: Guards,
    Path(name): Path<String>,
    Query(Key { key }): Query<Key>,
) -> Answer<Json<Standing>> {
    Ok(Json(limits.value(&name, &key).await?))
}

/// Take tokens if they are there, and otherwise nothing
///
/// The decision is the answer: a limit that denies answers 200 with `allowed: false`. The fields `RateLimit-Policy` and
/// `RateLimit` tell the same to whoever passes them on.
#[utoipa::path(post, path = "/v1/limits/{name}/consume", operation_id = "consumeLimit", tag = "limits",
    params(("name" = String, Path, description = "The limit")), request_body(content = Ask),
    responses((status = 200, body = schema::Decision)))]
pub(super) async fn consume(
    guards: Guards,
    Path(name): Path<String>,
    Json(Ask { key, cost }): Json<Ask>,
) -> Answer<Decided> {
    act(guards, &name, &key, Verb::Consume(cost)).await
}

/// Tell what taking tokens would come to, without taking any
#[utoipa::path(post, path = "/v1/limits/{name}/check", operation_id = "checkLimit", tag = "limits",
    params(("name" = String, Path, description = "The limit")), request_body(content = Ask),
    responses((status = 200, body = schema::Decision)))]
pub(super) async fn check(
    guards: Guards,
    Path(name): Path<String>,
    Json(Ask { key, cost }): Json<Ask>,
) -> Answer<Decided> {
    act(guards, &name, &key, Verb::Peek(cost)).await
}

/// Take tokens now, or ahead of their coming
///
/// No more than the limit's `maxReserved` are then owed. Whoever has reserved waits for `retryAfterMs` and does what it
/// wanted, without asking again.
#[utoipa::path(post, path = "/v1/limits/{name}/reserve", operation_id = "reserveLimit", tag = "limits",
    params(("name" = String, Path, description = "The limit")), request_body(content = Ask),
    responses((status = 200, body = schema::Reservation)))]
pub(super) async fn reserve(
    Guards { limits, .. }: Guards,
    Path(name): Path<String>,
    Json(Ask { key, cost }): Json<Ask>,
) -> Answer<Json<Reservation>> {
    refuse_reserved(&name)?;
    Ok(Json(limits.reserve(&name, &key, cost).await?))
}

/// Give tokens back, never beyond the capacity
#[utoipa::path(post, path = "/v1/limits/{name}/refund", operation_id = "refundLimit", tag = "limits",
    params(("name" = String, Path, description = "The limit")), request_body(content = Change),
    responses((status = 200, body = schema::Decision)))]
pub(super) async fn refund(
    guards: Guards,
    Path(name): Path<String>,
    Json(Change { key, amount }): Json<Change>,
) -> Answer<Decided> {
    act(guards, &name, &key, Verb::Refund(amount)).await
}

/// Take tokens whether they are there or not
#[utoipa::path(post, path = "/v1/limits/{name}/penalize", operation_id = "penalizeLimit", tag = "limits",
    params(("name" = String, Path, description = "The limit")), request_body(content = Change),
    responses((status = 200, body = schema::Decision)))]
pub(super) async fn penalize(
    guards: Guards,
    Path(name): Path<String>,
    Json(Change { key, amount }): Json<Change>,
) -> Answer<Decided> {
    act(guards, &name, &key, Verb::Penalize(amount)).await
}

/// Let a key have nothing for so long
#[utoipa::path(post, path = "/v1/limits/{name}/block", operation_id = "blockLimit", tag = "limits",
    params(("name" = String, Path, description = "The limit")), request_body(content = Block),
    responses((status = 200, body = schema::Decision)))]
pub(super) async fn block(
    guards: Guards,
    Path(name): Path<String>,
    Json(Block { key, for_ms }): Json<Block>,
) -> Answer<Decided> {
    act(guards, &name, &key, Verb::Block(for_ms)).await
}

/// Make a key as if nobody had used it
#[utoipa::path(post, path = "/v1/limits/{name}/reset", operation_id = "resetLimit", tag = "limits",
    params(("name" = String, Path, description = "The limit")), request_body(content = Key),
    responses((status = 200, body = schema::Decision)))]
pub(super) async fn reset(
    guards: Guards,
    Path(name): Path<String>,
    Json(Key { key }): Json<Key>,
) -> Answer<Decided> {
    act(guards, &name, &key, Verb::Reset).await
}

/// Make a limit, or change it on all nodes from the next decision on
///
/// What was used stays used. A limit that mainstay.toml names is as the file has it again when a server with it starts.
#[utoipa::path(put, path = "/admin/limits/{name}", operation_id = "putLimit", tag = "limits",
    params(("name" = String, Path, description = "The limit: 1 to 128 bytes without control characters")),
    request_body = schema::LimitDefinition, responses((status = 200, body = schema::Limit)))]
pub(super) async fn put(
    Guards { limits, principal, .. }: Guards,
    Path(name): Path<String>,
    Json(definition): Json<Definition>,
) -> Answer<Json<Named>> {
    limits.define(&name, definition).await?;
    tracing::warn!(limit = name, by = principal.name(), "limit changed");
    Ok(Json(Named { name, definition }))
}

/// Delete a limit with all its budgets, on all nodes from the next decision on
///
/// Those that Mainstay itself uses stay. A limit that mainstay.toml names is there again when a server with it starts.
#[utoipa::path(delete, path = "/admin/limits/{name}", operation_id = "deleteLimit", tag = "limits",
    params(("name" = String, Path, description = "The limit")), responses((status = 200, body = schema::Deleted)))]
pub(super) async fn delete(
    Guards { limits, principal, .. }: Guards,
    Path(name): Path<String>,
) -> Answer<Json<Deleted>> {
    limits.delete(&name).await?;
    tracing::warn!(limit = name, by = principal.name(), "limit deleted");
    Ok(Json(Deleted { name }))
}

/// List the keys that a limit denied most, as far as this node was asked
#[utoipa::path(get, path = "/admin/limits/{name}/denied", operation_id = "listDeniedKeys", tag = "limits",
    params(("name" = String, Path, description = "The limit"), Page),
    responses((status = 200, body = schema::DeniedKeys)))]
pub(super) async fn denied(
    Guards { limits, .. }: Guards,
    Path(name): Path<String>,
    Query(asked): Query<Page>,
) -> Answer<Json<Denied>> {
    limits.definition(&name).await?;
    Ok(Json(Denied { denied: limits.most_denied(&name, limit(asked.limit)?) }))
}

/// A decision, and the fields that tell of it.
type Decided = (HeaderMap, Json<Decision>);

async fn act(Guards { limits, .. }: Guards, name: &str, key: &str, verb: Verb) -> Answer<Decided> {
    if !matches!(verb, Verb::Peek(_)) {
        refuse_reserved(name)?;
    }
    let decision = limits.act(name, key, verb).await?;
    let told = limits.known(name).and_then(|limit| fields(name, &limit, &decision));
    Ok((told.into_iter().flatten().collect(), Json(decision)))
}

/// Refuses the limit that counts what admins and operators do: whoever could take from it would shut others out, and whoever
/// could give back would do as much as it likes.
fn refuse_reserved(name: &str) -> Answer<()> {
    if name != audit::LIMIT {
        return Ok(());
    }
    Err(Problem::new(&error::LIMIT_RESERVED, format!("{name} counts what is done to the server itself.")))
}
