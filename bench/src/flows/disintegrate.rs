//! disintegrate, in a process of its own. It folds the same events and appends the same one on the same condition. It has no
//! way to write a row and start work in the same transaction, so it does neither, and is not charged for it.
//!
//! | we write | the peer counts |
//! |---|---|
//! | `{"verb": "fill", "halls": 6400, "seats": 10}` | events appended |
//! | `{"verb": "decide", "callers": 64, "each": 100, "from": 0}` | decisions made, each in the next hall |
//! | `{"verb": "events"}` | events in its log |
//! | `{"verb": "again"}` | decisions made again, because PostgreSQL saw a conflict |

use super::dispatch::{CALLERS, Contender, Entry, Written};
use crate::peers::{Peer, Program, cargo};
use crate::rounds::Answer;
use anyhow::Result;
use mainstay_testkit::postgres::Private;
use serde_json::json;
use std::sync::Arc;

/// If it can be had here; otherwise a line says why not.
pub async fn entry(server: &Arc<Private>) -> Result<Option<Entry>> {
    match tokio::task::spawn_blocking(|| cargo::program("disintegrate")).await? {
        Ok(program) => Ok(Some(made(program, server))),
        Err(reason) => {
            println!("disintegrate is left out: {reason:#}");
            Ok(None)
        }
    }
}

fn made(program: Program, server: &Arc<Private>) -> Entry {
    let server = server.clone();
    Entry::new("disintegrate", move |_folder| {
        let (server, program) = (server.clone(), program.clone());
        async move { Ok(Arc::new(program.open(&server).await?) as _) }
    })
}

impl Contender for Peer {
    fn about(&self) -> Answer<'_, String> {
        Box::pin(async {
            let again = self.ask(json!({ "verb": "again" })).await?;
            Ok(format!("{}; in the last round {again} decisions were made again", self.about))
        })
    }

    fn fill(&self, halls: u64, seats: u64) -> Answer<'_, ()> {
        Box::pin(async move {
            self.ask(json!({ "verb": "fill", "halls": halls, "seats": seats })).await.map(drop)
        })
    }

    fn decide(&self, each: u64, from: u64) -> Answer<'_, u64> {
        self.ask(json!({ "verb": "decide", "callers": CALLERS, "each": each, "from": from }))
    }

    fn written(&self) -> Answer<'_, Written> {
        Box::pin(async {
            let events = self.ask(json!({ "verb": "events" })).await?;
            Ok(Written { events, rows: None, items: None })
        })
    }
}
