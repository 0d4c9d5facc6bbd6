//! `mainstay serve`: the HTTP API.

use crate::arguments::Global;
use crate::config::{self, Config, Setting};
use crate::{Error, Result, log, output, signals, workshop};
use clap::Args;
use mainstay::store::Store;
use mainstay_server::{Routes, Server, Stopped, Tokens};
use serde::Serialize;
use std::future::Future;

/// Serve the HTTP API, and carry out work
///
/// Opens the store, brings its schema up to date, declares what the configuration names (pools, functions, targets, crons, limits
/// and circuits), and serves and works until it is told to stop (SIGTERM or Ctrl-C). Then it finishes what is under way; told a second time,
/// it ends at once. Everything committed is safe either way.
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
        let config = global.load_with(self.flags())?;
        let options = config::server::options(&config)?.configuration(super::config::to_json(&config));
        // From the first moment, so that nobody who starts and stops us at once is ignored.
        let stop = signals::told_to_stop()?;
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
        eprintln!("{}", farewell(abandoned));
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
    let rooms = workshop::open(config, store).await?;
    let server = Server::bind_with(options, rooms.clone(), Routes::default()).await?;
    let engine = rooms.work.start().await?;
    let listening = Listening {
        url: server.url(),
        address: server.address().to_string(),
        store: store.location().to_string(),
        durability: store.durability().await?,
    };
    let has_tokens = Tokens::new(store.clone()).exist().await?;
    let is_loopback = server.address().ip().is_loopback();
    // Whoever has tokens logs in with one.
    let link = if is_loopback && !has_tokens { Some(server.login_link().await?) } else { None };
    eprint!("{}", greeting(&listening, is_loopback, link.as_deref()));
    eprint!("{}", workload(config));
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
        eprintln!("What was being worked on could not be given back, and is when its lease is over: {error}");
    }
    Ok(stopped)
}

/// What the configuration has declared, if anything.
fn workload(config: &Config) -> String {
    let work = [
        ("pool", config.pools().len()),
        ("function", config.functions().len()),
        ("target", config.targets().len()),
        ("cron", config.crons().len()),
    ];
    let guards = [("limit", config.limits().len()), ("circuit", config.circuits().len())];
    counted("work", &work) + &counted("guards", &guards)
}

fn counted(heading: &str, parts: &[(&str, usize)]) -> String {
    let told = parts.iter().filter(|(_, count)| *count > 0).map(|(what, count)| match count {
        1 => format!("1 {what}"),
        several => format!("{several} {what}s"),
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { String::new() } else { format!("  {heading}: {}\n", told.join(", ")) }
}

fn greeting(listening: &Listening, is_loopback: bool, link: Option<&str>) -> String {
    let Listening { url, store, durability, .. } = listening;
    let access = match (is_loopback, link) {
        (true, Some(_)) => "open to this machine until the first token is created",
        (true, None) => "tokens",
        (false, _) => "tokens; make one with `mainstay token create`",
    };
    let console = match link {
        Some(link) => format!("{link} (once, within 15 minutes)"),
        None => format!("{url}/console (log in with a token)"),
    };
    format!(
        "Mainstay listens on {url}\n  store: {store} ({durability})\n  access: {access}\n  console: {console}\n"
    )
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
        let listening = Listening {
            url: "http://127.0.0.1:7420".to_owned(),
            address: "127.0.0.1:7420".to_owned(),
            store: "sqlite:mainstay.db".to_owned(),
            durability: "SQLite 3.54.0, WAL, synchronous=FULL".to_owned(),
        };
        insta::assert_snapshot!(greeting(&listening, true, Some("http://127.0.0.1:7420/console/login?link=1f")), @"
            Mainstay listens on http://127.0.0.1:7420
              store: sqlite:mainstay.db (SQLite 3.54.0, WAL, synchronous=FULL)
              access: open to this machine until the first token is created
              console: http://127.0.0.1:7420/console/login?link=1f (once, within 15 minutes)
            ");
        assert!(greeting(&listening, false, None).contains("mainstay token create"));
        assert!(greeting(&listening, true, None).contains("log in with a token"));
    }
}
