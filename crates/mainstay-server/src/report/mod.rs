//! Figures of the whole system, as people and programs are told (items 250 to 256).
//!
//! - `collect`: what is read from the database, the same at every node
//! - `rates`: how much was appended within a minute
//! - `document`: all of it as JSON, with what this node has measured itself
//! - `emit`: the same as a line of the log, every minute

mod collect;
mod document;
mod emit;
mod rates;

pub(crate) use collect::{Collected, MOST_LETTERS};
pub use emit::{EMIT_JOB, REPORT_TARGET};
pub(crate) use emit::{begin, emit_every_minute};
pub(crate) use rates::Rates;

use crate::app::App;
use crate::glance::{Glance, Look, bounded};
use mainstay_api::MetricsReport;
use std::time::Duration;

/// How long `/metrics` waits for the database when it knows something older.
const PATIENCE: Duration = Duration::from_millis(10);

/// What was last read from the database.
pub(crate) type Figures = Glance<Collected>;

/// What nobody has read yet. Nothing is too fresh to be read again: scrapes are rare.
pub(crate) fn figures() -> Figures {
    Figures::new(Duration::ZERO, PATIENCE)
}

/// What is in the database, or was a moment ago: whoever asks waits for no writer.
pub(crate) async fn lately(app: &App) -> Look<Collected> {
    app.collected().now(collect::collect(app.clone())).await
}

/// Figures of the whole system, as they are now.
pub(crate) async fn report(app: &App) -> Result<MetricsReport, &'static str> {
    Ok(document::report(app, Ok(&bounded(collect::collect(app.clone())).await?)))
}
