//! `mainstay work retry`.

use crate::arguments::Global;
use crate::client::Call;
use crate::services::Opening::Existing;
use crate::{Result, output};
use clap::Args;
use serde_json::Value;

/// Try an item again that failed, as a new item whose id is printed
///
/// What failed for good is a dead letter: `mainstay dead-letters` lists, retries, ignores and purges letters of all kinds.
#[derive(Debug, Args)]
pub(super) struct Retry {
    /// The item
    id: String,
}

impl Retry {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let call = Call::new("POST /admin/work/{id}/retry", &[&self.id]);
        let told: Value = global.send(Existing, call).await?;
        match global.json {
            true => output::print_json(&told),
            false => output::print(&format!("{}\n", told["retriedAs"].as_str().unwrap_or_default())),
        }
    }
}
