//! `/metrics`: figures for Prometheus; `/admin/metrics`: the same for people and programs.

use crate::app::App;
use crate::metrics::Table;
use crate::report::{self, Collected};
use crate::{Answer, Json, Permission, Principal, Problem, Routes, metrics};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use mainstay_api::MetricsReport;
use mainstay_flows::projections::replay::ReplayStatus;
use mainstay_guards::circuits;
use mainstay_work::PoolStatus;
use utoipa_axum::routes;

/// What figures are of: types of all streams and commands, every circuit and every pool.
const WHOSE: &str = "The system";

pub(super) fn routes() -> Routes {
    Routes::default().add(Permission::Local, routes!(all)).add(Permission::Reader, routes!(document))
}

/// What the server and its store measure about themselves; a token that is confined to a tenant is refused
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "operate",
    responses((status = 200, body = String, content_type = "text/plain; version=0.0.4")))]
async fn all(State(app): State<App>, principal: Principal) -> Answer<impl IntoResponse> {
    principal.unconfined(WHOSE)?;
    let mut text = metrics::render(&app.measured());
    write_circuits(&mut text, app.circuits().states());
    let read = report::lately(&app).await.ok();
    write_read(&mut text, read.as_deref());
    Ok(([(CONTENT_TYPE, metrics::MEDIA_TYPE)], text))
}

/// Figures of the whole system, and of this server
#[utoipa::path(get, path = "/admin/metrics", operation_id = "getMetrics", tag = "operate",
    responses((status = 200, body = MetricsReport)))]
async fn document(State(app): State<App>, principal: Principal) -> Answer<Json<MetricsReport>> {
    principal.unconfined(WHOSE)?;
    let report = report::report(&app).await;
    report.map(Json).map_err(|code| {
        let reason = format!("figures could not be read: {code}");
        Problem::from(mainstay_store::Error::Unavailable(reason))
    })
}

fn gauge<'a>(name: &'a str, meaning: &'a str, label: &'a str) -> Table<'a> {
    Table { name, meaning, kind: "gauge", label }
}

fn write_circuits(text: &mut String, mut states: Vec<(String, circuits::State)>) {
    // When there are too many, those matter that are not closed.
    states.sort_by_key(|(_, state)| *state == circuits::State::Closed);
    let rows = states.into_iter().map(|(name, state)| {
        let told = match state {
            circuits::State::Closed => 0.0,
            circuits::State::Open => 1.0,
            circuits::State::HalfOpen => 2.0,
        };
        (name, told)
    });
    let meaning = "State of a circuit: 0 closed, 1 open, 2 half open.";
    metrics::labelled(text, &gauge("circuits_state", meaning, "circuit"), rows);
}

/// Writes what was read from the database; names without rows when nothing was.
fn write_read(text: &mut String, read: Option<&Collected>) {
    let age = read.map(|read| read.at.elapsed().as_secs_f64());
    metrics::plain(
        text,
        ("database_up", "Whether figures could be read from the database."),
        [f64::from(u8::from(read.is_some()))],
    );
    let meaning = "How old the figures are that were read from the database.";
    metrics::plain(text, ("database_figures_age_seconds", meaning), age);
    write_projections(text, read);
    write_letters(text, read);
    write_intents(text, read);
    write_replays(text, read);
    write_pools(text, read.map_or(&[], |read| &read.pools));
}

fn write_projections(text: &mut String, read: Option<&Collected>) {
    let projections = read.map_or(&[][..], |read| &read.projections);
    let lag = projections.iter().map(|one| (one.name.clone(), one.lag as f64));
    let meaning = "Events that a projection has still to look at.";
    metrics::labelled(text, &gauge("projection_lag_events", meaning, "projection"), lag);
    let processed = Table {
        name: "projection_events_processed_total",
        meaning: "Events that a projection has taken.",
        kind: "counter",
        label: "projection",
    };
    let rows = projections.iter().map(|one| (one.name.clone(), one.processed as f64));
    metrics::labelled(text, &processed, rows);
}

fn write_letters(text: &mut String, read: Option<&Collected>) {
    let rows = read.into_iter().flat_map(|read| &read.letters);
    let rows = rows.map(|(kind, count)| (kind.to_string(), *count as f64));
    let meaning = "Dead letters that nobody has dealt with, counted up to 1000 of each kind.";
    metrics::labelled(text, &gauge("dead_letters_pending", meaning, "kind"), rows);
}

fn write_intents(text: &mut String, read: Option<&Collected>) {
    let meaning = "Intents that nobody has ended, counted up to 1000.";
    metrics::plain(text, ("intents_pending", meaning), read.map(|read| read.intents.pending as f64));
    let meaning = "Those of them whose time is up, counted up to 1000.";
    metrics::plain(text, ("intents_overdue", meaning), read.map(|read| read.intents.overdue as f64));
}

fn write_replays(text: &mut String, read: Option<&Collected>) {
    let counted = read.map(|read| {
        [ReplayStatus::Running, ReplayStatus::Paused]
            .map(|status| (status.as_str().to_owned(), read.replays_of(status) as f64))
    });
    let meaning = "Replays that are under way.";
    metrics::labelled(text, &gauge("replays_active", meaning, "status"), counted.into_iter().flatten());
    let rows = read.map_or(&[][..], |read| &read.replays).iter();
    let rows = rows.map(|replay| (replay.projection_name.clone(), replay.percent_complete / 100.0));
    let meaning = "How much of a replay is done, from 0 to 1.";
    metrics::labelled(text, &gauge("replay_progress_ratio", meaning, "projection"), rows);
}

/// What a figure tells of a pool.
type Tell = fn(&PoolStatus) -> f64;

fn write_pools(text: &mut String, pools: &[PoolStatus]) {
    // When there are too many, those matter that have something to do.
    let mut pools: Vec<&PoolStatus> = pools.iter().collect();
    pools.sort_by_key(|pool| std::cmp::Reverse(pool.depth.pending));
    let figures: [(&str, &str, Tell); 5] = [
        ("work_pool_pending", "Items of a pool that wait.", |pool| pool.depth.pending as f64),
        ("work_pool_running", "Items of a pool that were taken and have not ended.", |pool| {
            pool.depth.running as f64
        }),
        ("work_pool_oldest_age_seconds", "How long the item in front has waited.", |pool| {
            pool.depth.oldest_age_ms.unwrap_or(0) as f64 / 1_000.0
        }),
        ("work_pool_max_parallelism", "Items of a pool that may run at once.", |pool| {
            f64::from(pool.settings.at_once())
        }),
        ("work_pool_paused", "Whether nothing of a pool is started.", |pool| {
            f64::from(u8::from(pool.is_paused))
        }),
    ];
    for (name, meaning, tell) in figures {
        let rows = pools.iter().map(|pool| (pool.name.clone(), tell(pool)));
        metrics::labelled(text, &gauge(name, meaning, "pool"), rows);
    }
}
