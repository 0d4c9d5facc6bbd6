//! `/metrics`: figures for Prometheus.

use crate::app::App;
use crate::{Permission, Routes, metrics};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use mainstay_guards::circuits;
use mainstay_work::{PoolStatus, Work};
use std::time::Duration;
use utoipa_axum::routes;

/// Pools are looked at for no longer than this: figures that say nothing of them are better than none.
const BOUND: Duration = Duration::from_secs(1);
/// Dead letters are counted up to here: whoever has so many has a problem, and counting all of them would be another.
const MOST_LETTERS: u32 = 1_000;

pub(super) fn routes() -> Routes {
    Routes::default().add(Permission::Local, routes!(all))
}

/// What the server and its store measure about themselves
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "operate",
    responses((status = 200, body = String, content_type = "text/plain; version=0.0.4")))]
async fn all(State(app): State<App>) -> impl IntoResponse {
    let mut text = metrics::render(&app.measured());
    let looking =
        async { Ok::<_, mainstay_work::Error>((app.work().pools().await?, waiting(app.work()).await?)) };
    if let Ok(Ok((pools, letters))) = tokio::time::timeout(BOUND, looking).await {
        write_pools(&mut text, &pools);
        metrics::labelled(&mut text, LETTERS, "status", [("pending".to_owned(), letters as f64)]);
    }
    write_circuits(&mut text, app.circuits().states());
    ([(CONTENT_TYPE, metrics::MEDIA_TYPE)], text)
}

const LETTERS: (&str, &str) =
    ("work_letters", "Dead letters that nobody has dealt with, counted up to 1000.");

async fn waiting(work: &Work) -> mainstay_work::Result<u64> {
    work.count_letters(MOST_LETTERS).await
}

/// Circuits are told up to here, those that are not closed first.
const MOST_CIRCUITS: usize = 1_000;

fn write_circuits(text: &mut String, mut states: Vec<(String, circuits::State)>) {
    states.sort_by_key(|(_, state)| *state == circuits::State::Closed);
    let rows = states.into_iter().take(MOST_CIRCUITS).map(|(name, state)| {
        let told = match state {
            circuits::State::Closed => 0.0,
            circuits::State::HalfOpen => 1.0,
            circuits::State::Open => 2.0,
        };
        (name, told)
    });
    let meaning = "Where a circuit is: 0 closed, 1 half open, 2 open.";
    metrics::labelled(text, ("circuits_state", meaning), "circuit", rows);
}

/// What a figure tells of a pool.
type Tell = fn(&PoolStatus) -> f64;

fn write_pools(text: &mut String, pools: &[PoolStatus]) {
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
        metrics::labelled(text, (name, meaning), "pool", rows);
    }
}
