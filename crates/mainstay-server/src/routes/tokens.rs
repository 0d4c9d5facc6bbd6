//! `/admin/tokens` and `/admin/sessions`: which programs and people may do what.

use super::{MAX_PAGE, limit};
use crate::access::{Principal, Role, Scope};
use crate::app::App;
use crate::console::sign_out;
use crate::tokens::{After, Handover, Invalid, Lives, MAX_OVERLAP, New, Rotation, Token, USUAL_OVERLAP};
use crate::{Answer, Json, Path, Permission, Problem, Query, Routes, error};
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    use Permission::Admin;
    Routes::default()
        .add(Admin, routes!(create, list))
        .add(Admin.revoking(), routes!(revoke))
        .add(Admin, routes!(rotate))
        .add(Admin.revoking(), routes!(end_sessions))
        .add(Admin.revoking(), routes!(end_all_sessions))
}

/// A token to be made.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewToken {
    /// What it is for: 1 to 64 bytes, no control characters.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// The tenant it is confined to: 1 to 64 bytes, no `:`, no control characters. An admin with a tenant makes
    /// tokens of that tenant only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The names for which the token of a worker or a publisher may be used; others have no scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// After how many milliseconds it is worthless: what `access.tokenLifeMs` says when this is left out, never when it is
    /// null.
    #[serde(default, deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub expires_in_ms: Option<Option<u64>>,
}

/// Null is something that was said.
fn said<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<u64>>, D::Error> {
    Deserialize::deserialize(value).map(Some)
}

impl NewToken {
    /// The token, if it may be made and live that long.
    pub(crate) fn checked(self, lives: &Lives) -> Result<New, Invalid> {
        let mut new = New::named(&self.name, self.role)?;
        if self.scope.is_some() || self.role.is_scoped() {
            new = new.scope(self.scope.unwrap_or_default())?;
        }
        if let Some(tenant) = &self.tenant {
            new = new.tenant(tenant)?;
        }
        let asked = self.expires_in_ms.map(|asked| asked.map(Duration::from_millis));
        match lives.of(asked)? {
            Some(life) => new.expires_in(life),
            None => Ok(new.never_expires()),
        }
    }
}

/// For how long the old secret of a token goes on working.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotateToken {
    /// Milliseconds; 0 for not at all, a day when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 2592000000_i64, default = 86400000)]
    pub overlap_ms: Option<u64>,
}

impl RotateToken {
    /// The overlap, if it is not too long.
    pub(crate) fn checked(self) -> Result<Duration, Invalid> {
        let overlap = self.overlap_ms.map_or(USUAL_OVERLAP, Duration::from_millis);
        let too_long = Invalid { field: "overlapMs", reason: "must be at most 30 days" };
        if overlap <= MAX_OVERLAP { Ok(overlap) } else { Err(too_long) }
    }
}

/// A token that took the place of another one, with the secret that is told this once.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Rotated {
    /// The text to send as `Authorization: Bearer …`.
    pub secret: String,
    /// The new token.
    pub token: Token,
    /// The old one, which works until it expires.
    pub replaces: Token,
}

impl Rotated {
    /// The outcome of a rotation, as the API tells it.
    pub fn of(rotation: Rotation, id: &str) -> Answer<Self> {
        match rotation {
            Rotation::Done(done) => {
                let Handover { token, secret, replaces } = *done;
                Ok(Self { secret: secret.reveal().to_owned(), token, replaces })
            }
            Rotation::Unknown => Err(unknown(id)),
            Rotation::Spent(Some(successor)) => {
                let detail = format!("The token {id:?} was rotated before; {successor:?} took its place.");
                Err(Problem::new(&error::TOKEN_SPENT, detail).with("rotatedTo", successor))
            }
            Rotation::Spent(None) => {
                let detail = format!("The token {id:?} is revoked, expired, or that of the console.");
                Err(Problem::new(&error::TOKEN_SPENT, detail))
            }
        }
    }
}

/// Number of sessions of the console that were ended, with links into it that were not used yet.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SignedOut {
    /// So many.
    pub ended: u64,
}

/// A token that was made, with the secret that is told this once.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Created {
    /// What to send as `Authorization: Bearer …`.
    pub secret: String,
    /// The token.
    pub token: Token,
}

/// Tokens, oldest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// The tokens.
    pub tokens: Vec<Token>,
    /// The `cursor` of the next page, when there may be more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which page of tokens is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Page {
    /// At most so many.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// Make a token; its secret is told this once
#[utoipa::path(post, path = "/admin/tokens", operation_id = "createToken", tag = "tokens",
    request_body = NewToken, responses((status = 201, body = Created)))]
async fn create(
    State(app): State<App>,
    principal: Principal,
    Json(mut asked): Json<NewToken>,
) -> Answer<(StatusCode, Json<Created>)> {
    if asked.tenant.is_none() {
        asked.tenant.clone_from(&principal.tenant);
    }
    if !principal.sees(asked.tenant.as_deref()) {
        return Err(Problem::new(
            &error::UNAUTHORIZED,
            "Tokens of another tenant need an admin without a tenant",
        ));
    }
    let new = asked.checked(&app.options().token_lives).map_err(invalid)?;
    let (token, secret) = app.tokens().create(new).await?;
    Ok((StatusCode::CREATED, Json(Created { secret: secret.reveal().to_owned(), token })))
}

/// List the tokens, those that are worthless too
#[utoipa::path(get, path = "/admin/tokens", operation_id = "listTokens", tag = "tokens", params(Page),
    responses((status = 200, body = TokenList)))]
async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(asked): Query<Page>,
) -> Answer<Json<TokenList>> {
    let limit = limit(asked.limit.or(Some(MAX_PAGE)))?;
    let wrong = || Problem::invalid_parameter("cursor", "is not the `next` of a page");
    let after = asked.cursor.as_deref().map(|cursor| After::parse(cursor).ok_or_else(wrong)).transpose()?;
    let tokens = app.tokens().page(principal.tenant.as_deref(), after.unwrap_or_default(), limit).await?;
    let next = tokens.last().filter(|_| tokens.len() == limit).map(|last| After::from(last).to_string());
    Ok(Json(TokenList { tokens, next }))
}

/// Make a token worthless; doing it again changes nothing
#[utoipa::path(delete, path = "/admin/tokens/{id}", operation_id = "revokeToken", tag = "tokens",
    params(("id" = String, Path, description = "The id of the token")),
    responses((status = 200, body = Token)))]
async fn revoke(State(app): State<App>, principal: Principal, Path(id): Path<String>) -> Answer<Json<Token>> {
    let revoked = app.tokens().revoke(&id, principal.tenant.as_deref()).await?;
    revoked.map(Json).ok_or_else(|| unknown(&id))
}

/// Give a token a new secret, under a new id; the old one goes on working for a while
///
/// The new token has the same name, role, scope and tenant, and lives as long as the old one was to live from its making.
#[utoipa::path(post, path = "/admin/tokens/{id}/rotate", operation_id = "rotateToken", tag = "tokens",
    params(("id" = String, Path, description = "The id of the token")),
    request_body = RotateToken, responses((status = 201, body = Rotated)))]
async fn rotate(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
    Json(asked): Json<RotateToken>,
) -> Answer<(StatusCode, Json<Rotated>)> {
    let overlap = asked.checked().map_err(invalid)?;
    let lives = &app.options().token_lives;
    let rotation = app.tokens().rotate(&id, principal.tenant.as_deref(), overlap, lives).await?;
    Ok((StatusCode::CREATED, Json(Rotated::of(rotation, &id)?)))
}

/// End every session of the console that stands for a token
#[utoipa::path(post, path = "/admin/tokens/{id}/sign-out", operation_id = "signOutToken", tag = "tokens",
    params(("id" = String, Path, description = "The id of the token")),
    responses((status = 200, body = SignedOut)))]
async fn end_sessions(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Answer<Json<SignedOut>> {
    let found = app.tokens().get(&id, principal.tenant.as_deref()).await?;
    let token = found.ok_or_else(|| unknown(&id))?;
    Ok(Json(SignedOut { ended: sign_out(app.store(), Some(token.id)).await? }))
}

/// End every session of the console; an admin with a tenant ends those of its tenant's tokens
#[utoipa::path(delete, path = "/admin/sessions", operation_id = "signOutEverywhere", tag = "tokens",
    responses((status = 200, body = SignedOut)))]
async fn end_all_sessions(State(app): State<App>, principal: Principal) -> Answer<Json<SignedOut>> {
    let Some(tenant) = &principal.tenant else {
        return Ok(Json(SignedOut { ended: sign_out(app.store(), None).await? }));
    };
    let mut ended = 0;
    for token in app.tokens().list(Some(tenant)).await? {
        ended += sign_out(app.store(), Some(token.id)).await?;
    }
    Ok(Json(SignedOut { ended }))
}

fn invalid(invalid: Invalid) -> Problem {
    Problem::invalid_field(invalid.field, invalid.reason)
}

fn unknown(id: &str) -> Problem {
    Problem::new(&error::TOKEN_NOT_FOUND, format!("There is no token {id:?}."))
}
