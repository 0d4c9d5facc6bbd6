//! What is done about many letters at once, in one transaction.

use super::letters::{COLUMNS, IGNORE, LETTERS, Letter, LetterStatus, RETRY, current, letter};
use super::poison::CURRENT;
use super::{listing, retry};
use crate::attempts::{self, Attempt};
use crate::error::{Error, Result};
use crate::projections::opened::Projections;
use futures_util::future::{join_all, try_join_all};
use mainstay_events::{Event, Selection};
use mainstay_store::{Bulk, Hold, Tx, Value, params};
use mainstay_work::Work;
use std::collections::HashSet;
use std::sync::LazyLock;

/// A letter: its projection and its event.
pub(crate) type Which = (String, String);

/// Letters that are tried again by the hundred wait behind what is tried again one by one.
const BEHIND: i16 = 100;

static HOLD: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list(&format!(
        "SELECT {COLUMNS} FROM mainstay_projection_failures WHERE {LETTERS} AND {CURRENT} \
         AND event_id IN ({{values}}) ORDER BY projection, position"
    ))
});
static REMEMBER: LazyLock<String> = LazyLock::new(|| {
    let history = attempts::appended("history", "$3");
    current(&format!(
        "UPDATE mainstay_projection_failures SET history = {history} \
         WHERE projection = $1 AND event_id = $2 AND is_poison = 0 AND {{current}}"
    ))
});
const REMOVE: &str = "DELETE FROM mainstay_projection_failures WHERE projection = $1 AND event_id = $2 \
     AND is_poison = 0 AND status NOT IN ('failing', 'retrying') AND {current}";

impl Projections {
    /// Tries letters again in a transaction, pending and ignored ones: each with the item of work that does, or with why
    /// there is none. Those of another status, or that are not there, are left out.
    pub(crate) async fn retry_letters_in(
        &self,
        tx: &Tx,
        which: &[Which],
        is_behind: bool,
    ) -> mainstay_store::Result<Vec<(Which, Result<String>)>> {
        let held = hold(tx, which, &[LetterStatus::Pending, LetterStatus::Ignored]).await?;
        let found = join_all(held.iter().map(|letter| self.event_of(tx, letter))).await;
        let (mut retried, mut again) = (Vec::with_capacity(held.len()), Vec::with_capacity(held.len()));
        for (letter, event) in held.into_iter().zip(found) {
            let item = event.and_then(|event| {
                let projection = self.shared.find(&letter.projection_name)?;
                let item = retry::item(&projection, &event)?;
                Ok(if is_behind { item.priority(BEHIND) } else { item })
            });
            match item {
                Ok(item) => again.push((letter, item)),
                Err(Error::Store(error)) => return Err(Error::Store(error).into()),
                Err(error) => retried.push(((letter.projection_name, letter.event_id), Err(error))),
            }
        }
        if again.is_empty() {
            return Ok(retried);
        }
        let (letters, items): (Vec<Letter>, Vec<_>) = again.into_iter().unzip();
        take_over(tx, &self.shared.work, &letters).await?;
        let receipt = self.shared.work.enqueue_in(tx, items).map_err(Error::from)?;
        let sql = current(RETRY);
        let update = async |(letter, work_id): (&Letter, &String)| {
            let params = params![&letter.projection_name, &letter.event_id, work_id, letter.status.as_str()];
            tx.execute(&sql, params).await
        };
        try_join_all(letters.iter().zip(receipt.work_ids()).map(update)).await?;
        listing::list_events(tx, &ids(&letters)).await?;
        let done = letters.into_iter().map(|letter| (letter.projection_name, letter.event_id));
        retried.extend(done.zip(receipt.work_ids().iter().cloned().map(Ok)));
        Ok(retried)
    }

    /// Leaves letters for good in a transaction; those that were pending.
    pub(crate) async fn ignore_letters_in(
        &self,
        tx: &Tx,
        which: &[Which],
    ) -> mainstay_store::Result<Vec<Which>> {
        let held = hold(tx, which, &[LetterStatus::Pending]).await?;
        take_over(tx, &self.shared.work, &held).await?;
        let sql = current(IGNORE);
        each(tx, &sql, &held).await?;
        listing::list_events(tx, &ids(&held)).await?;
        Ok(held.into_iter().map(|letter| (letter.projection_name, letter.event_id)).collect())
    }

    /// Removes letters in a transaction, with all that is known of them; those that nobody tries again.
    pub(crate) async fn remove_letters_in(
        &self,
        tx: &Tx,
        which: &[Which],
    ) -> mainstay_store::Result<Vec<Which>> {
        let states = [LetterStatus::Pending, LetterStatus::Resolved, LetterStatus::Ignored];
        let held = hold(tx, which, &states).await?;
        let runs: Vec<String> = held.iter().filter_map(|letter| letter.retry_run_id.clone()).collect();
        self.shared.work.remove_letters_in(tx, &runs).await?;
        each(tx, &current(REMOVE), &held).await?;
        Ok(held.into_iter().map(|letter| (letter.projection_name, letter.event_id)).collect())
    }

    /// The event of a letter, as the log has it.
    async fn event_of(&self, tx: &Tx, letter: &Letter) -> Result<Event> {
        let one = Selection::all().after(letter.position.saturating_sub(1)).until(letter.position);
        let page = self.shared.log.read_in(tx, &one, 1).await?;
        let event = page.events.into_iter().next().filter(|event| event.id() == letter.event_id);
        event.ok_or_else(|| mainstay_events::Error::NotFound(letter.event_id.clone()).into())
    }
}

/// Takes over what is kept of letters in those of their work, as it was before there was a place for it beside them.
pub(super) async fn take_over(tx: &Tx, work: &Work, letters: &[Letter]) -> mainstay_store::Result<()> {
    let runs: Vec<String> = letters.iter().filter_map(|letter| letter.retry_run_id.clone()).collect();
    if runs.is_empty() {
        return Ok(());
    }
    let mut taken = work.take_letters_in(tx, &runs).await?;
    for letter in letters {
        let Some(attempts) = letter.retry_run_id.as_ref().and_then(|run| taken.remove(run)) else { continue };
        let attempts = attempts.into_iter().map(|(run, one)| Attempt::of(&run, one));
        let history = attempts::write(attempts)?;
        tx.execute(&REMEMBER, params![&letter.projection_name, &letter.event_id, history]).await?;
    }
    Ok(())
}

fn ids(letters: &[Letter]) -> Vec<&str> {
    letters.iter().map(|letter| &*letter.event_id).collect()
}

async fn each(tx: &Tx, sql: &str, letters: &[Letter]) -> mainstay_store::Result<()> {
    let run =
        async |letter: &Letter| tx.execute(sql, params![&letter.projection_name, &letter.event_id]).await;
    try_join_all(letters.iter().map(run)).await.map(drop)
}

/// Letters of these states, held until the transaction ends.
async fn hold(tx: &Tx, which: &[Which], states: &[LetterStatus]) -> mainstay_store::Result<Vec<Letter>> {
    let wanted: HashSet<(&str, &str)> = which.iter().map(|(name, id)| (&**name, &**id)).collect();
    let ids: HashSet<&str> = wanted.iter().map(|(_, id)| *id).collect();
    let values: Vec<Value> = ids.into_iter().map(Value::from).collect();
    let mut held = Vec::with_capacity(which.len());
    for row in HOLD.query_holding(tx, &values, Hold::Alone).await? {
        let letter = letter(&row)?;
        if wanted.contains(&(&*letter.projection_name, &*letter.event_id)) && states.contains(&letter.status)
        {
            held.push(letter);
        }
    }
    // As they are in the log: those of one key are tried again in that order.
    held.sort_by_key(|letter| letter.position);
    Ok(held)
}
