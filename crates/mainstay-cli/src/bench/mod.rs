//! Measuring Mainstay: a load generator, and what each verb of `mainstay bench` does with it.
//!
//! What the verbs are asked for, and what is said of what was measured, is in `verbs::bench`.
//!
//! The same work done by peers, side by side, is in the workspace `bench/`, which uses this load generator.

pub mod disk;
pub mod events;
pub mod limits;
pub mod load;
pub mod operate;
pub mod publications;
pub mod replay;
pub mod store;
pub mod table;
pub mod work;
