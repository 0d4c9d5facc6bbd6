//! Publications: events of one context, delivered to others.
//!
//! - [`Target`]: a context that events are delivered to, and how: by a handler or a subscriber of this process, as a
//!   [`Webhook`], or over a [`Transport`] of one's own
//! - [`Targets`]: those of a program, before they are opened; [`Publisher`]: the same on a store
//! - [`PublicEvent`]: an event as others see it; `cloud` is how it looks on the wire
//! - [`Publication`]: one event for one target, and where it stands: `status` has the table
//! - [`Letter`]: a publication that was not delivered; `source` makes them dead letters of the inbox
//! - [`Upkeep`]: what is done about letters and old rows by itself
//!
//! `record` owns the table, `deliver` carries a publication out as work with what `loader` reads, `ended` notes what came of it in the transaction
//! that ends that work. `search` finds publications for pages.

mod cloud;
mod deliver;
mod ended;
mod event;
mod forward;
mod letters;
mod listing;
mod loader;
mod look;
mod publisher;
mod record;
mod schema;
mod search;
mod source;
mod status;
mod target;
mod targets;
mod upkeep;
mod webhook;

pub use cloud::{CONTENT_TYPE, CloudEvent};
pub use event::PublicEvent;
pub use letters::{Letter, LetterFilter, LetterPage, LetterStats, LetterStatus};
pub use look::{Publication, PublicationFilter, PublicationPage};
pub use publisher::{Published, Publisher};
pub use schema::COMPONENT;
pub use status::{Ended, Status, next};
pub use target::{Delivery, Target, Transport};
pub use targets::{Retry, Targets};
pub use upkeep::{Tended, Upkeep};
pub use webhook::Webhook;

/// The pool that publications are delivered in, unless a target has its own.
pub const POOL: &str = "publicationPool";
/// Longest name of a target or a source context.
pub const MAX_NAME_BYTES: usize = 64;
/// Most targets of one publication.
pub const MAX_TARGETS: usize = 100;
/// Most targets of a program. Each has functions, and may have a pool of its own.
pub const MAX_TARGETS_OF_PROGRAM: usize = 1_000;
/// Longest data of an event.
pub const MAX_DATA_BYTES: usize = 64 << 10;
/// Most rows of one page.
pub const MAX_PAGE: usize = 1_000;
