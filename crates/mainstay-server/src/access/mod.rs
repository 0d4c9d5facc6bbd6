//! Who may do what: every route has a [`Permission`], and every request passes the guard of its route.
//!
//! - `role`: what tokens allow
//! - `permission`: what routes ask for
//! - `principal`: who asks
//! - `local`: whether a request without a token comes from this machine, and from no web page of elsewhere
//! - `guard`: the decision
//! - `watch`: the same decision, again and again while an answer streams

pub(crate) mod guard;
pub(crate) mod local;
mod permission;
mod principal;
mod role;
mod watch;

pub use permission::{Oversight, Permission, Rule};
pub use principal::Principal;
pub use role::{Role, UnknownRole};

pub(crate) use local::is_loopback;
