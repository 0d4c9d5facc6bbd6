//! `/admin/system`: how everything is, on one page.

use crate::access::Principal;
use crate::app::App;
use crate::health::{self, system};
use crate::lately::Followed;
use crate::report::MOST_LETTERS;
use crate::{Answer, Json, Permission, Problem, Routes};
use axum::extract::State;
use mainstay_core::health::{Status, SystemHealth};
use mainstay_flows::dead_letters::{Filter, Stats};
use mainstay_flows::projections::Aside;
use mainstay_flows::projections::replay::Progress;
use mainstay_guards::circuits;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa_axum::routes;

/// From this many events on, a projection that is behind is counted (item 228).
const LAGS: u64 = 100;
/// Circuits are told up to here, those that are not closed first.
const MOST_CIRCUITS: usize = 1_000;

pub(super) fn routes() -> Routes {
    Routes::default().add(Permission::Reader, routes!(state))
}

/// How everything is (item 228).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SystemState {
    timestamp: i64,
    health: SystemHealth,
    projections: Models,
    dead_letters: Stats,
    circuit_breakers: BTreeMap<String, circuits::State>,
    summary: Summary,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Models {
    lags: BTreeMap<String, u64>,
    active_rebuilds: Vec<Progress>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    status: Status,
    projections_with_lag: u64,
    pending_dead_letters: u64,
    quarantined_events: u64,
    open_circuits: u64,
    /// What somebody should look at first.
    critical: Vec<String>,
}

/// The shape of it, for the description.
#[allow(dead_code, reason = "only described")]
mod schema {
    use std::collections::BTreeMap;
    use utoipa::ToSchema;

    #[derive(ToSchema)]
    #[schema(rename_all = "camelCase")]
    pub(super) struct SystemState {
        /// In milliseconds since the epoch.
        timestamp: i64,
        /// As `/health` tells it.
        health: serde_json::Value,
        projections: SystemProjections,
        /// As `/admin/dead-letters/stats` tells it.
        dead_letters: serde_json::Value,
        /// Where each circuit is.
        circuit_breakers: BTreeMap<String, String>,
        summary: SystemSummary,
    }

    #[derive(ToSchema)]
    #[schema(rename_all = "camelCase")]
    pub(super) struct SystemProjections {
        /// How many events each has still to look at.
        lags: BTreeMap<String, u64>,
        active_rebuilds: Vec<serde_json::Value>,
    }

    #[derive(ToSchema)]
    #[schema(rename_all = "camelCase")]
    pub(super) struct SystemSummary {
        /// healthy, degraded or unhealthy.
        status: String,
        /// Those that are more than 100 events behind.
        projections_with_lag: u64,
        pending_dead_letters: u64,
        /// Events that projections have put aside and that nobody has dealt with, counted up to 1000 of each projection.
        quarantined_events: u64,
        open_circuits: u64,
        /// What somebody should look at first.
        critical: Vec<String>,
    }
}

/// How everything is, on one page
#[utoipa::path(get, path = "/admin/system", operation_id = "systemState", tag = "operate",
    responses((status = 200, body = schema::SystemState)))]
async fn state(
    State(app): State<App>,
    principal: Principal,
    followed: Followed,
) -> Answer<Json<SystemState>> {
    principal.unconfined("How the system is")?;
    let now_ms = app.store().clock().now_ms();
    let health = system(&health::now(&app).await, &app.options().health, now_ms);
    let head = app.log().head().await.map_err(Problem::from)?;
    // As `/health` sees them: one that has no checkpoint is behind by everything (item 243).
    let models = health::projections(&app, head).await.map_err(unread)?;
    let lags: BTreeMap<String, u64> = models.into_iter().map(|one| (one.name, one.lag)).collect();
    let active_rebuilds = app.projections().active_rebuilds().await.map_err(Problem::from)?;
    let count = async { app.dead_letters().stats(Filter::default()).await.map_err(Problem::from) };
    let dead_letters = app.letter_stats().ask("0 {}", followed, count).await?;
    let count = async { app.projections().aside(MOST_LETTERS).await.map_err(Problem::from) };
    let aside = app.put_aside().ask("", followed, count).await?;
    let mut states = app.circuits().states();
    let open_circuits = states.iter().filter(|(_, state)| *state == circuits::State::Open).count() as u64;
    states.sort_by_key(|(_, state)| *state == circuits::State::Closed);
    let circuit_breakers: BTreeMap<_, _> = states.into_iter().take(MOST_CIRCUITS).collect();
    let late = lags.iter().filter(|(_, lag)| **lag > LAGS);
    let mut critical: Vec<String> =
        late.clone().map(|(name, lag)| format!("{name} is {lag} events behind")).collect();
    let open = circuit_breakers.iter().filter(|(_, state)| **state == circuits::State::Open);
    critical.extend(open.map(|(name, _)| format!("the circuit {name} is open")));
    match dead_letters.pending {
        0 => {}
        1 => critical.push("1 dead letter waits for somebody".to_owned()),
        several => critical.push(format!("{several} dead letters wait for somebody")),
    }
    critical.extend(aside.iter().filter_map(put_aside));
    let summary = Summary {
        status: health.status,
        projections_with_lag: late.count() as u64,
        pending_dead_letters: dead_letters.pending,
        quarantined_events: aside.iter().map(|one| one.quarantined).sum(),
        open_circuits,
        critical,
    };
    let projections = Models { lags, active_rebuilds };
    Ok(Json(SystemState { timestamp: now_ms, health, projections, dead_letters, circuit_breakers, summary }))
}

/// What is to be said of the events that a projection goes on without.
fn put_aside(aside: &Aside) -> Option<String> {
    match aside.quarantined {
        0 => None,
        1 => Some(format!("{} has put 1 event aside", aside.projection)),
        several => Some(format!("{} has put {several} events aside", aside.projection)),
    }
}

fn unread(code: &str) -> Problem {
    Problem::from(mainstay_store::Error::Unavailable(format!("projections could not be read: {code}")))
}
