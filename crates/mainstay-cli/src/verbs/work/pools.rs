//! `mainstay work pools`, `pools delete`, `keys`, `pause` and `resume`.

use super::shown;
use crate::arguments::Global;
use crate::client::Call;
use crate::services::Opening::{Declared, Existing};
use crate::{Result, output};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// Most pools of one page.
const MAX_PAGE: usize = 1_000;

/// Tell how the pools are doing, or delete one
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_value_name = "VERB")]
#[command(subcommand_help_heading = "Verbs")]
pub(super) struct Pools {
    /// Only this one
    pool: Option<String>,
    #[command(subcommand)]
    verb: Option<PoolsVerb>,
}

#[derive(Debug, Subcommand)]
enum PoolsVerb {
    Delete(Delete),
}

/// Delete a pool that is empty
///
/// Refused while anything of it waits or runs, it has pending dead letters, a cron enqueues into it, or the configuration
/// names it. Items that ended in it are kept for their time.
#[derive(Debug, Args)]
struct Delete {
    /// The pool
    pool: String,
}

/// List the keys of a pool that are in use: how much waits of each, and whether one runs
///
/// A server needs a token for that (MAINSTAY_TOKEN or --token).
#[derive(Debug, Args)]
pub(super) struct Keys {
    /// The pool
    pool: String,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
    /// Those after this key
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
}

/// Let nothing of a pool start; what runs goes on
#[derive(Debug, Args)]
pub(super) struct Pause {
    /// The pool
    pool: String,
}

/// Let a pool's items start again
#[derive(Debug, Args)]
pub(super) struct Resume {
    /// The pool
    pool: String,
}

/// Delete the declaration of a function without work
///
/// Refused when any pool has had work of it, or this program declares it.
#[derive(Debug, Args)]
pub(super) struct DeleteFunction {
    /// The function
    function: String,
}

impl DeleteFunction {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let call = Call::new("DELETE /admin/functions/{function}", &[&self.function]);
        let deleted: Value = global.send(Declared, call).await?;
        if global.json {
            return output::print_json(&deleted);
        }
        eprintln!("{} is deleted.", self.function);
        Ok(())
    }
}

impl Delete {
    async fn run(&self, global: &Global) -> Result<()> {
        // Knows the pools of the configuration, which stay.
        let call = Call::new("DELETE /admin/pools/{pool}", &[&self.pool]);
        let deleted: Value = global.send(Declared, call).await?;
        if global.json {
            return output::print_json(&deleted);
        }
        eprintln!("{} is deleted.", self.pool);
        Ok(())
    }
}

impl Pools {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        if let Some(PoolsVerb::Delete(delete)) = &self.verb {
            return delete.run(global).await;
        }
        let told = match &self.pool {
            Some(pool) => {
                global.send(Existing, Call::new("GET /admin/pools/{pool}", &[pool]).or_v1()).await?
            }
            None => json!({ "pools": all(global).await? }),
        };
        if global.json {
            return output::print_json(&told);
        }
        output::print(&match told["pools"].as_array() {
            Some(pools) => shown::pools(pools),
            None => shown::pools(&[told]),
        })
    }
}

/// All pools, page by page.
async fn all(global: &Global) -> Result<Vec<Value>> {
    let (mut pools, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let call = Call::new("GET /admin/pools", &[]).query("limit", Some(MAX_PAGE)).query("cursor", cursor);
        let mut page: Value = global.send(Existing, call.or_v1()).await?;
        pools.extend(page["pools"].as_array_mut().map(std::mem::take).unwrap_or_default());
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(pools);
        }
    }
}

impl Keys {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let call = Call::new("GET /admin/pools/{pool}/keys", &[&self.pool]);
        let call = call.query("limit", Some(self.limit)).query("cursor", self.after.as_ref());
        let told: Value = global.send(Existing, call).await?;
        if global.json {
            return output::print_json(&told);
        }
        let keys = told["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
        if keys.is_empty() {
            eprintln!("No key of {} is in use.", self.pool);
            return Ok(());
        }
        output::print(&shown::keys(keys))?;
        if let Some(next) = told["next"].as_str() {
            eprintln!("There are more: --after {next}");
        }
        Ok(())
    }
}

impl Pause {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        set_paused(&self.pool, true, global).await
    }
}

impl Resume {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        set_paused(&self.pool, false, global).await
    }
}

async fn set_paused(pool: &str, is_paused: bool, global: &Global) -> Result<()> {
    let call = match is_paused {
        true => Call::new("POST /admin/pools/{pool}/pause", &[pool]),
        false => Call::new("POST /admin/pools/{pool}/resume", &[pool]),
    };
    let status: Value = global.send(Existing, call.or_v1()).await?;
    if global.json {
        return output::print_json(&status);
    }
    let (pending, running) = (&status["pending"], &status["running"]);
    match is_paused {
        true => eprintln!("{pool} is paused; {pending} wait, {running} run on."),
        false => eprintln!("{pool} goes on; {pending} wait."),
    }
    Ok(())
}
