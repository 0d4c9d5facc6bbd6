//! The ground: one [`Store`] and one [`Tx`], over SQLite or PostgreSQL.
//!
//! ```
//! use mainstay_store::{Store, params};
//!
//! # async fn example() -> mainstay_store::Result<()> {
//! let store = Store::open("sqlite::memory:").await?;
//! store.transact(async |tx| tx.execute("CREATE TABLE notes (id BIGINT NOT NULL PRIMARY KEY, text TEXT)", &[]).await).await?;
//! let text = "remember".to_owned();
//! store
//!     .transact_with(text, async |tx, text| {
//!         tx.execute("INSERT INTO notes (id, text) VALUES ($1, $2)", params![1, text]).await
//!     })
//!     .await?;
//! let count: i64 = store
//!     .read(async |tx| tx.query_one("SELECT count(*) FROM notes", &[]).await?.get(0))
//!     .await?;
//! assert_eq!(count, 1);
//! # Ok(()) }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```
//!
//! # The rules of a transaction
//! - The closure may run more than once; only its last run counts.
//! - It does no other IO: a future that is pending while no operation of its `Tx` is outstanding is refused
//!   and rolled back. So is a panic. The neighbours of a refused transaction are not touched.
//! - A statement that fails ends its transaction, on both databases; `ON CONFLICT DO NOTHING` is how to ask.
//! - Dropping the future of [`Store::transact`] either commits all of it or none of it.
//! - Parameters are `$1…$n` on both databases.

#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
compile_error!("mainstay-store needs at least one of its drivers: enable feature `sqlite` or `postgres`");

pub mod backup;
pub mod batch;
mod body;
mod bridge;
mod bulk;
mod capabilities;
mod cause;
mod drivers;
mod epilogue;
mod error;
mod figures;
pub mod files;
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod guarded;
mod identifier;
mod location;
pub mod migrations;
mod options;
mod riding;
mod sql;
mod store;
pub mod system;
mod tx;
mod value;
mod wakeups;

pub use bulk::{Bulk, Column};
pub use capabilities::Capabilities;
pub use cause::{Cause, Inherited};
#[cfg(feature = "postgres")]
pub use drivers::postgres::Lent;
pub use epilogue::{AfterCommit, Ending, Epilogue};
pub use error::{CODES, Constraint, Error, Result};
pub use figures::Figures;
pub use identifier::{Identifier, IdentifierError, Literal, MAX_IDENTIFIER_BYTES};
pub use location::Location;
pub use options::{Durability, Isolation, Options, defaults};
pub use riding::riding;
pub use store::Store;
pub use tx::{Hold, Tx};
pub use value::{ColumnIndex, FromValue, Row, Value};
pub use wakeups::{Listener, Topic};
