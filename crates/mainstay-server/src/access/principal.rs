//! Who asks.

use super::{Named, Role, Scope};
use crate::{Answer, Problem, error};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mainstay_guards::http::Caller;
use std::sync::Arc;

/// Who asks. A handler takes it as an argument; the guard of its route has put it there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// What it may do.
    pub role: Role,
    /// The tenant it is confined to; without one it sees all.
    pub tenant: Option<String>,
    /// The id of its token; without one it is somebody on this machine who needs none.
    pub token: Option<String>,
    /// Name of a user of this machine who has opened the store, and calls the API in the same process.
    pub user: Option<String>,
    /// The scope of a worker's or a publisher's token; tokens of other roles have none.
    pub scope: Option<Arc<Scope>>,
}

impl Principal {
    /// Somebody on this machine, while nobody needs a token.
    pub(crate) fn local() -> Self {
        Self { role: Role::Admin, tenant: None, token: None, user: None, scope: None }
    }

    /// A user who has opened the store in this process. The database would let them change anything.
    pub(crate) fn user(name: String) -> Self {
        Self { user: Some(name), ..Self::local() }
    }

    /// Who it is, for whoever asks later who it was.
    pub fn name(&self) -> &str {
        self.token.as_deref().or(self.user.as_deref()).unwrap_or("local")
    }

    /// Who it is, for guards that keep something for each caller.
    pub(crate) fn caller(&self) -> Caller {
        Caller { user: Some(self.name().into()), tenant: self.tenant.as_deref().map(Into::into) }
    }

    /// The same, if it is confined to no tenant: what belongs to none can be reached by nobody else.
    pub(crate) fn unconfined(self, what: &str) -> Result<Self, Problem> {
        match self.tenant {
            None => Ok(self),
            Some(_) => {
                let detail = format!("{what} belongs to no tenant; a token that has one cannot reach it.");
                Err(Problem::new(&error::UNAUTHORIZED, detail))
            }
        }
    }

    /// Whether its scope names this. Tokens of other roles than worker and publisher name everything.
    pub(crate) fn names(&self, kind: Named, name: &str) -> bool {
        !self.role.is_scoped() || self.scope.as_ref().is_some_and(|scope| scope.names(kind, name))
    }

    /// Whether its scope has this name in full, not by a pattern. Tokens of other roles than worker and publisher have every name.
    pub(crate) fn spells(&self, kind: Named, name: &str) -> bool {
        !self.role.is_scoped() || self.scope.as_ref().is_some_and(|scope| scope.spells(kind, name))
    }

    /// Refuses what its scope does not name; `field` is where the request says it.
    pub(crate) fn check(&self, kind: Named, name: &str, field: &str) -> Answer<()> {
        if self.names(kind, name) {
            return Ok(());
        }
        let detail = format!("{field}: the token's scope does not name the {} {name:?}", kind.noun());
        Err(Problem::new(&error::NOT_IN_SCOPE, detail).of_field(field).with("scope", kind.list()))
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
