//! What a rate limit adds to a request of axum, with budgets in memory that are those of addresses.

use crate::rounds::{median, version};
use crate::table::Table;
use anyhow::{Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use mainstay_guards::http::{Key, TrustedProxies};
use mainstay_guards::limits::{Policy, RateLimitLayer, Rule, memory};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;
use tower::ServiceExt;

/// Requests of a turn.
const REQUESTS: u32 = 500_000;
const ADDRESSES: u32 = 10_000;
const ROUNDS: usize = 7;

/// Prints the table.
pub async fn run() -> Result<()> {
    println!(
        "\nA rate limit before axum: {REQUESTS} requests from {ADDRESSES} addresses, one after another, none of them \
         denied; the median of {ROUNDS} rounds in turns\n\n- axum {}, tower {}: a route that answers with a word, \
         through `oneshot`\n",
        version("axum"),
        version("tower")
    );
    let bare = Router::new().route("/", get(async || "served"));
    let limiter = memory::limiter(Policy::bucket(1e9, 1e6)?);
    let rule = Rule::new("by-address", limiter, Key::address(TrustedProxies::none()))?;
    let limited = bare.clone().layer(RateLimitLayer::http().rule(rule)?);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(turn(&bare).await?);
        with.push(turn(&limited).await?);
    }
    let added = with.iter().zip(&without).map(|(with, without)| with - without).collect();
    let ns = |times: Vec<f64>| format!("{:.0}", median(times, |ns| *ns));
    let mut table = Table::new(["what", "ns a request", "ns added"]);
    table.add(["axum".to_owned(), ns(without), String::new()]);
    table.add(["axum behind `RateLimitLayer`".to_owned(), ns(with), ns(added)]);
    print!("{}", table.render());
    Ok(())
}

/// Nanoseconds of a request.
async fn turn(router: &Router) -> Result<f64> {
    let began = Instant::now();
    for number in 0..REQUESTS {
        let address = Ipv4Addr::from(0x0A00_0000 + number % ADDRESSES);
        let mut request = Request::get("/").body(Body::empty())?;
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((address, 40_000))));
        let answer = router.clone().oneshot(request).await?;
        ensure!(answer.status() == StatusCode::OK, "answered with {}", answer.status());
    }
    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS))
}
