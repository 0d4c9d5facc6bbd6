//! Pull workers: programs elsewhere that ask for work and say what came of it.

use super::{Shop, given, schema};
use crate::access::Named;
use crate::{Answer, App, Json, Path, Principal, Problem};
use axum::extract::State;
use mainstay_work::{Class, Extended, Failure, Pull, Pulled, Work};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::Instrument;
use utoipa::ToSchema;

/// How long a lease lasts, unless the worker says otherwise.
const LEASE_MS: u64 = 30_000;
/// Longest time that a worker can ask for before an item is tried again: a month.
const MAX_RETRY_AFTER_MS: u64 = 30 * 24 * 3_600_000;

/// What a worker asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Claim {
    /// What it can do. A function that is not known yet is declared by this. A token of a worker declares only functions that
    /// its scope has by their full name; others must be known.
    #[schema(min_items = 1, max_items = 100)]
    functions: Vec<String>,
    /// How many items it takes at most.
    #[schema(minimum = 1, maximum = 500, default = 1)]
    max_items: Option<usize>,
    /// For how long it has them, unless it extends the lease.
    #[schema(minimum = 1000, maximum = 3600000, default = 30000)]
    lease_ms: Option<u64>,
    /// How long to wait when there is nothing.
    #[schema(minimum = 0, maximum = 60000, default = 0)]
    wait_ms: Option<u64>,
    /// Who it is, for those who look; the id of its token unless given.
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9._:/-]+$")]
    worker: Option<String>,
}

/// For how long a lease is wanted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Extend {
    /// From now on.
    #[schema(minimum = 1000, maximum = 3600000, default = 30000)]
    by_ms: Option<u64>,
}

/// An item was done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Complete {
    /// The lease it was claimed under.
    lease: String,
    /// What came of it: any JSON of at most 64 KiB; null unless given.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = serde_json::Value)]
    return_value: Option<Box<RawValue>>,
}

/// An item could not be done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fail {
    /// The lease it was claimed under.
    lease: String,
    /// What happened; cut after 4 KiB.
    error: String,
    /// What kind of failure it was, which decides whether the item is tried again; `temporaryServiceUnavailable`, which
    /// is, unless given.
    #[schema(value_type = Option<schema::FailureClass>)]
    class: Option<Class>,
    /// When to try again, instead of the pool's own way; for `temporaryServiceUnavailable` and `rateLimitExceeded` only.
    #[schema(minimum = 0, maximum = 2592000000_i64)]
    retry_after_ms: Option<u64>,
}

/// The item that it was about.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ended {
    work_id: String,
}

/// The lease that it was about.
#[derive(Debug, Serialize)]
pub(super) struct GivenBack {
    lease: String,
}

/// Claim work, and wait for it if there is none
///
/// The items are the worker's until the lease is over; it completes or fails each of them, or extends the lease. An item
/// that has not ended by then goes to another worker, and what its worker says about it is refused with `LEASE_LOST`. The
/// lease is a secret: with a wrong one the answer is `LEASE_LOST`, too. The server gives a claim back when its client
/// disconnects. A server that stops ends the wait at once.
#[utoipa::path(post, path = "/v1/pools/{pool}/claim", operation_id = "claimWork", tag = "work",
    params(("pool" = String, Path, description = "The pool")),
    request_body = Claim, responses((status = 200, body = schema::Claimed)))]
pub(super) async fn claim(
    State(app): State<App>,
    Shop(work): Shop,
    principal: Principal,
    Path(pool): Path<String>,
    Json(asked): Json<Claim>,
) -> Answer<Json<Pulled>> {
    principal.check(Named::Pool, &pool, "pool")?;
    for (number, function) in asked.functions.iter().enumerate() {
        principal.check(Named::Function, function, &format!("functions[{number}]"))?;
    }
    let pull = Pull {
        pool,
        must_be_known: must_be_known(&principal, &asked.functions),
        functions: asked.functions,
        most: asked.max_items.unwrap_or(1),
        lease: Duration::from_millis(asked.lease_ms.unwrap_or(LEASE_MS)),
        wait: Duration::from_millis(asked.wait_ms.unwrap_or(0)),
        worker: asked.worker.or(principal.token).unwrap_or_else(|| "local".to_owned()),
    };
    let shutdown = app.shutdown().clone();
    let (mut answer, answered) = oneshot::channel();
    // In a task of its own: whoever goes away in the middle of a claim must not leave it behind.
    let claiming = async move {
        let stop = async {
            tokio::select! {
                () = shutdown.requested() => {}
                () = answer.closed() => {}
            }
        };
        let pulled = work.pull_until(pull, stop).await;
        if let Err(Ok(Pulled { lease: Some(lease), .. })) = answer.send(pulled)
            && let Err(error) = work.give_back(&lease).await
        {
            tracing::warn!(%error, "claim of a disconnected client not given back; its lease expires");
        }
    };
    tokio::spawn(claiming.in_current_span());
    let pulled = answered.await.map_err(|_| Problem::internal("a claim ended without an answer"))?;
    Ok(Json(pulled?))
}

/// Functions that a claim does not declare. A pattern of a scope names any number of functions, and a worker must not fill the
/// set of names that all callers share.
fn must_be_known(principal: &Principal, functions: &[String]) -> Vec<String> {
    let is_told = |function: &&String| !principal.spells(Named::Function, function);
    functions.iter().filter(is_told).cloned().collect()
}

/// Refuses a worker the lease of items that its scope does not name, as if there were no such lease.
async fn check_lease(work: &Work, principal: &Principal, lease: &str) -> Answer<()> {
    if !principal.role.is_scoped() {
        return Ok(());
    }
    let principal = principal.clone();
    let is_named = move |pool: &str, function: &str| {
        principal.names(Named::Pool, pool) && principal.names(Named::Function, function)
    };
    Ok(work.check_pulled(lease, is_named).await?)
}

/// Extend a lease, and hear which of its items were cancelled
///
/// A worker that fails an item that was cancelled, or lets its lease run out, ends it cancelled.
#[utoipa::path(post, path = "/v1/leases/{lease}/extend", operation_id = "extendLease", tag = "work",
    params(("lease" = String, Path, description = "The lease, as the claim told it")),
    request_body = Extend, responses((status = 200, body = schema::LeaseExtended)))]
pub(super) async fn extend(
    Shop(work): Shop,
    principal: Principal,
    Path(lease): Path<String>,
    Json(asked): Json<Extend>,
) -> Answer<Json<Extended>> {
    check_lease(&work, &principal, &lease).await?;
    Ok(Json(work.extend(&lease, Duration::from_millis(asked.by_ms.unwrap_or(LEASE_MS))).await?))
}

/// Give back what has not ended under a lease, as if it had never been claimed
#[utoipa::path(delete, path = "/v1/leases/{lease}", operation_id = "giveBackLease", tag = "work",
    params(("lease" = String, Path, description = "The lease, as the claim told it")),
    responses((status = 200, body = schema::LeaseGivenBack)))]
pub(super) async fn give_back(
    Shop(work): Shop,
    principal: Principal,
    Path(lease): Path<String>,
) -> Answer<Json<GivenBack>> {
    check_lease(&work, &principal, &lease).await?;
    work.give_back(&lease).await?;
    Ok(Json(GivenBack { lease }))
}

/// Say that an item was done
#[utoipa::path(post, path = "/v1/work/{id}/complete", operation_id = "completeWork", tag = "work",
    params(("id" = String, Path, description = "The item")),
    request_body = Complete, responses((status = 200, body = schema::WorkEnded)))]
pub(super) async fn complete(
    Shop(work): Shop,
    principal: Principal,
    Path(id): Path<String>,
    Json(asked): Json<Complete>,
) -> Answer<Json<Ended>> {
    check_lease(&work, &principal, &asked.lease).await?;
    let value = asked.return_value.unwrap_or_else(|| RawValue::NULL.to_owned());
    work.complete(&asked.lease, &id, value).await?;
    Ok(Json(Ended { work_id: id }))
}

/// Say that an item could not be done; it is tried again as its pool or the item itself says
#[utoipa::path(post, path = "/v1/work/{id}/fail", operation_id = "failWork", tag = "work",
    params(("id" = String, Path, description = "The item")),
    request_body = Fail, responses((status = 200, body = schema::WorkEnded)))]
pub(super) async fn fail(
    Shop(work): Shop,
    principal: Principal,
    Path(id): Path<String>,
    Json(asked): Json<Fail>,
) -> Answer<Json<Ended>> {
    check_lease(&work, &principal, &asked.lease).await?;
    let mut failure = Failure::new(asked.class.unwrap_or(Class::TemporaryServiceUnavailable), asked.error);
    if let Some(wait_ms) = asked.retry_after_ms {
        if wait_ms > MAX_RETRY_AFTER_MS {
            let detail = format!("must be at most {MAX_RETRY_AFTER_MS}");
            return Err(Problem::invalid_field("retryAfterMs", detail));
        }
        failure = failure.with_retry_after_ms(wait_ms);
        if failure.retry_after_ms() != Some(wait_ms) {
            let detail = "goes with temporaryServiceUnavailable and rateLimitExceeded only";
            return Err(Problem::invalid_field("retryAfterMs", detail));
        }
    }
    work.fail(&asked.lease, &id, failure).await?;
    Ok(Json(Ended { work_id: id }))
}
