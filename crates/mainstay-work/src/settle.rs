//! Ending executions: what came of them, who is told, and what becomes possible by it, in one transaction.

use crate::blame::{AuthorFailed, Part, Progress, author_failed};
use crate::claim::{Held, Taken};
use crate::directory::{ended_topic, pool_topic, time_topic};
use crate::enqueue::{INSERT_WORK, change, noted, text, uuid};
use crate::error::Error;
use crate::functions::{Body, Call, Cancel, FunctionKind, Running};
use crate::item::{Item, NewWork, OnComplete, WorkResult, raw};
use crate::next::{Next, Outcome, next};
use crate::pool::Pool;
use crate::schema::waiting;
use crate::work::Ground;
use crate::{inbox, keys, lease, letters, span};
use mainstay_core::failure::Failure;
use mainstay_store::Column::{Blob, Int, Text};
use mainstay_store::{Bulk, Column, Hold, Result, Tx, Value, params};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use tokio::try_join;
use tracing::{Instrument, Span};
use uuid::Uuid;

/// What is to be done about an item.
#[derive(Debug, Clone)]
pub(crate) enum Plan {
    /// Its execution has ended.
    Ended(Outcome),
    /// It is a mutation, and runs now.
    Run,
}

/// An item whose execution ends.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub(crate) taken: Taken,
    pub(crate) plan: Plan,
    pub(crate) cancel: Cancel,
    /// Its `onComplete` has failed in a transaction like this one, and is enqueued instead.
    pub(crate) is_told_later: bool,
    /// What will be kept of it, if that was made before.
    pub(crate) record: Option<String>,
}

impl Ending {
    /// An execution of which nothing more is known than how it ended.
    pub(crate) fn new(taken: Taken, plan: Plan, cancel: Cancel) -> Self {
        Self { taken, plan, cancel, is_told_later: false, record: None }
    }

    /// Makes what will be kept of an execution that succeeded, so that others need not wait for it in the transaction.
    pub(crate) fn prepared(mut self) -> Self {
        if let Plan::Ended(Outcome::Success(return_value)) = &self.plan {
            let result = WorkResult::Success { return_value: return_value.clone() };
            self.record = record(&self.taken.item, &result).ok();
        }
        self
    }
}

/// What ends together.
#[derive(Debug, Clone)]
pub(crate) struct Settlement {
    pub(crate) pool: i64,
    pub(crate) pool_name: String,
    pub(crate) settings: Arc<Pool>,
    /// The lease they were taken under, unless that is over.
    pub(crate) lease: Option<i64>,
    /// Each with the number of its batch.
    pub(crate) endings: Vec<(i64, Ending)>,
    pub(crate) held: Vec<Held>,
    pub(crate) progress: Arc<Progress>,
}

impl Settlement {
    /// Where the items of each batch stand that end.
    pub(crate) fn ended(&self) -> BTreeMap<i64, Vec<usize>> {
        let mut ended = BTreeMap::<i64, Vec<usize>>::new();
        for (batch, ending) in &self.endings {
            ended.entry(*batch).or_default().push(ending.taken.index);
        }
        ended
    }
}

/// What is kept of an item that ended.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    function: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a RawValue>,
    attempts: u32,
    enqueued_at: i64,
    result: &'a WorkResult,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_of: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation: Option<&'a str>,
}

/// How many executions of an item that ended count.
fn counted(item: &Item, result: &WorkResult) -> u32 {
    item.attempts + u32::from(matches!(result, WorkResult::Success { .. }))
}

/// The text of what is kept of an item that ended.
fn record(item: &Item, result: &WorkResult) -> Result<String> {
    let record = Record {
        function: &item.function,
        key: item.key.as_deref(),
        context: item.context.as_deref(),
        attempts: counted(item, result),
        enqueued_at: item.enqueued_at,
        result,
        last_error: item.errors.last().map(|last| &last.failure),
        retry_of: item.retry_of.as_deref(),
        correlation: item.correlation.as_deref(),
    };
    serde_json::to_string(&record).map_err(mainstay_store::Error::application)
}

static INSERT_ENDED: LazyLock<Bulk> = LazyLock::new(|| {
    const COLUMNS: &[Column] = &[Blob, Int, Int, Int, Text];
    Bulk::insert("INSERT INTO mainstay_ended (id, pool, state, ended_at, record) VALUES {rows}", COLUMNS)
});
const DROP_BATCH: &str = "DELETE FROM mainstay_batches WHERE number = $1";
const DROP_MARKS: &str = "DELETE FROM mainstay_batch_marks WHERE batch = $1";
const MARK: &str = "INSERT INTO mainstay_batch_marks (batch, done) VALUES ($1, $2) \
     ON CONFLICT (batch) DO UPDATE SET done = excluded.done";
const CANCELS: &str = "SELECT id FROM mainstay_work_cancels";
const DROP_CANCEL: &str = "DELETE FROM mainstay_work_cancels WHERE id = $1";

/// The number of a kind of end, as it is kept.
pub(crate) fn state_of(result: &WorkResult) -> i64 {
    match result {
        WorkResult::Success { .. } => 0,
        WorkResult::Failed { .. } => 1,
        WorkResult::Canceled => 2,
    }
}

/// What a settlement writes, collected.
#[derive(Default)]
struct Writes {
    ended: Vec<Value>,
    work: Vec<Value>,
    keys: BTreeMap<(i64, String), i64>,
    letters: Vec<Value>,
    inbox: inbox::write::Ended,
    /// Items whose letters wait again, because those that were to try them again were cancelled.
    returned: Vec<Value>,
    /// Running items that are to stop, once somebody has asked.
    cancels: Option<BTreeSet<Uuid>>,
    is_any_ready: bool,
    is_any_delayed: bool,
}

impl Writes {
    async fn is_to_stop(&mut self, tx: &Tx, id: Uuid) -> Result<bool> {
        let cancels = match self.cancels.take() {
            Some(cancels) => cancels,
            None => {
                let rows = tx.query(CANCELS, &[]).await?;
                rows.iter().map(|row| Ok(uuid(row.get(0)?))).collect::<Result<_>>()?
            }
        };
        Ok(self.cancels.insert(cancels).contains(&id))
    }
}

/// Ends items. Fails as a whole: with [`AuthorFailed`] when an author's code does.
pub(crate) async fn settle(ground: &Arc<Ground>, tx: &Tx, settlement: &Settlement) -> Result<()> {
    settlement.progress.leave();
    let now_ms = match settlement.lease {
        Some(lease) => lease::fence(ground, tx, lease, Hold::InPlace).await?,
        None => ground.now_ms(tx).await?,
    };
    let mut writes = Writes::default();
    for (index, (_, ending)) in settlement.endings.iter().enumerate() {
        settle_one(ground, tx, settlement, index, ending, now_ms, &mut writes).await?;
    }
    let count = settlement.endings.len() as i64;
    try_join!(biased; mark(tx, settlement), write(tx, settlement.pool, now_ms, writes, count))?;
    Ok(())
}

/// Notes which items of their batches have ended.
async fn mark(tx: &Tx, settlement: &Settlement) -> Result<()> {
    let ended = settlement.ended();
    for held in &settlement.held {
        let indices = ended.get(&held.batch).into_iter().flatten().copied();
        match held.with_done(indices) {
            Some(done) => drop(tx.execute(MARK, params![held.batch, done]).await?),
            None => {
                if tx.execute(DROP_BATCH, params![held.batch]).await? == 0 {
                    return Err(Error::LeaseLost(settlement.lease.unwrap_or_default()).into());
                }
                if !held.done.is_empty() {
                    tx.execute(DROP_MARKS, params![held.batch]).await?;
                }
            }
        }
    }
    Ok(())
}

/// Ends an item that was taken out of what waits, without anybody having worked on it.
pub(crate) async fn end_waiting(
    ground: &Arc<Ground>,
    tx: &Tx,
    settlement: &Settlement,
    now_ms: i64,
) -> Result<()> {
    let mut writes = Writes::default();
    for (index, (_, ending)) in settlement.endings.iter().enumerate() {
        settle_one(ground, tx, settlement, index, ending, now_ms, &mut writes).await?;
    }
    write(tx, settlement.pool, now_ms, writes, 0).await
}

async fn write(tx: &Tx, pool: i64, now_ms: i64, mut writes: Writes, executions: i64) -> Result<()> {
    let requeued = (writes.work.len() / 7) as i64;
    if !writes.keys.is_empty() {
        let freed = keys::release(tx, &writes.keys, now_ms).await?;
        for row in freed.chunks_exact(7) {
            let is_ready = row[3] == Value::Int(waiting::READY);
            writes.is_any_ready |= is_ready;
            writes.is_any_delayed |= !is_ready;
        }
        writes.work.extend(freed);
    }
    try_join!(
        biased;
        INSERT_ENDED.execute(tx, &writes.ended),
        INSERT_WORK.execute(tx, &writes.work),
        letters::INSERT.execute(tx, &writes.letters),
        change(tx, pool, now_ms, requeued, 0, executions)
    )?;
    if !writes.returned.is_empty() {
        letters::RETURN.execute(tx, &writes.returned).await?;
    }
    writes.inbox.write(tx).await?;
    if !writes.ended.is_empty() {
        tx.wake(&ended_topic())?;
    }
    if writes.is_any_ready {
        tx.wake(&pool_topic(pool))?;
    }
    if writes.is_any_delayed {
        tx.wake(&time_topic())?;
    }
    Ok(())
}

async fn settle_one(
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
    let own = ground.functions.get(&item.function).and_then(|function| function.retry);
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
    if is_canceled {
        tx.execute(DROP_CANCEL, params![&id.as_bytes()[..]]).await?;
    }
    if let Some(key) = &item.key {
        writes.keys.insert((settlement.pool, key.clone()), 1);
    }
    note_letter(settlement.pool, id, &item, &result, now_ms, writes)?;
    tell_operators(tx, id, &item, &result)?;
    let record = match &ending.record {
        Some(prepared) => prepared.clone(),
        None => record(&item, &result)?,
    };
    writes.ended.extend([
        Value::Blob(id.into_bytes().to_vec()),
        Value::Int(settlement.pool),
        Value::Int(state_of(&result)),
        Value::Int(now_ms),
        Value::Text(record),
    ]);
    if item.on_complete.is_some() {
        tell(ground, tx, settlement, index, ending, &item, result).await?;
    }
    Ok(())
}

/// Notes what an item's end means for dead letters: its own, or the one that it has tried again.
fn note_letter(
    pool: i64,
    id: Uuid,
    item: &Item,
    result: &WorkResult,
    now_ms: i64,
    writes: &mut Writes,
) -> Result<()> {
    match (result, item.letter) {
        // Its end is told to whoever keeps the letter.
        (WorkResult::Failed { .. }, _) if item.has_keeper() => {}
        (WorkResult::Failed { error }, number) => {
            writes.letters.extend(letters::row(id, pool, item, error, now_ms)?);
            if !item.is_unlisted {
                let entry = inbox::Entry {
                    kind: letters::kind(item),
                    name: &item.function,
                    reference: &text(id),
                    status: inbox::Status::Pending,
                    failed_at: now_ms,
                    retries: u32::from(number.is_some()),
                    correlation: item.correlation.as_deref(),
                    error,
                };
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
    let (kind, function, error) = (kind.to_owned(), item.function.clone(), error.clone());
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
        Value::Int(ground.directory.lane(tx, &lane).await?),
        Value::Int(state),
        Value::Int(due_at),
        Value::from(item.key.as_deref()),
        Value::Text(serde_json::to_string(item).map_err(mainstay_store::Error::application)?),
    ]);
    Ok(())
}

/// An execution, as its function sees it.
pub(crate) fn call(ground: &Ground, id: Uuid, item: &Item, cancel: Cancel) -> Call {
    Call {
        work_id: text(id),
        function: item.function.clone(),
        attempt: item.attempts + 1,
        args: item.args.clone(),
        context: item.context.clone(),
        key: item.key.clone(),
        trace: Some(span::step(id, item, &*ground.random)),
        cancel,
    }
}

async fn run(
    ground: &Arc<Ground>,
    tx: &Tx,
    settlement: &Settlement,
    index: usize,
    ending: &Ending,
) -> Result<Box<RawValue>> {
    let Taken { id, item, .. } = &ending.taken;
    let Some(Body::Mutation(mutation)) = ground.functions.get(&item.function).map(|one| &one.body) else {
        let failure = Failure::retryable(format!("{} is not a mutation of this node", item.function));
        return Err(mainstay_store::Error::application(AuthorFailed { index, part: Part::Run, failure }));
    };
    // Whoever tells an end by itself is as deep as the end that it tells.
    let depth = if item.completes.is_some() { item.depth } else { 0 };
    let call = call(ground, *id, item, ending.cancel.clone());
    let span = span::span(&settlement.pool_name, item, &call);
    let running = mutation(tx.clone(), call);
    by_author(ground, tx, settlement, (index, Part::Run), depth, (span, running)).await
}

/// Lets an author's code run. What it fails with is its own, also what it has hidden: others come after it.
async fn by_author(
    ground: &Arc<Ground>,
    tx: &Tx,
    settlement: &Settlement,
    (index, part): (usize, Part),
    depth: u32,
    (span, running): (Span, Running<Result<Box<RawValue>>>),
) -> Result<Box<RawValue>> {
    let noted = noted(ground, tx);
    noted.enter(depth, (index, part));
    settlement.progress.enter(index, part);
    let ended = running.instrument(span.clone()).await.and_then(|value| tx.intact().map(|()| value));
    span.record("outcome", if ended.is_ok() { "success" } else { "failed" });
    let value = ended.map_err(|error| author_failed(index, part, error))?;
    settlement.progress.leave();
    noted.leave();
    Ok(value)
}

/// Tells an item's end to its `onComplete`: at once if that is a mutation of this node, by an item of its own otherwise.
async fn tell(
    ground: &Arc<Ground>,
    tx: &Tx,
    settlement: &Settlement,
    index: usize,
    ending: &Ending,
    item: &Item,
    result: WorkResult,
) -> Result<()> {
    let Some(function) = &item.on_complete else { return Ok(()) };
    let work_id = text(ending.taken.id);
    let attempts = counted(item, &result);
    let errors = match &result {
        WorkResult::Success { .. } => Vec::new(),
        _ if item.has_keeper() => item.errors.clone(),
        _ => Vec::new(),
    };
    let args =
        OnComplete { work_id: work_id.clone(), context: item.context.clone(), result, attempts, errors };
    let args = raw("onComplete", &args).map_err(mainstay_store::Error::from)?;
    let depth = item.depth + 1;
    if let Some(Body::Mutation(mutation)) = ground.functions.get(function).map(|one| &one.body)
        && !ending.is_told_later
    {
        let call = Call {
            work_id,
            function: function.clone(),
            attempt: 1,
            args,
            context: None,
            key: item.key.clone(),
            trace: Some(span::step(ending.taken.id, item, &*ground.random)),
            cancel: Cancel::default(),
        };
        let span = span::span(&settlement.pool_name, item, &call);
        let running = mutation(tx.clone(), call);
        by_author(ground, tx, settlement, (index, Part::Tell), depth, (span, running)).await?;
        return Ok(());
    }
    let mut telling =
        NewWork::new(&settlement.pool_name, function, &args).map_err(mainstay_store::Error::from)?;
    telling.trace.clone_from(&item.trace);
    telling.context.clone_from(&item.context);
    telling.correlation.clone_from(&item.correlation);
    noted(ground, tx).add_telling(telling, depth, work_id);
    Ok(())
}
