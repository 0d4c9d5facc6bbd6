//! Letting authors' code run in the transaction: a mutation, and whoever is told of an end.

use super::record::counted;
use super::{Ending, Settlement};
use crate::blame::{AuthorFailed, Part, author_failed};
use crate::claim::Taken;
use crate::enqueue::{noted, text};
use crate::functions::{Body, Call, Cancel, Completes, MutationBody, Running};
use crate::item::{Item, NewWork, OnComplete, WorkResult, raw};
use crate::span;
use crate::work::Ground;
use mainstay_core::failure::Failure;
use mainstay_core::names::RESERVED_PREFIX;
use mainstay_store::{Result, Tx};
use serde_json::value::RawValue;
use std::sync::Arc;
use tracing::{Instrument, Span};
use uuid::Uuid;

/// An execution, as its function sees it.
pub(crate) fn call(ground: &Ground, id: Uuid, item: &Item, cancel: Cancel) -> Call {
    let (work_id, trace) = (text(id), Some(span::step(id, item, &*ground.random)));
    Call {
        cause: item.cause(&work_id, trace.clone()),
        work_id,
        function: item.function.clone(),
        attempt: item.attempts + 1,
        args: item.args.clone(),
        context: item.context.clone(),
        key: item.key.clone(),
        completes: item.completes(),
        retry_of: item.retry_of.clone(),
        trace,
        cancel,
    }
}

pub(super) async fn run(
    ground: &Arc<Ground>,
    tx: &Tx,
    settlement: &Settlement,
    index: usize,
    ending: &Ending,
) -> Result<Box<RawValue>> {
    let Taken { id, item, .. } = &ending.taken;
    let functions = ground.functions();
    let Some(Body::Mutation(mutation)) = functions.get(&item.function).map(|one| &one.body) else {
        let failure = Failure::retryable(format!("{} is not a mutation of this node", item.function));
        return Err(mainstay_store::Error::application(AuthorFailed { index, part: Part::Run, failure }));
    };
    // Whoever tells an end by itself is as deep as the end that it tells.
    let depth = if item.completes.is_some() { item.depth } else { 0 };
    let call = call(ground, *id, item, ending.cancel.clone());
    let span = span::span(&settlement.pool_name, item, &call);
    let running = running(mutation, tx, call);
    by_author(ground, tx, settlement, (index, Part::Run), depth, (span, running)).await
}

/// An author's mutation, run with the cause of its call.
fn running(mutation: &Arc<MutationBody>, tx: &Tx, call: Call) -> Running<Result<Box<RawValue>>> {
    let (mutation, tx) = (mutation.clone(), tx.clone());
    Box::pin(call.cause.clone().scope(async move { mutation(tx, call).await }))
}

/// The `onComplete` of an item that is told in the transaction of its end. Another one is told by an item of its own.
pub(super) fn told_at_once(ground: &Ground, item: &Item, ending: &Ending) -> Option<Arc<MutationBody>> {
    let functions = ground.functions();
    let name = item.on_complete.as_ref()?;
    let function = functions.get(name)?;
    // A caller of an earlier version could name any function of the platform. An item of its own is refused.
    let may_be_told = function.is_told || !name.starts_with(RESERVED_PREFIX);
    match &function.body {
        Body::Mutation(mutation) if may_be_told && !ending.is_told_later => Some(mutation.clone()),
        _ => None,
    }
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
pub(super) async fn tell(
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
    let (context, retry_of) = (item.context.clone(), item.retry_of.clone());
    let args = OnComplete { work_id: work_id.clone(), context, result, attempts, errors, retry_of };
    let args = raw("onComplete", &args).map_err(mainstay_store::Error::from)?;
    let depth = item.depth + 1;
    let ended = Some(item.function.clone());
    let completes =
        Some(Completes { work_id: work_id.clone(), function: ended, retry_of: item.retry_of.clone() });
    if let Some(mutation) = told_at_once(ground, item, ending) {
        let trace = Some(span::step(ending.taken.id, item, &*ground.random));
        let call = Call {
            cause: item.cause(&work_id, trace.clone()),
            work_id,
            function: function.clone(),
            attempt: 1,
            args,
            context: None,
            key: item.key.clone(),
            completes,
            retry_of: None,
            trace,
            cancel: Cancel::default(),
        };
        let span = span::span(&settlement.pool_name, item, &call);
        let running = running(&mutation, tx, call);
        by_author(ground, tx, settlement, (index, Part::Tell), depth, (span, running)).await?;
        return Ok(());
    }
    let telling =
        NewWork::new(&settlement.pool_name, function, &args).map_err(mainstay_store::Error::from)?;
    let mut telling = telling.caused_by(&item.cause(&work_id, item.trace.clone()));
    telling.context.clone_from(&item.context);
    telling.completes = completes;
    noted(ground, tx).add_telling(telling, depth);
    Ok(())
}
