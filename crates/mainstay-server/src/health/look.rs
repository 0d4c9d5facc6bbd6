//! What there is to see.

use crate::app::App;
use mainstay_core::health;
use mainstay_flows::projections::Lifecycle;
use std::time::Instant;

/// The pools that the system itself needs (decision C42).
const PLATFORM: [&str; 3] = ["projectionPool", "dcbRetryPool", "eventReplayPool"];

/// What was seen.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// When, by the server's clock.
    pub(crate) timestamp: i64,
    /// How long the store took to answer.
    pub(crate) latency_ms: u64,
    pub(crate) projections: Vec<SeenProjection>,
    pub(crate) pools: Vec<SeenPool>,
    /// Dead letters that nobody has dealt with, counted no further than matters.
    pub(crate) letters: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct SeenProjection {
    pub(crate) name: String,
    /// What it does; nothing of one that has no checkpoint.
    pub(crate) status: Option<Lifecycle>,
    pub(crate) lag: u64,
    /// How many events its handler has taken.
    pub(crate) processed: u64,
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct SeenPool {
    pub(crate) name: String,
    /// Items that could start and have not been taken, counted no further than matters.
    pub(crate) depth: u64,
    pub(crate) max_depth: u64,
}

/// Looks at everything; the code of what is wrong when the store does not answer.
pub(super) async fn look(app: App) -> Result<Seen, &'static str> {
    let asked = Instant::now();
    let head = app.log().head().await.map_err(|error| error.code())?;
    let latency_ms = asked.elapsed().as_millis() as u64;
    let projections = projections(&app, head).await?;
    let rules = &app.options().health;
    let mut pools = Vec::new();
    let declared = app.work().pools().await.map_err(|error| error.code())?;
    for pool in declared.iter().filter(|pool| PLATFORM.contains(&pool.name.as_str())) {
        let max_depth = rules.depth(&pool.name, pool.settings.at_once());
        // What lies far beyond the bound is not counted: that it does is enough.
        let counted = max_depth.saturating_mul(10).saturating_add(1);
        let depth = app.work().due(&pool.name, counted).await.map_err(|error| error.code())?;
        pools.push(SeenPool { name: pool.name.clone(), depth, max_depth });
    }
    let letters = app.work().count_letters(rules.max_letters.saturating_add(1));
    let letters = letters.await.map_err(|error| error.code())?;
    let timestamp = app.store().clock().now_ms();
    Ok(Seen { timestamp, latency_ms, projections, pools, letters })
}

/// Every projection of this program, beside the head of the log (items 242 to 244, 252).
pub(crate) async fn projections(app: &App, head: u64) -> Result<Vec<SeenProjection>, &'static str> {
    let listed = app.projections().list().await.map_err(|error| error.code())?;
    let mut projections = Vec::new();
    for definition in app.projections().definitions() {
        let name = definition.name().to_owned();
        let found = listed.iter().find(|status| status.projection == name);
        if found.is_none() {
            tracing::warn!("no checkpoint for {name}");
        }
        let checkpoint = found.map(|status| status.last_global_position);
        projections.push(SeenProjection {
            name,
            status: found.map(|status| status.status),
            lag: health::lag(head, checkpoint),
            processed: found.map_or(0, |status| status.events_processed),
            error: found.and_then(|status| status.error_message.clone()),
        });
    }
    Ok(projections)
}
