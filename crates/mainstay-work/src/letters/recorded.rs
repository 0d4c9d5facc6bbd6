//! Letters of items with an outbox: the failure is recorded before an operator can retry the item.
//!
//! The order matters. A retry that came before the record could succeed first, and the log would end with the failure. So
//! the letter is kept but not listed until the event of its failure is in the log, and one transaction does both.

use super::LetterStatus;
use super::table::{entry, hold, known_ids, written};
use crate::enqueue::{text, uuid};
use crate::inbox;
use mainstay_store::Column::Blob;
use mainstay_store::{Bulk, Result, Tx, Value};
use std::sync::LazyLock;

static RECORDED: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::among("UPDATE mainstay_letters SET status = 0 WHERE status + 0 = 3 AND id IN ({values})", Blob)
});

/// Lists the letters of items, and makes them retryable, in the transaction that records the failures of the items.
pub(crate) async fn recorded(
    tx: &Tx,
    work_ids: &[String],
    inbox: &mut inbox::write::Ended,
    now_ms: i64,
) -> Result<()> {
    let mut values = Vec::new();
    for row in hold(tx, &known_ids(work_ids)).await? {
        if LetterStatus::of(row.get(5)?) == LetterStatus::Recording {
            let (id, letter) = (uuid(row.get(1)?), written(&row)?);
            if !letter.item.is_unlisted {
                let reference = text(id);
                let entry = entry((row.get(2)?, &reference), &letter.item, &letter.error, row.get(6)?);
                inbox.failed(letter.item.letter, &entry, now_ms);
            }
            values.push(Value::Blob(id.into_bytes().to_vec()));
        }
    }
    if values.is_empty() { Ok(()) } else { RECORDED.execute(tx, &values).await.map(drop) }
}
