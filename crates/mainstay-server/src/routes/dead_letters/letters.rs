//! `/admin/dead-letters`: lists, counts, groups, one letter and what is done about it.

use super::{Inbox, schema};
use crate::app::App;
use crate::lately::Followed;
use crate::masked::Masked;
use crate::routes::limit;
use crate::{Answer, Json, Path, Problem, Query};
use axum::extract::State;
use mainstay_flows::dead_letters::{Detail, Filter, Groups, Kind, Listed, Operation, Stats, Status};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// Which letters are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Parameters {
    /// Of this kind: `work`, `onComplete`, `append`, `publication`, `projection`, `quarantinedEvent`, or a kind that work was
    /// enqueued with.
    #[param(min_length = 1, max_length = 128)]
    kind: Option<String>,
    /// Of this function, projection or target.
    #[param(min_length = 1, max_length = 256)]
    name: Option<String>,
    /// Of work of this pool; letters of other sources have none.
    #[param(min_length = 1, max_length = 256)]
    pool: Option<String>,
    /// Of this status.
    #[param(value_type = Option<schema::Status>)]
    status: Option<Status>,
    /// Of this group of errors.
    #[param(pattern = "^[0-9a-f]{16}$")]
    group: Option<String>,
    /// With an error that has this text in it, in small or capital letters.
    #[param(min_length = 1, max_length = 256)]
    error: Option<String>,
    /// Of what belongs together under this id.
    #[param(min_length = 1, max_length = 256)]
    correlation_id: Option<String>,
    /// That failed at this moment or later, in milliseconds since the epoch.
    #[param(minimum = 0)]
    failed_since: Option<i64>,
    /// That failed before this moment.
    #[param(minimum = 0)]
    failed_before: Option<i64>,
    /// At most so many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

impl Parameters {
    fn wanted(self) -> Answer<Filter> {
        let Self {
            kind, name, pool, status, group, error, correlation_id, failed_since, failed_before, ..
        } = self;
        let group = group.as_deref().map(Filter::parse_group).transpose()?;
        let kind = kind.map(Kind::from);
        Ok(Filter { kind, name, pool, status, group, error, correlation_id, failed_since, failed_before })
    }

    /// The same, for what has no pages.
    fn whole(self) -> Answer<Filter> {
        match self.cursor {
            None => self.wanted(),
            Some(_) => Err(Problem::invalid_parameter("cursor", "there are no pages")),
        }
    }
}

/// A page of letters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Letters {
    letters: Vec<Listed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_partial: bool,
}

/// What is asked, in one text.
fn question(wanted: &Filter, limit: usize) -> String {
    // A filter is texts and numbers.
    format!("{limit} {}", serde_json::to_string(wanted).unwrap_or_default())
}

/// The number of a letter.
fn number(id: &str) -> Answer<i64> {
    let unknown = || mainstay_work::Error::LetterNotFound(id.to_owned());
    Ok(Listed::parse_id(id).ok_or_else(unknown)?)
}

/// List dead letters of all kinds, the newest first
#[utoipa::path(get, path = "/admin/dead-letters", operation_id = "listDeadLetters", tag = "dead letters",
    params(Parameters), responses((status = 200, body = schema::DeadLetters)))]
pub(super) async fn list(Inbox(inbox, _): Inbox, Query(asked): Query<Parameters>) -> Answer<Masked<Letters>> {
    let limit = limit(asked.limit)?;
    let before = asked.cursor.as_deref().map(|cursor| {
        Listed::parse_id(cursor)
            .ok_or_else(|| Problem::invalid_parameter("cursor", "is not the `next` of a page"))
    });
    let before = before.transpose()?;
    let page = inbox.list(asked.wanted()?, before, limit).await?;
    let next = page.next.map(Listed::id);
    Ok(Masked(Letters { letters: page.letters, next, is_partial: page.is_partial }))
}

/// Count dead letters by status, kind and name
#[utoipa::path(get, path = "/admin/dead-letters/stats", operation_id = "getDeadLetterStats", tag = "dead letters",
    params(Parameters), responses((status = 200, body = schema::DeadLetterStats)))]
pub(super) async fn stats(
    State(app): State<App>,
    Inbox(inbox, _): Inbox,
    followed: Followed,
    Query(asked): Query<Parameters>,
) -> Answer<Json<Stats>> {
    let wanted = asked.whole()?;
    let question = question(&wanted, 0);
    let count = async { inbox.stats(wanted).await.map_err(Problem::from) };
    Ok(Json(app.letter_stats().ask(&question, followed, count).await?))
}

/// Group dead letters that have failed in the same way, the largest groups first; pending ones unless a status is given
#[utoipa::path(get, path = "/admin/dead-letters/groups", operation_id = "groupDeadLetters", tag = "dead letters",
    params(Parameters), responses((status = 200, body = schema::DeadLetterGroups)))]
pub(super) async fn groups(
    State(app): State<App>,
    Inbox(inbox, _): Inbox,
    followed: Followed,
    Query(asked): Query<Parameters>,
) -> Answer<Json<Groups>> {
    let limit = limit(asked.limit)?;
    let wanted = asked.whole()?;
    let question = question(&wanted, limit);
    let count = async { inbox.groups(wanted, limit).await.map_err(Problem::from) };
    Ok(Json(app.letter_groups().ask(&question, followed, count).await?))
}

/// Look at a dead letter: what it is about, and every failure that is known
#[utoipa::path(get, path = "/admin/dead-letters/{id}", operation_id = "getDeadLetter", tag = "dead letters",
    params(("id" = String, Path, description = "The letter")),
    responses((status = 200, body = schema::DeadLetterDetail)))]
pub(super) async fn get(Inbox(inbox, _): Inbox, Path(id): Path<String>) -> Answer<Masked<Detail>> {
    Ok(Masked(inbox.get(number(&id)?).await?))
}

/// Try a dead letter again, one that is pending or was ignored
#[utoipa::path(post, path = "/admin/dead-letters/{id}/retry", operation_id = "retryDeadLetter", tag = "dead letters",
    params(("id" = String, Path, description = "The letter")),
    responses((status = 200, body = schema::DeadLetterOperation)))]
pub(super) async fn retry(Inbox(inbox, asks): Inbox, Path(id): Path<String>) -> Answer<Json<Operation>> {
    Ok(Json(inbox.retry(number(&id)?, asks.name()).await?))
}

/// Leave a pending dead letter for good; it is kept until it is purged
#[utoipa::path(post, path = "/admin/dead-letters/{id}/ignore", operation_id = "ignoreDeadLetter", tag = "dead letters",
    params(("id" = String, Path, description = "The letter")),
    responses((status = 200, body = schema::DeadLetterOperation)))]
pub(super) async fn ignore(Inbox(inbox, asks): Inbox, Path(id): Path<String>) -> Answer<Json<Operation>> {
    Ok(Json(inbox.ignore(number(&id)?, asks.name()).await?))
}
