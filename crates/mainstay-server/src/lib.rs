//! The building: the HTTP API of Mainstay.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use mainstay_server::{Options, Server, equipped};
//!
//! let store = equipped(mainstay_store::Options::new("sqlite:mainstay.db")).open().await?;
//! let server = Server::bind(Options::default(), store).await?;
//! println!("{}", server.url());
//! server.run(std::future::pending()).await;
//! # Ok(()) }
//! ```
//!
//! # The way of a request
//! `listen` accepts a connection, within its limits; `observe` gives the request its span; `access` lets it in or
//! not, by the permission that `routing` wants of every route; `extract` reads it; a handler of `routes` answers.
//! Whatever goes wrong on the way is a [`Problem`], whose code is in the register.

mod access;
mod app;
pub mod audit;
mod console;
mod error;
pub mod extract;
mod figures;
mod glance;
mod health;
mod lately;
mod leftover;
mod listen;
mod masked;
mod metrics;
mod observe;
mod openapi;
mod options;
mod problem;
mod report;
mod rooms;
mod routes;
mod routing;
mod server;
mod shutdown;
pub mod tokens;

pub use access::{Oversight, Permission, Principal, Role, Rule, UnknownRole};
pub use app::App;
pub use error::{CODES, Error, Result};
pub use extract::{Json, Path, Query, Trace};
pub use health::HealthRules;
pub use options::{Options, defaults};
pub use problem::{Answer, MEDIA_TYPE as PROBLEM_MEDIA_TYPE, Problem};
pub use report::{EMIT_JOB, REPORT_TARGET};
pub use rooms::Rooms;
pub use routes::{Created, NewToken, TokenList};
pub use routing::{Route, Routes};
pub use server::{Handle, Server, Stopped};
pub use shutdown::Shutdown;
pub use tokens::Tokens;

/// The schema that a server needs; each is given to
/// [`Options::component`](mainstay_store::Options::component).
pub fn components() -> [mainstay_store::migrations::Component; 13] {
    [
        mainstay_events::COMPONENT,
        tokens::COMPONENT,
        audit::COMPONENT,
        console::COMPONENT,
        mainstay_flows::commands::COMPONENT,
        mainstay_flows::projections::COMPONENT,
        mainstay_flows::delivery::intents::COMPONENT,
        mainstay_flows::delivery::publications::COMPONENT,
        mainstay_work::COMPONENT,
        mainstay_flows::dead_letters::COMPONENT,
        mainstay_guards::circuits::COMPONENT,
        mainstay_guards::limits::store::COMPONENT,
        mainstay_guards::once::COMPONENT,
    ]
}

/// The options of a store with everything that a server needs.
pub fn equipped(options: mainstay_store::Options) -> mainstay_store::Options {
    components().into_iter().fold(options, mainstay_store::Options::component)
}
