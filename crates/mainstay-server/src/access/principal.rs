//! Who asks.

use super::Role;
use crate::Problem;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// Who asks. A handler takes it as an argument; the guard of its route has put it there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// What it may do.
    pub role: Role,
    /// The tenant it is confined to; without one it sees all.
    pub tenant: Option<String>,
    /// The id of its token; without one it is somebody on this machine who needs none.
    pub token: Option<String>,
}

impl Principal {
    /// Somebody on this machine, while nobody needs a token.
    pub(crate) fn local() -> Self {
        Self { role: Role::Admin, tenant: None, token: None }
    }

    /// Whether it may touch what belongs to `tenant`.
    pub fn sees(&self, tenant: Option<&str>) -> bool {
        self.tenant.is_none() || self.tenant.as_deref() == tenant
    }
}

impl<S: Sync> FromRequestParts<S> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let found = parts.extensions.get::<Self>().cloned();
        found.ok_or_else(|| Problem::internal("a public route asks who asks"))
    }
}
