//! What `mainstay demo` does: small experiments on a real store, whose figures are then told.
//!
//! - `facts`: what came out
//! - `chapters`: the experiments
//! - `story`: the telling

mod chapters;
mod facts;
mod story;

pub(crate) use facts::Facts;
pub(crate) use story::tell;

use crate::Result;
use mainstay::prelude::*;

/// Runs every experiment on the store that `options` name.
pub(crate) async fn play(options: Options) -> Result<Facts> {
    let store = options.clone().open().await?;
    let played = chapters::play(&store, options).await;
    // Whatever happened, nothing of the demo stays; its own failure is worth more than that of the cleaning up.
    let cleaned = chapters::clean_up(&store).await;
    store.close().await;
    let facts = played?;
    cleaned?;
    Ok(facts)
}
