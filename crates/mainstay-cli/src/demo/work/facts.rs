//! What the experiments on work found out.

use serde::Serialize;
use std::collections::BTreeMap;

/// Everything that was found out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Facts {
    /// A call that fails at first.
    pub(crate) payment: Payment,
    /// Calls that have keys.
    pub(crate) parcels: Parcels,
    /// A call that fails for good.
    pub(crate) letter: Letter,
}

/// A payment whose provider is away at first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Payment {
    /// Its executions, the first one first.
    pub(crate) attempts: Vec<Attempt>,
    /// How it ended.
    pub(crate) result: String,
    /// How many rows its `onComplete` has written.
    pub(crate) rows: u64,
}

/// One execution.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attempt {
    /// Which one it is, from 1.
    pub(crate) number: u32,
    /// How long after the item was enqueued it began.
    pub(crate) after_us: u64,
    /// What it failed with; nothing when it did not.
    pub(crate) failed: Option<String>,
}

/// Parcels of several customers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Parcels {
    /// The parcels of each customer, in the order in which they were sent.
    pub(crate) sent: BTreeMap<String, Vec<u32>>,
    /// How many were on their way at once, at most.
    pub(crate) at_once: usize,
    /// How many of one customer were.
    pub(crate) at_once_of_one: usize,
}

/// What is kept of an item that failed for good.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Letter {
    /// The function.
    pub(crate) function: String,
    /// What it was called with.
    pub(crate) args: String,
    /// What it failed with.
    pub(crate) error: String,
    /// After how many executions.
    pub(crate) attempts: u32,
    /// How it ended when it was tried again.
    pub(crate) tried_again: String,
}
