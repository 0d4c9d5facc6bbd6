//! Whether the server is well, and what is wrong when it is not.
//!
//! - `rules`: from when on something is wrong
//! - `look`: what there is to see, read on a snapshot that waits for no writer
//! - `watch`: looks at most once at a time, and answers in time whatever the load
//! - `verdict`: what was seen, as probes and people are told

mod look;
mod rules;
mod verdict;
mod watch;

pub use rules::HealthRules;
pub(crate) use verdict::{readiness, system};
pub(crate) use watch::Watch;
