//! `mainstay work run` and `run-status`.

use super::raw;
use crate::arguments::Global;
use crate::client::Call;
use crate::services::Opening::{Declared, Existing};
use crate::shown::{lines, moment, text};
use crate::verbs::span;
use crate::{Result, output};
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

/// Run an action until it succeeds, and print the id of the run
///
/// `mainstay work show` tells what became of it, `mainstay work cancel` ends it.
#[derive(Debug, Args)]
pub(super) struct Run {
    /// The action
    function: String,
    /// What it is called with
    #[arg(long, value_name = "JSON", default_value = "null")]
    args: String,
    /// How often it is tried again: 4 means five executions
    #[arg(long, value_name = "N", default_value_t = 4)]
    max_failures: u32,
    /// How long the first wait is
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "250ms")]
    initial_backoff: Duration,
    /// What each wait is multiplied with
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    base: f64,
    /// The function that is told how it ended
    #[arg(long, value_name = "FUNCTION")]
    on_complete: Option<String>,
    /// What it is told beside
    #[arg(long, value_name = "JSON")]
    context: Option<String>,
}

/// Show where a run of a durable function stands: how often it was tried, what failed, and its context
///
/// Every item of work is one. A server needs a token for that (MAINSTAY_TOKEN or --token).
#[derive(Debug, Args)]
pub(super) struct RunStatus {
    /// Its id
    id: String,
}

impl RunStatus {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let call = Call::new("GET /admin/runs/{id}", &[&self.id]);
        let found: Value = global.send(Existing, call).await?;
        if global.json {
            return output::print_json(&found);
        }
        if found["found"] != true {
            eprintln!("Nothing is known of {}: it never was, or was forgotten since.", self.id);
            return Ok(());
        }
        output::print(&lines(&[
            ("run", text(&found["runId"])),
            ("pool", text(&found["pool"])),
            ("function", text(&found["function"])),
            ("state", text(&found["state"])),
            ("attempts", text(&found["attemptCount"])),
            ("last error", text(&found["lastError"])),
            ("context", text(&found["context"])),
            ("enqueued", moment(&found["enqueuedAt"])),
            ("ended", moment(&found["endedAt"])),
        ]))
    }
}

impl Run {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let args = raw("--args", &self.args)?;
        let context = self.context.as_deref().map(|text| raw("--context", text)).transpose()?;
        let body = json!({
            "function": self.function, "args": args, "maxFailures": self.max_failures,
            "initialBackoffMs": self.initial_backoff.as_millis() as u64, "base": self.base,
            "onComplete": self.on_complete, "context": context,
        });
        let started: Value = global.send(Declared, Call::new("POST /v1/runs", &[]).with(&body)).await?;
        if global.json {
            return output::print_json(&started);
        }
        output::print(&format!("{}\n", started["runId"].as_str().unwrap_or_default()))
    }
}
