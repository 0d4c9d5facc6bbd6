//! What is done about many failed events at once, in one transaction: letters, or quarantined events.

use super::letters::{COLUMNS, Letter, LetterStatus, current, letter};
use super::listing::{self, LISTED};
use super::poison::CURRENT;
use super::retry;
use crate::attempts::{self, Attempt};
use crate::error::{Error, Result};
use crate::projections::opened::Projections;
use futures_util::future::{join_all, try_join_all};
use mainstay_events::{Event, Selection};
use mainstay_store::{Bulk, Hold, Tx, Value, params};
use mainstay_work::Work;
use std::collections::HashSet;
use std::sync::LazyLock;

/// A failed event: its projection and its key.
pub(crate) type Which = (String, String);

/// One of the two kinds of failed events, with the names of its states in rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    is_poison: bool,
    pending: &'static str,
    retrying: &'static str,
}

impl Family {
    fn is_retrying(self, status: &str) -> bool {
        match self.is_poison {
            true => status == self.retrying,
            false => LetterStatus::of(status) == LetterStatus::Retrying,
        }
    }
}

/// Dead letters of projections.
pub(super) const LETTERS: Family = Family { is_poison: false, pending: "pending", retrying: "retrying" };
/// Quarantined events.
pub(super) const QUARANTINE: Family =
    Family { is_poison: true, pending: "quarantined", retrying: "replayed" };

const IGNORED: &str = "ignored";

/// Letters that are tried again by the hundred wait behind what is tried again one by one.
const BEHIND: i16 = 100;

static HOLD: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::list(&format!(
        "SELECT {COLUMNS}, is_poison FROM mainstay_projection_failures WHERE {LISTED} AND {CURRENT} \
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
/// A failure of the generation that is filled beside is another one, and not for anybody to see yet. A quarantined event
/// begins anew, from no attempts.
const RETRY: &str = "UPDATE mainstay_projection_failures SET status = $5, retry_started_at = mainstay_now(), \
     retry_run_id = $3, retry_count = retry_count + 1, attempts = CASE WHEN is_poison = 1 THEN 0 ELSE attempts END \
     WHERE projection = $1 AND event_id = $2 AND is_poison = $6 AND status = $4 AND {current}";
pub(super) const IGNORE: &str = "UPDATE mainstay_projection_failures SET status = 'ignored' \
     WHERE projection = $1 AND event_id = $2 AND is_poison = 0 AND status = 'pending' AND {current}";
/// In every generation: a quarantined event that is ignored stays out of a generation that is filled beside, too.
const DISMISS: &str = "UPDATE mainstay_projection_failures SET status = 'ignored', retry_run_id = NULL \
     WHERE projection = $1 AND event_id = $2 AND is_poison = 1";
const REMOVE: &str = "DELETE FROM mainstay_projection_failures WHERE projection = $1 AND event_id = $2 \
     AND is_poison = $3 AND {current}";

/// A failed event that is held, and its status as the row has it.
struct Held {
    letter: Letter,
    status: String,
}

impl Projections {
    /// Retries failed events in a transaction, pending and ignored ones: each with the item of work that does, or with why
    /// there is none. Events of another status, or without a row, are left out.
    pub(crate) async fn retry_in(
        &self,
        tx: &Tx,
        family: Family,
        which: &[Which],
        is_bulk: bool,
    ) -> mainstay_store::Result<Vec<(Which, Result<String>)>> {
        let held = hold(tx, family, which, |status| status == family.pending || status == IGNORED).await?;
        let found = join_all(held.iter().map(|held| self.event_of(tx, &held.letter))).await;
        let (mut retried, mut again) = (Vec::with_capacity(held.len()), Vec::with_capacity(held.len()));
        for (held, event) in held.into_iter().zip(found) {
            let item = event.and_then(|event| {
                let projection = self.shared.find(&held.letter.projection_name)?;
                let item = retry::item(&projection, &event)?;
                Ok(if is_bulk { item.priority(BEHIND) } else { item })
            });
            match item {
                Ok(item) => again.push((held, item)),
                Err(Error::Store(error)) => return Err(Error::Store(error).into()),
                Err(error) => retried.push((named(held.letter), Err(error))),
            }
        }
        if again.is_empty() {
            return Ok(retried);
        }
        let (held, items): (Vec<Held>, Vec<_>) = again.into_iter().unzip();
        take_over(tx, &self.shared.work, held.iter().map(|held| &held.letter)).await?;
        let receipt = self.shared.work.enqueue_in(tx, items).map_err(Error::from)?;
        let sql = current(RETRY);
        let update = async |(Held { letter, status }, work_id): (&Held, &String)| {
            let params = params![
                &letter.projection_name,
                &letter.key,
                work_id,
                status,
                family.retrying,
                i64::from(family.is_poison)
            ];
            tx.execute(&sql, params).await
        };
        try_join_all(held.iter().zip(receipt.work_ids()).map(update)).await?;
        listing::list_events(tx, &ids(&held)).await?;
        let done = held.into_iter().map(|held| named(held.letter));
        retried.extend(done.zip(receipt.work_ids().iter().cloned().map(Ok)));
        Ok(retried)
    }

    /// Ignores failed events in a transaction; those that were pending.
    pub(crate) async fn ignore_in(
        &self,
        tx: &Tx,
        family: Family,
        which: &[Which],
    ) -> mainstay_store::Result<Vec<Which>> {
        let held = hold(tx, family, which, |status| status == family.pending).await?;
        take_over(tx, &self.shared.work, held.iter().map(|held| &held.letter)).await?;
        let sql = if family.is_poison { DISMISS.to_owned() } else { current(IGNORE) };
        let ignore = async |Held { letter, .. }: &Held| {
            tx.execute(&sql, params![&letter.projection_name, &letter.key]).await
        };
        try_join_all(held.iter().map(ignore)).await?;
        listing::list_events(tx, &ids(&held)).await?;
        Ok(held.into_iter().map(|held| named(held.letter)).collect())
    }

    /// Removes failed events in a transaction, with all that is known of them, unless they are being retried. Of a quarantined
    /// event that is resolved nothing is known any more.
    pub(crate) async fn remove_in(
        &self,
        tx: &Tx,
        family: Family,
        which: &[Which],
    ) -> mainstay_store::Result<Vec<Which>> {
        let held = hold(tx, family, which, |_| true).await?;
        let (retried, held): (Vec<Held>, Vec<Held>) =
            held.into_iter().partition(|held| family.is_retrying(&held.status));
        let runs: Vec<String> = held.iter().filter_map(|held| held.letter.retry_run_id.clone()).collect();
        self.shared.work.remove_letters_in(tx, &runs).await?;
        let sql = current(REMOVE);
        let remove = async |Held { letter, .. }: &Held| {
            let params = params![&letter.projection_name, &letter.key, i64::from(family.is_poison)];
            tx.execute(&sql, params).await
        };
        try_join_all(held.iter().map(remove)).await?;
        if !family.is_poison {
            return Ok(held.into_iter().map(|held| named(held.letter)).collect());
        }
        let retried: HashSet<Which> = retried.into_iter().map(|held| named(held.letter)).collect();
        Ok(which.iter().filter(|which| !retried.contains(*which)).cloned().collect())
    }

    /// The event of a failure, as the log has it.
    async fn event_of(&self, tx: &Tx, letter: &Letter) -> Result<Event> {
        let one = Selection::all().after(letter.position.saturating_sub(1)).until(letter.position);
        let page = self.shared.log.read_in(tx, &one, 1).await?;
        let event = page.events.into_iter().next().filter(|event| event.id() == letter.event_id);
        event.ok_or_else(|| mainstay_events::Error::NotFound(letter.event_id.clone()).into())
    }
}

/// Takes over what is kept of letters in those of their work, as it was before there was a place for it beside them.
pub(super) async fn take_over(
    tx: &Tx,
    work: &Work,
    letters: impl Iterator<Item = &Letter> + Clone,
) -> mainstay_store::Result<()> {
    let runs: Vec<String> = letters.clone().filter_map(|letter| letter.retry_run_id.clone()).collect();
    if runs.is_empty() {
        return Ok(());
    }
    let mut taken = work.take_letters_in(tx, &runs).await?;
    for letter in letters {
        let Some(attempts) = letter.retry_run_id.as_ref().and_then(|run| taken.remove(run)) else { continue };
        let attempts = attempts.into_iter().map(|(run, one)| Attempt::of(&run, one));
        let history = attempts::write(attempts)?;
        tx.execute(&REMEMBER, params![&letter.projection_name, &letter.key, history]).await?;
    }
    Ok(())
}

fn named(letter: Letter) -> Which {
    (letter.projection_name, letter.key)
}

fn ids(held: &[Held]) -> Vec<&str> {
    held.iter().map(|held| &*held.letter.key).collect()
}

/// Failed events of these states, held until the transaction ends.
async fn hold(
    tx: &Tx,
    family: Family,
    which: &[Which],
    is_status: impl Fn(&str) -> bool,
) -> mainstay_store::Result<Vec<Held>> {
    let wanted: HashSet<(&str, &str)> = which.iter().map(|(name, id)| (&**name, &**id)).collect();
    let ids: HashSet<&str> = wanted.iter().map(|(_, id)| *id).collect();
    let values: Vec<Value> = ids.into_iter().map(Value::from).collect();
    let mut held = Vec::with_capacity(which.len());
    for row in HOLD.query_holding(tx, &values, Hold::Alone).await? {
        let (letter, status): (Letter, String) = (letter(&row)?, row.get(6)?);
        let is_poison = row.get::<i64>(15)? == 1;
        let is_wanted = wanted.contains(&(&*letter.projection_name, &*letter.key));
        if is_wanted && is_poison == family.is_poison && is_status(&status) {
            held.push(Held { letter, status });
        }
    }
    // As they are in the log: those of one key are tried again in that order.
    held.sort_by_key(|held| held.letter.position);
    Ok(held)
}
