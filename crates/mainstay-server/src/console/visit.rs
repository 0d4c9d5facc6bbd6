//! One request of somebody who is logged in.

use super::api::{Api, Fault};
use super::door::{cookie, peer};
use super::{Console, ROOT};
use crate::access::Role;
use crate::app::App;
use crate::extract::body;
use crate::lately::Followed;
use crate::{Principal, Problem, error};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use mainstay_core::trace::TraceContext;
use serde_json::Value;

/// The cookie of what is to be told on the next page.
pub(super) const TOLD: &str = "mainstay_told";

/// A session, as its holder knows it.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) secret: String,
    /// What its forms bring along.
    pub(super) csrf: String,
}

/// One request of somebody who is logged in.
#[derive(Clone)]
pub(super) struct Visit {
    pub(super) app: App,
    pub(super) api: Api,
    pub(super) session: Session,
    pub(super) principal: Principal,
    /// The path of the view below `/console`, without the slash in front.
    pub(super) view: String,
    pub(super) asked: Asked,
    /// What the last action came to.
    pub(super) told: Option<String>,
}

impl Visit {
    pub(super) fn new(console: &Console, parts: &Parts, session: Session, principal: Principal) -> Self {
        let api = Api {
            inside: console.inside.clone(),
            principal: principal.clone(),
            trace: parts.extensions.get::<TraceContext>().cloned(),
            peer: peer(parts),
            followed: Followed(false),
        };
        let view = parts.uri.path().strip_prefix(ROOT).unwrap_or_default();
        let view = view
            .strip_prefix("/live")
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .unwrap_or(view);
        let told = cookie(&parts.headers, TOLD).and_then(|value| {
            form_urlencoded::parse(format!("t={value}").as_bytes()).next().map(|(_, told)| told.into_owned())
        });
        Self {
            app: console.app.clone(),
            api,
            session,
            principal,
            view: view.trim_matches('/').to_owned(),
            asked: Asked::parse(parts.uri.query().unwrap_or_default()),
            told,
        }
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, Fault> {
        self.api.get(path).await
    }

    /// Whether this visitor may do what needs this role.
    pub(super) fn may(&self, role: Role) -> bool {
        self.principal.role >= role
    }

    /// The address of what is looked at, with its query.
    pub(super) fn here(&self) -> String {
        let path = if self.view.is_empty() { ROOT.to_owned() } else { format!("{ROOT}/{}", self.view) };
        self.asked.after(&path)
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.app.store().clock().now_ms()
    }
}

impl<S: Sync> FromRequestParts<S> for Visit {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let found = parts.extensions.get::<Self>().cloned();
        found.ok_or_else(|| Problem::internal("a page of the console was reached around its door"))
    }
}

/// What the query of an address asks for. Fields that were left empty were not asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked(Vec<(String, String)>);

/// A form, read within the size and the time that every body has.
impl FromRequest<Console> for Asked {
    type Rejection = Problem;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let bytes = body::read(body, &parts.extensions, console.app.options()).await?;
        Self::parse_form(bytes)
    }
}

/// Form of the login. It is short, because callers without a token send it.
pub(super) struct LoginForm(pub(super) Asked);

/// Most bytes of the form of the login: a token and the address of a page.
const MAX_LOGIN_BYTES: usize = 8 << 10;

impl FromRequest<Console> for LoginForm {
    type Rejection = Problem;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Problem> {
        let options = console.app.options();
        let most = options.max_body_bytes.min(MAX_LOGIN_BYTES);
        let bytes = body::read_at_most(most, request.into_body(), options).await?;
        Asked::parse_form(bytes).map(Self)
    }
}

impl Asked {
    fn parse_form(bytes: Vec<u8>) -> Result<Self, Problem> {
        let text = String::from_utf8(bytes);
        text.map(|text| Self::parse(&text))
            .map_err(|_| Problem::new(&error::BODY_INVALID, "The form is not UTF-8."))
    }

    pub(super) fn parse(query: &str) -> Self {
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        Self(
            pairs
                .filter(|(_, value)| !value.trim().is_empty())
                .map(|(name, value)| (name, value.trim().to_owned()))
                .collect(),
        )
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Everything that was asked.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// An address with these parameters, as far as they were asked, and further ones.
    pub(super) fn only(&self, path: &str, names: &[&str], further: &[(&str, &str)]) -> String {
        let kept = self.0.iter().filter(|(name, _)| names.contains(&name.as_str()));
        let kept = kept.map(|(name, value)| (name.as_str(), value.as_str()));
        address(path, kept.chain(further.iter().copied()))
    }

    /// An address with everything that was asked but these, and further ones.
    pub(super) fn with(&self, path: &str, further: &[(&str, &str)]) -> String {
        let is_new = |name: &str| further.iter().any(|(known, _)| *known == name);
        let kept = self.0.iter().filter(|(name, _)| !is_new(name));
        let kept = kept.map(|(name, value)| (name.as_str(), value.as_str()));
        address(path, kept.chain(further.iter().copied()))
    }

    /// An address with everything that was asked but this.
    pub(super) fn without(&self, path: &str, name: &str) -> String {
        address(path, self.pairs().filter(|(known, _)| *known != name))
    }

    fn after(&self, path: &str) -> String {
        self.with(path, &[])
    }
}

/// An address with a query.
pub(super) fn address<'a>(path: &str, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}
