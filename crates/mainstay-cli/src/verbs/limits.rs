//! `mainstay limits`: rate limits from the command line.

use super::span;
use crate::arguments::Global;
use crate::client::Call;
use crate::output::{print, print_json, table};
use crate::services::Opening::Existing;
use crate::shown::{age, short, text};
use crate::{Error, Result};
use clap::{Args, Subcommand};
use mainstay::guards::limits::Definition;
use serde_json::{Value, json};
use std::time::Duration;

/// List rate limits, ask them, and change them
///
/// Works on the store, or through the server that holds it.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Limits {
    #[command(subcommand)]
    verb: LimitsVerb,
}

#[derive(Debug, Subcommand)]
enum LimitsVerb {
    /// List the limits
    List {
        /// At most so many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        /// Those whose names come after this one
        #[arg(long, value_name = "NAME")]
        after: Option<String>,
    },
    /// Show a limit
    Show {
        /// The limit
        name: String,
    },
    Set(Set),
    /// Tell how a key's budget stands
    Value(Key),
    /// Take tokens if they are there, and otherwise nothing
    Consume(Ask),
    /// Tell what taking tokens would come to
    Check(Ask),
    /// Take tokens now, or ahead of their coming
    Reserve(Ask),
    /// Make a key as if nobody had used it
    Reset(Key),
    /// Let a key have nothing for a while
    Block {
        #[command(flatten)]
        key: Key,
        /// For so long, as in 10m; 0s lifts a block
        #[arg(long = "for", value_name = "TIME", value_parser = span)]
        during: Duration,
    },
    /// Delete a limit
    ///
    /// Budgets of its keys are deleted with it. A limit that mainstay.toml names is there again when a server with it starts.
    Delete {
        /// The limit
        name: String,
    },
    /// List the keys that a limit denied most, as far as the server was asked since it started
    Denied {
        /// The limit
        name: String,
        /// At most so many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
}

/// Make a limit, or change it on all nodes from the next decision on
///
/// What was used stays used. A limit that mainstay.toml names is as the file has it again when a server with it starts.
#[derive(Debug, Args)]
struct Set {
    /// The limit
    name: String,
    /// How tokens come back
    #[arg(long, default_value = "token bucket", value_parser = ["token bucket", "fixed window", "sliding window"])]
    kind: String,
    /// How many tokens come in each period
    #[arg(long)]
    rate: f64,
    /// How long a period is, as in 500ms, 1s, 5m, 1h or 30d
    #[arg(long, value_name = "TIME")]
    period: String,
    /// The most tokens there can be; the rate unless given
    #[arg(long)]
    capacity: Option<f64>,
    /// In how many parts a budget is kept
    #[arg(long)]
    shards: Option<u64>,
    /// How many tokens of a part may be reserved ahead of their coming
    #[arg(long)]
    max_reserved: Option<u64>,
}

/// A key of a limit.
#[derive(Debug, Args)]
struct Key {
    /// The limit
    name: String,
    /// Whose budget
    key: String,
}

/// What is asked of a limit.
#[derive(Debug, Args)]
struct Ask {
    #[command(flatten)]
    key: Key,
    /// How many tokens
    #[arg(long, default_value_t = 1)]
    cost: u64,
}

impl Limits {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let call = self.verb.call()?;
        let told: Value = match self.verb {
            LimitsVerb::Denied { .. } => {
                let why = "denied: a server counts this while it runs; none holds the store, so name one with --server";
                global.send_to_server(why, call).await?
            }
            _ => global.send(Existing, call).await?,
        };
        if global.json {
            return print_json(&told);
        }
        if let LimitsVerb::Delete { name } = &self.verb {
            eprintln!("{name} is deleted.");
            return Ok(());
        }
        print(&shown(&self.verb, &told))
    }
}

impl LimitsVerb {
    fn call(&self) -> Result<Call> {
        Ok(match self {
            Self::List { limit, after } => {
                Call::new("GET /v1/limits", &[]).query("limit", Some(limit)).query("cursor", after.as_ref())
            }
            Self::Show { name } => Call::new("GET /v1/limits/{name}", &[name]),
            Self::Set(set) => set.call()?,
            Self::Value(Key { name, key }) => {
                Call::new("GET /v1/limits/{name}/value", &[name]).query("key", Some(key))
            }
            Self::Consume(ask) => ask.call("POST /v1/limits/{name}/consume"),
            Self::Check(ask) => ask.call("POST /v1/limits/{name}/check"),
            Self::Reserve(ask) => ask.call("POST /v1/limits/{name}/reserve"),
            Self::Reset(Key { name, key }) => {
                Call::new("POST /v1/limits/{name}/reset", &[name]).with(&json!({ "key": key }))
            }
            Self::Block { key: Key { name, key }, during } => {
                let for_ms = u64::try_from(during.as_millis()).unwrap_or(u64::MAX);
                let body = json!({ "key": key, "forMs": for_ms });
                Call::new("POST /v1/limits/{name}/block", &[name]).with(&body)
            }
            Self::Delete { name } => Call::new("DELETE /admin/limits/{name}", &[name]),
            Self::Denied { name, limit } => {
                Call::new("GET /admin/limits/{name}/denied", &[name]).query("limit", Some(limit))
            }
        })
    }
}

impl Set {
    fn call(&self) -> Result<Call> {
        let mut body = json!({ "kind": self.kind, "rate": self.rate, "period": self.period });
        if let Some(body) = body.as_object_mut() {
            body.extend(self.capacity.map(|capacity| ("capacity".to_owned(), json!(capacity))));
            body.extend(self.shards.map(|shards| ("shards".to_owned(), json!(shards))));
            body.extend(self.max_reserved.map(|most| ("maxReserved".to_owned(), json!(most))));
        }
        let _: Definition =
            serde_json::from_value(body.clone()).map_err(|error| Error::Argument(error.to_string()))?;
        Ok(Call::new("PUT /admin/limits/{name}", &[&self.name]).with(&body))
    }
}

impl Ask {
    fn call(&self, route: &'static str) -> Call {
        Call::new(route, &[&self.key.name]).with(&json!({ "key": self.key.key, "cost": self.cost }))
    }
}

fn shown(verb: &LimitsVerb, told: &Value) -> String {
    match verb {
        LimitsVerb::List { .. } => rows(told["limits"].as_array().map_or(&[][..], Vec::as_slice)),
        LimitsVerb::Show { .. } | LimitsVerb::Set(_) => rows(std::slice::from_ref(told)),
        LimitsVerb::Value(_) => format!("{} of {}\n", told["value"], told["capacity"]),
        LimitsVerb::Reserve(_) => match (told["ok"].as_bool(), &told["retryAfterMs"]) {
            (Some(true), wait) => format!("reserved; wait for {}\n", age(wait)),
            (_, Value::Null) => "denied for ever: it costs more than may be reserved\n".to_owned(),
            (_, wait) => format!("denied; ask again in {}\n", age(wait)),
        },
        LimitsVerb::Denied { .. } => {
            let denied = told["denied"].as_array().into_iter().flatten();
            let rows: Vec<_> = denied.map(|one| [short(&one["key"], 80), text(&one["atMost"])]).collect();
            table(["KEY", "DENIED"], &rows)
        }
        _ => match (told["allowed"].as_bool(), &told["retryAfterMs"]) {
            (Some(true), _) => format!("allowed; {} left\n", told["remaining"]),
            (_, Value::Null) => "denied for ever: it costs more than there can be\n".to_owned(),
            (_, wait) => format!("denied; {} left, ask again in {}\n", told["remaining"], age(wait)),
        },
    }
}

fn rows(limits: &[Value]) -> String {
    let row = |limit: &Value| {
        [
            text(&limit["name"]),
            text(&limit["kind"]),
            text(&limit["rate"]),
            text(&limit["period"]),
            text(limit.get("capacity").unwrap_or(&limit["rate"])),
            text(limit.get("shards").unwrap_or(&json!(1))),
        ]
    };
    let rows: Vec<_> = limits.iter().map(row).collect();
    table(["LIMIT", "KIND", "RATE", "PERIOD", "CAPACITY", "SHARDS"], &rows)
}
