//! `mainstay serve`: the HTTP API.

use crate::arguments::Global;
use crate::config::{self, Config, Setting};
use crate::{Error, Result, descriptors, log, output, services, signals};
use clap::Args;
use mainstay::store::Store;
use mainstay_server::{Routes, Server, Stopped, Tokens};
use serde::Serialize;
use std::future::Future;

/// Serve the HTTP API, and carry out work
///
/// Opens the store, brings its schema up to date, declares what the configuration names (pools, functions, targets, crons, limits
/// and circuits), and serves and works until it is told to stop (SIGTERM or Ctrl-C). Then it finishes what is under way; told a second time,
/// it ends at once. Everything committed is safe either way. On a terminal it greets whoever started it, with a link to the
/// console while there is no token; otherwise every line on stderr is JSON, and none has the link.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen, as in 127.0.0.1:7420; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Listen where others can reach it although there is no TLS or no token yet
    #[arg(long)]
    insecure: bool,
}

/// What `--json` answers once the server listens.
#[derive(Serialize)]
struct Listening {
    url: String,
    address: String,
    store: String,
    durability: String,
}

impl Serve {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        log::tell_of_panics();
        let config = global.load_with(self.flags())?;
        let options = config::server::options(&config)?.configuration(super::config::to_json(&config));
        // From the first moment, so that nobody who starts and stops us at once is ignored.
        let stop = signals::told_to_stop(log::say)?;
        let traces = config::tracing::options(&config).map_err(|problem| Error::Config(vec![problem]))?;
        let traces = traces.map(log::export).transpose();
        let traces = traces.map_err(|source| Error::Io { what: "threads".to_owned(), source })?;
        let store = config::store::options(&config).open().await?;
        let ended = serve(&config, options, &store, global.json, stop).await;
        store.close().await;
        if let Some(traces) = traces {
            // It waits for the collector, but not for long.
            drop(tokio::task::spawn_blocking(move || traces.stop()).await);
        }
        let Stopped { abandoned } = ended?;
        log::say(&farewell(abandoned));
        Ok(())
    }

    fn flags(&self) -> Vec<(&'static Setting, String)> {
        let listen = self.listen.iter().map(|address| (&config::server::LISTEN, address.clone()));
        let insecure = self.insecure.then(|| (&config::server::INSECURE, true.to_string()));
        listen.chain(insecure).collect()
    }
}

/// Serves and works until `stop` is ready.
async fn serve(
    config: &Config,
    options: mainstay_server::Options,
    store: &Store,
    is_json: bool,
    stop: impl Future<Output = ()>,
) -> Result<Stopped> {
    let services = services::open(config, store).await?;
    let options = descriptors::fit(options, config, store, &services.work.pools().await?);
    let server = Server::bind_with(options, services.clone(), Routes::default()).await?;
    let engine = services.work.start().await?;
    let listening = Listening {
        url: server.url(),
        address: server.address().to_string(),
        store: store.location().to_string(),
        durability: store.durability().await?,
    };
    greet(config, &server, store, &listening).await?;
    if is_json {
        output::print_json_line(&listening)?;
    }
    let (handle, grace) = (server.handle(), config::server::grace(config));
    // Requests and work that are under way finish beside each other, in the same time.
    let resting = async {
        handle.stopping().await;
        engine.stop(grace).await
    };
    let (stopped, rested) = tokio::join!(server.run(stop), resting);
    if let Err(error) = rested {
        tracing::warn!(%error, "what was being worked on could not be given back, and is when its lease is over");
    }
    Ok(stopped)
}

/// Says that it listens: to people on a terminal with a way into the console, and otherwise in a line of the log. That is kept
/// and read by others, so no link that lets its reader in is even made for it.
async fn greet(config: &Config, server: &Server, store: &Store, listening: &Listening) -> Result<()> {
    let has_tokens = Tokens::new(store.clone()).exist().await?;
    let is_loopback = server.address().ip().is_loopback();
    // Whoever has tokens logs in with one.
    let is_offered = log::is_seen() && is_loopback && !has_tokens;
    let link = if is_offered { Some(server.login_link().await?) } else { None };
    let Listening { url, address, store, durability } = listening;
    let (access, console) = (access(is_loopback, has_tokens), console(url, has_tokens, link.as_deref()));
    let (work, guards) = workload(config);
    if !log::is_seen() {
        let (work, guards) = (work.as_deref(), guards.as_deref());
        tracing::info!(target: log::NOTICE_TARGET, url, address, store, durability, access, console, work, guards,
            "Mainstay listens on {url}");
        return Ok(());
    }
    let store = format!("{store} ({durability})");
    let told = [("store", Some(store)), ("access", Some(access.to_owned())), ("console", Some(console))];
    let told = told.into_iter().chain([("work", work), ("guards", guards)]);
    eprint!("{}", greeting(url, told));
    Ok(())
}

fn access(is_loopback: bool, has_tokens: bool) -> &'static str {
    match (is_loopback, has_tokens) {
        (true, false) => "open to this machine until the first token is created",
        (true, true) => "tokens",
        (false, _) => "tokens; make one with `mainstay token create`",
    }
}

fn console(url: &str, has_tokens: bool, link: Option<&str>) -> String {
    match (link, has_tokens) {
        (Some(link), _) => format!("{link} (once, within 15 minutes)"),
        (None, true) => format!("{url}/console (log in with a token)"),
        (None, false) => format!(
            "{url}/console (log in with a token: `mainstay token create --name NAME --role admin`, on a SQLite file while no \
             server runs)"
        ),
    }
}

fn greeting(url: &str, told: impl Iterator<Item = (&'static str, Option<String>)>) -> String {
    let lines = told.filter_map(|(heading, text)| Some(format!("  {heading}: {}\n", text?)));
    format!("Mainstay listens on {url}\n{}", lines.collect::<String>())
}

/// What the configuration has declared, if anything: work, and guards.
fn workload(config: &Config) -> (Option<String>, Option<String>) {
    let work = [
        ("pool", config.pools().len()),
        ("function", config.functions().len()),
        ("target", config.targets().len()),
        ("cron", config.crons().len()),
    ];
    let guards = [("limit", config.limits().len()), ("circuit", config.circuits().len())];
    (counted(&work), counted(&guards))
}

fn counted(parts: &[(&str, usize)]) -> Option<String> {
    let told = parts.iter().filter(|(_, count)| *count > 0).map(|(what, count)| match count {
        1 => format!("1 {what}"),
        several => format!("{several} {what}s"),
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join(", "))
}

fn farewell(abandoned: usize) -> String {
    match abandoned {
        0 => "Stopped; everything under way was finished.".to_owned(),
        1 => "Stopped; 1 connection was not done in time.".to_owned(),
        several => format!("Stopped; {several} connections were not done in time."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_tells_where_what_and_for_whom() {
        let url = "http://127.0.0.1:7420";
        let way = console(url, false, Some("http://127.0.0.1:7420/console/login?link=1f"));
        let told = [
            ("store", Some("sqlite:mainstay.db (SQLite 3.54.0, WAL, synchronous=FULL)".to_owned())),
            ("access", Some(access(true, false).to_owned())),
            ("console", Some(way)),
            ("work", counted(&[("pool", 1), ("function", 2), ("cron", 0)])),
            ("guards", counted(&[("limit", 0)])),
        ];
        insta::assert_snapshot!(greeting(url, told.into_iter()), @"
            Mainstay listens on http://127.0.0.1:7420
              store: sqlite:mainstay.db (SQLite 3.54.0, WAL, synchronous=FULL)
              access: open to this machine until the first token is created
              console: http://127.0.0.1:7420/console/login?link=1f (once, within 15 minutes)
              work: 1 pool, 2 functions
            ");
        assert!(access(false, false).contains("mainstay token create"));
        assert!(console(url, false, None).contains("mainstay token create"));
        assert!(console(url, true, None).ends_with("(log in with a token)"));
    }
}
