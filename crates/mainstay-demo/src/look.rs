//! What can be seen of the shop at a moment.

use super::schedule::Weather;
use super::stage::Stage;
use super::tally::{Count, Tally};
use crate::Result;
use mainstay::flows::dead_letters::{Filter, Status};
use mainstay::guards::circuits::State;
use order_management::payments::{self, CIRCUIT};
use serde::Serialize;
use std::time::Duration;

/// What lies aside is counted up to here.
const MOST: u32 = 1_000;

/// What was seen.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// How long the demo has run.
    pub(super) elapsed: Duration,
    /// Orders in a second, lately.
    pub(super) orders_per_second: f64,
    /// What has happened, by type of event.
    pub(super) count: Count,
    /// The last position of the log.
    pub(super) head: u64,
    /// How far the slowest read model is behind.
    pub(super) lag: u64,
    /// What becomes of dead letters.
    pub(super) letters: Letters,
    /// Events in quarantine.
    pub(super) quarantined: u64,
    /// How the provider is.
    pub(super) weather: Weather,
    /// Where the circuit before it is.
    pub(super) circuit: State,
    /// How often it opened and closed.
    pub(super) changes: (u64, u64),
    /// Calls of the provider that wait.
    pub(super) waiting: u64,
    /// Items of all pools that wait or run.
    pub(super) working: u64,
    /// What the server says of itself.
    pub(super) health: Option<String>,
}

impl Look {
    /// Whether nothing is under way any more that customers and services have begun: what is wanted is work, and what failed
    /// is a letter.
    pub(super) fn is_settled(&self) -> bool {
        let Letters { pending, retrying, .. } = self.letters;
        self.lag == 0 && self.working == 0 && pending + retrying == 0
    }
}

/// What becomes of dead letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Letters {
    /// Nobody has dealt with them.
    pub(super) pending: u64,
    /// They are tried again.
    pub(super) retrying: u64,
    /// Trying again has succeeded.
    pub(super) resolved: u64,
}

/// Looks at everything.
pub(super) async fn look(stage: &Stage, tally: &Tally, elapsed: Duration) -> Result<Look> {
    let house = stage.app.mainstay();
    let letters = house.dead_letters().stats(Filter::default()).await?;
    let of = |status| letters.counts.iter().filter(|one| one.status == status).map(|one| one.count).sum();
    let quarantined = house.projections().aside(MOST).await?.iter().map(|one| one.quarantined).sum();
    let figures = house.circuits().figures();
    let state = house.circuits().states().into_iter().find(|(name, _)| name == CIRCUIT);
    let pools = house.work().pools().await?;
    let of_payments = pools.iter().find(|pool| pool.name == payments::POOL);
    let models = house.projections().list().await?;
    Ok(Look {
        elapsed,
        orders_per_second: tally.orders_per_second(elapsed),
        count: tally.count(),
        head: house.log().head().await?,
        lag: models.iter().map(|model| model.lag).max().unwrap_or(0),
        letters: Letters {
            // Quarantined events are counted apart.
            pending: letters.pending.saturating_sub(quarantined),
            retrying: of(Status::Retrying),
            resolved: of(Status::Resolved),
        },
        quarantined,
        weather: stage.provider.weather(),
        circuit: state.map_or(State::Closed, |(_, state)| state),
        changes: (figures.opened.get(), figures.closed.get()),
        waiting: of_payments.map_or(0, |pool| pool.depth.pending),
        working: pools.iter().map(|pool| pool.depth.pending + pool.depth.running).sum(),
        health: None,
    })
}
