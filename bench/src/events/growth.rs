//! Whether an append costs the same on a long log as on a short one, and by a type what it costs by a tag.

use super::{DATA, TYPE, load};
use anyhow::Result;
use mainstay_bench::load::{Load, Outcome};
use mainstay_bench::table::Table;
use mainstay_events::{Append, COMPONENT, Condition, Item, Log, NewEvent, Query};
use mainstay_store::Options;
use std::time::Duration;

/// Events that the log has before each measurement.
const LENGTHS: [u64; 3] = [10_000, 100_000, 1_000_000];
const CALLERS: usize = 64;
const EVENTS_OF_A_BATCH: u64 = 100;

/// Prints the table.
pub async fn run(seconds: f64) -> Result<()> {
    println!("\nOne log as it grows, {CALLERS} callers, {seconds} s each");
    let folder = tempfile::tempdir_in(".")?;
    let url = format!("sqlite:{}", folder.path().join("log.db").display());
    let store = Options::new(url).component(COMPONENT).open().await?;
    let log = Log::open(&store).await?;
    let data = serde_json::value::RawValue::from_string(DATA.to_owned())?;
    let event = NewEvent::new(TYPE, &data)?;
    let (mut table, mut run, mut first) = (Table::new(), 0, None);
    for length in LENGTHS {
        fill(&log, &event, length).await?;
        let load = Load {
            callers: CALLERS,
            warm_up: Duration::from_millis(500),
            measured: Duration::from_secs_f64(seconds),
        };
        run += 1;
        let by_tag = measure(&log, &event, load, run, false).await;
        let first = *first.get_or_insert(by_tag.per_second());
        let ratio = format!("{:.2}× the shortest", by_tag.per_second() / first);
        table.add(&format!("{length} events, no such tag"), &by_tag, &ratio);
        run += 1;
        let by_type = measure(&log, &event, load, run, true).await;
        let ratio = format!("{:.2}× by tag", by_type.per_second() / by_tag.per_second());
        table.add(&format!("{length} events, no such type"), &by_type, &ratio);
    }
    println!("\n{}", table.render());
    store.close().await;
    Ok(())
}

async fn fill(log: &Log, event: &NewEvent, length: u64) -> Result<()> {
    let mut head = log.head().await?;
    while head < length {
        let events = (0..EVENTS_OF_A_BATCH.min(length - head))
            .map(|number| event.clone().tag(load::tag(usize::MAX >> 25, head + number)));
        head = log.append(Append::new(events)).await?.head;
    }
    Ok(())
}

async fn measure(log: &Log, event: &NewEvent, load: Load, run: usize, by_type: bool) -> Outcome {
    let (log, event) = (log.clone(), event.clone());
    load.run(move |caller, number| {
        let (log, event) = (log.clone(), event.clone());
        async move {
            let tag = load::tag(run << 8 | caller, number);
            let item = match by_type {
                true => Item { types: vec!["OrderCancelled".to_owned()], tags: Vec::new() },
                false => Item { types: Vec::new(), tags: vec![tag.clone()] },
            };
            let none = Condition::none_match(Query::new(vec![item])?);
            log.append(Append::from(event.tag(tag)).unless(none)).await?;
            Ok(())
        }
    })
    .await
}
