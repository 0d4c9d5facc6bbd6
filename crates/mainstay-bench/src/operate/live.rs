//! What it costs that somebody looks at the overview, and what a browser has to load for it.

use super::visitor::Visitor;
use crate::Result;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Linux counts a process's time in hundredths of a second, wherever it runs.
const TICKS_PER_SECOND: f64 = 100.0;

/// The share of a core that following the overview takes: what the process takes meanwhile, less what it takes without. Nothing
/// where that cannot be told.
pub(super) fn share(visitor: &Visitor, time: Duration) -> Result<Option<f64>> {
    let Some(before) = process_seconds() else { return Ok(None) };
    std::thread::sleep(time);
    let Some(without) = process_seconds() else { return Ok(None) };
    let began = Instant::now();
    visitor.follow("/console/live", time)?;
    let took = began.elapsed().as_secs_f64();
    let with = process_seconds();
    Ok(with.map(|with| ((with - without - (without - before)) / took).max(0.0)))
}

/// How long this process has been on a core.
fn process_seconds() -> Option<f64> {
    let told = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name may have spaces in it; what follows has none.
    let fields: Vec<&str> = told.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |place: usize| fields.get(place)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// How many bytes a browser loads for the overview, with everything that the page names.
pub(super) fn transferred(visitor: &Visitor) -> Result<usize> {
    let page = visitor.once("/console")?;
    let text = String::from_utf8_lossy(&page);
    let named = text.split('"').filter(|text| text.starts_with("/console/assets/"));
    let named: BTreeSet<&str> = named.collect();
    let assets = named.into_iter().map(|path| Ok(visitor.once(path)?.len())).sum::<Result<usize>>()?;
    Ok(page.len() + assets)
}
