//! `mainstay circuits`: circuits from the command line.

use super::span;
use crate::arguments::Global;
use crate::deed::Deed;
use crate::output::{json, print, print_json, table};
use crate::reach::Reached;
use crate::remote::{Remote, segment};
use crate::shown::{age, lines, moment, text};
use crate::{Error, Result};
use clap::{Args, Subcommand};
use mainstay::guards::circuits::{Circuits as Kept, Force, Settings};
use mainstay::store::Store;
use serde_json::{Value, json};
use std::time::Duration;

/// Who decides, when it is somebody at the store itself.
const ACTOR: &str = "command line";

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
        let place = Place::reach(global).await?;
        let told = place.ask(&self.verb).await;
        place.close().await;
        let told = told?;
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
            _ => print(&one(&told)),
        }
    }
}

/// Where the circuits are.
enum Place {
    Store(Store, Kept),
    Server(Remote),
}

impl Place {
    async fn reach(global: &Global) -> Result<Self> {
        match global.reach_existing().await? {
            Reached::Server(server) => Ok(Self::Server(server)),
            Reached::Store(store) => match Kept::open(&store).await {
                Ok(circuits) => Ok(Self::Store(store, circuits)),
                Err(error) => {
                    store.close().await;
                    Err(error.into())
                }
            },
        }
    }

    async fn close(self) {
        if let Self::Store(store, circuits) = self {
            drop(circuits);
            store.close().await;
        }
    }

    /// What comes back is JSON, alike from both.
    async fn ask(&self, verb: &CircuitsVerb) -> Result<Value> {
        match (verb, self) {
            (CircuitsVerb::List { limit, after }, Self::Store(_, circuits)) => {
                Ok(json!({ "circuits": circuits.list(after.as_deref(), (*limit).into()).await? }))
            }
            (CircuitsVerb::List { limit, after }, Self::Server(server)) => {
                let cursor = after.as_ref().map(|after| format!("&cursor={}", segment(after)));
                // Whoever shows a token asks as an operator does.
                let area = if server.has_token() { "/admin" } else { "/v1" };
                server.get(&format!("{area}/circuits?limit={limit}{}", cursor.unwrap_or_default()))
            }
            (CircuitsVerb::Show { name }, Self::Store(_, circuits)) => {
                Ok(json(&circuits.status(name).await?))
            }
            (CircuitsVerb::Show { name }, Self::Server(server)) => {
                server.get(&format!("/v1/circuits/{}", segment(name)))
            }
            (CircuitsVerb::History { name, limit }, Self::Store(_, circuits)) => {
                Ok(json!({ "changes": circuits.changes(name.as_deref(), None, (*limit).into()).await? }))
            }
            (CircuitsVerb::History { name, limit }, Self::Server(server)) => match name {
                Some(name) => server.get(&format!("/admin/circuits/{}/history?limit={limit}", segment(name))),
                None => server.get(&format!("/admin/circuit-changes?limit={limit}")),
            },
            (CircuitsVerb::Set { name, settings }, place) => {
                let wrong = |error: serde_json::Error| Error::Argument(format!("SETTINGS: {error}"));
                let body: Value = serde_json::from_str(settings).map_err(wrong)?;
                let deed = Deed::new("PUT /admin/circuits/{name}", &[name]).with(body);
                let set = async |circuits: &Kept| {
                    let settings: Settings = serde_json::from_str(settings).map_err(wrong)?;
                    Ok(json(&circuits.define(name, settings).await?))
                };
                place.change(deed, set).await
            }
            (CircuitsVerb::Open(decision), place) => place.force(decision, true).await,
            (CircuitsVerb::Close(decision), place) => place.force(decision, false).await,
            (CircuitsVerb::Release(why), place) => {
                let release =
                    async |circuits: &Kept| Ok(json(&circuits.release(&why.name, ACTOR, &why.reason).await?));
                place.change(why.deed("POST /admin/circuits/{name}/release"), release).await
            }
            (CircuitsVerb::Reset(why), place) => {
                let reset =
                    async |circuits: &Kept| Ok(json(&circuits.reset(&why.name, ACTOR, &why.reason).await?));
                place.change(why.deed("POST /admin/circuits/{name}/reset"), reset).await
            }
        }
    }

    /// Decides something, wherever the circuits are; it is written down.
    async fn change(&self, deed: Deed, here: impl AsyncFnOnce(&Kept) -> Result<Value>) -> Result<Value> {
        match self {
            Self::Store(store, circuits) => deed.carry_out(store, here(circuits)).await,
            Self::Server(server) => deed.ask(server),
        }
    }

    async fn force(&self, Decision { why, during }: &Decision, is_open: bool) -> Result<Value> {
        let for_ms = during.map(|during| u64::try_from(during.as_millis()).unwrap_or(u64::MAX));
        let state = if is_open { "open" } else { "closed" };
        let body = json!({ "state": state, "reason": why.reason, "forMs": for_ms });
        let force = async |circuits: &Kept| {
            let (actor, reason) = (ACTOR.to_owned(), why.reason.clone());
            Ok(json(&circuits.force(&why.name, Force { is_open, actor, reason, for_ms }).await?))
        };
        self.change(why.deed("POST /admin/circuits/{name}/force").with(body), force).await
    }
}

impl Why {
    fn deed(&self, action: &'static str) -> Deed {
        Deed::new(action, &[&self.name]).with(json!({ "reason": self.reason }))
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
