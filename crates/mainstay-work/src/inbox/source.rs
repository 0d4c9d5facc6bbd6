//! Sources of dead letters. The inbox lists every letter in one small row; a source keeps the rest of it.

use super::{Kind, Listed};
use crate::item::Attempted;
use futures_util::future::BoxFuture;
use mainstay_core::codes::ErrorCode;
use mainstay_core::failure::Failure;
use mainstay_store::Tx;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A source of dead letters: a service that keeps the letters of some kinds and knows how to deal with them.
///
/// The source writes the rows of its letters with [`put`](super::put), in the transaction in which a letter changes. The
/// methods on a transaction hold the source's own rows before rows of the inbox. They leave a letter out of their answer if it
/// was dealt with meanwhile.
pub trait Source: Send + Sync + 'static {
    /// Whether the source keeps letters of a kind.
    fn keeps(&self, kind: &Kind) -> bool;

    /// The letter as its source shows it; none if the source has only the row in the inbox.
    fn detail<'a>(&'a self, letter: &'a Listed) -> BoxFuture<'a, mainstay_store::Result<Option<Detail>>>;

    /// Failed attempts, the newest last, including those before a retry.
    fn history<'a>(&'a self, letter: &'a Listed) -> BoxFuture<'a, mainstay_store::Result<Vec<Attempt>>>;

    /// Retries pending and ignored letters. Items of a bulk operation wait behind items that are enqueued meanwhile.
    fn retry<'a>(
        &'a self,
        tx: &'a Tx,
        letters: &'a [&'a Listed],
        is_bulk: bool,
    ) -> BoxFuture<'a, mainstay_store::Result<Vec<Dealt>>>;

    /// Ignores pending letters.
    fn ignore<'a>(
        &'a self,
        tx: &'a Tx,
        letters: &'a [&'a Listed],
    ) -> BoxFuture<'a, mainstay_store::Result<Vec<Dealt>>>;

    /// Removes what the source keeps of letters that are not being retried. Their rows in the inbox go with them.
    fn purge<'a>(
        &'a self,
        tx: &'a Tx,
        letters: &'a [&'a Listed],
    ) -> BoxFuture<'a, mainstay_store::Result<Vec<Dealt>>>;
}

/// A letter that a source was asked to deal with: its number, and why the source left it as it is if it did.
pub type Dealt = (i64, Result<(), Refused>);

/// Why a source left a letter as it is.
#[derive(Debug)]
pub struct Refused {
    /// The entry of the error in the register of codes.
    pub entry: &'static ErrorCode,
    /// The error.
    pub error: mainstay_store::Error,
    /// Whether another node may do it: this one does not have the projection or target.
    pub is_elsewhere: bool,
}

impl From<crate::Error> for Refused {
    fn from(error: crate::Error) -> Self {
        Self { entry: error.entry(), error: error.into(), is_elsewhere: false }
    }
}

/// A letter as its source shows it, in JSON.
#[derive(Debug, Clone)]
pub struct Detail {
    /// The member of a letter's JSON under which it is shown.
    pub member: &'static str,
    /// The source's view.
    pub value: Box<RawValue>,
}

impl Detail {
    /// The view of a source.
    pub fn new(member: &'static str, value: &impl Serialize) -> mainstay_store::Result<Self> {
        let value = serde_json::value::to_raw_value(value).map_err(mainstay_store::Error::application)?;
        Ok(Self { member, value })
    }
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The item of work; none for an attempt without one: a projection that follows the log, a translator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_id: Option<String>,
    /// Which execution of the item, from 1.
    pub attempt: u32,
    /// Time of the failure.
    pub at_ms: i64,
    /// The failure.
    pub failure: Failure,
}

impl Attempt {
    /// An attempt of an item of work.
    pub fn of(work_id: &str, attempted: Attempted) -> Self {
        let Attempted { attempt, at_ms, failure } = attempted;
        Self { work_id: Some(work_id.to_owned()), attempt, at_ms, failure }
    }
}
