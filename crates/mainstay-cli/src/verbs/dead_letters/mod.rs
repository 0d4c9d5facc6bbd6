//! `mainstay dead-letters`: everything that failed for good, and what is done about it.

mod here;

use super::progress;
use crate::Result;
use crate::arguments::{Global, Page};
use crate::client::{Call, Client};
use crate::output::{print, print_json, table};
use crate::services::Opening::{Existing, Whole};
use crate::shown::{lines, moment, short, text};
use clap::{Args, Subcommand};
use here::Carrier;
use mainstay::flows::dead_letters::Action;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest text of an error in a table.
const WIDTH: usize = 60;

/// How rows are shown.
type Show = fn(&[Value]) -> String;
const LISTS: [(&str, Show); 4] =
    [("letters", letters), ("groups", groups), ("counts", counts), ("operations", operations)];

/// See what failed for good, whatever it was, and try it again, ignore it or purge it
///
/// A server that holds the store is asked. Where none does, it is done in the store itself, and what is tried again waits until a
/// server runs. What is to be done about many letters is shown first, and done with `--run` or with `mainstay dead-letters run`.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct DeadLetters {
    #[command(subcommand)]
    verb: DeadLettersVerb,
}

#[derive(Debug, Subcommand)]
enum DeadLettersVerb {
    /// List letters, the newest first
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        page: Page,
    },
    /// Show a letter, with every failure that is known
    Show {
        /// The letter
        letter_id: String,
    },
    /// Count letters by status, kind and name
    Stats {
        #[command(flatten)]
        filter: Filter,
    },
    /// Group letters that have failed in the same way, the largest groups first
    Groups {
        #[command(flatten)]
        filter: Filter,
        /// At most so many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Try a letter again, or many
    Retry(Wanted),
    /// Leave a letter for good, or many
    Ignore(Wanted),
    /// Remove many letters: resolved ones, unless another status is given
    Purge {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        how: How,
    },
    /// Run what was shown to be done about many letters
    Run {
        /// The operation
        operation_id: String,
        /// Do not wait until it has ended
        #[arg(long)]
        no_wait: bool,
    },
    /// Stop what is done about many letters; what was done stays
    Cancel {
        /// The operation
        operation_id: String,
    },
    /// Show how far an operation is
    Operation {
        /// The operation
        operation_id: String,
        /// Wait until it has ended, with a bar
        #[arg(long)]
        wait: bool,
    },
    /// List what was done about letters, by whom and with which outcome, the newest first
    Operations {
        /// Of this status: previewed, running, done, cancelled or failed
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        page: Page,
    },
}

#[derive(Debug, Args)]
struct Wanted {
    /// The letter; all that the filter names unless given
    #[arg(conflicts_with_all = ["kind", "name", "pool", "status", "group", "error", "correlation", "older_than", "before", "newer_than", "limit", "run"])]
    letter_id: Option<String>,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct How {
    /// The oldest of them, at most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: Option<u16>,
    /// Do it at once, without being shown what it is first
    #[arg(long)]
    run: bool,
    /// Do not wait until it has ended
    #[arg(long, requires = "run")]
    no_wait: bool,
}

#[derive(Debug, Default, Args)]
struct Filter {
    /// Of this kind: work, onComplete, append, publication, projection or quarantinedEvent
    #[arg(long)]
    kind: Option<String>,
    /// Of this function, projection or target
    #[arg(long)]
    name: Option<String>,
    /// Of work of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Of this status: pending, retrying, resolved or ignored
    #[arg(long)]
    status: Option<String>,
    /// Of this group of errors
    #[arg(long)]
    group: Option<String>,
    /// With an error that has this text in it
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Of what belongs together under this id
    #[arg(long, value_name = "ID")]
    correlation: Option<String>,
    /// That failed longer ago than this: 30m, 12h, 7d
    #[arg(long, value_name = "AGE", value_parser = super::span)]
    older_than: Option<Duration>,
    /// That failed before this time: 2027-01-15T08:00:00Z, or milliseconds
    #[arg(long, value_name = "TIME", value_parser = super::events::moment, conflicts_with = "older_than")]
    before: Option<i64>,
    /// That failed less long ago than this
    #[arg(long, value_name = "AGE", value_parser = super::span)]
    newer_than: Option<Duration>,
}

/// So long ago, in milliseconds since the epoch.
fn ago(age: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.saturating_sub(age).as_millis()).unwrap_or(i64::MAX)
}

impl Filter {
    fn members(&self) -> Vec<(&'static str, Value)> {
        let texts = [
            ("kind", &self.kind),
            ("name", &self.name),
            ("pool", &self.pool),
            ("status", &self.status),
            ("group", &self.group),
            ("error", &self.error),
            ("correlationId", &self.correlation),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, json!(text.as_ref()?))));
        let moments = [
            ("failedBefore", self.before.or(self.older_than.map(ago))),
            ("failedSince", self.newer_than.map(ago)),
        ];
        let moments = moments.into_iter().filter_map(|(name, moment)| Some((name, json!(moment?))));
        texts.chain(moments).collect()
    }

    fn query(&self, call: Call) -> Call {
        self.members().iter().fold(call, |call, (name, value)| {
            call.query(name, Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        })
    }

    fn body(&self) -> Value {
        self.members().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl DeadLetters {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let opening = match &self.verb {
            DeadLettersVerb::List { .. }
            | DeadLettersVerb::Show { .. }
            | DeadLettersVerb::Stats { .. }
            | DeadLettersVerb::Groups { .. }
            | DeadLettersVerb::Operations { .. } => Existing,
            // A retry may need any function and target of the configuration.
            _ => Whole,
        };
        let told = global.ask(opening, async |client| self.ask(client, global.json).await).await?;
        if global.json {
            return print_json(&told);
        }
        for (list, show) in LISTS {
            if let Some(rows) = told[list].as_array() {
                if rows.is_empty() {
                    eprintln!("There are none.");
                    return Ok(());
                }
                return print(&show(rows));
            }
        }
        if told["operationId"].is_null() { print(&letter(&told)) } else { print(&operation(&told)) }
    }

    async fn ask(&self, client: &Client, is_json: bool) -> Result<Value> {
        match &self.verb {
            DeadLettersVerb::List { filter, page } => {
                client.send(filter.query(Call::new("GET /admin/dead-letters", &[]).page(page))).await
            }
            DeadLettersVerb::Show { letter_id } => {
                client.send(Call::new("GET /admin/dead-letters/{id}", &[letter_id])).await
            }
            DeadLettersVerb::Stats { filter } => {
                client.send(filter.query(Call::new("GET /admin/dead-letters/stats", &[]))).await
            }
            DeadLettersVerb::Groups { filter, limit } => {
                let call = Call::new("GET /admin/dead-letters/groups", &[]).query("limit", Some(limit));
                client.send(filter.query(call)).await
            }
            DeadLettersVerb::Retry(wanted) => wanted.ask(client, Action::Retry, is_json).await,
            DeadLettersVerb::Ignore(wanted) => wanted.ask(client, Action::Ignore, is_json).await,
            DeadLettersVerb::Purge { filter, how } => how.ask(client, Action::Purge, filter, is_json).await,
            DeadLettersVerb::Run { operation_id, no_wait } => {
                begin(client, operation_id, !no_wait, is_json).await
            }
            DeadLettersVerb::Cancel { operation_id } => {
                let route = "POST /admin/dead-letter-operations/{id}/cancel";
                client.send(Call::new(route, &[operation_id])).await
            }
            DeadLettersVerb::Operation { operation_id, wait: false } => look(client, operation_id).await,
            DeadLettersVerb::Operation { operation_id, wait: true } => {
                watch(client, operation_id, is_json).await
            }
            DeadLettersVerb::Operations { status, page } => {
                let call = Call::new("GET /admin/dead-letter-operations", &[]).page(page);
                client.send(call.query("status", status.as_ref())).await
            }
        }
    }
}

impl Wanted {
    async fn ask(&self, client: &Client, action: Action, is_json: bool) -> Result<Value> {
        let Some(id) = &self.letter_id else {
            return self.how.ask(client, action, &self.filter, is_json).await;
        };
        let route = match action {
            Action::Ignore => "POST /admin/dead-letters/{id}/ignore",
            _ => "POST /admin/dead-letters/{id}/retry",
        };
        let done = client.send(Call::new(route, &[id])).await?;
        say_what_waits(client, &done, is_json);
        Ok(done)
    }
}

impl How {
    /// Previews, and runs if that is wanted.
    async fn ask(&self, client: &Client, action: Action, filter: &Filter, is_json: bool) -> Result<Value> {
        let body = json!({ "action": action, "filter": filter.body(), "limit": self.limit });
        let previewed: Value =
            client.send(Call::new("POST /admin/dead-letter-operations", &[]).with(&body)).await?;
        if !self.run {
            return Ok(previewed);
        }
        let operation_id = previewed["operationId"].as_str().unwrap_or_default();
        begin(client, operation_id, !self.no_wait, is_json).await
    }
}

async fn begin(client: &Client, operation_id: &str, is_awaited: bool, is_json: bool) -> Result<Value> {
    let begun =
        client.send(Call::new("POST /admin/dead-letter-operations/{id}/run", &[operation_id])).await?;
    if is_awaited {
        return watch(client, operation_id, is_json).await;
    }
    if client.is_local() {
        eprintln!("It goes on once a server runs on this store.");
    }
    Ok(begun)
}

async fn look(client: &Client, operation_id: &str) -> Result<Value> {
    client.send(Call::new("GET /admin/dead-letter-operations/{id}", &[operation_id])).await
}

/// Waits until an operation has ended. Without a server this process runs the operation, and nothing else.
async fn watch(client: &Client, operation_id: &str, is_json: bool) -> Result<Value> {
    let carrier = match client {
        Client::Local(api) => Some(Carrier::start(api.services()).await?),
        Client::Server(_) => None,
    };
    let ended = progress::watch(is_json, async || look(client, operation_id).await, bar).await;
    if let Some(carrier) = carrier {
        carrier.stop().await?;
    }
    let ended = ended?;
    say_what_waits(client, &ended, is_json);
    Ok(ended)
}

/// Says what is left to do for a server.
fn say_what_waits(client: &Client, done: &Value, is_json: bool) {
    if client.is_local() && done["action"] == "retry" && done["done"] != 0 && !is_json {
        eprintln!("What is tried again waits until a server runs on this store.");
    }
}

fn bar(operation: &Value) -> String {
    let count = |name: &str| operation[name].as_u64().unwrap_or(0);
    let seen = ["done", "skipped", "failed", "left"].into_iter().map(count).sum::<u64>();
    let total = count("total");
    let percent = if total == 0 { 100.0 } else { seen as f64 * 100.0 / total as f64 };
    format!("{} {}, {seen} of {total}", text(&operation["action"]), progress::bar(percent))
}

fn letters(letters: &[Value]) -> String {
    let row = |letter: &Value| {
        [
            text(&letter["letterId"]),
            text(&letter["kind"]),
            text(&letter["name"]),
            text(&letter["status"]),
            text(&letter["retryCount"]),
            moment(&letter["failedAt"]),
            short(&letter["error"], WIDTH),
        ]
    };
    let rows: Vec<_> = letters.iter().map(row).collect();
    table(["LETTER", "KIND", "NAME", "STATUS", "RETRIES", "FAILED", "ERROR"], &rows)
}

fn groups(groups: &[Value]) -> String {
    let row = |group: &Value| {
        [
            text(&group["group"]),
            text(&group["kind"]),
            text(&group["name"]),
            text(&group["count"]),
            moment(&group["newestFailedAt"]),
            short(&group["error"], WIDTH),
        ]
    };
    let rows: Vec<_> = groups.iter().map(row).collect();
    table(["GROUP", "KIND", "NAME", "LETTERS", "NEWEST", "ERROR"], &rows)
}

fn counts(counts: &[Value]) -> String {
    let row = |one: &Value| {
        [
            text(&one["status"]),
            text(&one["kind"]),
            text(&one["name"]),
            text(&one["count"]),
            moment(&one["oldestFailedAt"]),
        ]
    };
    let rows: Vec<_> = counts.iter().map(row).collect();
    table(["STATUS", "KIND", "NAME", "LETTERS", "OLDEST"], &rows)
}

fn operations(operations: &[Value]) -> String {
    let row = |one: &Value| {
        [
            text(&one["operationId"]),
            text(&one["action"]),
            text(&one["status"]),
            text(&one["askedBy"]),
            format!("{} of {}", text(&one["done"]), text(&one["total"])),
            moment(&one["createdAt"]),
        ]
    };
    let rows: Vec<_> = operations.iter().map(row).collect();
    table(["OPERATION", "ACTION", "STATUS", "ASKED BY", "DONE", "WHEN"], &rows)
}

fn operation(told: &Value) -> String {
    // A preview that could not look at all letters.
    let more = if told["isPartial"] == true { " or more" } else { "" };
    let mut shown = lines(&[
        ("operation", text(&told["operationId"])),
        ("action", text(&told["action"])),
        ("letter", text(&told["letterId"])),
        ("status", text(&told["status"])),
        ("asked by", text(&told["askedBy"])),
        ("run by", text(&told["runBy"])),
        ("cancelled by", text(&told["cancelledBy"])),
        ("letters", format!("{}{more}", text(&told["total"]))),
        ("done", text(&told["done"])),
        ("skipped", text(&told["skipped"])),
        ("failed", text(&told["failed"])),
        ("left", left(&told["left"])),
        ("error", text(&told["error"])),
        ("began", moment(&told["startedAt"])),
        ("ended", moment(&told["endedAt"])),
    ]);
    if told["status"] == "previewed" {
        shown.push_str(&format!("\n{}", counts(told["preview"].as_array().map_or(&[], Vec::as_slice))));
        eprintln!("Nothing is done yet: mainstay dead-letters run {}", text(&told["operationId"]));
    }
    if let Some(failures) = told["failures"].as_array().filter(|failures| !failures.is_empty()) {
        let row = |one: &Value| [text(&one["letterId"]), text(&one["code"]), short(&one["error"], WIDTH)];
        let rows: Vec<_> = failures.iter().map(row).collect();
        shown.push_str(&format!("\n{}", table(["LETTER", "CODE", "ERROR"], &rows)));
    }
    shown
}

/// Only where there is something to tell: letters for which another node has to be asked.
fn left(left: &Value) -> String {
    if *left == 0 { "-".to_owned() } else { text(left) }
}

fn letter(told: &Value) -> String {
    let mut shown = lines(&[
        ("letter", text(&told["letterId"])),
        ("kind", text(&told["kind"])),
        ("name", text(&told["name"])),
        ("about", text(&told["reference"])),
        ("correlation", text(&told["correlationId"])),
        ("status", text(&told["status"])),
        ("retries", text(&told["retryCount"])),
        ("failed", moment(&told["failedAt"])),
        ("group", text(&told["group"])),
        ("error", text(&told["error"])),
        ("args", text(&told["work"]["args"])),
        ("payload", text(&told["projection"]["payload"])),
        ("payload", text(&told["quarantinedEvent"]["payload"])),
        ("data", text(&told["publication"]["event"]["data"])),
    ]);
    if let Some(attempts) = told["attempts"].as_array().filter(|attempts| !attempts.is_empty()) {
        let row = |one: &Value| {
            [
                moment(&one["atMs"]),
                text(&one["workId"]),
                text(&one["attempt"]),
                short(&one["failure"]["message"], WIDTH),
            ]
        };
        let rows: Vec<_> = attempts.iter().map(row).collect();
        shown.push_str(&format!("\n{}", table(["FAILED", "WORK", "ATTEMPT", "ERROR"], &rows)));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_far_an_operation_is() {
        let running = json!({ "action": "retry", "done": 40, "skipped": 3, "failed": 2, "total": 100 });
        insta::assert_snapshot!(bar(&running), @"retry [██████████████████░░░░░░░░░░░░░░░░░░░░░░] 45.0 %, 45 of 100");
        let empty = json!({ "action": "purge", "done": 0, "skipped": 0, "failed": 0, "total": 0 });
        insta::assert_snapshot!(bar(&empty), @"purge [████████████████████████████████████████] 100.0 %, 0 of 0");
    }
}
