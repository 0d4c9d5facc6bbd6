//! What the experiments on guards found out.

use serde::Serialize;

/// Everything that was found out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Facts {
    /// More calls than a limit allows.
    pub(crate) rush: Rush,
    /// A service that is down, and well again.
    pub(crate) outage: Outage,
}

/// Calls that want of one budget at once.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rush {
    /// How many there were.
    pub(crate) calls: usize,
    /// How many the budget had.
    pub(crate) capacity: u64,
    /// How many were allowed.
    pub(crate) allowed: usize,
    /// When the first of the others was told to come back.
    pub(crate) retry_after_ms: u64,
    /// How many commits all of them took.
    pub(crate) commits: u64,
}

/// Work for a service that was down for a while.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outage {
    /// How many items there were.
    pub(crate) items: usize,
    /// How many calls were made until the circuit opened.
    pub(crate) calls_until_open: usize,
    /// How many were made while it was open.
    pub(crate) calls_while_open: usize,
    /// How many items waited then, no attempt spent.
    pub(crate) waiting: usize,
    /// How many calls were made while nobody knew yet whether the service was well.
    pub(crate) probes: usize,
    /// How many items were carried out in the end.
    pub(crate) succeeded: usize,
}
