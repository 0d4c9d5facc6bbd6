//! `mainstay work letters`, `retry` and `ignore`.

use super::shop::{Shop, Which};
use super::shown;
use crate::arguments::Global;
use crate::{Error, Result, output};
use clap::{Args, ValueEnum};
use mainstay::work::LetterStatus;

/// List the dead letters, the newest first, or show one
///
/// A dead letter is an item that ended failed. Through a server this needs a token.
#[derive(Debug, Args)]
pub(super) struct Letters {
    /// Show this one, with every failure that is known
    #[arg(conflicts_with_all = ["status", "pool", "function", "kind", "limit"])]
    id: Option<String>,
    /// Those of this status
    #[arg(long, value_enum, default_value_t = Status::Pending)]
    status: Status,
    /// Those of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Those of this function
    #[arg(long)]
    function: Option<String>,
    /// Those of this kind: work, onComplete, append
    #[arg(long)]
    kind: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Status {
    Pending,
    Retried,
    Ignored,
}

/// Try a dead letter again, as a new item whose id is printed; or many of them, the oldest first
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").args(["id", "all"]).required(true))]
pub(super) struct Retry {
    /// The letter
    id: Option<String>,
    /// All that are pending
    #[arg(long)]
    all: bool,
    /// With --all: only those of this pool
    #[arg(long, conflicts_with = "id")]
    pool: Option<String>,
    /// With --all: only those of this function
    #[arg(long, conflicts_with = "id")]
    function: Option<String>,
    /// With --all: at most so many
    #[arg(long, value_name = "N", default_value_t = 1000, conflicts_with = "id",
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

/// Leave a dead letter for good; it is kept until it is purged
#[derive(Debug, Args)]
pub(super) struct Ignore {
    /// The letter
    id: String,
}

impl Letters {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let shop = Shop::reach_existing(global).await?;
        let which = Which {
            status: Some(match self.status {
                Status::Pending => LetterStatus::Pending,
                Status::Retried => LetterStatus::Retried,
                Status::Ignored => LetterStatus::Ignored,
            }),
            pool: self.pool.clone(),
            function: self.function.clone(),
            kind: self.kind.clone(),
        };
        let told = shop.with(async |shop| match &self.id {
            Some(id) => shop.letter(id).await,
            None => shop.letters(&which, self.limit.into()).await,
        });
        let told = told.await?;
        if global.json {
            return output::print_json(&told);
        }
        match told["letters"].as_array() {
            None => output::print(&shown::letter(&told)),
            Some(letters) if letters.is_empty() => {
                eprintln!("There are no such letters.");
                Ok(())
            }
            Some(letters) => output::print(&shown::letters(letters)),
        }
    }
}

impl Retry {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let shop = Shop::reach_existing(global).await?;
        let which = Which { pool: self.pool.clone(), function: self.function.clone(), ..Which::default() };
        let told = shop.with(async |shop| match &self.id {
            Some(id) => shop.retry_letter(id).await,
            None if self.all => shop.retry_letters(&which, self.limit.into()).await,
            None => Err(Error::Argument("an id is needed, or --all".to_owned())),
        });
        let told = told.await?;
        if global.json {
            return output::print_json(&told);
        }
        let as_new =
            |letter: &serde_json::Value| format!("{}\n", letter["retriedAs"].as_str().unwrap_or_default());
        match told["retried"].as_array() {
            None => output::print(&as_new(&told)),
            Some(retried) => {
                output::print(&retried.iter().map(as_new).collect::<String>())?;
                let more = if told["isMore"] == true { "; there may be more" } else { "" };
                eprintln!("Retried: {}{more}.", retried.len());
                Ok(())
            }
        }
    }
}

impl Ignore {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let shop = Shop::reach_existing(global).await?;
        let letter = shop.with(async |shop| shop.ignore_letter(&self.id).await).await?;
        if global.json {
            return output::print_json(&letter);
        }
        eprintln!("{} is left as it is.", self.id);
        Ok(())
    }
}
