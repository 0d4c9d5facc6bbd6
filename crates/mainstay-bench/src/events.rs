//! `mainstay bench events`: conditional appends, by one caller and by many, and reading what was appended.

use super::load::{Load, Outcome};
use mainstay::events::{Append, Condition, Log, MAX_PAGE, NewEvent, Result, Selection};
use serde_json::value::RawValue;
use std::time::{Duration, Instant};

/// What an event carries.
pub const DATA: &str =
    r#"{"customer":"7c1f9a52","amount":4200,"currency":"EUR","note":"one hundred bytes in all, no more..."}"#;
const _: () = assert!(DATA.len() == 100);

/// The type of every event.
pub const TYPE: &str = "mainstay.BenchOrderPlaced";

/// Measures appends of one event whose tag must be nobody's yet. `series` tells tags of this measurement from those of
/// others on the same log.
pub async fn measure(log: &Log, load: Load, series: &str) -> Result<Outcome> {
    let data: &RawValue = serde_json::from_str(DATA).expect("the data is JSON");
    let event = NewEvent::new(TYPE, &data)?;
    let (log, series) = (log.clone(), series.to_owned());
    let append = move |caller, number| {
        let tag = format!("bench:{series}:{caller}:{number}");
        let (log, event) = (log.clone(), event.clone());
        async move {
            let once = Condition::no_tag(tag.as_str())?;
            log.append(Append::from(event.tag(tag)).unless(once)).await?;
            Ok(())
        }
    };
    Ok(load.run(append).await)
}

/// What reading took.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Events that were read, with their data.
    pub events: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl Reading {
    /// Events per second.
    pub fn per_second(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64()
    }
}

/// Reads everything after a position, page by page.
pub async fn read(log: &Log, after: u64) -> Result<Reading> {
    let began = Instant::now();
    let (mut events, mut selection) = (0, Selection::all().after(after));
    loop {
        let page = log.read(&selection, MAX_PAGE).await?;
        for event in &page.events {
            std::hint::black_box(event.data());
            events += 1;
        }
        let Some(next) = page.next else { return Ok(Reading { events, elapsed: began.elapsed() }) };
        selection.after = next;
    }
}
