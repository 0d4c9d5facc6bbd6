//! `mainstay work list`, `show`, `cancel` and `run-now`.

use super::shown;
use crate::arguments::Global;
use crate::client::{Call, Client};
use crate::services::Opening::Existing;
use crate::{Result, output};
use clap::Args;
use serde_json::Value;

/// List items of work
///
/// With a pool and nothing else: those of it that wait, as they can start. Otherwise items of all pools that wait, run, or
/// have ended and are not forgotten, the newest first; a server needs a token for that (MAINSTAY_TOKEN or --token).
#[derive(Debug, Args)]
pub(super) struct List {
    /// The pool; all of them unless given
    pool: Option<String>,
    /// In this state: pending, running, completed or failed, or exactly ready, delayed, behind, success or canceled
    #[arg(long, value_name = "STATE", value_parser = STATES)]
    state: Option<String>,
    /// Of this function
    #[arg(long)]
    function: Option<String>,
    /// Of this key
    #[arg(long)]
    key: Option<String>,
    /// That belong together under this id
    #[arg(long, value_name = "ID")]
    correlation: Option<String>,
    /// With this text in their arguments, as JSON has them; of items that have ended none are kept
    #[arg(long, value_name = "TEXT")]
    args: Option<String>,
    /// The oldest first
    #[arg(long)]
    oldest: bool,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// The `next` of the page before
    #[arg(long)]
    cursor: Option<String>,
}

/// What the state of an item may be called.
const STATES: [&str; 9] =
    ["pending", "running", "completed", "failed", "ready", "delayed", "behind", "success", "canceled"];

/// Let an item start now that waits for its time or to be tried again
///
/// One that is behind others of its key still waits for these. What runs or has ended is refused.
#[derive(Debug, Args)]
pub(super) struct RunNow {
    /// Its id
    id: String,
}

/// Show what is known of an item, a run or a timer
#[derive(Debug, Args)]
pub(super) struct Show {
    /// Its id
    id: String,
}

/// Cancel an item, a run or a timer
///
/// One that waits never starts, one that runs is told to stop. Its onComplete is told.
#[derive(Debug, Args)]
pub(super) struct Cancel {
    /// Its id
    id: String,
}

impl List {
    /// The pool, when nothing but what waits in it is asked for.
    fn only_pool(&self) -> Option<&str> {
        let filters = [&self.state, &self.function, &self.key, &self.correlation, &self.args, &self.cursor];
        let is_plain = filters.iter().all(|filter| filter.is_none()) && !self.oldest;
        self.pool.as_deref().filter(|_| is_plain)
    }

    fn call(&self) -> Call {
        if let Some(pool) = self.only_pool() {
            return Call::new("GET /admin/pools/{pool}/work", &[pool])
                .or_v1()
                .query("limit", Some(self.limit));
        }
        Call::new("GET /admin/work", &[])
            .query("limit", Some(self.limit))
            .query("order", self.oldest.then_some("oldest"))
            .query("pool", self.pool.as_ref())
            .query("state", self.state.as_ref())
            .query("function", self.function.as_ref())
            .query("key", self.key.as_ref())
            .query("correlationId", self.correlation.as_ref())
            .query("args", self.args.as_ref())
            .query("cursor", self.cursor.as_ref())
    }

    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let listed: Value = global.send(Existing, self.call()).await?;
        if global.json {
            return output::print_json(&listed);
        }
        let items = listed["work"].as_array().map(Vec::as_slice).unwrap_or_default();
        let next = listed["next"].as_str();
        match (items.is_empty(), self.only_pool(), next) {
            (true, Some(pool), _) => eprintln!("Nothing waits in {pool}."),
            (true, None, None) => eprintln!("There is none."),
            _ => output::print(&shown::items(items))?,
        }
        match next {
            Some(next) => eprintln!("There may be more: --cursor {next}"),
            None if self.only_pool().is_some() && items.len() == usize::from(self.limit) => {
                eprintln!("There may be more; --limit shows up to 1000.");
            }
            None => {}
        }
        Ok(())
    }
}

impl RunNow {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let call = Call::new("POST /admin/work/{id}/run-now", &[&self.id]);
        let told: Value = global.send(Existing, call).await?;
        if global.json {
            return output::print_json(&told);
        }
        let starts = match told["starts"].as_str() {
            Some("now") => "may start now",
            Some("already") => "could start already",
            _ => "waits for nothing but the items of its key that are before it",
        };
        eprintln!("{} {starts}.", self.id);
        Ok(())
    }
}

impl Show {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let call = Call::new("GET /admin/work/{id}", &[&self.id]).or_v1();
        let found: Value = global.send(Existing, call).await?;
        if global.json {
            return output::print_json(&found);
        }
        if found["found"] != true {
            eprintln!("Nothing is known of {}: it never was, or was forgotten since.", self.id);
            return Ok(());
        }
        output::print(&shown::item(&found))
    }
}

impl Cancel {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let cancel = async |client: &Client| {
            let route = match client.is_operator() {
                true => "POST /admin/work/{id}/cancel",
                false => "DELETE /v1/work/{id}",
            };
            client.send(Call::new(route, &[&self.id])).await
        };
        let canceled: Value = global.ask(Existing, cancel).await?;
        if global.json {
            return output::print_json(&canceled);
        }
        let told = match canceled["canceled"].as_str() {
            Some("atOnce") => "is cancelled",
            Some("asked") => "runs, and was told to stop",
            _ => "had ended before",
        };
        eprintln!("{} {told}.", self.id);
        Ok(())
    }
}
