//! `mainstay work enqueue`.

use super::raw;
use crate::arguments::Global;
use crate::client::Call;
use crate::services::Opening::Declared;
use crate::verbs::events::moment;
use crate::verbs::span;
use crate::{Error, Result, output};
use clap::Args;
use mainstay::work::RetryPolicy;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Put an item of work into a pool, and print its id
///
/// The function must be known: a function of mainstay.toml, one that a node has registered, or one that a pull worker has
/// asked for.
#[derive(Debug, Args)]
pub(super) struct Enqueue {
    /// The pool
    pool: String,
    /// The function that is to be called
    function: String,
    /// What it is called with
    #[arg(long, value_name = "JSON", default_value = "null")]
    args: String,
    /// Items of one key run one at a time, in the order they came
    #[arg(long)]
    key: Option<String>,
    /// Not before so much time has passed: 250ms, 90s, 30m, 12h or 30d
    #[arg(long, value_name = "TIME", value_parser = span)]
    run_after: Option<Duration>,
    /// Not before this moment: 2027-01-15T08:00:00Z, or milliseconds
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "run_after")]
    run_at: Option<i64>,
    /// Lower numbers first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i16,
    /// Executions in all, instead of the pool's own number
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// The first wait before it is tried again, instead of the pool's own
    #[arg(long, value_name = "TIME", value_parser = span)]
    initial_backoff: Option<Duration>,
    /// What each wait is multiplied with, instead of the pool's own factor
    #[arg(long, value_name = "N")]
    base: Option<f64>,
    /// The function that is told how it ended
    #[arg(long, value_name = "FUNCTION")]
    on_complete: Option<String>,
    /// What is kept beside it, and told to --on-complete
    #[arg(long, value_name = "JSON")]
    context: Option<String>,
    /// Enqueue it only once in --dedupe-window
    #[arg(long, value_name = "KEY")]
    dedupe_key: Option<String>,
    /// How long --dedupe-key holds
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "1h", requires = "dedupe_key")]
    dedupe_window: Duration,
    /// Let it fail instead of starting it once so much time has passed
    #[arg(long, value_name = "TIME", value_parser = span)]
    deadline: Option<Duration>,
}

impl Enqueue {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        // Whatever is wrong with the flags is told before a store is opened or made.
        let call = Call::new("POST /v1/pools/{pool}/work", &[&self.pool]).with(&self.body()?);
        let enqueued: Value = global.send(Declared, call).await?;
        if global.json {
            return output::print_json(&enqueued);
        }
        let item = &enqueued["work"][0];
        output::print(&format!("{}\n", item["workId"].as_str().unwrap_or_default()))?;
        match item["isDuplicate"] == true {
            true => eprintln!("Enqueued before, with the same dedupe key; nothing was changed."),
            false => eprintln!("Enqueued in {}.", self.pool),
        }
        Ok(())
    }

    fn body(&self) -> Result<Value> {
        let mut body = Map::new();
        let mut put = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
        put("function", json!(self.function));
        put("args", json!(raw("--args", &self.args)?));
        put("priority", json!(self.priority));
        if let Some(key) = &self.key {
            put("key", json!(key));
        }
        if let Some(delay) = self.run_after {
            put("runAfterMs", millis(delay));
        }
        if let Some(moment) = self.run_at {
            put("runAtMs", json!(moment));
        }
        if let Some(policy) = self.policy()? {
            put("retry", json!(policy));
        }
        if let Some(function) = &self.on_complete {
            put("onComplete", json!(function));
        }
        if let Some(context) = &self.context {
            put("context", json!(raw("--context", context)?));
        }
        if let Some(key) = &self.dedupe_key {
            put("dedupe", json!({ "key": key, "windowMs": millis(self.dedupe_window) }));
        }
        if let Some(within) = self.deadline {
            put("deadlineMs", millis(within));
        }
        Ok(Value::Object(body))
    }

    fn policy(&self) -> Result<Option<RetryPolicy>> {
        if self.max_attempts.is_none() && self.initial_backoff.is_none() && self.base.is_none() {
            return Ok(None);
        }
        let usual = RetryPolicy::default();
        let policy = RetryPolicy::new(
            self.max_attempts.unwrap_or(usual.max_attempts()),
            self.initial_backoff.map_or(usual.initial_backoff_ms(), |wait| wait.as_millis() as u64),
            self.base.unwrap_or(usual.base()),
            usual.max_backoff_ms(),
        );
        policy.map(Some).map_err(|error| Error::Argument(error.to_string()))
    }
}

fn millis(span: Duration) -> Value {
    json!(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
