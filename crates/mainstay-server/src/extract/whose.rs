//! The tenant that an id is of.

use super::Query;
use crate::{Principal, Problem};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::Deserialize;
use utoipa::IntoParams;

/// Ids are unique within a tenant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfTenant {
    /// The tenant that the id is of. Without it a token of a tenant means its own; any other means what has no tenant, or
    /// else the only one.
    tenant: Option<String>,
}

/// The tenant that an id is of: the token's, or the one that a caller of all tenants names.
#[derive(Debug)]
pub(crate) struct Whose(Option<String>);

impl Whose {
    /// The tenant; none when a caller of all tenants names none.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl<S: Sync> FromRequestParts<S> for Whose {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let principal = Principal::from_request_parts(parts, state).await?;
        let Query(OfTenant { tenant }) = Query::from_request_parts(parts, state).await?;
        match (principal.tenant, tenant) {
            (Some(own), Some(asked)) if own != asked => {
                let field = "tenant".to_owned();
                Err(mainstay_events::Error::Tenant { field }.into())
            }
            (own, asked) => Ok(Self(own.or(asked))),
        }
    }
}
