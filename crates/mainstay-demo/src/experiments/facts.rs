//! What the experiments of the demo found out. With `--json` this is the answer.

use super::log;
use serde::Serialize;

/// Everything that was found out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// Where the store is.
    pub store: String,
    /// How its commits are made durable.
    pub durability: String,
    /// What the log did.
    pub log: log::Facts,
    /// Transactions one after another.
    pub one_by_one: Round,
    /// The same transactions all at once.
    pub together: Round,
    /// All at once, with two that misbehave among them.
    pub with_culprits: Culprits,
    /// What a listener heard.
    pub wakeup: Wakeup,
    /// What a second opening of the store was told; nothing when it was let in.
    pub second_opening: Option<Refusal>,
}

/// Some transactions and what they cost.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Round {
    /// How many were acknowledged.
    pub transactions: u64,
    /// How many commits they took; each is one fsync on SQLite.
    pub commits: u64,
    /// How long all of it took.
    pub elapsed_us: u64,
    /// How long a commit took on average.
    pub mean_commit_us: u64,
}

/// What became of a round with culprits in it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Culprits {
    /// The round.
    #[serde(flatten)]
    pub round: Round,
    /// How many rows are there afterwards.
    pub rows: u64,
    /// What each culprit was told.
    pub refused: Vec<Refusal>,
}

/// An error that somebody was told.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Its code.
    pub code: &'static str,
    /// Its text.
    pub message: String,
}

impl From<mainstay::store::Error> for Refusal {
    fn from(error: mainstay::store::Error) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}

/// What a listener heard.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wakeup {
    /// Whether a transaction that was rolled back woke it.
    pub after_rollback: bool,
    /// How long after the transaction was begun the one that committed woke it; nothing when it did not.
    pub after_commit_us: Option<u64>,
}
