//! Two nodes on one PostgreSQL, one of them paused while it delivers.

use super::bench::{Bench, PATIENCE, at_once, components};
use super::webhook::loopback;
use crate::delivery::inbox::{open as open_inbox, secret, serve, take, taken};
use axum::Router;
use mainstay_flows::delivery::inbox::{Inbox, Received};
use mainstay_flows::delivery::publications::{Delivery, LetterFilter, Status, Target, Targets, Webhook};
use mainstay_store::{Options, Tx, params};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, for_each_kind};
use mainstay_work::http::HttpConfig;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

const URL: &str = "TEST_URL";
const HOOK: &str = "TEST_HOOK";
const LEASE: Duration = Duration::from_millis(600);
/// A paused node's locks are taken from it after this long.
const LIMIT: Duration = Duration::from_millis(1_500);
/// Long enough to be paused in; much longer than a signal takes.
const MOMENT: Duration = Duration::from_millis(250);

/// Where nobody listens: this test has no webhook.
const NOWHERE: &str = "http://127.0.0.1:9/";

static TIMES: AtomicUsize = AtomicUsize::new(0);

/// In the child, tells that it is at work, and takes a moment.
fn linger() {
    if crash::is_child() {
        crash::say(format!("inside {}.", TIMES.fetch_add(1, Ordering::SeqCst)));
        std::thread::sleep(MOMENT);
    }
}

async fn node(options: Options, hook: &str) -> Bench {
    let store = components(options).open().await.unwrap();
    let create = async |tx: Tx| {
        tx.lock("handled").await?;
        tx.execute("CREATE TABLE IF NOT EXISTS handled (event_id TEXT NOT NULL)", &[]).await
    };
    store.transact(create).await.unwrap();
    let handler = Target::handler("handler", async |tx: Tx, delivery: Delivery| {
        let sql = "INSERT INTO handled (event_id) VALUES ($1)";
        tx.execute(sql, params![delivery.event.event_id]).await?;
        linger();
        Ok(())
    });
    let subscriber = Target::subscriber("subscriber", async |_: Delivery| {
        linger();
        Ok(())
    });
    let config = HttpConfig { secrets: vec![secret("s")], ..HttpConfig::new(hook) };
    let webhook = Target::webhook("webhook", Webhook::new(config, loopback()).unwrap());
    let targets = Targets::new(at_once(20)).with(handler).with(subscriber).with(webhook);
    Bench::leased(store, targets, LEASE).await
}

#[test]
fn child_delivers() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let options = Options::new(std::env::var(URL).unwrap()).connections(4);
        let bench = node(options.transaction_timeout(LIMIT), &std::env::var(HOOK).unwrap()).await;
        let _engine = bench.start().await;
        crash::say("delivers");
        std::future::pending::<()>().await;
    });
}

#[test]
fn a_node_paused_inside_of_a_delivery_loses_and_doubles_nothing() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let bench = node(place.options(), NOWHERE).await;
        let child = Child::of("delivery::publications::nodes::child_delivers").env(URL, place.url());
        let child = child.env(HOOK, NOWHERE).spawn().unwrap();
        child.wait_for("delivers", PATIENCE).unwrap();
        let mut ids = Vec::new();
        for (round, target) in ["handler", "subscriber", "handler", "subscriber"].into_iter().enumerate() {
            let id = bench.event("Sold", &json!(round)).await;
            bench.publish(&id, &[target]).await;
            child.wait_for(&format!("inside {round}."), PATIENCE).unwrap();
            child.stop().unwrap();
            // Its lease runs out, and this node delivers.
            let engine = bench.start().await;
            let delivered = bench.until(&id, target, Status::Delivered).await;
            child.cont().unwrap();
            engine.stop(PATIENCE).await.unwrap();
            ids.push((id, target, delivered));
        }
        // What the node that was paused delivers now comes behind all that it had still to say.
        let last = bench.event("Sold", &json!("last")).await;
        bench.publish(&last, &["subscriber"]).await;
        bench.until(&last, "subscriber", Status::Delivered).await;
        let count = async |tx: Tx| tx.query_one("SELECT count(*) FROM handled", &[]).await?.get::<u64>(0);
        assert_eq!(bench.store.read(count).await.unwrap(), 2, "each once");
        assert!(bench.publisher.letters(LetterFilter::default(), 10).await.unwrap().is_empty());
        for (id, target, delivered) in ids {
            assert_eq!(bench.publication(&id, target).await, delivered, "the paused node changed something");
        }
    });
}

/// Events that something has happened to.
#[derive(Clone)]
struct Events(watch::Sender<BTreeSet<String>>);

impl Default for Events {
    fn default() -> Self {
        Self(watch::channel(BTreeSet::new()).0)
    }
}

impl Events {
    fn note(&self, id: &str) {
        self.0.send_modify(|ids| ids.extend([id.to_owned()]));
    }

    /// Waits until it has.
    async fn noted(&self, id: &str) {
        self.0.subscribe().wait_for(|ids| ids.contains(id)).await.unwrap();
    }
}

/// The other side has the event, and the node is paused before it hears the answer.
#[test]
fn a_node_paused_inside_of_a_webhook_loses_and_doubles_nothing() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let receiving = open_inbox(Options::new("sqlite::memory:")).await;
        let inbox = Inbox::new(&receiving, "webhook", [secret("s")]).unwrap();
        // It does not answer before it may; a transaction may be begun anew meanwhile.
        let (arrived, answered) = (Events::default(), Events::default());
        let (came, may) = (arrived.clone(), answered.clone());
        let receiver = inbox.receiver(move |tx: Tx, received: Received| {
            let (came, may, id) = (came.clone(), may.clone(), received.event.id.clone());
            async move {
                take(tx, received).await?;
                came.note(&id);
                may.noted(&id).await;
                Ok(())
            }
        });
        let address = serve(Router::new().route_service("/events", receiver)).await;
        let hook = format!("http://{address}/events");
        let bench = node(place.options(), &hook).await;
        let child = Child::of("delivery::publications::nodes::child_delivers").env(URL, place.url());
        let child = child.env(HOOK, &hook).spawn().unwrap();
        child.wait_for("delivers", PATIENCE).unwrap();
        let mut ids = Vec::new();
        for round in 0..2 {
            let id = bench.event("Sold", &json!(round)).await;
            bench.publish(&id, &["webhook"]).await;
            tokio::time::timeout(PATIENCE, arrived.noted(&id)).await.expect("it comes");
            child.stop().unwrap();
            answered.note(&id);
            let engine = bench.start().await;
            let delivered = bench.until(&id, "webhook", Status::Delivered).await;
            assert!(delivered.attempt_count >= 2, "the paused one's attempt counts: {delivered:?}");
            child.cont().unwrap();
            engine.stop(PATIENCE).await.unwrap();
            ids.push((id, delivered));
        }
        let last = bench.event("Sold", &json!("last")).await;
        bench.publish(&last, &["subscriber"]).await;
        bench.until(&last, "subscriber", Status::Delivered).await;
        let mut received: Vec<String> = ids.iter().map(|(id, _)| id.clone()).collect();
        received.sort();
        assert_eq!(taken(&receiving).await, received, "each once");
        assert!(bench.publisher.letters(LetterFilter::default(), 10).await.unwrap().is_empty());
        for (id, delivered) in ids {
            assert_eq!(
                bench.publication(&id, "webhook").await,
                delivered,
                "the paused node changed something"
            );
        }
    });
}
