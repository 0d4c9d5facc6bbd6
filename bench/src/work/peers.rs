//! Queues of others on PostgreSQL, each in a process of its own.
//!
//! | we write | the peer counts |
//! |---|---|
//! | `{"verb": "enqueue", "batches": 20, "size": 1000, "body": {…}}` | what it enqueued |
//! | `{"verb": "work"}` | handlers that ran |
//! | `{"verb": "left"}` | items not completed |

use super::{Answer, BATCH, BODY, Contender, Entry};
use crate::peers::{Peer, Preparation, Program, cargo, npm};
use anyhow::Result;
use mainstay_testkit::postgres::Private;
use serde_json::{Value, json};
use std::sync::Arc;

/// Those that can be had here; for the others, a line says why not.
pub async fn entries(server: &Arc<Private>) -> Result<Vec<Entry>> {
    let known: [(&str, Preparation); 3] = [
        ("graphile-worker (Node)", || npm::program("graphile-worker")),
        ("pg-boss (Node)", || npm::program("pg-boss")),
        ("graphile_worker (Rust)", || cargo::program("graphile-worker-rs")),
    ];
    let mut entries = Vec::new();
    for (name, prepare) in known {
        match tokio::task::spawn_blocking(prepare).await? {
            Ok(program) => entries.push(entry(name, program, server)),
            Err(reason) => println!("{name} is left out: {reason:#}"),
        }
    }
    Ok(entries)
}

fn entry(name: &'static str, program: Program, server: &Arc<Private>) -> Entry {
    let server = server.clone();
    Entry::new(name, move |_folder| {
        let (server, program) = (server.clone(), program.clone());
        async move { Ok(Arc::new(program.open(&server).await?) as _) }
    })
}

impl Contender for Peer {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn enqueue(&self, batches: u64) -> Answer<'_, ()> {
        Box::pin(async move {
            let body: Value = serde_json::from_str(BODY)?;
            let request = json!({ "verb": "enqueue", "batches": batches, "size": BATCH, "body": body });
            self.ask(request).await.map(drop)
        })
    }

    fn work(&self) -> Answer<'_, u64> {
        self.ask(json!({ "verb": "work" }))
    }

    fn left(&self) -> Answer<'_, u64> {
        self.ask(json!({ "verb": "left" }))
    }
}
