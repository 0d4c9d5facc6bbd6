//! `mainstay publications`: events for other contexts, and those that did not come there.

use crate::Result;
use crate::arguments::{Global, Page, Whose};
use crate::client::Call;
use crate::output::{print, print_json, table};
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
        #[command(flatten)]
        whose: Whose,
    },
    /// Publish an event of the log
    Publish {
        /// The event
        event_id: String,
        #[command(flatten)]
        whose: Whose,
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
    /// Try a publication again that was not delivered
    Retry(Which),
    /// Leave a publication for good that was not delivered
    Ignore(Which),
}

#[derive(Debug, Args)]
struct Which {
    /// The target
    target: String,
    /// The event
    event_id: String,
    #[command(flatten)]
    whose: Whose,
}

impl Publications {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let why = "events are delivered by a server, and none runs on this store; name one with --server";
        let told: Value = global.send_to_server(why, self.call()).await?;
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

    fn call(&self) -> Call {
        match &self.verb {
            PublicationsVerb::List { target, status, page } => Call::new("GET /admin/publications", &[])
                .page(page)
                .query("target", target.as_ref())
                .query("status", status.as_ref()),
            PublicationsVerb::Status { event_id, whose } => {
                Call::new("GET /v1/publications/{event}", &[event_id]).of(whose)
            }
            PublicationsVerb::Publish { event_id, whose, source, targets } => {
                let asked =
                    json!({ "eventId": event_id, "sourceContext": source, "targetContexts": targets });
                Call::new("POST /v1/publications", &[]).of(whose).with(&asked)
            }
            PublicationsVerb::Letters { target, status, page } => {
                Call::new("GET /admin/publications/letters", &[])
                    .page(page)
                    .query("target", target.as_ref())
                    .query("status", status.as_ref())
            }
            PublicationsVerb::Letter(Which { target, event_id, whose }) => {
                let call = Call::new("GET /admin/publications/letters/{target}/{event}", &[target, event_id]);
                call.of(whose)
            }
            PublicationsVerb::Stats => Call::new("GET /admin/publications/letters/stats", &[]),
            PublicationsVerb::Retry(which) => which.call("retry"),
            PublicationsVerb::Ignore(which) => which.call("ignore"),
        }
    }
}

impl Which {
    fn call(&self, what: &str) -> Call {
        let of = [self.target.as_str(), &self.event_id, what];
        Call::new("POST /admin/publications/letters/{target}/{event}/{what}", &of).of(&self.whose)
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
