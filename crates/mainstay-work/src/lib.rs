//! The workshop: functions that are carried out durably, in pools.
//!
//! # What holds
//! - An item that was enqueued in a committed transaction ends exactly once: success, failed or canceled. Its
//!   `onComplete` runs exactly once if it is a mutation, and at least once otherwise.
//! - A mutation's effect, its completion and the work it enqueues are one transaction.
//! - Items of one key run one at a time and in order, across retries, nodes and crashes.
//! - Whoever lost its lease can change nothing.
//! - What ends failed is kept, with all that is needed to try it again.

mod behind;
mod blame;
pub mod bounds;
mod claim;
#[doc(hidden)]
pub mod completion;
mod crons;
pub mod dead_letters;
mod delete;
mod directory;
pub mod egress;
mod engine;
mod enqueue;
mod error;
mod figures;
mod fronts;
mod functions;
mod hasten;
pub mod http;
pub mod inbox;
mod item;
mod keys;
mod lease;
mod letters;
mod listing;
mod many;
mod marks;
mod next;
pub mod pool;
mod pull;
mod retrier;
mod schema;
#[doc(hidden)]
pub mod service;
mod settle;
#[cfg(test)]
mod simulation;
mod span;
mod status;
mod statuses;
mod work;

pub use behind::Started;
pub use crons::{Cron, CronStatus, Missed};
pub use engine::Engine;
pub use enqueue::{Enqueued, Receipt};
pub use error::{CODES, Error, Result};
pub use figures::{Attempts, Figures};
pub use functions::{ActionAnswer, Call, Cancel, Completes, FunctionKind, Functions, Recording, Running};
pub use hasten::Hastened;
pub use item::{Attempted, NewWork, OnComplete, WorkResult};
pub use letters::{Letter, LetterFilter, LetterStatus};
pub use listing::{Details, Front, KeyPage, KeyQueue, ListPage, ListQuery};
pub use mainstay_core::failure::{Class, Failure};
pub use mainstay_core::retry::RetryPolicy;
pub use mainstay_core::schedule::{Schedule, ScheduleError};
pub use many::WorkFilter;
pub use pool::{Depth, Pool, PoolStatus};
pub use pull::{Extended, MAX_WAIT, Pull, Pulled, PulledItem};
pub use retrier::{RETRIER_POOL, RunOptions, TIMER_POOL};
pub use schema::COMPONENT;
pub use status::{Canceled, Native, State, Status};
pub use statuses::PoolPage;
pub use work::Work;

/// Longest args, context and return value.
pub const MAX_VALUE_BYTES: usize = 64 << 10;
/// Longest key.
pub const MAX_KEY_BYTES: usize = 512;
/// Longest id of a correlation, a cause or a tenant.
pub const MAX_ID_BYTES: usize = 256;
/// Longest name of a pool, a function or a cron.
pub const MAX_NAME_BYTES: usize = 128;
/// Most items of one call.
pub const MAX_BATCH: usize = 10_000;
/// Most completions that may lead to each other.
pub const MAX_DEPTH: u32 = 32;
/// Most rows of one page.
pub const MAX_PAGE: usize = 1_000;
