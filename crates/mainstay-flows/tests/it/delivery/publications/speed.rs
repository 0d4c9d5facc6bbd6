//! How fast events are delivered. Figures are printed, and mean something in a release build on a quiet machine:
//! `cargo test --release -p mainstay-flows --test it -- delivery::publications::speed --nocapture --test-threads 1`.

use super::bench::{Bench, PATIENCE, at_once};
use super::webhook::loopback;
use mainstay_flows::delivery::publications::{POOL, PublicEvent, Publisher, Target, Targets, Webhook};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_lasting_store;
use mainstay_work::Pool;
use mainstay_work::http::{HttpConfig, Secret};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const REPLY: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

/// A target that takes so long for each event, and any number at once; where it is, and how many it was given.
async fn target(takes: Duration) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let given = Arc::<AtomicUsize>::default();
    let counts = given.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let given = counts.clone();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let mut bytes = Vec::with_capacity(4 << 10);
                while stream.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
                    if !is_whole(&bytes) {
                        continue;
                    }
                    bytes.clear();
                    given.fetch_add(1, Ordering::Relaxed);
                    if !takes.is_zero() {
                        tokio::time::sleep(takes).await;
                    }
                    if stream.write_all(REPLY).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, given)
}

/// Whether a request has come to its end.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..at]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    bytes.len() >= at + 4 + length
}

async fn publish(tx: Tx, (publisher, from, to): (Publisher, usize, usize)) -> mainstay_store::Result<()> {
    for number in from..to {
        let event = PublicEvent::new(format!("evt-{number}"), "OrderSubmitted", &number)?;
        publisher.publish_in(&tx, &event, "orders", ["inventory"]).await?;
    }
    Ok(())
}

#[test]
fn events_are_delivered_many_times_a_second() {
    let count = if cfg!(debug_assertions) { 200 } else { 10_000 };
    for (what, takes) in [("instant", Duration::ZERO), ("10 ms", Duration::from_millis(10))] {
        for_each_lasting_store(async |place| {
            let (url, given) = target(takes).await;
            let config = HttpConfig { secrets: vec![Secret::new("s").unwrap()], ..HttpConfig::new(url) };
            let webhook = Target::webhook("inventory", Webhook::new(config, loopback()).unwrap());
            let bench = Bench::open(&place, Targets::new(at_once(5)).with(webhook)).await;
            bench.work.pool(Pool::new(POOL).max_parallelism(128)).await.unwrap();
            let began = Instant::now();
            for from in (0..count).step_by(100) {
                let context = (bench.publisher.clone(), from, count.min(from + 100));
                bench.store.transact_with(context, publish).await.unwrap();
            }
            let published = began.elapsed();
            let began = Instant::now();
            let engine = bench.start().await;
            let drained = async {
                while bench.under_way().await > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(PATIENCE, drained).await.expect("everything is delivered");
            let delivered = began.elapsed();
            engine.stop(PATIENCE).await.unwrap();
            assert_eq!(given.load(Ordering::Relaxed), count, "each once");
            let delivered_rows = async |tx: Tx| {
                let sql = "SELECT count(*) FROM mainstay_publications WHERE status = 'delivered'";
                tx.query_one(sql, &[]).await?.get::<u64>(0)
            };
            assert_eq!(bench.store.read(delivered_rows).await.unwrap(), count as u64);
            println!(
                "{}, {what} target: {:.0} published/s, {:.0} delivered/s",
                place.kind(),
                count as f64 / published.as_secs_f64(),
                count as f64 / delivered.as_secs_f64(),
            );
        });
    }
}
