//! Commands: what somebody wants to happen, decided once.
//!
//! - `boundary`: which events a decision rests on
//! - `codec`: between an author's events and those of the log
//! - `decider`: what an author writes
//! - `fold`: the state that a decision rests on, read from the log
//! - `given`: the tests of a decider, without a store
//! - `snapshots`: states of long histories, kept
//! - [`testing`]: what authors test with
//! - `upcast`: data of older versions, brought up to date as they are read
//! - `variant`: how serde sees an enum, which is what the codec stands on

mod boundary;
mod codec;
mod decider;
mod fold;
mod given;
mod snapshots;
pub mod testing;
mod upcast;
mod variant;

pub use boundary::Boundary;
pub use codec::{DomainEvent, Unreadable, decode, encode};
pub use decider::{Decided, Decider, Decision, Moment, Rejection};
pub use fold::{Considered, Folded, decide_in, fold_in};
pub use snapshots::{CREATE_SNAPSHOTS, Snapshots};
pub use upcast::Upcasters;
