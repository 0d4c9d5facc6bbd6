//! One chunk of an operation: an item of work. Its letters are looked for on a snapshot, since a search must not hold the writer.
//! What is done about them, where the operation is and the item that goes on are one transaction.

use super::row::{self, Operation, OperationStatus};
use crate::completion;
use crate::dead_letters::POOL;
use crate::dead_letters::acts::act;
use crate::dead_letters::opened::Shared;
use crate::error::Result;
use crate::service::ServiceRef;
use crate::{Call, Functions, NewWork, OnComplete, WorkResult, inbox};
use mainstay_core::failpoints::Point;
use mainstay_core::failure::Failure;
use mainstay_store::Tx;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

const GO_ON: &str = "mainstay.letters.chunk";
const ENDED: &str = "mainstay.letters.ended";

/// How many letters one transaction deals with: few enough that others do not wait for it.
pub const CHUNK: usize = 256;

/// How many letters a second are dealt with at the most, so that there is room for what others do meanwhile.
const PER_SECOND: i64 = 5_600;
const PACE_MS: i64 = CHUNK as i64 * 1_000 / PER_SECOND;
/// So much of what should have been done already is made up for; a node that comes back after an hour does not hurry.
const MOST_LATE_MS: i64 = 4 * PACE_MS;

/// Which item of an operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    operation_id: String,
    step: i64,
    /// When it is to begin, by the pace that the operation keeps.
    #[serde(default)]
    due_ms: i64,
}

/// When a chunk is to begin, if the one before was to begin at `due_ms` and it is `now_ms`. That may be sooner, by a clock that
/// was set back.
fn next_due(due_ms: i64, now_ms: i64) -> i64 {
    due_ms.clamp(now_ms - MOST_LATE_MS, now_ms) + PACE_MS
}

/// Enqueues what goes on with an operation that was last updated now, in the transaction that writes its row.
pub(super) fn enqueue(tx: &Tx, shared: &Shared, operation: &mut Operation, due_ms: i64) -> Result<()> {
    operation.step += 1;
    let args = Args { operation_id: operation.operation_id.clone(), step: operation.step, due_ms };
    let item = NewWork::platform(POOL, GO_ON, &args)?.key(&operation.operation_id);
    let item = item.tell_platform(ENDED).context(&args)?;
    let pause = u64::try_from(due_ms - operation.updated_at).unwrap_or(0);
    let item = item.run_after(Duration::from_millis(pause));
    let receipt = shared.work.enqueue_in(tx, [item])?;
    operation.item = completion::item(operation.step, receipt.work_ids());
    Ok(())
}

/// Adds the functions.
pub(in crate::dead_letters) fn functions(functions: Functions, service: &ServiceRef<Shared>) -> Functions {
    let (chunks, ends) = (service.clone(), service.clone());
    functions
        .platform_action(GO_ON, move |_: Call, args: Args| {
            let service = chunks.clone();
            async move {
                let shared = service.get().map_err(failed)?;
                go_on(shared, args).await.map_err(failed)
            }
        })
        .platform_on_complete(ENDED, move |tx: Tx, call: Call, told: OnComplete<Args>| {
            let service = ends.clone();
            async move { ended(&tx, &*service.get()?, &call, told).await }
        })
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::retryable(error.to_string())
}

/// Looks for the letters of a chunk on a snapshot, and deals with them in a transaction. One that is run again does nothing: the
/// operation has gone on.
async fn go_on(shared: Arc<Shared>, args: Args) -> mainstay_store::Result<()> {
    let look = async |tx: Tx, id: String| row::look(&tx, &id).await;
    let operation = shared.store.read_with(args.operation_id.clone(), look).await?;
    if !is_next(&operation, &args) {
        return Ok(());
    }
    let between = (operation.reached, operation.highest);
    let chunk = shared.next_letters(&operation.filter, None, between).await?;
    let numbers: Vec<i64> = chunk.letters.iter().map(|letter| letter.number).collect();
    let context = (shared.clone(), args, numbers, chunk.reached);
    shared.store.transact_with(context, deal_with).await
}

fn is_next(operation: &Operation, args: &Args) -> bool {
    operation.status == OperationStatus::Running && operation.step == args.step
}

type Dealing = (Arc<Shared>, Args, Vec<i64>, Option<i64>);

async fn deal_with(tx: Tx, (shared, args, numbers, reached): Dealing) -> mainstay_store::Result<()> {
    let mut operation = row::hold(&tx, &args.operation_id).await?;
    if !is_next(&operation, &args) {
        return Ok(());
    }
    // What was done about them since they were found is not undone.
    let letters = inbox::still(&tx, &operation.filter, &numbers).await?;
    let came = act(&shared, &tx, operation.action, &letters, true).await?;
    shared.pass(Point::LettersActed)?;
    operation.count(came);
    operation.skipped += (numbers.len() - letters.len()) as u64;
    operation.updated_at = tx.now_ms().await?;
    match reached {
        Some(reached) => {
            operation.reached = reached;
            let due_ms = next_due(args.due_ms, operation.updated_at);
            enqueue(&tx, &shared, &mut operation, due_ms)?;
        }
        None => {
            operation.reached = operation.highest;
            let now_ms = operation.updated_at;
            operation = operation.ended(OperationStatus::Done, now_ms);
        }
    }
    row::update(&tx, &operation).await?;
    shared.pass(Point::LettersAdvanced)
}

/// Notes that a chunk has ended for good without success: the operation has failed. What it has done stays.
async fn ended(tx: &Tx, _: &Shared, call: &Call, told: OnComplete<Args>) -> mainstay_store::Result<()> {
    let error = match told.result {
        WorkResult::Success { .. } => return Ok(()),
        WorkResult::Failed { error } => error,
        WorkResult::Canceled => "its work was canceled".to_owned(),
    };
    let Some(args) = told.context else { return Ok(()) };
    let operation = row::hold(tx, &args.operation_id).await?;
    if !is_next(&operation, &args) {
        return Ok(());
    }
    completion::check(call, operation.item.as_deref(), operation.step)?;
    tracing::error!(operation = operation.operation_id, error, "what is done about dead letters has failed");
    let mut operation = operation.ended(OperationStatus::Failed, tx.now_ms().await?);
    operation.error = Some(error);
    row::update(tx, &operation).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_that_took_long_is_made_up_for_and_an_hour_is_not() {
        assert_eq!(next_due(1_000, 1_000), 1_000 + PACE_MS);
        assert_eq!(next_due(1_000, 1_000 + PACE_MS / 2), 1_000 + PACE_MS, "the pace is kept");
        assert_eq!(next_due(1_000, 1_000 + 3 * PACE_MS), 1_000 + PACE_MS, "at once");
        assert_eq!(
            next_due(3_600_000, 1_000),
            1_000 + PACE_MS,
            "a clock that was set back is nothing to wait for"
        );
        let later = 1_000 + 3_600_000;
        assert_eq!(next_due(1_000, later), later - 3 * PACE_MS, "four chunks at once, and then at its pace");
    }
}
