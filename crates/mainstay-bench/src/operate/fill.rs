//! A store that is full: events, and dead letters of work that always fails.

use super::{AT_ONCE, FUNCTION, PATIENCE, POOL, lost};
use crate::{Failure, Result};
use mainstay::events::{Append, Log, MAX_EVENTS, NewEvent};
use mainstay::work::{NewWork, Pool, RetryPolicy, Work};
use std::time::Duration;

const TYPE: &str = "mainstay.BenchNoted";
/// With its quotes an event carries 100 bytes.
const TEXT_BYTES: usize = 98;
/// Items that are enqueued together.
const BATCH: usize = 1_000;

/// Appends so many events.
pub(super) async fn fill(log: &Log, events: usize) -> Result<()> {
    let mut filling = tokio::task::JoinSet::new();
    for from in (0..events).step_by(MAX_EVENTS) {
        if filling.len() >= AT_ONCE
            && let Some(filled) = filling.join_next().await
        {
            filled.map_err(lost)??;
        }
        let (log, numbers) = (log.clone(), from..events.min(from + MAX_EVENTS));
        filling.spawn(async move { log.append(Append::new(noted(numbers)?)).await.map(drop) });
    }
    while let Some(filled) = filling.join_next().await {
        filled.map_err(lost)??;
    }
    Ok(())
}

/// Events, a thousand of which are about the same, and ten of which belong together.
pub(super) fn noted(numbers: std::ops::Range<usize>) -> mainstay::events::Result<Vec<NewEvent>> {
    let data = "x".repeat(TEXT_BYTES);
    let event = |number: usize| {
        let event = NewEvent::new(TYPE, &data)?.tag(format!("bench:{}", number / 1_000));
        Ok(event.correlation(format!("bench-{}", number / 10)))
    };
    numbers.map(event).collect()
}

/// Lets so many items fail for good.
pub(super) async fn fail_often(work: &Work, letters: usize) -> Result<()> {
    let retry = RetryPolicy::new(1, 1, 1.0, 1).map_err(|error| Failure::Broken(error.to_string()))?;
    work.pool(Pool::new(POOL).max_parallelism(64).retry(retry)).await?;
    for from in (0..letters).step_by(BATCH) {
        let items =
            (from..letters.min(from + BATCH)).map(|number| NewWork::new(POOL, FUNCTION, &(number as u64)));
        work.enqueue_all(items.collect::<mainstay::work::Result<Vec<_>>>()?).await?;
    }
    let engine = work.start().await?;
    loop {
        let depth = work.depth(POOL).await?;
        if (depth.pending, depth.running) == (0, 0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(engine.stop(PATIENCE).await?)
}
