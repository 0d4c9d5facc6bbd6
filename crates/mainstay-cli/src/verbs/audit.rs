//! `mainstay audit`: who did what, and whether somebody changed that.

use crate::arguments::Global;
use crate::client::{Call, Client};
use crate::services::Opening::Existing;
use crate::{Error, Result, output};
use clap::{Args, Subcommand};
use mainstay_server::audit::{Break, Chain, Entry, Filter, Head, Outcome};
use serde::Deserialize;
use serde_json::json;

/// Entries of one page.
const PAGE: usize = 1_000;

/// See who did what to the server and to its store, and whether somebody changed that
///
/// Works on the store, or through the server that holds it; that needs a token of an admin (MAINSTAY_TOKEN or --token).
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Audit {
    #[command(subcommand)]
    verb: AuditVerb,
}

#[derive(Debug, Subcommand)]
enum AuditVerb {
    List(List),
    Verify(Verify),
}

/// List what was done, the newest first
#[derive(Debug, Args)]
struct List {
    /// Only what was done with this token, by its id, or by a user at the store itself, as in local:ada
    #[arg(long, value_name = "ID")]
    user: Option<String>,
    /// Only what came to this: done, refused or failed
    #[arg(long, value_parser = outcome)]
    outcome: Option<Outcome>,
    /// Only what came before the entry of this number
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    limit: u64,
}

/// Follow the chain of hashes, and say where it is broken
///
/// Finds entries that were edited, deleted, reordered, cut off at the end, or hidden behind a head that was put back. Whoever can write to the database can write
/// a whole new chain: keep what this prints elsewhere, and give it back with --expect.
#[derive(Debug, Args)]
struct Verify {
    /// What an earlier run printed
    #[arg(long, value_name = "NUMBER:HASH", value_parser = head)]
    expect: Option<Head>,
}

#[derive(Deserialize)]
struct Page {
    entries: Vec<Entry>,
}

async fn list(client: &Client, filter: Filter, limit: usize) -> Result<Vec<Entry>> {
    let call = Call::new("GET /admin/audit", &[])
        .query("before", filter.before)
        .query("after", filter.after)
        .query("limit", Some(limit))
        .query("userId", filter.user_id)
        .query("outcome", filter.outcome.map(Outcome::as_str));
    let page: Page = client.send(call).await?;
    Ok(page.entries)
}

async fn head_of(client: &Client) -> Result<Head> {
    client.send(Call::new("GET /admin/audit/head", &[])).await
}

impl Audit {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        global
            .ask(Existing, async |client| match &self.verb {
                AuditVerb::List(list) => list.run(client, global).await,
                AuditVerb::Verify(verify) => verify.run(client, global).await,
            })
            .await
    }
}

impl List {
    async fn run(&self, client: &Client, global: &Global) -> Result<()> {
        let filter = Filter {
            user_id: self.user.clone(),
            outcome: self.outcome,
            before: self.before,
            ..Filter::default()
        };
        let entries = list(client, filter, self.limit as usize).await?;
        match global.json {
            true => output::print_json(&json!({ "entries": entries })),
            false => output::print(&table(&entries)),
        }
    }
}

/// Follows the chain through the entries that are there, up to one.
async fn follow(client: &Client, chain: &mut Chain, last: u64) -> Result<std::result::Result<(), Break>> {
    loop {
        let filter = Filter { after: Some(chain.number()), ..Filter::default() };
        let entries = list(client, filter, PAGE).await?;
        let mut followed = entries.iter().take_while(|entry| entry.number <= last);
        if let Err(broken) = followed.try_for_each(|entry| chain.follow(entry)) {
            return Ok(Err(broken));
        }
        if entries.len() < PAGE || chain.number() >= last {
            return Ok(Ok(()));
        }
    }
}

impl Verify {
    /// All entries first, and the head after them. Asked before them, one that was put back would hide what lies behind it.
    async fn follow(
        &self,
        client: &Client,
        head: impl AsyncFnOnce(&Client) -> Result<Head>,
    ) -> Result<std::result::Result<Head, Break>> {
        let mut chain = Chain::begin(self.expect.clone());
        if let Err(broken) = follow(client, &mut chain, u64::MAX).await? {
            return Ok(Err(broken));
        }
        let head = head(client).await?;
        // What was written between the two is part of it; what is written from here on is not.
        let followed = follow(client, &mut chain, head.number).await?;
        Ok(followed.and_then(|()| chain.end(&head)))
    }

    async fn run(&self, client: &Client, global: &Global) -> Result<()> {
        match self.follow(client, head_of).await? {
            Ok(head) if global.json => {
                output::print_json(&json!({ "isWhole": true, "number": head.number, "hash": head.hash }))
            }
            Ok(head) => {
                eprintln!("The audit is whole: {} entries.", head.number);
                output::print(&format!("{}:{}\n", head.number, head.hash))
            }
            Err(broken) => {
                if global.json {
                    let told = json!({ "isWhole": false, "number": broken.number, "reason": broken.reason });
                    output::print_json(&told)?;
                }
                Err(Error::AuditBroken { number: broken.number, reason: broken.reason })
            }
        }
    }
}

fn outcome(text: &str) -> std::result::Result<Outcome, String> {
    Outcome::of(text).ok_or_else(|| "is done, refused or failed".to_owned())
}

fn head(text: &str) -> std::result::Result<Head, String> {
    let parsed = text.split_once(':').and_then(|(number, hash)| {
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(Head { number: number.parse().ok()?, hash: hash.to_ascii_lowercase() }).filter(|_| is_hash)
    });
    parsed.ok_or_else(|| {
        "is a number, a colon and 64 digits, as `mainstay audit verify` prints them".to_owned()
    })
}

fn table(entries: &[Entry]) -> String {
    let moment =
        |at: i64| jiff::Timestamp::from_millisecond(at).map_or("-".to_owned(), |at| format!("{at:.0}"));
    let row = |entry: &Entry| {
        let path = entry.args["path"].as_str().unwrap_or_default().to_owned();
        let came_to = match &entry.code {
            Some(code) => format!("{} {code}", entry.outcome.as_str()),
            None => entry.outcome.as_str().to_owned(),
        };
        let method = entry.action.split(' ').next().unwrap_or_default().to_owned();
        [entry.number.to_string(), moment(entry.timestamp), entry.user_id.clone(), method, path, came_to]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    output::table(["NUMBER", "WHEN", "WHO", "METHOD", "PATH", "CAME TO"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audited::audited;
    use mainstay::store::Store;
    use mainstay_server::Local;
    use std::sync::Arc;

    async fn write(store: &Store) {
        let nothing = async { Ok::<(), Error>(()) };
        audited(store, "mainstay restore", &json!({}), nothing).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_written_while_the_chain_is_followed_breaks_nothing() {
        let options = mainstay_server::equipped(mainstay::store::Options::new("sqlite::memory:"));
        let store = options.open().await.unwrap();
        let services = mainstay::Builder::on_store(store.clone()).open().await.unwrap();
        let api = Local::new(mainstay_server::Options::default(), services, "local:ada".to_owned());
        let client = Client::Local(Arc::new(api));
        write(&store).await;
        let head = async |client: &Client| {
            write(&store).await;
            let head = head_of(client).await;
            write(&store).await;
            head
        };
        let found = Verify { expect: None }.follow(&client, head).await.unwrap();
        assert_eq!(found.map(|head| head.number), Ok(2));
        store.close().await;
    }
}
