//! `mainstay publications`: events for other contexts, and those that did not come there.

use crate::Result;
use crate::arguments::Global;
use crate::output::{print, print_json, table};
use crate::remote::{Remote, segment};
use crate::shown::{lines, moment, short, text};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// Longest text of an error in a table.
const WIDTH: usize = 60;

/// Publish events to other contexts, and see whether they came
///
/// A running server delivers; it is asked.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Publications {
    #[command(subcommand)]
    verb: PublicationsVerb,
}

#[derive(Debug, Subcommand)]
enum PublicationsVerb {
    /// List publications, the oldest first
    List {
        /// To this target
        #[arg(long)]
        target: Option<String>,
        /// Of this status: pending, delivered, failed, dead_letter or retried
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// Show where the publications of an event stand, one for each target
    Status {
        /// The event
        event_id: String,
    },
    /// Publish an event of the log
    Publish {
        /// The event
        event_id: String,
        /// The context that it comes from
        #[arg(long, value_name = "CONTEXT")]
        source: String,
        /// A context that it goes to; may be given several times
        #[arg(long = "target", value_name = "CONTEXT", required = true)]
        targets: Vec<String>,
    },
    /// List publications that were not delivered
    Letters {
        /// To this target
        #[arg(long)]
        target: Option<String>,
        /// Of this status: pending, retried or ignored
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// Show a publication that was not delivered, with its event
    Letter(Which),
    /// Count publications that were not delivered, by target and status
    Stats,
    /// Try a publication again that was not delivered, or many
    Retry(Wanted),
    /// Leave a publication for good that was not delivered, or many
    Ignore(Wanted),
}

#[derive(Debug, Args)]
struct Which {
    /// The target
    target: String,
    /// The event
    event_id: String,
}

#[derive(Debug, Args)]
struct Wanted {
    /// The target; all unless given
    target: Option<String>,
    /// The event; the oldest pending letters unless given
    event_id: Option<String>,
    /// At most so many
    #[arg(long, conflicts_with = "event_id", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: Option<u16>,
}

#[derive(Debug, Args)]
struct Page {
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// The `next` of the page before
    #[arg(long)]
    cursor: Option<String>,
}

impl Page {
    fn query(&self, more: &[(&str, &Option<String>)]) -> String {
        let given = more.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?)));
        let given = given.chain(self.cursor.as_ref().map(|cursor| ("cursor", cursor)));
        given.fold(format!("?limit={}", self.limit), |query, (name, value)| {
            format!("{query}&{name}={}", segment(value))
        })
    }
}

impl Publications {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let why = "events are delivered by a server, and none runs on this store; name one with --server";
        let told = self.ask(&global.reach_server(why).await?)?;
        if global.json {
            return print_json(&told);
        }
        for (list, show) in [("publications", publications as fn(&[Value]) -> String), ("letters", letters)] {
            if let Some(rows) = told[list].as_array() {
                if rows.is_empty() {
                    eprintln!("There are none.");
                    return Ok(());
                }
                return print(&show(rows));
            }
        }
        print(&one(&told))
    }

    fn ask(&self, server: &Remote) -> Result<Value> {
        let letter = |target: &str, event_id: &str| {
            format!("/admin/publications/letters/{}/{}", segment(target), segment(event_id))
        };
        match &self.verb {
            PublicationsVerb::List { target, status, page } => {
                let query = page.query(&[("target", target), ("status", status)]);
                server.get(&format!("/admin/publications{query}"))
            }
            PublicationsVerb::Status { event_id } => {
                server.get(&format!("/v1/publications/{}", segment(event_id)))
            }
            PublicationsVerb::Publish { event_id, source, targets } => {
                let asked =
                    json!({ "eventId": event_id, "sourceContext": source, "targetContexts": targets });
                server.post("/v1/publications", &asked)
            }
            PublicationsVerb::Letters { target, status, page } => {
                let query = page.query(&[("target", target), ("status", status)]);
                server.get(&format!("/admin/publications/letters{query}"))
            }
            PublicationsVerb::Letter(Which { target, event_id }) => server.get(&letter(target, event_id)),
            PublicationsVerb::Stats => server.get("/admin/publications/letters/stats"),
            PublicationsVerb::Retry(wanted) => wanted.ask(server, "retry", letter),
            PublicationsVerb::Ignore(wanted) => wanted.ask(server, "ignore", letter),
        }
    }
}

impl Wanted {
    fn ask(&self, server: &Remote, what: &str, letter: impl Fn(&str, &str) -> String) -> Result<Value> {
        match self {
            Self { target: Some(target), event_id: Some(event_id), .. } => {
                server.post(&format!("{}/{what}", letter(target, event_id)), &json!({}))
            }
            Self { target, limit, .. } => {
                let wanted = json!({ "target": target, "limit": limit });
                server.post(&format!("/admin/publications/letters/{what}"), &wanted)
            }
        }
    }
}

fn publications(publications: &[Value]) -> String {
    // What publishing answers says which are new, and nothing else yet.
    if publications.iter().all(|one| one["status"].is_null()) {
        let row = |one: &Value| {
            let outcome = if one["isDuplicate"] == true { "published before" } else { "published" };
            [text(&one["targetContext"]), outcome.to_owned(), text(&one["publicationId"])]
        };
        let rows: Vec<_> = publications.iter().map(row).collect();
        return table(["TARGET", "OUTCOME", "PUBLICATION"], &rows);
    }
    let row = |one: &Value| {
        [
            text(&one["eventId"]),
            text(&one["eventType"]),
            text(&one["targetContext"]),
            text(&one["status"]),
            text(&one["attemptCount"]),
            moment(&one["createdAt"]),
            short(&one["error"], WIDTH),
        ]
    };
    let rows: Vec<_> = publications.iter().map(row).collect();
    table(["EVENT", "TYPE", "TARGET", "STATUS", "ATTEMPTS", "PUBLISHED", "ERROR"], &rows)
}

fn letters(letters: &[Value]) -> String {
    let row = |letter: &Value| {
        [
            text(&letter["targetContext"]),
            text(&letter["eventId"]),
            text(&letter["event"]["type"]),
            text(&letter["status"]),
            text(&letter["attemptCount"]),
            moment(&letter["failedAt"]),
            short(&letter["error"], WIDTH),
        ]
    };
    let rows: Vec<_> = letters.iter().map(row).collect();
    table(["TARGET", "EVENT", "TYPE", "STATUS", "ATTEMPTS", "FAILED", "ERROR"], &rows)
}

fn one(told: &Value) -> String {
    if let Some(count) = told["count"].as_u64() {
        return format!("{count} done\n");
    }
    if let Some(counts) = told["byTargetAndStatus"].as_object() {
        let row = |(key, count): (&String, &Value)| {
            let (target, status) = key.rsplit_once(':').unwrap_or((key, ""));
            [target.to_owned(), status.to_owned(), text(count)]
        };
        let rows: Vec<_> = counts.iter().map(row).collect();
        return table(["TARGET", "STATUS", "LETTERS"], &rows);
    }
    if told["error"].is_null() {
        return format!("tried again by {}\n", text(&told["workId"]));
    }
    lines(&[
        ("target", text(&told["targetContext"])),
        ("event", text(&told["eventId"])),
        ("type", text(&told["event"]["type"])),
        ("source", text(&told["sourceContext"])),
        ("correlation", text(&told["correlationId"])),
        ("status", text(&told["status"])),
        ("error", text(&told["error"])),
        ("failed", moment(&told["failedAt"])),
        ("attempts", text(&told["attemptCount"])),
        ("retries", text(&told["retryCount"])),
        ("retried", moment(&told["retriedAt"])),
        ("came", moment(&told["resolvedAt"])),
        ("work", text(&told["workId"])),
        ("data", text(&told["event"]["data"])),
    ])
}
