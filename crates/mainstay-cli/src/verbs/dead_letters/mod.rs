//! `mainstay dead-letters`: everything that failed for good, and what is done about it.

mod here;

use super::progress;
use crate::Result;
use crate::arguments::Global;
use crate::deed::Deed;
use crate::output::{print, print_json, table};
use crate::reach::Reached;
use crate::remote::{Remote, segment};
use crate::shown::{lines, moment, short, text};
use clap::{Args, Subcommand};
use here::Here;
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
    #[arg(conflicts_with_all = ["kind", "name", "status", "group", "error", "correlation", "older_than", "newer_than", "run"])]
    letter_id: Option<String>,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct How {
    /// Do it at once, without being shown what it is first
    #[arg(long)]
    run: bool,
    /// Do not wait until it has ended
    #[arg(long, requires = "run")]
    no_wait: bool,
}

#[derive(Debug, Default, Args)]
struct Filter {
    /// Of this kind: work, onComplete, append, projection or publication
    #[arg(long)]
    kind: Option<String>,
    /// Of this function, projection or target
    #[arg(long)]
    name: Option<String>,
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
    /// That failed less long ago than this
    #[arg(long, value_name = "AGE", value_parser = super::span)]
    newer_than: Option<Duration>,
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
            ("status", &self.status),
            ("group", &self.group),
            ("error", &self.error),
            ("correlationId", &self.correlation),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, json!(text.as_ref()?))));
        let moments = [("failedBefore", self.older_than), ("failedSince", self.newer_than)];
        let moments = moments.into_iter().filter_map(|(name, age)| Some((name, json!(ago(age?)))));
        texts.chain(moments).collect()
    }

    fn query(&self, more: &[(&'static str, Value)]) -> String {
        let mut query = String::new();
        for (name, value) in self.members().iter().chain(more) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            query.push(if query.is_empty() { '?' } else { '&' });
            query.push_str(&format!("{name}={}", segment(&value)));
        }
        query
    }

    fn body(&self) -> Value {
        self.members().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl Page {
    fn members(&self) -> Vec<(&'static str, Value)> {
        let cursor = self.cursor.iter().map(|cursor| ("cursor", json!(cursor)));
        std::iter::once(("limit", json!(self.limit))).chain(cursor).collect()
    }
}

impl DeadLetters {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        let told = match global.reach_existing().await? {
            Reached::Server(server) => self.ask(&server, global.json)?,
            Reached::Store(store) => {
                let told = async {
                    let here = Here::open(&global.load()?, &store, global.json).await?;
                    here.ask(&self.verb).await
                };
                let told = told.await;
                store.close().await;
                told?
            }
        };
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

    fn ask(&self, server: &Remote, is_json: bool) -> Result<Value> {
        match &self.verb {
            DeadLettersVerb::List { filter, page } => {
                server.get(&format!("/admin/dead-letters{}", filter.query(&page.members())))
            }
            DeadLettersVerb::Show { letter_id } => {
                server.get(&format!("/admin/dead-letters/{}", segment(letter_id)))
            }
            DeadLettersVerb::Stats { filter } => {
                server.get(&format!("/admin/dead-letters/stats{}", filter.query(&[])))
            }
            DeadLettersVerb::Groups { filter, limit } => {
                let query = filter.query(&[("limit", json!(limit))]);
                server.get(&format!("/admin/dead-letters/groups{query}"))
            }
            DeadLettersVerb::Retry(wanted) => wanted.ask(server, Action::Retry, is_json),
            DeadLettersVerb::Ignore(wanted) => wanted.ask(server, Action::Ignore, is_json),
            DeadLettersVerb::Purge { filter, how } => how.ask(server, Action::Purge, filter, is_json),
            DeadLettersVerb::Run { operation_id, no_wait } => begin(server, operation_id, !no_wait, is_json),
            DeadLettersVerb::Cancel { operation_id } => cancelling(operation_id).ask(server),
            DeadLettersVerb::Operation { operation_id, wait: false } => server.get(&place(operation_id)),
            DeadLettersVerb::Operation { operation_id, wait: true } => watch(server, operation_id, is_json),
            DeadLettersVerb::Operations { status, page } => {
                let status = status.iter().map(|status| ("status", json!(status)));
                let members: Vec<_> = page.members().into_iter().chain(status).collect();
                let none = Filter::default();
                server.get(&format!("/admin/dead-letter-operations{}", none.query(&members)))
            }
        }
    }
}

impl Wanted {
    fn ask(&self, server: &Remote, action: Action, is_json: bool) -> Result<Value> {
        match &self.letter_id {
            Some(id) => dealing(id, action).ask(server),
            None => self.how.ask(server, action, &self.filter, is_json),
        }
    }
}

impl How {
    /// Previews, and runs if that is wanted.
    fn ask(&self, server: &Remote, action: Action, filter: &Filter, is_json: bool) -> Result<Value> {
        let previewed: Value = previewing(action, filter).ask(server)?;
        if !self.run {
            return Ok(previewed);
        }
        begin(server, previewed["operationId"].as_str().unwrap_or_default(), !self.no_wait, is_json)
    }
}

fn dealing(letter_id: &str, action: Action) -> Deed {
    let action = match action {
        Action::Ignore => "POST /admin/dead-letters/{id}/ignore",
        _ => "POST /admin/dead-letters/{id}/retry",
    };
    Deed::new(action, &[letter_id])
}

fn previewing(action: Action, filter: &Filter) -> Deed {
    let body = json!({ "action": action, "filter": filter.body() });
    Deed::new("POST /admin/dead-letter-operations", &[]).with(body)
}

fn running(operation_id: &str) -> Deed {
    Deed::new("POST /admin/dead-letter-operations/{id}/run", &[operation_id])
}

fn cancelling(operation_id: &str) -> Deed {
    Deed::new("POST /admin/dead-letter-operations/{id}/cancel", &[operation_id])
}

fn place(operation_id: &str) -> String {
    format!("/admin/dead-letter-operations/{}", segment(operation_id))
}

fn begin(server: &Remote, operation_id: &str, is_awaited: bool, is_json: bool) -> Result<Value> {
    let begun = running(operation_id).ask(server)?;
    if is_awaited { watch(server, operation_id, is_json) } else { Ok(begun) }
}

fn watch(server: &Remote, operation_id: &str, is_json: bool) -> Result<Value> {
    progress::watch(is_json, || server.get(&place(operation_id)), bar)
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
    let mut shown = lines(&[
        ("operation", text(&told["operationId"])),
        ("action", text(&told["action"])),
        ("letter", text(&told["letterId"])),
        ("status", text(&told["status"])),
        ("asked by", text(&told["askedBy"])),
        ("run by", text(&told["runBy"])),
        ("cancelled by", text(&told["cancelledBy"])),
        ("letters", text(&told["total"])),
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
