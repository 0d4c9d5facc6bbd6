//! The guards: rate limits and circuits, beside what others decide by.
//!
//! | file | what lives there |
//! |---|---|
//! | `memory` | limiters in memory: many keys and one |
//! | `resident` | what limiters in memory hold after ten million keys |
//! | `redis` | limiters in Redis |
//! | `store` | named limits in a store: one key that everybody wants |
//! | `circuits` | what a closed circuit costs |
//! | `probes` | how many calls get through a circuit that is half open |
//! | `layer` | what a rate limit adds to a request |
//! | `threads` | the same work on several threads at once |
//!
//! Contenders take turns; each is compared with all that stand before it, so Mainstay's come last.

mod circuits;
mod layer;
mod memory;
mod probes;
mod redis;
pub mod resident;
mod store;
mod threads;

use anyhow::{Result, bail};

/// Runs the contests that the arguments name; all of them without any.
pub async fn run(contests: &[&str]) -> Result<()> {
    let contests =
        if contests.is_empty() { &["memory", "redis", "store", "circuits", "layer"] } else { contests };
    for contest in contests {
        match *contest {
            "memory" => {
                memory::run()?;
                resident::run()?;
            }
            "redis" => redis::run().await?,
            "store" => store::run().await?,
            "circuits" => {
                circuits::run().await?;
                probes::run().await?;
            }
            "layer" => layer::run().await?,
            _ => bail!(crate::USAGE),
        }
    }
    Ok(())
}
