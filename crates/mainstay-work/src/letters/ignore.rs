//! Leaving letters for good.

use super::LetterStatus;
use super::table::{hold, known_ids};
use crate::enqueue::{text, uuid};
use crate::error::{Error, Result};
use crate::inbox;
use crate::work::Work;
use mainstay_store::Column::Blob;
use mainstay_store::{Bulk, Tx, Value};
use std::sync::LazyLock;

static IGNORE: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::among("UPDATE mainstay_letters SET status = 2 WHERE status + 0 = 0 AND id IN ({values})", Blob)
});

impl Work {
    /// Leaves a letter for good; it is kept until it is purged.
    pub async fn ignore_letter(&self, work_id: &str) -> Result<()> {
        let ignore = async |tx: Tx, (work, id): (Self, String)| work.ignore_letter_in(&tx, &id).await;
        Ok(self.store().transact_with((self.clone(), work_id.to_owned()), ignore).await?)
    }

    /// As [`ignore_letter`](Self::ignore_letter), in a transaction.
    pub async fn ignore_letter_in(&self, tx: &Tx, work_id: &str) -> mainstay_store::Result<()> {
        match self.ignore_letters_in(tx, &[work_id.to_owned()]).await?.is_empty() {
            true => Err(Error::LetterNotFound(work_id.to_owned()).into()),
            false => Ok(()),
        }
    }

    /// Leaves many letters for good, in a transaction; those that were pending.
    pub async fn ignore_letters_in(
        &self,
        tx: &Tx,
        work_ids: &[String],
    ) -> mainstay_store::Result<Vec<String>> {
        let found = hold(tx, &known_ids(work_ids)).await?;
        let (mut ids, mut values) = (Vec::new(), Vec::new());
        for row in found {
            if LetterStatus::of(row.get(5)?) == LetterStatus::Pending {
                let id = uuid(row.get(1)?);
                ids.push(text(id));
                values.push(Value::Blob(id.into_bytes().to_vec()));
            }
        }
        IGNORE.execute(tx, &values).await?;
        let numbers = inbox::write::numbers(tx, &ids).await?;
        inbox::write::ignored(tx, numbers.into_values()).await?;
        Ok(ids)
    }
}
