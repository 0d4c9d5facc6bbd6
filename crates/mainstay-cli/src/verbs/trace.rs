//! `mainstay trace`: what belongs together.

use crate::Result;
use crate::arguments::Global;
use crate::output::{json, print, print_json, table};
use crate::reach::Reached;
use crate::remote::segment;
use crate::shown::{moment, short, text};
use clap::Args;
use mainstay::events::Log;
use mainstay::flows::commands::{Commands, Dispatcher};
use mainstay::flows::event_flow;
use mainstay::flows::projections::{Projections, Registry};
use mainstay::store::Store;
use mainstay::work::{Functions, Work};
use serde_json::Value;

/// Longest text of an error in the table.
const WIDTH: usize = 60;

/// Follow a correlation from its command through events to read models
///
/// Works on the store, or through the server that holds it. Read models are known only to the server of the application
/// that they are registered in.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// What belongs together, as in corr_…
    correlation_id: String,
}

impl Trace {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let told = match global.reach_existing().await? {
            Reached::Server(server) => {
                server.get(&format!("/admin/traces/{}", segment(&self.correlation_id)))?
            }
            Reached::Store(store) => {
                let told = self.look(&store).await;
                store.close().await;
                told?
            }
        };
        if global.json {
            return print_json(&told);
        }
        match rows(&told) {
            rows if rows.is_empty() => {
                eprintln!("Nothing belongs to {}.", self.correlation_id);
                Ok(())
            }
            rows => print(&table(["WHEN", "WHAT", "NAME", "DETAIL"], &rows)),
        }
    }

    async fn look(&self, store: &Store) -> Result<Value> {
        let log = Log::open(store).await?;
        let work = Work::open(store, Functions::new()).await?;
        let commands = Dispatcher::open(&log, &work, Commands::new()).await?;
        let projections = Projections::open(store, &log, &work, Registry::new()).await?;
        Ok(json(&event_flow(&log, &commands, &projections, &self.correlation_id).await?))
    }
}

/// One row for everything, in the order of time.
fn rows(told: &Value) -> Vec<[String; 4]> {
    let list = |name: &str| told[name].as_array().cloned().unwrap_or_default();
    let mut rows: Vec<(i64, [String; 4])> = Vec::new();
    let mut add = |at: &Value, what: &str, name: &Value, detail: String| {
        rows.push((at.as_i64().unwrap_or(i64::MAX), [moment(at), what.to_owned(), text(name), detail]));
    };
    for command in list("commands") {
        let detail = format!("{} {}", text(&command["status"]), text(&command["commandId"]));
        add(&command["createdAt"], "command", &command["commandType"], detail);
    }
    let events = list("events");
    for event in &events {
        let detail = format!("position {}", text(&event["globalPosition"]));
        add(&event["timestamp"], "event", &event["eventType"], detail);
    }
    for update in list("projectionUpdates") {
        let taken = events.iter().find(|event| event["eventId"] == update["eventId"]);
        let detail = taken
            .map(|event| format!("took {} at {}", text(&event["eventType"]), text(&event["globalPosition"])));
        let detail = detail.unwrap_or_default();
        add(&update["updatedAt"], "projection", &update["projectionName"], detail);
    }
    for letter in list("deadLetters") {
        let detail = format!("{}: {}", text(&letter["status"]), short(&letter["error"], WIDTH));
        add(&letter["failedAt"], "dead letter", &letter["projectionName"], detail);
    }
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}
