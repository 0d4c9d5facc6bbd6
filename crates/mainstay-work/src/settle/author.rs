//! Letting authors' code run in the transaction: a mutation, and whoever is told of an end.

use super::record::counted;
use super::{Ending, Settlement};
use crate::blame::{AuthorFailed, Part, author_failed};
use crate::claim::Taken;
use crate::enqueue::{noted, text};
use crate::functions::{Body, Call, Cancel, Running};
use crate::item::{Item, NewWork, OnComplete, WorkResult, raw};
use crate::span;
use crate::work::Ground;
use mainstay_core::failure::Failure;
use mainstay_store::{Result, Tx};
use serde_json::value::RawValue;
use std::sync::Arc;
use tracing::{Instrument, Span};
use uuid::Uuid;

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

pub(super) async fn run(
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
