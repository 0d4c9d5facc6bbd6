//! `mainstay events follow`.

use super::LAST;
use super::filters::Filters;
use super::page::{self, Page, address};
use super::shown::Layout;
use super::sse::{Message, Parser};
use crate::arguments::Global;
use crate::client::Client;
use crate::client::Problem;
use crate::reference::errors;
use crate::services::Opening::Existing;
use crate::{Error, Result, output};
use clap::Args;
use mainstay::events::Selection;
use std::time::Duration;

/// What a server asks its clients to wait before they connect again.
const RETRY: Duration = Duration::from_secs(1);
/// A server says something every 15 seconds; one that is silent for three times as long is not there.
const SILENCE: Duration = Duration::from_secs(45);

/// Print events as they come, until Ctrl-C
///
/// From a server also across its restarts: nothing is missed and nothing comes twice. With --json one event per line.
/// On a SQLite file that no server holds nobody else can append meanwhile, so there it is of use with --from-start.
#[derive(Debug, Args)]
pub(super) struct Follow {
    /// Begin after this position instead of with what comes from now on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=LAST))]
    after: Option<u64>,
    /// Begin with the first event
    #[arg(long, conflicts_with = "after")]
    from_start: bool,
    /// End when everything up to this position was printed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=LAST))]
    until: Option<u64>,
    #[command(flatten)]
    filters: Filters,
}

impl Follow {
    pub(super) async fn run(&self, global: &Global) -> Result<()> {
        let selection = self.filters.selection()?;
        global
            .ask(Existing, async |client| {
                // Nothing is after the last position there can be; what is wanted is where the log ends.
                let now = page::read(client, &Selection::all().after(LAST), 1).await?;
                tokio::select! {
                    // First, so that from the first word on Ctrl-C is an end in order.
                    biased;
                    _ = tokio::signal::ctrl_c() => Ok(()),
                    ended = self.follow(client, selection, now, global.json) => ended,
                }
            })
            .await
    }

    async fn follow(&self, client: &Client, selection: Selection, now: Page, is_json: bool) -> Result<()> {
        let after = if self.from_start { 0 } else { self.after.unwrap_or(now.head) };
        eprintln!("Following after position {after}; Ctrl-C ends it.");
        let mut out = Out { is_json, layout: Layout::default(), until: self.until.unwrap_or(LAST) };
        if out.is_over(after) {
            return Ok(());
        }
        follow(client, selection.after(after), now.epoch, &mut out).await
    }
}

/// Where events go, and when it is enough.
struct Out {
    is_json: bool,
    layout: Layout,
    until: u64,
}

impl Out {
    fn is_over(&self, position: u64) -> bool {
        position >= self.until
    }

    /// Prints an event; whether there is a point in going on.
    fn event(&mut self, position: u64, line: String) -> Result<bool> {
        if position > self.until {
            return Ok(false);
        }
        let text = if self.is_json { line + "\n" } else { self.layout.page(&[line]) };
        Ok(output::offer(&text)? && !self.is_over(position))
    }
}

async fn follow(client: &Client, mut selection: Selection, epoch: u64, out: &mut Out) -> Result<()> {
    let mut is_lost = false;
    loop {
        // With the epoch: behind a restored backup, positions mean other events.
        let address = address("/v1/events/subscribe", &selection, [("epoch", epoch.to_string())]);
        let mut lines = client.lines(address, selection.after);
        let mut parser = Parser::default();
        let ended = loop {
            let line = match tokio::time::timeout(SILENCE, lines.recv()).await {
                Ok(Some(Ok(line))) => line,
                Ok(Some(Err(error))) => break error,
                Ok(None) => break client.lost("the server ended the answer"),
                Err(_) => break client.lost("the server fell silent"),
            };
            is_lost = false;
            let Some(message) = parser.line(&line) else { continue };
            if !take(message, &mut selection.after, out)? {
                return Ok(());
            }
        };
        if !is_worth_another_try(&ended) {
            return Err(ended);
        }
        if !std::mem::replace(&mut is_lost, true) {
            eprintln!("{ended}; connecting again until it answers.");
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Takes what a server says; whether there is a point in going on.
fn take(message: Message, reached: &mut u64, out: &mut Out) -> Result<bool> {
    let Message { event, data, id } = message;
    if event == "problem" {
        let problem = serde_json::from_str(&data.unwrap_or_default());
        let Ok(Problem { code, detail }) = problem else { return Ok(true) };
        return Err(Error::Refused { code, detail });
    }
    let Some(position) = id else { return Ok(true) };
    *reached = position;
    match data {
        Some(line) => out.event(position, line),
        None => Ok(!out.is_over(position)),
    }
}

fn is_worth_another_try(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        Error::Refused { code, .. } => errors::register().get(code).is_some_and(|entry| entry.retryable),
        _ => false,
    }
}
