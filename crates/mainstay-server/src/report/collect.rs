//! What is read from the database.

use crate::app::App;
use crate::health::{SeenProjection, projections};
use mainstay_flows::delivery::intents::OpenIntents;
use mainstay_flows::projections::Aside;
use mainstay_flows::projections::replay::{Progress, ReplayStatus};
use mainstay_work::PoolStatus;
use mainstay_work::inbox::Kind;
use std::collections::BTreeMap;
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
    /// Dead letters that nobody has dealt with, by kind.
    pub(crate) letters: Vec<(Kind, u64)>,
    /// Intents that nobody has ended.
    pub(crate) intents: OpenIntents,
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
        letters: letters(&app).await?,
        intents: app.intents().count_open(MOST_LETTERS).await.map_err(|error| error.code())?,
        replays: app.projections().active_rebuilds().await.map_err(|error| error.code())?,
    })
}

/// Those of each kind. Kinds of the platform have a figure even if there are none.
async fn letters(app: &App) -> Result<Vec<(Kind, u64)>, &'static str> {
    let counted = app.work().count_letters_by_kind(MOST_LETTERS).await.map_err(|error| error.code())?;
    let mut all: BTreeMap<Kind, u64> = Kind::ALL.into_iter().map(|kind| (kind, 0)).collect();
    all.extend(counted);
    Ok(all.into_iter().collect())
}

impl Collected {
    /// How many replays there are of this status.
    pub(crate) fn replays_of(&self, status: ReplayStatus) -> usize {
        self.replays.iter().filter(|replay| replay.status == status).count()
    }
}
