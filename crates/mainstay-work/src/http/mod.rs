//! HTTP functions: work that is carried out by a `POST` to somebody's endpoint.
//!
//! A call never trusts the other side: it connects only to addresses that the [egress rules](crate::egress) let
//! through, follows no redirects, waits no longer than its timeout for all of it, and reads no more than its limit.
//! Whatever happens becomes a value or a [`Failure`] that the retry policy understands.
//!
//! `action` lets a node have such functions; `function` makes a call; `signature` is how the receiver knows who called;
//! `client` keeps the connections; `connect` opens one; `reply` makes sense of what comes back; `confided` is what it
//! must not repeat.

mod action;
mod client;
mod confided;
mod connect;
mod function;
mod reply;
mod signature;

pub use client::Client;
pub use connect::{Resolver, SystemResolver};
pub use function::{ConfigError, HttpConfig, HttpFunction, Post, Request};
pub use mainstay_core::failure::Failure;
pub use signature::{Secret, SignatureError, sign, verify_signature};
