//! What is read from the database.

use crate::app::App;
use crate::health::{SeenProjection, projections};
use mainstay_flows::projections::Aside;
use mainstay_flows::projections::replay::{Progress, ReplayStatus};
use mainstay_work::PoolStatus;
use std::time::Instant;

/// What lies aside is counted up to here: whoever has so much has a problem, and counting all of it would be another.
pub(crate) const MOST_LETTERS: u32 = 1_000;

/// What was read.
#[derive(Debug)]
pub(crate) struct Collected {
    /// When that was.
    pub(crate) at: Instant,
    pub(crate) projections: Vec<SeenProjection>,
    /// What lies aside of each projection.
    pub(crate) aside: Vec<Aside>,
    pub(crate) pools: Vec<PoolStatus>,
    /// Dead letters of work that nobody has dealt with.
    pub(crate) letters: u64,
    /// Replays that run or are paused.
    pub(crate) replays: Vec<Progress>,
}

/// Reads; the code of what is wrong when the store does not answer.
pub(super) async fn collect(app: App) -> Result<Collected, &'static str> {
    let at = Instant::now();
    let head = app.log().head().await.map_err(|error| error.code())?;
    Ok(Collected {
        at,
        projections: projections(&app, head).await?,
        aside: app.projections().aside(MOST_LETTERS).await.map_err(|error| error.code())?,
        pools: app.work().pools().await.map_err(|error| error.code())?,
        letters: app.work().count_letters(MOST_LETTERS).await.map_err(|error| error.code())?,
        replays: app.projections().active_rebuilds().await.map_err(|error| error.code())?,
    })
}

impl Collected {
    /// How many replays there are of this status.
    pub(crate) fn replays_of(&self, status: ReplayStatus) -> usize {
        self.replays.iter().filter(|replay| replay.status == status).count()
    }
}
