//! Projections: following the log, failures, an operator's means.

mod following;
mod forged;
mod letters;
mod marks;
mod nodes;
mod numbers;
mod operating;
mod panics;
mod poison;
pub(crate) mod support;
mod tenants;
