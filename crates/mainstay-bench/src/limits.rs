//! `mainstay bench limits`: decisions about one key in the store, by one caller and by many, and about many in memory.

use super::load::{Load, Outcome};
use mainstay::guards::Result;
use mainstay::guards::limits::store::Limits;
use mainstay::guards::limits::{Definition, Kind, Policy, RateLimiter, memory};
use std::time::{Duration, Instant};

/// The limit that is measured.
pub const LIMIT: &str = "bench";
/// How many keys memory is asked for.
pub const KEYS: usize = 100_000;
/// More than can be used up while it is measured.
const CAPACITY: f64 = 1e9;

/// Measures `consume` of one key that everybody wants.
pub async fn measure(limits: &Limits, load: Load) -> Result<Outcome> {
    limits.define(LIMIT, Definition::new(Kind::TokenBucket, CAPACITY, 3_600_000)?).await?;
    let limits = limits.clone();
    let outcome = load.run(move |_, _| {
        let limits = limits.clone();
        async move {
            anyhow::ensure!(
                limits.consume(LIMIT, "the one", 1).await?.allowed,
                "there is enough for everybody"
            );
            Ok(())
        }
    });
    Ok(outcome.await)
}

/// Decisions per second of one thread about [`KEYS`] keys in memory.
pub async fn in_memory(during: Duration) -> Result<f64> {
    let limiter = memory::limiter(Policy::bucket(1_000.0, 1_000.0)?);
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user:{number}")).collect();
    let (began, mut decided, mut next) = (Instant::now(), 0_u64, 0);
    while began.elapsed() < during {
        for _ in 0..1_000 {
            // A step that has no divisor in common with the number of keys, so that all have their turn.
            next = (next + 61_803) % KEYS;
            std::hint::black_box(limiter.consume(&keys[next], 1).await?);
        }
        decided += 1_000;
    }
    Ok(decided as f64 / began.elapsed().as_secs_f64())
}
