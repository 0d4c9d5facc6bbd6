//! `mainstay circuits`: circuits from the command line.

use super::span;
use crate::arguments::Global;
use crate::client::Call;
use crate::output::{print, print_json, table};
use crate::services::Opening::Existing;
use crate::shown::{age, lines, moment, text};
use crate::{Error, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::time::Duration;

/// Look at circuits, and decide over them
///
/// Works on the store, or through the server that holds it. What is decided holds on all nodes.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Circuits {
    #[command(subcommand)]
    verb: CircuitsVerb,
}

#[derive(Debug, Subcommand)]
enum CircuitsVerb {
    /// List the circuits that have ever counted something
    List {
        /// At most so many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        /// Those whose names come after this one
        #[arg(long, value_name = "NAME")]
        after: Option<String>,
    },
    /// Show a circuit
    Show {
        /// The circuit
        name: String,
    },
    /// List what circuits have been through, the newest first
    History {
        /// The circuit; all of them unless given
        name: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Set a circuit on all nodes
    ///
    /// What is left out has its default. A circuit that mainstay.toml names is as the file has it again when a server with
    /// it starts.
    Set {
        /// The circuit
        name: String,
        /// As JSON, as in '{"failureThreshold": 10, "resetTimeoutMs": 30000}'
        settings: String,
    },
    /// Let no call through, whatever calls say
    Open(Decision),
    /// Let every call through, whatever calls say
    Close(Decision),
    /// Let calls decide again about a circuit that was forced
    Release(Why),
    /// Let a circuit begin anew: closed, nothing counted, not forced
    Reset(Why),
    /// Delete a circuit that is closed and not forced
    ///
    /// Refused while it is open or forced, or the configuration names it. Its history is deleted with it.
    Delete {
        /// The circuit
        name: String,
    },
}

/// What is decided over a circuit.
#[derive(Debug, Args)]
struct Decision {
    #[command(flatten)]
    why: Why,
    /// For so long, as in 30m; until it is released unless given
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    during: Option<Duration>,
}

#[derive(Debug, Args)]
struct Why {
    /// The circuit
    name: String,
    /// Why, for whoever reads it at night
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl Circuits {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let told: Value = global.send(Existing, self.verb.call()?).await?;
        if global.json {
            return print_json(&told);
        }
        match &self.verb {
            CircuitsVerb::List { .. } => match told["circuits"].as_array() {
                Some(circuits) if !circuits.is_empty() => print(&rows(circuits)),
                _ => {
                    eprintln!("No circuit has counted anything yet.");
                    Ok(())
                }
            },
            CircuitsVerb::History { .. } => match told["changes"].as_array() {
                Some(changes) if !changes.is_empty() => print(&changed(changes)),
                _ => {
                    eprintln!("Nothing has changed yet.");
                    Ok(())
                }
            },
            CircuitsVerb::Delete { name } => {
                eprintln!("{name} is deleted.");
                Ok(())
            }
            _ => print(&one(&told)),
        }
    }
}

impl CircuitsVerb {
    fn call(&self) -> Result<Call> {
        Ok(match self {
            Self::List { limit, after } => {
                let call = Call::new("GET /admin/circuits", &[]).or_v1();
                call.query("limit", Some(limit)).query("cursor", after.as_ref())
            }
            Self::Show { name } => Call::new("GET /v1/circuits/{name}", &[name]),
            Self::History { name: Some(name), limit } => {
                Call::new("GET /admin/circuits/{name}/history", &[name]).query("limit", Some(limit))
            }
            Self::History { name: None, limit } => {
                Call::new("GET /admin/circuit-changes", &[]).query("limit", Some(limit))
            }
            Self::Set { name, settings } => {
                let wrong = |error: serde_json::Error| Error::Argument(format!("SETTINGS: {error}"));
                let settings: Value = serde_json::from_str(settings).map_err(wrong)?;
                Call::new("PUT /admin/circuits/{name}", &[name]).with(&settings)
            }
            Self::Open(decision) => decision.force("open"),
            Self::Close(decision) => decision.force("closed"),
            Self::Release(why) => why.call("POST /admin/circuits/{name}/release"),
            Self::Reset(why) => why.call("POST /admin/circuits/{name}/reset"),
            Self::Delete { name } => Call::new("DELETE /admin/circuits/{name}", &[name]),
        })
    }
}

impl Decision {
    fn force(&self, state: &str) -> Call {
        let for_ms = self.during.map(|during| u64::try_from(during.as_millis()).unwrap_or(u64::MAX));
        let body = json!({ "state": state, "reason": self.why.reason, "forMs": for_ms });
        self.why.call("POST /admin/circuits/{name}/force").with(&body)
    }
}

impl Why {
    fn call(&self, route: &'static str) -> Call {
        Call::new(route, &[&self.name]).with(&json!({ "reason": self.reason }))
    }
}

fn rows(circuits: &[Value]) -> String {
    let row = |circuit: &Value| {
        [
            text(&circuit["name"]),
            state(circuit),
            text(&circuit["failureCount"]),
            moment(&circuit["lastFailureAt"]),
            moment(&circuit["openedAt"]),
            age(&circuit["retryAfterMs"]),
        ]
    };
    let rows: Vec<_> = circuits.iter().map(row).collect();
    table(["CIRCUIT", "STATE", "FAILURES", "LAST FAILURE", "OPENED", "RETRY IN"], &rows)
}

fn changed(changes: &[Value]) -> String {
    let row = |change: &Value| {
        [
            moment(&change["at"]),
            text(&change["name"]),
            text(&change["from"]).replace('_', " "),
            text(&change["to"]).replace('_', " "),
            text(&change["actor"]),
            text(&change["reason"]),
        ]
    };
    let rows: Vec<_> = changes.iter().map(row).collect();
    table(["AT", "CIRCUIT", "FROM", "TO", "BY", "REASON"], &rows)
}

fn state(circuit: &Value) -> String {
    let state = text(&circuit["state"]).replace('_', " ");
    if circuit["forced"].is_object() { format!("{state}, forced") } else { state }
}

fn one(circuit: &Value) -> String {
    let forced = &circuit["forced"];
    let until = match moment(&forced["untilMs"]).as_str() {
        "-" => "until it is released".to_owned(),
        until => format!("until {until}"),
    };
    let forced = match forced.is_object() {
        true => format!("by {}: {}, {until}", text(&forced["actor"]), text(&forced["reason"])),
        false => "-".to_owned(),
    };
    lines(&[
        ("circuit", text(&circuit["name"])),
        ("state", state(circuit)),
        ("forced", forced),
        ("failures", text(&circuit["failureCount"])),
        ("last failure", moment(&circuit["lastFailureAt"])),
        ("opened", moment(&circuit["openedAt"])),
        ("probe at", moment(&circuit["probeScheduledAt"])),
        ("probe", text(&circuit["probeRunId"])),
        ("retry in", age(&circuit["retryAfterMs"])),
        ("settings", text(&circuit["config"])),
    ])
}
