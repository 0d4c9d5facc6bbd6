//! `/admin/letters`: what ended failed, and what is done about it.

use super::{Shop, schema};
use crate::masked::Masked;
use crate::routes::limit;
use crate::{Answer, Json, Path, Problem, Query};
use mainstay_work::{Error, Letter, LetterFilter, LetterStatus};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which letters are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Parameters {
    /// Of this status; `pending` unless given.
    #[param(value_type = Option<schema::LetterStatus>)]
    status: Option<LetterStatus>,
    /// Of this pool.
    pool: Option<String>,
    /// Of this function.
    function: Option<String>,
    /// Of this kind: `work`, `onComplete`, `append`.
    kind: Option<String>,
    /// At most so many letters.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// A page of letters.
#[derive(Debug, Serialize)]
pub(super) struct Letters {
    letters: Vec<Letter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which letters are to be tried again: pending ones, the oldest first.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RetryLetters {
    /// Which ones; all that are pending unless it says more.
    #[serde(default)]
    filter: Filter,
    /// At most so many.
    #[schema(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<usize>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = LetterFilter)]
struct Filter {
    /// Of this pool.
    pool: Option<String>,
    /// Of this function.
    function: Option<String>,
}

/// A letter that is tried again, as another item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Retried {
    work_id: String,
    retried_as: String,
}

/// Letters that are tried again.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RetriedLetters {
    retried: Vec<Retried>,
    is_more: bool,
}

/// Up to when letters are removed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PurgeLetters {
    /// Those that failed before this moment, in milliseconds since the epoch.
    before_ms: i64,
}

/// How many letters were removed.
#[derive(Debug, Serialize)]
pub(super) struct Purged {
    purged: u64,
}

/// List dead letters, the newest first
#[utoipa::path(get, path = "/admin/letters", operation_id = "listLetters", tag = "letters",
    params(Parameters), responses((status = 200, body = schema::Letters)))]
pub(super) async fn list(Shop(work): Shop, Query(asked): Query<Parameters>) -> Answer<Masked<Letters>> {
    let limit = limit(asked.limit)?;
    let filter = LetterFilter {
        status: asked.status,
        pool: asked.pool,
        function: asked.function,
        kind: asked.kind,
        before: asked.cursor.as_deref().map(number).transpose()?,
        ..LetterFilter::default()
    };
    let letters = work.letters(filter, limit).await?;
    let next = letters.last().filter(|_| letters.len() == limit).map(|last| cursor(last.number));
    Ok(Masked(Letters { letters, next }))
}

/// Look at a dead letter: what it was called with, and every failure that is known
#[utoipa::path(get, path = "/admin/letters/{id}", operation_id = "getLetter", tag = "letters",
    params(("id" = String, Path, description = "The item that failed")),
    responses((status = 200, body = schema::Letter)))]
pub(super) async fn get(Shop(work): Shop, Path(id): Path<String>) -> Answer<Masked<Letter>> {
    Ok(Masked(work.letter(&id).await?))
}

/// Try a dead letter again, as a new item that is linked to it
#[utoipa::path(post, path = "/admin/letters/{id}/retry", operation_id = "retryLetter", tag = "letters",
    params(("id" = String, Path, description = "The item that failed")),
    responses((status = 200, body = schema::LetterRetried)))]
pub(super) async fn retry(Shop(work): Shop, Path(id): Path<String>) -> Answer<Json<Retried>> {
    let retried_as = work.retry_letter(&id).await?;
    Ok(Json(Retried { work_id: id, retried_as }))
}

/// Leave a dead letter for good; it is kept until it is purged
#[utoipa::path(post, path = "/admin/letters/{id}/ignore", operation_id = "ignoreLetter", tag = "letters",
    params(("id" = String, Path, description = "The item that failed")),
    responses((status = 200, body = schema::Letter)))]
pub(super) async fn ignore(Shop(work): Shop, Path(id): Path<String>) -> Answer<Masked<Letter>> {
    work.ignore_letter(&id).await?;
    Ok(Masked(work.letter(&id).await?))
}

/// Try many dead letters again, the oldest first
///
/// Each by itself; the answer names those that were. Sent again, it goes on with those that are left.
#[utoipa::path(post, path = "/admin/letters/retry", operation_id = "retryLetters", tag = "letters",
    request_body = RetryLetters, responses((status = 200, body = schema::LettersRetried)))]
pub(super) async fn retry_all(
    Shop(work): Shop,
    Json(asked): Json<RetryLetters>,
) -> Answer<Json<RetriedLetters>> {
    let limit = limit(asked.limit).map_err(|_| Problem::invalid_field("limit", "must be 1 to 1000"))?;
    let Filter { pool, function } = asked.filter;
    let filter = LetterFilter { pool, function, after: Some(0), ..LetterFilter::default() };
    let letters = work.letters(filter, limit).await?;
    let is_more = letters.len() == limit;
    let mut retried = Vec::with_capacity(letters.len());
    for letter in letters {
        match work.retry_letter(&letter.work_id).await {
            Ok(retried_as) => retried.push(Retried { work_id: letter.work_id, retried_as }),
            // Somebody else has dealt with it.
            Err(Error::LetterNotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Json(RetriedLetters { retried, is_more }))
}

/// Remove dead letters that failed before a moment, whatever was done about them
#[utoipa::path(post, path = "/admin/letters/purge", operation_id = "purgeLetters", tag = "letters",
    request_body = PurgeLetters, responses((status = 200, body = schema::LettersPurged)))]
pub(super) async fn purge(Shop(work): Shop, Json(asked): Json<PurgeLetters>) -> Answer<Json<Purged>> {
    Ok(Json(Purged { purged: work.purge_letters(asked.before_ms).await? }))
}

/// Where a page ends, in a form that nobody takes for something to calculate with.
fn cursor(number: i64) -> String {
    format!("l{number:x}")
}

fn number(cursor: &str) -> Answer<i64> {
    let number = cursor.strip_prefix('l').and_then(|digits| i64::from_str_radix(digits, 16).ok());
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| Problem::invalid_parameter("cursor", "is not the `next` of a page"))
}
