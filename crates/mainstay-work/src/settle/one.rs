//! Ending one item: what came of it, what that means for its letter and for those who rely on it, or when it starts anew.

use super::author::{run, tell, told_at_once};
use super::record::record;
use super::writes::{Writes, write};
use super::{Ending, Plan, Settlement};
use crate::bounds::Bound;
use crate::directory::Directory;
use crate::enqueue::text;
use crate::functions::{FunctionKind, Recording};
use crate::item::{Item, WorkResult};
use crate::letters::{self, LetterStatus};
use crate::next::{Next, Outcome, next};
use crate::schema::waiting;
use crate::work::Ground;
use mainstay_store::{Result, Tx, Value, params};
use std::sync::Arc;
use uuid::Uuid;

const DROP_CANCEL: &str = "DELETE FROM mainstay_work_cancels WHERE id = $1";

pub(super) async fn settle_one(
    ground: &Arc<Ground>,
    tx: &Tx,
    settlement: &Settlement,
    index: usize,
    ending: &Ending,
    now_ms: i64,
    writes: &mut Writes,
) -> Result<()> {
    let (id, mut item) = (ending.taken.id, ending.taken.item.clone());
    let is_canceled = ending.cancel.is_canceled();
    let outcome = match &ending.plan {
        Plan::Ended(outcome) => outcome.clone(),
        Plan::Run if is_canceled => Outcome::Canceled,
        Plan::Run => Outcome::Success(run(ground, tx, settlement, index, ending).await?),
    };
    let kind = ground.directory.function(tx, &item.function).await?;
    // A function that nobody declares any more was an action as far as anybody knows.
    let kind = match kind.as_deref() {
        Ok("mutation") => FunctionKind::Mutation,
        _ => FunctionKind::Action,
    };
    let own = ground.functions().get(&item.function).and_then(|function| function.retry);
    let policy = own.as_ref().unwrap_or(&settlement.settings.retry);
    let next = next(&mut item, outcome, kind, policy, now_ms, &*ground.random);
    // Whoever ran it need not have heard of it: there are few of these, and only what starts anew asks.
    let is_canceled = is_canceled || (!matches!(next, Next::End(_)) && writes.is_to_stop(tx, id).await?);
    let result = match next {
        Next::End(result) => result,
        Next::Retry { after_ms } if !is_canceled => {
            writes.is_any_delayed = true;
            let due_at = now_ms.saturating_add(after_ms);
            return requeue(ground, tx, settlement.pool, id, &item, due_at, waiting::DELAYED, writes).await;
        }
        Next::Again if !is_canceled => {
            writes.is_any_ready = true;
            return requeue(ground, tx, settlement.pool, id, &item, now_ms, waiting::READY, writes).await;
        }
        // Instead of starting anew.
        Next::Retry { .. } | Next::Again => WorkResult::Canceled,
    };
    let result = match result {
        // The end that this item tells must not be lost: its dead letter can still tell it.
        WorkResult::Canceled if item.completes.is_some() && item.retry_of.is_none() => {
            WorkResult::Failed { error: "canceled before the end was told".to_owned() }
        }
        result => result,
    };
    if is_canceled {
        tx.execute(DROP_CANCEL, params![&id.as_bytes()[..]]).await?;
    }
    if let Some(key) = &item.key {
        writes.keys.insert((settlement.pool, key.clone()), 1);
    }
    let letter = match &result {
        WorkResult::Failed { .. } => match recording(ground, tx, &item).await? {
            Recording::Final => Kept::Nowhere,
            Recording::Correctable if told_at_once(ground, &item, ending).is_none() => Kept::Unlisted,
            Recording::Nothing | Recording::Correctable => Kept::Listed,
        },
        _ => Kept::Nowhere,
    };
    note_letter((settlement.pool, id, &item), &result, letter, now_ms, writes)?;
    if let (WorkResult::Success { .. }, Some(completes)) = (&result, &item.completes)
        && own_recording(ground, &item.function) == Some(Recording::Correctable)
    {
        writes.recorded.push(completes.clone());
    }
    tell_operators(tx, id, &item, &result)?;
    let record = match &ending.record {
        Some(prepared) => prepared.clone(),
        None => record(&item, &result)?,
    };
    writes.end((settlement.pool, id), &result, now_ms, record);
    if item.on_complete.is_some() {
        tell(ground, tx, settlement, index, ending, &item, result).await?;
    }
    Ok(())
}

/// Ends an item that cannot be enqueued: it failed before it could wait, and is a dead letter.
pub(crate) async fn fail_unstarted(
    tx: &Tx,
    (pool, id): (i64, Uuid),
    item: &Item,
    error: String,
    now_ms: i64,
) -> Result<()> {
    let (mut writes, result) = (Writes::default(), WorkResult::Failed { error });
    note_letter((pool, id, item), &result, Kept::Listed, now_ms, &mut writes)?;
    tell_operators(tx, id, item, &result)?;
    writes.end((pool, id), &result, now_ms, record(item, &result)?);
    write(tx, pool, now_ms, writes, 0).await
}

/// The place of a failed item's letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Among dead letters.
    Listed,
    /// Among dead letters once its failure is recorded.
    Unlisted,
    /// There is none: the record of its failure is all that is left to do.
    Nowhere,
}

/// The treatment of an item's failure by the function that is told of it.
pub(crate) async fn recording(ground: &Ground, tx: &Tx, item: &Item) -> Result<Recording> {
    let Some(function) = &item.on_complete else { return Ok(Recording::Nothing) };
    match own_recording(ground, function) {
        Some(recording) => Ok(recording),
        None => Directory::recording(tx, function).await,
    }
}

/// The same for a function of this node.
fn own_recording(ground: &Ground, function: &str) -> Option<Recording> {
    ground.functions().get(function).map(|function| function.recording)
}

/// Notes what an item's end means for dead letters: its own, or the one that it has tried again.
fn note_letter(
    (pool, id, item): (i64, Uuid, &Item),
    result: &WorkResult,
    kept: Kept,
    now_ms: i64,
    writes: &mut Writes,
) -> Result<()> {
    match (result, item.letter) {
        // Its end is told to whoever keeps the letter.
        (WorkResult::Failed { .. }, _) if item.has_keeper() => {}
        (WorkResult::Failed { .. }, number) if kept == Kept::Nowhere => {
            // A retry that began before its outbox was known to record. The record is the end of its letter too.
            number.into_iter().for_each(|number| writes.inbox.resolved(number));
        }
        (WorkResult::Failed { error }, _) if kept == Kept::Unlisted => {
            writes.letters.extend(letters::row(id, pool, item, error, LetterStatus::Recording, now_ms)?);
        }
        (WorkResult::Failed { error }, number) => {
            writes.letters.extend(letters::row(id, pool, item, error, LetterStatus::Pending, now_ms)?);
            if !item.is_unlisted {
                let reference = text(id);
                let entry = letters::entry((pool, &reference), item, error, now_ms);
                writes.inbox.failed(number, &entry, now_ms);
            }
        }
        (WorkResult::Success { .. }, Some(number)) => writes.inbox.resolved(number),
        (WorkResult::Canceled, number) => {
            if let Some(number) = number {
                writes.inbox.returned(number);
            }
            let of = item.retry_of.as_deref().and_then(crate::enqueue::parse);
            writes.returned.extend(of.map(|id| Value::Blob(id.into_bytes().to_vec())));
        }
        _ => {}
    }
    Ok(())
}

/// Says that what somebody relies on without waiting for it was given up: the telling of an end, an append. Work itself is
/// asked about by whoever enqueued it.
fn tell_operators(tx: &Tx, id: Uuid, item: &Item, result: &WorkResult) -> Result<()> {
    let (WorkResult::Failed { error }, false) = (result, item.has_keeper()) else { return Ok(()) };
    let Some(kind) = letters::own_kind(item) else { return Ok(()) };
    let (kind, function, error) = (kind.to_string(), item.function.clone(), error.clone());
    let (completes, correlation, attempts) =
        (item.completes.clone(), item.correlation.clone(), item.attempts);
    tx.after_commit(Arc::new(move || {
        tracing::warn!(
            kind,
            function,
            work = text(id),
            completes,
            correlation,
            attempts,
            error,
            "given up; it is a dead letter with all that is needed to try it again"
        );
    }))
}

#[expect(clippy::too_many_arguments, reason = "the columns of a row")]
async fn requeue(
    ground: &Ground,
    tx: &Tx,
    pool: i64,
    id: Uuid,
    item: &Item,
    due_at: i64,
    state: i64,
    writes: &mut Writes,
) -> Result<()> {
    let lane = crate::directory::Lane {
        pool,
        function: item.function.as_str().into(),
        priority: item.priority.into(),
    };
    writes.work.extend([
        Value::Blob(id.into_bytes().to_vec()),
        Value::Int(pool),
        Value::Int(ground.directory.lane(tx, &lane, Bound::Kept).await?),
        Value::Int(state),
        Value::Int(due_at),
        Value::from(item.key.as_deref()),
        Value::Text(serde_json::to_string(item).map_err(mainstay_store::Error::application)?),
    ]);
    Ok(())
}
