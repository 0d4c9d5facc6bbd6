//! When a limiter does not answer.

use super::{Door, bucket, get, header, json};
use axum::http::StatusCode;
use mainstay_core::limits::{Decision, Limit, Verb};
use mainstay_guards::http::Key;
use mainstay_guards::limits::{Answer, Policy, RateLimitLayer, RateLimiter, Rule, WhenAway};
use mainstay_guards::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// A limiter that answers later, fails, or never answers.
#[derive(Default)]
struct Moody(AtomicU8);

const WELL: u8 = 0;
const AWAY: u8 = 1;
const SILENT: u8 = 2;

impl RateLimiter for Moody {
    fn act<'a>(&'a self, _: &'a str, _: Verb) -> Answer<'a, Decision> {
        Answer::later(async {
            tokio::task::yield_now().await;
            match self.0.load(Ordering::SeqCst) {
                WELL => Ok(Decision::allowed(4)),
                AWAY => Err(Error::LimiterAway("it was sent away".into())),
                _ => std::future::pending().await,
            }
        })
    }

    fn policy(&self) -> Policy {
        Policy::bucket(5.0, 1.0).unwrap()
    }

    fn set_limit(&self, _: Limit) -> Answer<'_, ()> {
        Answer::now(Ok(()))
    }
}

fn door(when_away: WhenAway) -> Result<(Door, Arc<Moody>, Arc<dyn RateLimiter>)> {
    let (moody, other) = (Arc::new(Moody::default()), Arc::new(bucket(10.0, 0.1)));
    let layer = RateLimitLayer::http()
        .rule(Rule::new("other", other.clone(), Key::everyone())?)?
        .rule(Rule::new("moody", moody.clone(), Key::everyone())?)?
        .when_away(when_away)
        .patience(Duration::from_millis(300));
    Ok((Door::behind(layer), moody, other))
}

#[tokio::test(start_paused = true)]
async fn requests_are_refused_in_time_and_take_nothing() {
    let (door, moody, other) = door(WhenAway::Refuse).unwrap();
    assert_eq!(
        header(&door.send(get("/")).await, "ratelimit"),
        Some("\"other\";r=9;t=90, \"moody\";r=4;t=4")
    );
    for mood in [AWAY, SILENT] {
        moody.0.store(mood, Ordering::SeqCst);
        let began = tokio::time::Instant::now();
        let refused = door.send(get("/")).await;
        assert!(began.elapsed() <= Duration::from_millis(301), "nobody waits longer than was configured");
        assert_eq!((refused.status(), door.calls()), (StatusCode::SERVICE_UNAVAILABLE, 1));
        assert_eq!(header(&refused, "retry-after"), Some("1"));
        let problem = json(refused).await;
        assert_eq!(problem["code"], "LIMITER_UNAVAILABLE");
        assert!(!problem.to_string().contains("sent away"), "why is for the log");
        assert_eq!(other.peek("everyone", 1).await.unwrap().remaining, 9, "what was taken is given back");
    }
    moody.0.store(WELL, Ordering::SeqCst);
    assert_eq!(door.status(get("/")).await, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn requests_are_let_through_and_the_other_limits_count() {
    let (door, moody, _) = door(WhenAway::LetThrough).unwrap();
    for (mood, remaining) in [(AWAY, 9), (SILENT, 8)] {
        moody.0.store(mood, Ordering::SeqCst);
        let answer = door.send(get("/")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(
            header(&answer, "ratelimit"),
            Some(&*format!("\"other\";r={remaining};t={}", remaining * 10))
        );
    }
    for _ in 0..8 {
        door.status(get("/")).await;
    }
    assert_eq!(door.status(get("/")).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(door.calls(), 10);
}
