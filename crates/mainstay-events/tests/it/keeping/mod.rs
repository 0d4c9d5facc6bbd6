//! Keeping the log: verify, repair, erase, back up, restore.

mod erase;
mod flips;
mod restore;
mod verify;

use crate::support::event;
use mainstay_core::keys::ScopeKey;
use mainstay_events::{Append, Damage, Erasure, IdempotencyKey, Log, NewEvent, Report};
use mainstay_store::{Tx, Value};

/// An event whose data is the given text.
fn saying(event_type: &str, text: &str) -> NewEvent {
    NewEvent::new(event_type, &text).unwrap()
}

fn scope(id: &str) -> ScopeKey {
    ScopeKey::new("acme", "order", id).unwrap()
}

/// Fills a log with events that have everything an event can have, small and large.
async fn fill(log: &Log) {
    for number in 0_u64..12 {
        let stream = format!("{}", number % 3);
        let keyed = IdempotencyKey::raw(&format!("key-{number}")).unwrap();
        log.append(
            event("Placed", &["x", &format!("n:{number}")]).stream("order", stream).idempotent(&keyed),
        )
        .await
        .unwrap();
        log.append(event("Named", &["x"]).id(format!("evt-{number}")).correlation("c").tenant("acme"))
            .await
            .unwrap();
        log.append(Append::new([
            event("Scoped", &[]).tenant("acme").scope(scope("1"), number),
            saying("Sized", &"y".repeat(number as usize * 2)),
        ]))
        .await
        .unwrap();
    }
    log.append(saying("Large", &"z".repeat(9_000)).tag("large")).await.unwrap();
    log.append(saying("Erased", "gone").tag("erase:1")).await.unwrap();
    log.erase(Erasure::of_tag("erase:1").unwrap().by("test").because("to have one")).await.unwrap();
}

async fn verify(log: &Log) -> Report {
    log.verify(|_| ()).await.unwrap()
}

/// Position and kind of each problem.
fn kinds(report: &Report) -> Vec<(u64, Damage)> {
    report.problems.iter().map(|problem| (problem.position, problem.kind)).collect()
}

/// Does something to the tables that nobody should.
async fn tamper(log: &Log, sql: &'static str, params: &[Value]) -> u64 {
    let run = async |tx: Tx, params: Vec<Value>| tx.execute(sql, &params).await;
    log.store().transact_with(params.to_vec(), run).await.unwrap()
}
