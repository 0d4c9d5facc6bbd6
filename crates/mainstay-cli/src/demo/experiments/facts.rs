//! What the experiments of the demo found out. With `--json` this is the answer.

use super::log;
use serde::Serialize;

/// Everything that was found out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Facts {
    /// Where the store is.
    pub(crate) store: String,
    /// How its commits are made durable.
    pub(crate) durability: String,
    /// What the log did.
    pub(crate) log: log::Facts,
    /// Transactions one after another.
    pub(crate) one_by_one: Round,
    /// The same transactions all at once.
    pub(crate) together: Round,
    /// All at once, with two that misbehave among them.
    pub(crate) with_culprits: Culprits,
    /// What a listener heard.
    pub(crate) wakeup: Wakeup,
    /// What a second opening of the store was told; nothing when it was let in.
    pub(crate) second_opening: Option<Refusal>,
}

/// Some transactions and what they cost.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Round {
    /// How many were acknowledged.
    pub(crate) transactions: u64,
    /// How many commits they took; each is one fsync on SQLite.
    pub(crate) commits: u64,
    /// How long all of it took.
    pub(crate) elapsed_us: u64,
    /// How long a commit took on average.
    pub(crate) mean_commit_us: u64,
}

/// What became of a round with culprits in it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Culprits {
    /// The round.
    #[serde(flatten)]
    pub(crate) round: Round,
    /// How many rows are there afterwards.
    pub(crate) rows: u64,
    /// What each culprit was told.
    pub(crate) refused: Vec<Refusal>,
}

/// An error that somebody was told.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Refusal {
    /// Its code.
    pub(crate) code: &'static str,
    /// Its text.
    pub(crate) message: String,
}

impl From<mainstay::store::Error> for Refusal {
    fn from(error: mainstay::store::Error) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}

/// What a listener heard.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wakeup {
    /// Whether a transaction that was rolled back woke it.
    pub(crate) after_rollback: bool,
    /// How long after the transaction was begun the one that committed woke it; nothing when it did not.
    pub(crate) after_commit_us: Option<u64>,
}
