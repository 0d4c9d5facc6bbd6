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
#[doc(hidden)]
pub mod fuzz;
mod glance;
mod health;
mod lately;
mod leftover;
mod listen;
mod local;
mod masked;
mod metrics;
mod observe;
mod openapi;
mod options;
mod problem;
mod recorded;
mod report;
mod routes;
mod routing;
mod server;
mod shutdown;
pub mod tokens;

pub use access::{InvalidScope, Oversight, Permission, Principal, Role, Rule, Scope, UnknownRole};
pub use app::App;
pub use console::sign_out;
pub use error::{CODE_TABLES, CODES, Error, Result};
pub use extract::{Json, Path, Query, Trace};
pub use health::HealthRules;
pub use local::{Local, LocalAnswer};
pub use mainstay_api::problem::MEDIA_TYPE as PROBLEM_MEDIA_TYPE;
pub use mainstay_runtime::{Builder, Services};
pub use options::{Options, defaults};
pub use problem::{Answer, Problem};
pub use report::{EMIT_JOB, REPORT_TARGET};
pub use routes::{Created, NewToken, RotateToken, Rotated, SignedOut, TokenList};
pub use routing::{Route, Routes};
pub use server::{Handle, Server, Stopped};
pub use shutdown::Shutdown;
pub use tokens::Tokens;

/// Tables of the services and of the server, as components for [`Options::component`](mainstay_store::Options::component).
pub fn components() -> impl Iterator<Item = mainstay_store::migrations::Component> {
    let own = [tokens::COMPONENT, audit::COMPONENT, console::COMPONENT, mainstay_guards::once::COMPONENT];
    mainstay_runtime::components().into_iter().chain(own)
}

/// The options of a store with everything that a server needs.
pub fn equipped(options: mainstay_store::Options) -> mainstay_store::Options {
    components().fold(options, mainstay_store::Options::component)
}
