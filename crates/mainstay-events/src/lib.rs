//! The ledger: one log of events, with dynamic consistency boundaries.
//!
//! ```
//! use mainstay_events::{Append, Condition, Log, NewEvent, Selection};
//! use mainstay_store::Options;
//!
//! # async fn example() -> mainstay_events::Result<()> {
//! let store = Options::new("sqlite::memory:").component(mainstay_events::COMPONENT).open().await?;
//! let log = Log::open(&store).await?;
//! let placed = NewEvent::new("OrderPlaced", &"lamp")?.tag("order:1");
//! let once = Condition::no_tag("order:1")?;
//! let receipt = log.append(Append::from(placed.clone()).unless(once.clone())).await?;
//! assert_eq!(receipt.events[0].position, 1);
//! let again = log.append(Append::from(placed).unless(once)).await;
//! assert_eq!(again.unwrap_err().code(), "APPEND_CONDITION_FAILED");
//! let page = log.read(&Selection::all(), 100).await?;
//! assert_eq!(page.events[0].event_type(), "OrderPlaced");
//! # Ok(()) }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```
//!
//! # What holds
//! - Positions are dense from 1, in the order of commits, on both databases: who has seen position n has seen
//!   everything up to n.
//! - A condition is checked against exactly what is in the log when the append is committed.
//! - An append is done once for its idempotency key, however often it is sent.
//! - An event that does not fit its checksums is never served.
//! - What was erased is gone, and everybody can see that it was.

mod append;
mod backwards;
mod by_id;
pub mod dcb;
mod error;
mod event;
mod figures;
mod index;
mod keep;
mod log;
mod read;
mod record;
mod schema;
mod subscribe;

pub use append::{
    Append, Appended, AppendedEvent, Condition, NewEvent, NewStream, Receipt, ScopeClaim, Status,
};
pub use error::{CODES, Error, Result, Reuse, Versioned, Witness};
pub use event::{Category, Event, StreamPlace};
pub use figures::{Figures, NO_STREAM};
pub use keep::{
    Damage, Erased, Erasure, Problem, Progress, Repaired, Report, Restored, Stage, restore, restore_with,
};
pub use log::Log;
pub use mainstay_core::keys::{IdempotencyKey, ScopeKey};
pub use mainstay_core::query::{Item, Query, QueryError};
pub use read::{Page, Selection, StreamPage};
pub use schema::COMPONENT;
pub use subscribe::Subscription;

/// Most events of one append.
pub const MAX_EVENTS: usize = 100;
/// Longest data, and longest metadata, of an event.
pub const MAX_VALUE_BYTES: usize = 64 << 10;
/// Most tags of an event.
pub const MAX_TAGS: usize = 64;
/// Longest id of an event, correlation, causation, context or tenant.
pub const MAX_ID_BYTES: usize = 256;
/// Most events of one page.
pub const MAX_PAGE: usize = 1_000;

/// What is woken when events were appended.
pub fn events_topic() -> mainstay_store::Topic {
    mainstay_store::Topic::new("mainstay.events").expect("a constant that fits")
}

/// What is woken when a refused idempotency key was written down.
pub(crate) fn audits_topic() -> mainstay_store::Topic {
    mainstay_store::Topic::new("mainstay.idempotency_audits").expect("a constant that fits")
}
