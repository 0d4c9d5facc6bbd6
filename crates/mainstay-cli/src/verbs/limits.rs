//! `mainstay limits`: rate limits from the command line.

use super::span;
use crate::arguments::Global;
use crate::deed::Deed;
use crate::output::{json, print, print_json, table};
use crate::reach::Reached;
use crate::remote::{Remote, segment};
use crate::shown::{age, short, text};
use crate::{Error, Result};
use clap::{Args, Subcommand};
use mainstay::guards::limits::store::Limits as Kept;
use mainstay::guards::limits::{Definition, Verb};
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
        let place = Place::reach(global).await?;
        let told = place.ask(&self.verb).await;
        place.close().await;
        let told = told?;
        if global.json {
            return print_json(&told);
        }
        print(&shown(&self.verb, &told))
    }
}

/// Where the limits are.
enum Place {
    Store(Kept),
    Server(Remote),
}

impl Place {
    async fn reach(global: &Global) -> Result<Self> {
        match global.reach_existing().await? {
            Reached::Server(server) => Ok(Self::Server(server)),
            Reached::Store(store) => match Kept::open(store.clone()).await {
                Ok(limits) => Ok(Self::Store(limits)),
                Err(error) => {
                    store.close().await;
                    Err(error.into())
                }
            },
        }
    }

    async fn close(self) {
        if let Self::Store(limits) = self {
            limits.store().clone().close().await;
        }
    }

    /// What comes back is JSON, alike from both.
    async fn ask(&self, verb: &LimitsVerb) -> Result<Value> {
        match verb {
            LimitsVerb::List { limit, after } => self.list(*limit, after.as_deref()).await,
            LimitsVerb::Show { name } => match self {
                Self::Store(limits) => Ok(named(name, limits.definition(name).await?)),
                Self::Server(server) => server.get(&format!("/v1/limits/{}", segment(name))),
            },
            LimitsVerb::Set(set) => self.set(set).await,
            LimitsVerb::Value(Key { name, key }) => match self {
                Self::Store(limits) => Ok(json(&limits.value(name, key).await?)),
                Self::Server(server) => {
                    server.get(&format!("/v1/limits/{}/value?key={}", segment(name), segment(key)))
                }
            },
            LimitsVerb::Consume(ask) => self.act(&ask.key, "consume", Verb::Consume(ask.cost), ask.body()).await,
            LimitsVerb::Check(ask) => self.act(&ask.key, "check", Verb::Peek(ask.cost), ask.body()).await,
            LimitsVerb::Reserve(ask) => match self {
                Self::Store(limits) => {
                    Ok(json(&limits.reserve(&ask.key.name, &ask.key.key, ask.cost).await?))
                }
                Self::Server(server) => server.post(&ask.key.path("reserve"), &ask.body()),
            },
            LimitsVerb::Reset(key) => {
                let deed =
                    Deed::new("POST /v1/limits/{name}/reset", &[&key.name]).with(json!({ "key": key.key }));
                self.decide(key, Verb::Reset, deed).await
            }
            LimitsVerb::Block { key, during } => {
                let for_ms = u64::try_from(during.as_millis()).unwrap_or(u64::MAX);
                let body = json!({ "key": key.key, "forMs": for_ms });
                let deed = Deed::new("POST /v1/limits/{name}/block", &[&key.name]).with(body);
                self.decide(key, Verb::Block(for_ms), deed).await
            }
            LimitsVerb::Denied { name, limit } => match self {
                Self::Store(_) => Err(Error::Argument(
                    "denied: a server counts this while it runs; none holds the store, so name one with --server"
                        .to_owned(),
                )),
                Self::Server(server) => {
                    server.get(&format!("/admin/limits/{}/denied?limit={limit}", segment(name)))
                }
            },
        }
    }

    async fn list(&self, limit: u16, after: Option<&str>) -> Result<Value> {
        match self {
            Self::Store(limits) => {
                let found = limits.list(after, limit.into()).await?;
                let next =
                    found.last().filter(|_| found.len() == usize::from(limit)).map(|(name, _)| json!(name));
                let found: Vec<Value> =
                    found.into_iter().map(|(name, definition)| named(&name, definition)).collect();
                let mut told = json!({ "limits": found });
                if let (Some(next), Some(told)) = (next, told.as_object_mut()) {
                    told.insert("next".to_owned(), next);
                }
                Ok(told)
            }
            Self::Server(server) => {
                let cursor = after.map(|after| format!("&cursor={}", segment(after))).unwrap_or_default();
                server.get(&format!("/v1/limits?limit={limit}{cursor}"))
            }
        }
    }

    async fn set(&self, set: &Set) -> Result<Value> {
        let mut body = json!({ "kind": set.kind, "rate": set.rate, "period": set.period });
        if let Some(body) = body.as_object_mut() {
            body.extend(set.capacity.map(|capacity| ("capacity".to_owned(), json!(capacity))));
            body.extend(set.shards.map(|shards| ("shards".to_owned(), json!(shards))));
            body.extend(set.max_reserved.map(|most| ("maxReserved".to_owned(), json!(most))));
        }
        let definition: Definition =
            serde_json::from_value(body.clone()).map_err(|error| Error::Argument(error.to_string()))?;
        let define = async |limits: &Kept| {
            limits.define(&set.name, definition).await?;
            Ok(named(&set.name, definition))
        };
        self.change(Deed::new("PUT /admin/limits/{name}", &[&set.name]).with(body), define).await
    }

    /// Decides over a key; what an application asks of it all day goes through [`act`](Self::act).
    async fn decide(&self, key: &Key, verb: Verb, deed: Deed) -> Result<Value> {
        let act = async |limits: &Kept| Ok(json(&limits.act(&key.name, &key.key, verb).await?));
        self.change(deed, act).await
    }

    /// Changes something, wherever the limits are; it is written down.
    async fn change(&self, deed: Deed, here: impl AsyncFnOnce(&Kept) -> Result<Value>) -> Result<Value> {
        match self {
            Self::Store(limits) => deed.carry_out(limits.store(), here(limits)).await,
            Self::Server(server) => deed.ask(server),
        }
    }

    async fn act(&self, key: &Key, path: &str, verb: Verb, body: Value) -> Result<Value> {
        match self {
            Self::Store(limits) => Ok(json(&limits.act(&key.name, &key.key, verb).await?)),
            Self::Server(server) => server.post(&key.path(path), &body),
        }
    }
}

impl Key {
    fn path(&self, verb: &str) -> String {
        format!("/v1/limits/{}/{verb}", segment(&self.name))
    }
}

impl Ask {
    fn body(&self) -> Value {
        json!({ "key": self.key.key, "cost": self.cost })
    }
}

fn named(name: &str, definition: Definition) -> Value {
    let mut told = json!({ "name": name });
    if let (Some(told), Value::Object(definition)) = (told.as_object_mut(), json(&definition)) {
        told.extend(definition);
    }
    told
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
