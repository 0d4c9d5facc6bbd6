//! `/admin/tokens`: who may do what.

use super::{MAX_PAGE, limit};
use crate::access::{Principal, Role};
use crate::app::App;
use crate::tokens::{After, Invalid, New, Token};
use crate::{Answer, Json, Path, Permission, Problem, Query, Routes, error};
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

pub(super) fn routes() -> Routes {
    Routes::default().add(Permission::Admin, routes!(create, list)).add(Permission::Admin, routes!(revoke))
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
    /// After how many milliseconds it is worthless; never, when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

impl TryFrom<NewToken> for New {
    type Error = Invalid;

    fn try_from(asked: NewToken) -> Result<Self, Invalid> {
        let mut new = Self::named(&asked.name, asked.role)?;
        if let Some(tenant) = &asked.tenant {
            new = new.tenant(tenant)?;
        }
        match asked.expires_in_ms {
            Some(life_ms) => new.expires_in(Duration::from_millis(life_ms)),
            None => Ok(new),
        }
    }
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
    let new =
        New::try_from(asked).map_err(|invalid| Problem::invalid_field(invalid.field, invalid.reason))?;
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
    revoked
        .map(Json)
        .ok_or_else(|| Problem::new(&error::TOKEN_NOT_FOUND, format!("There is no token {id:?}.")))
}
