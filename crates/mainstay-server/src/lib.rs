//! The building: the HTTP API of Mainstay.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use mainstay_server::{COMPONENT, Options, Server};
//!
//! let store = mainstay_store::Options::new("sqlite:mainstay.db").component(COMPONENT).open().await?;
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
mod error;
pub mod extract;
mod figures;
mod listen;
mod metrics;
mod observe;
mod openapi;
mod options;
mod problem;
mod routes;
mod routing;
mod server;
mod shutdown;
pub mod tokens;

pub use access::{Permission, Principal, Role, Rule, UnknownRole};
pub use app::App;
pub use error::{CODES, Error, Result};
pub use extract::{Json, Path, Query, Trace};
pub use options::{Options, defaults};
pub use problem::{Answer, MEDIA_TYPE as PROBLEM_MEDIA_TYPE, Problem};
pub use routes::{Created, NewToken, TokenList};
pub use routing::{Route, Routes};
pub use server::{Handle, Server, Stopped};
pub use shutdown::Shutdown;
pub use tokens::{COMPONENT, Tokens};
