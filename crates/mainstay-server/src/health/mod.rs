//! Whether the server is well, and what is wrong when it is not.
//!
//! - `rules`: from when on something is wrong
//! - `look`: what there is to see, read on a snapshot that waits for no writer
//! - `verdict`: what was seen, as probes and people are told

mod look;
mod rules;
mod verdict;

pub use rules::HealthRules;
pub(crate) use verdict::{readiness, system, without_details};

use crate::app::App;
use crate::glance::{self, Glance};
use look::Seen;
pub(crate) use look::{SeenProjection, projections};
use std::time::Duration;

/// Probes of many come at once, and want an answer within 50 ms.
const FRESH: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_millis(40);

/// The last look at how everything is.
pub(crate) type Watch = Glance<Seen>;
type Look = glance::Look<Seen>;

/// A watch that has seen nothing yet.
pub(crate) fn watch() -> Watch {
    Watch::new(FRESH, PATIENCE)
}

/// How everything is.
pub(crate) async fn now(app: &App) -> Look {
    app.watch().now(look::look(app.clone())).await
}

/// Looks now and then whether anybody asks or not, so that whoever does finds something and need not wait, whatever the load.
pub(crate) async fn keep_watching(app: &App) {
    loop {
        app.watch().begin(look::look(app.clone()));
        tokio::time::sleep(glance::STALE / 2).await;
    }
}
