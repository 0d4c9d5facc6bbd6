//! What the rate-limit layer adds to a request of axum, with limiters in memory.
//!
//! `cargo run --release -p mainstay-guards --features axum --example rate_limit_layer`

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use mainstay_guards::http::{Key, ProxyHeader, TrustedProxies};
use mainstay_guards::limits::{Policy, RateLimitLayer, Rule, memory};
use std::time::Instant;
use tower::ServiceExt;

const ROUNDS: usize = 5;
const REQUESTS: u32 = 200_000;

/// Nanoseconds that a request takes, on average.
async fn measure(router: &Router) -> f64 {
    let began = Instant::now();
    for number in 0..REQUESTS {
        let address = format!("203.0.{}.{}", number / 256 % 256, number % 256);
        let request = Request::get("/").header("x-forwarded-for", address).body(Body::empty());
        let answer = router.clone().oneshot(request.expect("a request")).await;
        assert_eq!(answer.map(|answer| answer.status().as_u16()), Ok(200));
    }
    began.elapsed().as_nanos() as f64 / f64::from(REQUESTS)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> mainstay_guards::Result<()> {
    let proxies = TrustedProxies::hops(ProxyHeader::x_forwarded_for(), 1)?;
    let limiter = || Ok::<_, mainstay_guards::Error>(memory::limiter(Policy::bucket(1e9, 1e6)?));
    let one = RateLimitLayer::http().rule(Rule::new("address", limiter()?, Key::address(proxies))?)?;
    let three = one.clone().rule(Rule::new("route", limiter()?, Key::route())?)?.rule(Rule::new(
        "all",
        limiter()?,
        Key::everyone(),
    )?)?;
    let plain = Router::new().route("/", get(async || "served"));
    // What any layer costs in axum is no cost of this one.
    let empty = plain.clone().layer(tower::util::MapRequestLayer::new(|request: Request<Body>| request));
    let routers = [plain.clone(), empty, plain.clone().layer(one), plain.layer(three)];
    let mut best = [f64::INFINITY; 4];
    for _ in 0..ROUNDS {
        for (best, router) in best.iter_mut().zip(&routers) {
            *best = best.min(measure(router).await);
        }
    }
    println!("without a layer          {:6.0} ns", best[0]);
    println!("a layer that does nothing {:+6.0} ns", best[1] - best[0]);
    println!("one limit                 {:+6.0} ns", best[2] - best[0]);
    println!("three limits              {:+6.0} ns", best[3] - best[0]);
    Ok(())
}
