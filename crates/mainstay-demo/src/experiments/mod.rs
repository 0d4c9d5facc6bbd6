//! What `mainstay demo --facts` does: small experiments on a real store and a log, whose figures are then told. They show what
//! cannot be seen from outside: conflicts, repeats, commits that are shared, culprits that harm nobody.
//!
//! - `facts`: what came out
//! - `chapters`: the experiments on the store
//! - `log`: the experiments on the log
//! - `story`: the telling

mod chapters;
mod facts;
mod log;
mod story;

pub use facts::Facts;
pub use story::tell;

use crate::Result;
use mainstay::prelude::*;
use std::time::Duration;

/// Runs the experiments on the store that `options` name, and those on the log in the store that `aside` names:
/// what is in a log stays there, so that is nobody's own.
pub async fn play(options: Options, aside: Options) -> Result<Facts> {
    let log = log::play(aside).await?;
    let store = options.clone().open().await?;
    let played = chapters::play(&store, options, log).await;
    // Whatever happened, nothing of the demo stays; its own failure is worth more than that of the cleaning up.
    let cleaned = chapters::clean_up(&store).await;
    store.close().await;
    let facts = played?;
    cleaned?;
    Ok(facts)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
