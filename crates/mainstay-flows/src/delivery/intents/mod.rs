//! Intents: a long operation is put between two events, and never just forgotten.
//!
//! Whoever begins a long operation records an intent: an event, a row and a durable timer, in one transaction. Whoever ends it
//! records the completion: another event. An intent without one is seen: its timer does what the intent says, and it is
//! listed among the orphans until then.
//!
//! | intent | completed | timer |
//! |---|---|---|
//! | pending | `completed`, `failed` or `abandoned`, with an event | `abandon`: abandoned, with an event · `alert`: told, and goes on · `retry`: its handler runs again, at last abandoned |
//! | ended in the same way, saying the same | nothing changes, and that is a success | nothing changes |
//! | ended otherwise | refused with `INTENT_ALREADY_ENDED` | nothing changes |
//!
//! Completion and timer hold the intent's row while they decide. So of two that come at once one is first, and the other
//! finds what it did.
//!
//! - [`NewIntent`], [`OnTimeout`]: what is begun, and what becomes of it when nobody ends it
//! - [`EventNames`], [`Operations`]: what the events of an operation are called
//! - [`Completion`]: how it ended; [`Intents`]: recording, completing and looking
//!
//! Behind them `record`, the table, and `timeout`, what the timer does.

mod intent;
mod names;
mod opened;
mod record;
mod schema;
mod timeout;

pub use intent::{Completion, CompletionStatus, Intent, IntentStatus, NewIntent, OnTimeout, Policy};
pub use names::{EventNames, Operations};
pub use opened::{Completed, Intents, Recorded};
pub use record::{IntentFilter, IntentPage, OpenIntents, Orphans, Place};
pub use schema::COMPONENT;
pub use timeout::TimedOut;

/// Longest metadata of an intent: its handler is called with them.
pub const MAX_METADATA_BYTES: usize = 32 << 10;
/// Longest time that an operation may take: 10 years.
pub const MAX_TIMEOUT_MS: u64 = 10 * 365 * 86_400_000;
/// Most rows of one page.
pub const MAX_PAGE: usize = 1_000;
