//! `/console`: the web console, in the same binary and without a build step of its own.
//!
//! - `api`: the console is a client of the JSON API that lives in the same process: every question and every action passes the
//!   guard, the roles, the tenants, the limits and the audit that a call from outside passes
//! - `sessions`: who is logged in; `login`: how one comes in and out; `door`: what every request passes
//! - `visit`: one request of somebody who is logged in; `page`: what surrounds every view
//! - `views`: the views, one file each, and the table of their paths; `parts`: what they are made of
//! - `live`: a view again and again, as long as somebody looks at it
//! - `act`: what a form does
//! - `past`: how things were in the last minutes
//! - `assets`: the style, the script, and htmx

mod act;
mod api;
mod assets;
mod door;
mod live;
mod login;
mod page;
mod parts;
mod past;
mod sessions;
mod views;
mod visit;

pub(crate) use past::{Past, remember};
pub use sessions::sign_out;
pub(crate) use sessions::{COMPONENT, Sessions};

use crate::app::App;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

/// Where everything of the console is.
pub(crate) const ROOT: &str = "/console";
/// Where one logs in.
pub(crate) const LOGIN: &str = "/console/login";

/// What the handlers of the console can reach.
#[derive(Clone)]
pub(crate) struct Console {
    app: App,
    /// The JSON API, without what only calls from outside pass.
    inside: Router,
}

/// The routes of the console, which asks `inside`.
pub(crate) fn router(app: &App, inside: Router) -> Router<App> {
    let console = Console { app: app.clone(), inside };
    let known = Router::new()
        .route(ROOT, get(views::show))
        .route("/console/{*view}", get(views::show))
        .route("/console/live", get(live::follow))
        .route("/console/live/{*view}", get(live::follow))
        .route("/console/act", post(act::act))
        .route("/console/logout", post(login::leave))
        .layer(from_fn_with_state(console.clone(), door::known));
    let open = Router::new()
        .route(LOGIN, get(login::form).post(login::enter))
        .route("/console/assets/{name}", get(assets::serve));
    open.merge(known).layer(from_fn_with_state(console.clone(), door::every)).with_state(console)
}
