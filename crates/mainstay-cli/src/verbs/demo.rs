//! `mainstay demo`: a shop at work.

use crate::arguments::Global;
use crate::config::{self, Config, Place};
use crate::{Error, Result, output, signals};
use clap::Args;
use mainstay_demo::{Plan, ScreenKind, Until, experiments};
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Watch a shop at work: orders, payments that fail and recover, dead letters, circuits, and the console over all of it
///
/// Everything is real: an application on a store, services beside it, customers, and the server. On a terminal it runs until
/// Ctrl-C; elsewhere until everything was to be seen, or for as long as --for says. Then it holds the log against the books of
/// the provider, and fails if a payment is missing or there twice. Everything is kept in a temporary folder and gone
/// afterwards, whatever the configuration says, unless --keep or --store says otherwise.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Orders in a second
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=200))]
    rate: u32,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// How many seconds the provider of payments takes from well to slow, down and well again
    #[arg(long, value_name = "SECONDS", default_value_t = 40, value_parser = clap::value_parser!(u64).range(2..=3_600))]
    cycle: u64,
    /// Keep everything in this folder, and go on from there the next time
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Where to listen; 127.0.0.1:7420 unless given, or a free port when that is taken
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Show what it stands on instead, in experiments of a few seconds: conflicts, repeats, shared commits, culprits
    #[arg(long, conflicts_with_all = ["rate", "seconds", "cycle", "keep", "listen"])]
    facts: bool,
    /// Be the provider of payments, with its books there
    #[arg(long, value_name = "URL", hide = true)]
    provider: Option<String>,
}

impl Demo {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        if let Some(books) = &self.provider {
            return Ok(mainstay_demo::provide(books, Duration::from_secs(self.cycle)).await?);
        }
        let config = global.load()?;
        let asked = matches!(config.entry(&config::store::URL).place, Some(Place::Flag(_)))
            .then(|| config.text(&config::store::URL).to_owned());
        let folder = Folder::open(self.keep.as_deref())?;
        let facts = match self.facts {
            true => experiment(&config, asked, &folder, global.json).await,
            false => self.play(&config, asked, &folder, global.json).await,
        };
        folder.remove()?;
        facts
    }

    async fn play(
        &self,
        config: &Config,
        asked: Option<String>,
        folder: &Folder,
        is_json: bool,
    ) -> Result<()> {
        let is_seen = !is_json && io::stdout().is_terminal();
        let stop = signals::told_to_stop(|text| eprintln!("{text}"))?;
        let store = asked.unwrap_or_else(|| folder.store("shop.db"));
        let plan = Plan {
            shop: config::store::options_at(&store, config),
            store,
            listen: self.listen,
            rate: self.rate,
            cycle: Duration::from_secs(self.cycle),
            until: match self.seconds {
                Some(seconds) => Until::Elapsed(Duration::from_secs(seconds)),
                None if is_seen => Until::Stopped,
                None => Until::AllSeen,
            },
            screen: match (is_json, is_seen) {
                (true, _) => ScreenKind::Silent,
                (false, true) => ScreenKind::Live,
                (false, false) => ScreenKind::Plain,
            },
        };
        let is_proof = plan.until == Until::AllSeen;
        let facts = mainstay_demo::play(plan, folder.path(), stop).await?;
        if is_json {
            output::print_json(&facts)?;
        }
        Ok(facts.verdict(is_proof)?)
    }
}

/// The experiments, on the store that was asked for or one that is gone afterwards.
async fn experiment(config: &Config, asked: Option<String>, folder: &Folder, is_json: bool) -> Result<()> {
    let places = [asked.unwrap_or_else(|| folder.store("demo.db")), folder.store("log.db")];
    let [options, aside] = places.map(|url| config::store::options_at(&url, config));
    let facts = experiments::play(options, aside).await?;
    if is_json {
        return output::print_json(&facts);
    }
    output::print(&experiments::tell(&facts, is_bold()))
}

/// Where everything is kept.
enum Folder {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Folder {
    fn open(kept: Option<&Path>) -> Result<Self> {
        let Some(path) = kept else {
            let folder = tempfile::Builder::new().prefix("mainstay-demo-").tempdir();
            return folder
                .map(Self::Temporary)
                .map_err(|source| Error::Io { what: "the temporary folder".to_owned(), source });
        };
        let failed = |source| Error::Io { what: path.display().to_string(), source };
        mainstay::store::files::create_folder(path).map_err(failed)?;
        Ok(Self::Kept(path.to_owned()))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(path) => path,
        }
    }

    /// The URL of a store in it.
    fn store(&self, name: &str) -> String {
        format!("sqlite:{}", self.path().join(name).display())
    }

    /// Removes what nobody wanted to keep.
    fn remove(self) -> Result<()> {
        let Self::Temporary(folder) = self else { return Ok(()) };
        folder.close().map_err(|source| Error::Io { what: "the temporary folder".to_owned(), source })
    }
}

/// Headings are bold on a terminal whose user did not ask for plain text.
fn is_bold() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
