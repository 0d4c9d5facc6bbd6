//! `mainstay work pools`, `keys`, `pause` and `resume`.

use super::shop::Shop;
use super::shown;
use crate::arguments::Global;
use crate::{Result, output};
use clap::Args;

/// Tell how the pools are doing
#[derive(Debug, Args)]
pub(super) struct Pools {
    /// Only this one
    pool: Option<String>,
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

impl Pools {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let shop = Shop::reach_existing(global).await?;
        let told = shop.with(async |shop| match &self.pool {
            Some(pool) => shop.pool(pool).await,
            None => shop.pools().await,
        });
        let told = told.await?;
        if global.json {
            return output::print_json(&told);
        }
        output::print(&match told["pools"].as_array() {
            Some(pools) => shown::pools(pools),
            None => shown::pools(&[told]),
        })
    }
}

impl Keys {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let shop = Shop::reach_existing(global).await?;
        let told =
            shop.with(async |shop| shop.keys(&self.pool, self.after.as_deref(), self.limit.into()).await);
        let told = told.await?;
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
    let shop = Shop::reach_existing(global).await?;
    let status = shop.with(async |shop| shop.set_paused(pool, is_paused).await).await?;
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
