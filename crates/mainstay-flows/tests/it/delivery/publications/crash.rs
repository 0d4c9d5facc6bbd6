//! Processes that die at every step of publishing and delivering.
//!
//! After many deaths a process that lives does what is left: every event that was acknowledged was taken by its handler
//! once, was taken by the inbox at the other end of its webhook once, and is a dead letter of the target that refuses it and
//! of the one that is away for longer than it is tried.

use super::bench::{Bench, PATIENCE, at_once, components};
use crate::delivery::inbox::{open as open_inbox, secret, serve, take, taken};
use axum::Router;
use mainstay_events::{Append, Log, NewEvent, Selection};
use mainstay_flows::delivery::inbox::Inbox;
use mainstay_flows::delivery::publications::{
    Delivery, LetterFilter, LetterStatus, PublicEvent, Publisher, Status, Target, Targets, Webhook,
};
use mainstay_store::{Options, Tx, params};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::Failure;
use mainstay_work::egress::Egress;
use mainstay_work::http::HttpConfig;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::Duration;

const SIGABRT: i32 = 6;
const URL: &str = "TEST_URL";
const HOOK: &str = "TEST_HOOK";
/// On PostgreSQL nobody takes up what a dead node had before this is over.
const LEASE: Duration = Duration::from_millis(400);
const TARGETS: [&str; 4] = ["handler", "webhook", "refusing", "away"];

async fn open(options: Options, hook: &str) -> Bench {
    let store = components(options).open().await.unwrap();
    let table = "CREATE TABLE IF NOT EXISTS handled (event_id TEXT NOT NULL)";
    store.transact(async move |tx| tx.execute(table, &[]).await).await.unwrap();
    let handler = Target::handler("handler", async |tx: Tx, delivery: Delivery| {
        let sql = "INSERT INTO handled (event_id) VALUES ($1)";
        tx.execute(sql, params![delivery.event.event_id]).await.map(drop)
    });
    let config = HttpConfig { secrets: vec![secret("s")], ..HttpConfig::new(hook) };
    let egress = Arc::new(Egress::new(&["127.0.0.1".to_owned()]).unwrap());
    let webhook = Target::webhook("webhook", Webhook::new(config, egress).unwrap());
    let refusing = Target::subscriber("refusing", async |_: Delivery| Err(Failure::permanent("never")));
    let away = Target::subscriber("away", async |_: Delivery| Err(Failure::retryable("not now")));
    let away = away.retry(at_once(1));
    let targets = Targets::new(at_once(100)).with(handler).with(webhook).with(refusing).with(away);
    Bench::leased(store, targets, LEASE).await
}

#[test]
fn child_publishes_and_delivers() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let options = Options::new(std::env::var(URL).unwrap()).connections(4);
        let bench = open(options, &std::env::var(HOOK).unwrap()).await;
        let _engine = bench.start().await;
        loop {
            let append = async |tx: Tx, (log, publisher): (Log, Publisher)| {
                let new = NewEvent::new("Sold", &"lamp")?;
                let id = log.append_in(&tx, Append::from(new.clone()))?.event_ids()[0].clone();
                publisher.publish_in(&tx, &PublicEvent::of_new(&id, &new), "orders", TARGETS).await?;
                Ok(id)
            };
            let context = (bench.log.clone(), bench.publisher.clone());
            crash::ack(bench.store.transact_with(context, append).await.unwrap());
            bench.publisher.retry_letters(LetterFilter::default(), Some(1)).await.unwrap();
        }
    });
}

/// Lets a process that lives do what is left, and looks for what is wrong.
async fn check(place: &Place, hook: &str, acknowledged: &[String], received: Option<&[String]>) {
    let bench = open(place.options(), hook).await;
    let engine = bench.start().await;
    let drained = async {
        while bench.under_way().await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, drained).await.expect("everything ends");
    engine.stop(PATIENCE).await.unwrap();
    let (mut ids, mut after) = (Vec::new(), 0);
    loop {
        let page = bench.log.read(&Selection::all().after(after), 1_000).await.unwrap();
        ids.extend(page.events.iter().map(|event| event.id().to_owned()));
        let Some(next) = page.next else { break };
        after = next;
    }
    ids.sort();
    assert!(acknowledged.iter().all(|id| ids.binary_search(id).is_ok()), "an acknowledged event is lost");
    let handled = async |tx: Tx| {
        let mut counts = BTreeMap::<String, u64>::new();
        for row in tx.query("SELECT event_id FROM handled", &[]).await? {
            *counts.entry(row.get(0)?).or_default() += 1;
        }
        Ok(counts)
    };
    let handled = bench.store.read(handled).await.unwrap();
    for id in &ids {
        let status = bench.publisher.status(id).await.unwrap();
        let shown: Vec<(&str, Status)> =
            status.iter().map(|one| (one.target_context.as_str(), one.status)).collect();
        assert_eq!(
            shown,
            [
                ("away", Status::DeadLetter),
                ("handler", Status::Delivered),
                ("refusing", Status::Failed),
                ("webhook", Status::Delivered)
            ],
            "{id}"
        );
        assert_eq!(handled.get(id), Some(&1), "{id} was handled once");
        for target in ["refusing", "away"] {
            let letter = bench.publisher.letter(id, target).await.unwrap();
            assert_eq!(letter.status, LetterStatus::Pending, "{id} to {target}");
        }
    }
    assert_eq!(handled.len(), ids.len(), "and nothing else was");
    println!("{}: {} events, {} acknowledged", place.kind(), ids.len(), acknowledged.len());
    if let Some(received) = received {
        assert_eq!(received, ids, "each came to the inbox, and nothing else did");
    }
    bench.store.close().await;
}

#[test]
fn a_death_at_any_step_loses_and_doubles_no_publication() {
    let is_long = std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1");
    let passings: &[u64] = if is_long { &[1, 2, 3, 5, 8, 13, 21, 34, 55] } else { &[1, 7] };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for kind in [Kind::SqliteFile, Kind::Postgres] {
        let place = Place::new(kind);
        let (inbox_store, hook) = runtime.block_on(async {
            let store = open_inbox(Options::new("sqlite::memory:")).await;
            let inbox = Inbox::new(&store, "webhook", [secret("s")]).unwrap();
            let address = serve(Router::new().route_service("/events", inbox.receiver(take))).await;
            (store, format!("http://{address}/events"))
        });
        runtime.block_on(async { open(place.options(), &hook).await.store.close().await });
        let mut acknowledged = Vec::new();
        for point in [
            "publications.noted",
            "publications.published",
            "publications.delivering",
            "publications.delivered",
            "publications.ending",
            "publications.ended",
            "publications.retried",
            "store.commit",
            "store.committed",
        ] {
            for nth in passings {
                // The first commits are those of opening.
                let nth = if point.starts_with("store") { nth + 20 } else { *nth };
                let failpoint = format!("{point}=abort@{nth}");
                let child = Child::of("delivery::publications::crash::child_publishes_and_delivers");
                let child = child.env(URL, place.url()).env(HOOK, &hook);
                let mut child = child.env("MAINSTAY_FAILPOINTS", &failpoint).spawn().unwrap();
                let status = child.wait(PATIENCE).unwrap();
                assert_eq!(status.signal(), Some(SIGABRT), "{failpoint} strikes: {:?}", child.said());
                acknowledged.extend(child.acknowledged());
            }
        }
        runtime.block_on(async {
            check(&place, &hook, &acknowledged, None).await;
            let received = taken(&inbox_store).await;
            let mut once = received.clone();
            once.dedup();
            assert_eq!(once.len(), received.len(), "nothing was received twice");
            check(&place, &hook, &acknowledged, Some(&received)).await;
        });
    }
}
