//! Calls of routes.

use crate::arguments::{Page, Whose};
use crate::{Error, Result};
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request};
use serde::Serialize;
use serde_json::json;
use std::fmt::Display;

/// A text as a part of a path, where a plus is a plus.
pub(crate) fn segment(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// A call of a route.
pub(crate) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<Vec<u8>>,
    pub(super) is_written: bool,
    pub(super) has_open_twin: bool,
}

impl Call {
    /// A call of a route such as `POST /admin/tokens/{id}/rotate`; `parameters` stand in its path in this order.
    pub(crate) fn new(route: &str, parameters: &[&str]) -> Self {
        let (method, path) = route.split_once(' ').unwrap_or_default();
        let mut parameters = parameters.iter();
        let parts = path.split('/').map(|part| match part.starts_with('{') {
            true => parameters.next().map(|text| segment(text)).unwrap_or_default(),
            false => part.to_owned(),
        });
        let path = parts.collect::<Vec<_>>().join("/");
        let method = method.parse().expect("routes begin with a method");
        let call = Self { method, path, body: None, is_written: false, has_open_twin: false };
        if matches!(call.method, Method::POST | Method::PUT) { call.with(&json!({})) } else { call }
    }

    /// With a parameter of the query, if it has a value.
    pub(crate) fn query(mut self, name: &str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            self.path.push(if self.path.contains('?') { '&' } else { '?' });
            self.path += &format!("{name}={}", segment(&value.to_string()));
        }
        self
    }

    /// About a page of a list.
    pub(crate) fn page(self, page: &Page) -> Self {
        self.query("limit", Some(page.limit)).query("cursor", page.cursor.as_ref())
    }

    /// About an id of this tenant.
    pub(crate) fn of(self, whose: &Whose) -> Self {
        self.query("tenant", whose.tenant())
    }

    /// With this body.
    pub(crate) fn with(self, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("our own types have string keys and finite numbers");
        Self { body: Some(body), ..self }
    }

    /// Audited in this process although applications make such calls all day.
    pub(crate) fn written(self) -> Self {
        Self { is_written: true, ..self }
    }

    /// A route below `/admin` that is below `/v1` as well, for callers at a server who show no token.
    pub(crate) fn or_v1(self) -> Self {
        Self { has_open_twin: true, ..self }
    }

    pub(super) fn request(self) -> Result<Request<Body>> {
        let body = self.body.map_or_else(Body::empty, Body::from);
        let request = Request::builder().method(self.method).uri(&self.path);
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        request.map_err(|error| Error::Argument(format!("{}: {error}", self.path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_its_parameters_in_their_order_and_cannot_be_left() {
        let call = Call::new("POST /admin/x/{a}/{b}/retry", &["../y", "c d"]);
        assert_eq!(call.path, "/admin/x/..%2Fy/c%20d/retry");
        let none: Option<&str> = None;
        let call =
            Call::new("GET /admin/x", &[]).query("a", Some("1+1&2")).query("b", none).query("c", Some(3));
        assert_eq!(call.path, "/admin/x?a=1%2B1%262&c=3");
    }
}
