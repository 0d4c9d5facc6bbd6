//! `mainstay replay`: filling read models anew.

use super::progress;
use super::projections::WHY;
use crate::Result;
use crate::arguments::Global;
use crate::client::{Call, Client};
use crate::output::{print, print_json, table};
use crate::shown::{age, lines, moment, text};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// Fill read models anew, and see how far that is
///
/// Read models are part of an application: its server is asked.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Replay {
    #[command(subcommand)]
    verb: ReplayVerb,
}

#[derive(Debug, Subcommand)]
enum ReplayVerb {
    /// List replays that run or are paused
    List,
    /// Fill a read model anew, or go on with a replay of it that failed or was paused
    Start {
        /// The projection; all that can be filled anew unless given
        projection: Option<String>,
        /// Begin after this position
        #[arg(long, value_name = "POSITION", requires = "projection")]
        from: Option<u64>,
        /// Events of one chunk
        #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u32).range(1..=5000))]
        chunk_size: Option<u32>,
        /// Wait until it has ended, with a bar
        #[arg(long, requires = "projection")]
        wait: bool,
    },
    /// Show how far a replay is
    Show {
        /// The replay
        replay_id: String,
        /// Wait until it has ended, with a bar
        #[arg(long)]
        wait: bool,
    },
    /// End a replay; the chunk that is under way may end
    Cancel {
        /// The replay
        replay_id: String,
    },
    /// Stop a replay for a while
    Pause {
        /// The replay
        replay_id: String,
    },
    /// Let a replay go on that was paused
    Resume {
        /// The replay
        replay_id: String,
    },
}

impl Replay {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let told = global.ask_server(WHY, async |server| self.ask(server, global.json).await).await?;
        if global.json {
            return print_json(&told);
        }
        match told["replays"].as_array() {
            Some(replays) if replays.is_empty() => {
                eprintln!("No replay runs.");
                Ok(())
            }
            Some(replays) if matches!(self.verb, ReplayVerb::List) => print(&rows(replays)),
            Some(replays) => print(&begun(replays)),
            None => print(&one(&told)),
        }
    }

    async fn ask(&self, server: &Client, is_json: bool) -> Result<Value> {
        let act = |route: &'static str, replay_id: &str| server.send(Call::new(route, &[replay_id]));
        match &self.verb {
            ReplayVerb::List => server.send(Call::new("GET /admin/replays", &[])).await,
            ReplayVerb::Start { projection: None, chunk_size, .. } => {
                server
                    .send(Call::new("POST /admin/replays", &[]).with(&json!({ "chunkSize": chunk_size })))
                    .await
            }
            ReplayVerb::Start { projection: Some(projection), from, chunk_size, wait } => {
                let body = json!({ "fromGlobalPosition": from, "chunkSize": chunk_size });
                let call = Call::new("POST /admin/projections/{projection}/replays", &[projection]);
                let begun: Value = server.send(call.with(&body)).await?;
                show(server, begun["replayId"].as_str().unwrap_or_default(), *wait, is_json).await
            }
            ReplayVerb::Show { replay_id, wait } => show(server, replay_id, *wait, is_json).await,
            ReplayVerb::Cancel { replay_id } => act("POST /admin/replays/{id}/cancel", replay_id).await,
            ReplayVerb::Pause { replay_id } => act("POST /admin/replays/{id}/pause", replay_id).await,
            ReplayVerb::Resume { replay_id } => act("POST /admin/replays/{id}/resume", replay_id).await,
        }
    }
}

/// How far it is; with `is_awaited`, once it has ended.
async fn show(server: &Client, replay_id: &str, is_awaited: bool, is_json: bool) -> Result<Value> {
    let look = async || server.send(Call::new("GET /admin/replays/{id}", &[replay_id])).await;
    if is_awaited { progress::watch(is_json, look, bar).await } else { look().await }
}

fn bar(replay: &Value) -> String {
    let percent = replay["percentComplete"].as_f64().unwrap_or(0.0);
    let left = match age(&replay["estimatedRemainingMs"]).as_str() {
        "-" => String::new(),
        left => format!(", {left} left"),
    };
    format!(
        "{} {}, {} of {}{left}",
        text(&replay["projectionName"]),
        progress::bar(percent),
        text(&replay["eventsProcessed"]),
        text(&replay["totalEvents"])
    )
}

fn rows(replays: &[Value]) -> String {
    let row = |replay: &Value| {
        [
            text(&replay["replayId"]),
            text(&replay["projectionName"]),
            text(&replay["status"]),
            format!("{} %", text(&replay["percentComplete"])),
            format!("{} of {}", text(&replay["eventsProcessed"]), text(&replay["totalEvents"])),
            age(&replay["estimatedRemainingMs"]),
        ]
    };
    let rows: Vec<_> = replays.iter().map(row).collect();
    table(["REPLAY", "PROJECTION", "STATUS", "DONE", "EVENTS", "LEFT"], &rows)
}

fn begun(replays: &[Value]) -> String {
    let row = |replay: &Value| {
        let came = if replay["code"].is_null() { &replay["replayId"] } else { &replay["code"] };
        [text(&replay["projectionName"]), text(came), text(&replay["totalEvents"])]
    };
    let rows: Vec<_> = replays.iter().map(row).collect();
    table(["PROJECTION", "REPLAY", "EVENTS"], &rows)
}

fn one(replay: &Value) -> String {
    if let Some(events) = replay["eventsProcessedBeforeCancel"].as_u64() {
        return format!("cancelled after {events} events\n");
    }
    lines(&[
        ("replay", text(&replay["replayId"])),
        ("projection", text(&replay["projectionName"])),
        ("status", text(&replay["status"])),
        ("events", format!("{} of {}", text(&replay["eventsProcessed"]), text(&replay["totalEvents"]))),
        ("done", format!("{} %", text(&replay["percentComplete"]))),
        ("chunks", text(&replay["chunksCompleted"])),
        ("started", moment(&replay["startedAt"])),
        ("completed", moment(&replay["completedAt"])),
        ("left", age(&replay["estimatedRemainingMs"])),
        ("error", text(&replay["error"])),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_far_a_replay_is() {
        let replay = json!({
            "projectionName": "orders", "percentComplete": 45.0, "eventsProcessed": 4500, "totalEvents": 10000,
            "estimatedRemainingMs": 11_000,
        });
        insta::assert_snapshot!(bar(&replay), @"orders [██████████████████░░░░░░░░░░░░░░░░░░░░░░] 45.0 %, 4500 of 10000, 11.0 s left");
        let done = json!({ "projectionName": "orders", "percentComplete": 100, "eventsProcessed": 1, "totalEvents": 1 });
        insta::assert_snapshot!(bar(&done), @"orders [████████████████████████████████████████] 100.0 %, 1 of 1");
    }
}
