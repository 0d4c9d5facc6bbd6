//! `mainstay work list`, `show` and `cancel`.

use super::shop::Shop;
use super::shown;
use crate::arguments::Global;
use crate::{Result, output};
use clap::Args;

/// List the items of a pool that wait, in the order they came
#[derive(Debug, Args)]
pub(super) struct List {
    /// The pool
    pool: String,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
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
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let shop = Shop::reach_existing(global).await?;
        let listed = shop.with(async |shop| shop.pending(&self.pool, self.limit.into()).await).await?;
        if global.json {
            return output::print_json(&listed);
        }
        let items = listed["work"].as_array().map(Vec::as_slice).unwrap_or_default();
        if items.is_empty() {
            eprintln!("Nothing waits in {}.", self.pool);
            return Ok(());
        }
        output::print(&shown::items(items))?;
        if items.len() == usize::from(self.limit) {
            eprintln!("There may be more; --limit shows up to 1000.");
        }
        Ok(())
    }
}

impl Show {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let shop = Shop::reach_existing(global).await?;
        let found = shop.with(async |shop| shop.show(&self.id).await).await?;
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
        let shop = Shop::reach_existing(global).await?;
        let canceled = shop.with(async |shop| shop.cancel(&self.id).await).await?;
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
