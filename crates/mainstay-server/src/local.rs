//! The API without a listener, for a program that has opened the store itself.
//!
//! The caller is a user of this machine with the role admin, because the database would let them change anything. Their changes
//! are audited under their name. Nothing runs in the background, and the OpenAPI document is empty.

use crate::access::guard::{Inside, Written};
use crate::app::App;
use crate::routing::Routes;
use crate::{Options, Principal, Services, routes};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use mainstay_core::trace::TraceContext;
use tower::ServiceExt;

/// The API, in this process.
pub struct Local {
    app: App,
    router: Router,
    principal: Principal,
}

/// A response whose body is read after its status.
pub struct LocalAnswer {
    /// HTTP status.
    pub status: StatusCode,
    body: Body,
}

impl Local {
    /// The API on these services, for the user of this name.
    pub fn new(options: Options, services: Services, user: String) -> Self {
        let address = options.listen;
        let app = App::open(options, address, services, String::new());
        let router = Routes::build_inside(routes::all(), &app);
        Self { app, router, principal: Principal::user(user) }
    }

    /// The services.
    pub fn services(&self) -> &Services {
        self.app.services()
    }

    /// Calls a route. With `is_written` the call is audited even if the route is one that applications call all day.
    pub async fn call(&self, request: Request<Body>, is_written: bool) -> LocalAnswer {
        let mut request = request;
        let known = request.extensions_mut();
        known.insert(Inside(self.principal.clone()));
        known.insert(TraceContext::root(self.app.random()));
        if is_written {
            known.insert(Written);
        }
        let Ok(answer) = self.router.clone().oneshot(request).await;
        LocalAnswer { status: answer.status(), body: answer.into_body() }
    }
}

impl LocalAnswer {
    /// The next part of the body; none at its end, or when it broke off.
    pub async fn part(&mut self) -> Option<Bytes> {
        loop {
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                return Some(data);
            }
        }
    }

    /// The whole body.
    pub async fn bytes(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(part) = self.part().await {
            bytes.extend_from_slice(&part);
        }
        bytes
    }
}
