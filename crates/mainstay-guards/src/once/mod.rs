//! Requests that are sent again are carried out once.
//!
//! A request with an `Idempotency-Key` runs, and its answer is kept; the same request with the same key is answered with
//! that. The other side of [`IdempotencyKeyLayer`](crate::retry::IdempotencyKeyLayer), after
//! draft-ietf-httpapi-idempotency-key-header.
//!
//! - `layer`: the tower layer
//! - `execution`: one request that runs
//! - `key`: the header
//! - `body`: bodies of answers
//! - `keeper`: where answers are kept; [`Answers`] in a store, [`MemoryKeeper`] in the memory of one process
//!
//! # What holds
//! - Of all requests with a key, one runs at a time, on all nodes. It holds a lease that is extended while it runs; when its
//!   process dies, the key is free once the lease is over, and the request may run again.
//! - It runs to its end also when its client goes away, which is when clients send it again.
//! - A key belongs to a caller. Nobody sees the answers of others, whatever key they guess.
//! - Answers that say that nothing was done (408, 425, 429, 503) are not kept.

mod body;
mod execution;
mod keeper;
mod key;
mod layer;
mod memory;
mod store;

pub use body::AnswerBody;
pub use keeper::{Begun, Fingerprint, Id, Keeper, Kept, Pending};
pub use layer::{Once, OnceLayer};
pub use memory::MemoryKeeper;
pub use store::{Answers, COMPONENT};
