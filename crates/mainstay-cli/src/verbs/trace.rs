//! `mainstay trace`: what belongs together.

use crate::Result;
use crate::arguments::Global;
use crate::client::Call;
use crate::output::{print, print_json, table};
use crate::services::Opening::Existing;
use crate::shown::{moment, short, text};
use clap::Args;
use mainstay_api::EventFlow;

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
        let call = Call::new("GET /admin/traces/{correlationId}", &[&self.correlation_id]);
        let told: EventFlow = global.send(Existing, call).await?;
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
}

/// One row for each command, event, update and dead letter, in the order of time.
fn rows(told: &EventFlow) -> Vec<[String; 4]> {
    let mut rows: Vec<(i64, [String; 4])> = Vec::new();
    let mut add = |at: i64, what: &str, name: &str, detail: String| {
        rows.push((at, [moment(&at.into()), what.to_owned(), shown(name), detail]));
    };
    for command in &told.commands {
        let detail = format!("{} {}", command.status, shown(&command.command_id));
        add(command.created_at, "command", &command.command_type, detail);
    }
    for event in &told.events {
        add(event.timestamp, "event", &event.event_type, format!("position {}", event.global_position));
    }
    for update in &told.projection_updates {
        let taken = told.events.iter().find(|event| event.event_id == update.event_id);
        let detail =
            taken.map(|event| format!("took {} at {}", shown(&event.event_type), event.global_position));
        add(update.updated_at, "projection", &update.projection_name, detail.unwrap_or_default());
    }
    for letter in &told.dead_letters {
        let detail = format!("{}: {}", letter.status, short(&letter.error.as_str().into(), WIDTH));
        add(letter.failed_at, "dead letter", &letter.projection_name, detail);
    }
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn shown(name: &str) -> String {
    text(&name.into())
}
