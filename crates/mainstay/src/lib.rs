//! Mainstay: the durable back end of an event-sourced application.
//!
//! An application decides; Mainstay makes sure that what was decided is recorded once, carried out, retried,
//! limited, observed and repairable. Everything durable commits in one SQL transaction, on SQLite or PostgreSQL.
//!
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! use mainstay::prelude::*;
//!
//! # #[tokio::main] async fn main() -> Result<()> {
//! let store = Store::open("sqlite::memory:").await?;
//! store
//!     .transact(async |tx| {
//!         tx.execute("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, item TEXT NOT NULL)", &[]).await?;
//!         tx.execute("INSERT INTO orders (id, item) VALUES ($1, $2)", params![1, "lamp"]).await
//!     })
//!     .await?;
//! let item: String =
//!     store.read(async |tx| tx.query_one("SELECT item FROM orders WHERE id = 1", &[]).await?.get("item")).await?;
//! assert_eq!(item, "lamp");
//! # Ok(()) }
//! ```
//!
//! # Features
//! - `sqlite` (default): the embedded store, `sqlite:FILE` and `sqlite::memory:`
//! - `postgres`: the shared store, `postgres://…`
//! - `redis`: rate limits in Redis
//! - `axum`: layers know axum's routes and connections, and what comes to an inbox is an extractor
//!
//! The crates are re-exported under short names: [`core`] (pure rules), [`store`] (transactions), [`events`] (log), [`guards`]
//! (rate limits, circuits, retries), [`work`] (pools, timers, crons), and [`flows`] (commands, projections, delivery).

pub use mainstay_core as core;
pub use mainstay_events as events;
pub use mainstay_flows as flows;
pub use mainstay_guards as guards;
pub use mainstay_runtime::{Builder, Error, Handle, Mainstay, Services};
pub use mainstay_store as store;
pub use mainstay_work as work;

/// What nearly every file of an application needs.
pub mod prelude {
    pub use crate::{Handle, Mainstay};
    pub use mainstay_events::{Append, Condition, Log, NewEvent, Query, Selection};
    pub use mainstay_flows::commands::{
        Boundary, Command, Commands, Decided, Decider, Decision, DomainEvent, Handling, Moment, Outcome,
        Rejection,
    };
    pub use mainstay_flows::projections::{Projection, Registry};
    pub use mainstay_store::{Error, Options, Result, Store, Tx, Value, params};
    pub use mainstay_work::{Call, Failure, Functions, NewWork, OnComplete, Pool, Work};
}

/// The examples of the documents are compiled, and those that need no server are run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../CONTRIBUTING.md")]
    mod contributing {}
    #[doc = include_str!("../../../docs/examples.md")]
    mod examples {}
    #[doc = include_str!("../../../docs/concepts/circuits.md")]
    mod circuits {}
    #[doc = include_str!("../../../docs/concepts/commands.md")]
    mod commands {}
    #[doc = include_str!("../../../docs/concepts/dead-letters.md")]
    mod dead_letters {}
    #[doc = include_str!("../../../docs/concepts/delivery.md")]
    mod delivery {}
    #[doc = include_str!("../../../docs/concepts/events.md")]
    mod events {}
    #[doc = include_str!("../../../docs/concepts/projections.md")]
    mod projections {}
    #[doc = include_str!("../../../docs/concepts/retries.md")]
    mod retries {}
    #[doc = include_str!("../../../docs/concepts/idempotency.md")]
    mod idempotency {}
    #[doc = include_str!("../../../docs/concepts/limits.md")]
    mod limits {}
    #[doc = include_str!("../../../docs/concepts/work.md")]
    mod work {}
    #[doc = include_str!("../../../docs/concepts/transactions.md")]
    mod transactions {}
    #[doc = include_str!("../../../docs/concepts/sql.md")]
    mod sql {}
    #[doc = include_str!("../../../docs/operations/store.md")]
    mod store {}
    #[doc = include_str!("../../../docs/operations/trusted-proxies.md")]
    mod trusted_proxies {}
}
