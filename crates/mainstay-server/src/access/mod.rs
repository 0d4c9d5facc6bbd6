//! Who may do what: every route has a [`Permission`], and every request passes the guard of its route.
//!
//! - `role`: what tokens allow
//! - `permission`: what routes ask for
//! - `scope`: what tokens of workers and publishers name
//! - `principal`: who asks
//! - `local`: whether a request without a token comes from this machine, and from no web page of elsewhere
//! - `guard`: the decision
//! - `quota`: how much one token or one tenant may hold at once
//! - `reserve`: what is served when all ordinary connections are taken
//! - `watch`: the same decision, again and again while an answer streams

pub(crate) mod guard;
pub(crate) mod local;
mod permission;
mod principal;
pub(crate) mod quota;
pub(crate) mod reserve;
mod role;
mod scope;
mod watch;

pub use permission::{Oversight, Permission, Rule};
pub use principal::Principal;
pub use role::{Role, UnknownRole};
pub(crate) use scope::Named;
pub use scope::{InvalidScope, Scope};

pub(crate) use guard::Visitor;
pub(crate) use local::is_loopback;
