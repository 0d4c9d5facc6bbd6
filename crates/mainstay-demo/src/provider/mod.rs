//! The provider of payments: a process of its own, as it is somebody else's, with its own books and its own troubles.
//!
//! - `desk`: what it does
//! - `process`: how the demo starts it and speaks to it
//!
//! It is the same program, started once more. It reads orders from stdin, a line each, and says what it is asked for on stdout;
//! when nobody holds the other end any more, however the demo has ended, it ends too.

mod desk;
mod process;

pub(super) use desk::listen;
pub(super) use process::Provider;

use super::schedule::Schedule;
use crate::screen::print;
use crate::{Error, Failure, Result};
use desk::Desk;
use mainstay::store::{self, Options};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the provider of a demo that was killed may take to end, before the next one gets its books.
const HANDOVER: Duration = Duration::from_secs(10);

/// What it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// Its schedule begins.
    Begin,
    /// It is well from now on.
    Calm,
    /// It is to say what is in its books.
    Books,
}

/// What it says first: where it answers.
#[derive(Serialize, Deserialize)]
struct Greeting {
    url: String,
}

/// What it has charged, by payment, and how often it was asked and has failed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Books {
    pub(super) payments: BTreeMap<String, Booked>,
    pub(super) calls: u64,
    pub(super) failed: u64,
}

/// A payment in the books.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Booked {
    pub(super) amount_cents: i64,
    pub(super) is_refunded: bool,
}

/// Is the provider, until stdin ends.
pub async fn provide(books: &str, cycle: Duration) -> Result<()> {
    let desk = open(books, Schedule::new(cycle)).await?;
    let (url, answering) = desk.answer().await?;
    print_line(&Greeting { url })?;
    let (hearing, runtime) = (desk.clone(), tokio::runtime::Handle::current());
    let heard = tokio::task::spawn_blocking(move || hear(&hearing, &runtime)).await;
    answering.abort();
    desk.close().await;
    heard.unwrap_or_else(|lost| Err(store::Error::Panicked(lost.to_string()).into()))
}

async fn open(books: &str, schedule: Schedule) -> Result<Arc<Desk>> {
    let deadline = Instant::now() + HANDOVER;
    loop {
        match Desk::open(Options::new(books), schedule).await {
            Err(Error::Store(store::Error::Owned { .. })) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            opened => return opened,
        }
    }
}

fn hear(desk: &Desk, runtime: &tokio::runtime::Handle) -> Result<()> {
    let broken = |source| Failure::Io { what: "stdin".to_owned(), source };
    for line in std::io::stdin().lock().lines() {
        let order = serde_json::from_str(&line.map_err(broken)?);
        match order.map_err(|error| Failure::Broken(format!("an order of the demo: {error}")))? {
            Order::Begin => desk.begin(Instant::now()),
            Order::Calm => desk.calm(),
            Order::Books => print_line(&runtime.block_on(desk.books())?)?,
        }
    }
    Ok(())
}

/// Tells the other process something, as a line of JSON.
fn print_line(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(value).expect("our own types have string keys and finite numbers");
    print(&format!("{text}\n"))
}
