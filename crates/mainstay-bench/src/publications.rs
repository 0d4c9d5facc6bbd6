//! `mainstay bench publications`: events that are published, and delivered to a webhook on this machine.

use mainstay::core::ids::Ids;
use mainstay::events::Log;
use mainstay::flows::delivery::publications::{PublicEvent, Publisher, Retry, Target, Targets, Webhook};
use mainstay::flows::{Error, Result};
use mainstay::store::{Store, Tx};
use mainstay::work::egress::Egress;
use mainstay::work::http::{HttpConfig, Secret};
use mainstay::work::{Functions, Work};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The target that is measured.
pub const TARGET: &str = "bench";
/// Events that are published in one transaction.
pub const BATCH: usize = 100;

const REPLY: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
const SOURCE: &str = "bench";
/// With its quotes an event carries 100 bytes.
const TEXT_BYTES: usize = 98;
/// As the configuration has it.
const RETRY: Retry = Retry { max_retries: 5, initial_backoff_ms: 100, base: 2.0 };

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// Events that were published.
    pub events: u64,
    /// Events that the target was given, however often.
    pub given: u64,
    /// Requests that came to the target.
    pub requests: u64,
    /// How long publishing them took.
    pub publishing: Duration,
    /// How long delivering them took.
    pub delivering: Duration,
}

impl Measured {
    /// Events published per second.
    pub fn published_per_second(&self) -> f64 {
        self.events as f64 / self.publishing.as_secs_f64()
    }

    /// Events delivered per second.
    pub fn delivered_per_second(&self) -> f64 {
        self.events as f64 / self.delivering.as_secs_f64()
    }

    /// Whether every event came, and came once.
    pub fn is_each_once(&self) -> bool {
        (self.given, self.requests) == (self.events, self.events)
    }
}

/// Publishes so many events and delivers them, at most `at_once` at once, to a target that takes so long for each.
pub async fn measure(store: &Store, events: usize, at_once: u32, takes: Duration) -> Result<Measured> {
    let receiver = Receiver::start(takes).await.map_err(unavailable)?;
    let (work, publisher) = open(store, receiver.address, at_once).await?;
    // Events of an earlier bench may be there.
    let series = Ids::new(store.clock().clone(), store.random().clone()).uuid().to_string();
    let began = Instant::now();
    for from in (0..events).step_by(BATCH) {
        let context = (publisher.clone(), series.clone(), from, events.min(from + BATCH));
        store.transact_with(context, publish).await?;
    }
    let publishing = began.elapsed();

    let pool = format!("{}.{TARGET}", mainstay::flows::delivery::publications::POOL);
    let began = Instant::now();
    let engine = work.start().await?;
    loop {
        let depth = work.depth(&pool).await?;
        if depth.pending == 0 && depth.running == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let delivering = began.elapsed();
    engine.stop(Duration::from_secs(5)).await?;
    let (given, requests) = receiver.counted();
    Ok(Measured { events: events as u64, given, requests, publishing, delivering })
}

async fn open(store: &Store, address: SocketAddr, at_once: u32) -> Result<(Work, Publisher)> {
    let url = format!("http://{address}/events");
    let config = HttpConfig { secrets: Secret::new("bench").into_iter().collect(), ..HttpConfig::new(url) };
    let egress = Egress::new(&[address.ip().to_string()]).map_err(unavailable)?;
    let target = Target::webhook(TARGET, Webhook::new(config, Arc::new(egress))?).at_once(at_once);
    let targets = Targets::new(RETRY).with(target);
    let log = Log::open(store).await?;
    let work = Work::open(store, Functions::new()).await?;
    let publisher = Publisher::open(&log, &work, targets).await?;
    Ok((work, publisher))
}

/// What is published in one transaction.
type Batch = (Publisher, String, usize, usize);

async fn publish(tx: Tx, (publisher, series, from, to): Batch) -> mainstay::store::Result<()> {
    let data = "x".repeat(TEXT_BYTES);
    for number in from..to {
        let event = PublicEvent::new(format!("{series}-{number}"), "mainstay.BenchNoted", &data)?;
        publisher.publish_in(&tx, &event, SOURCE, [TARGET]).await?;
    }
    Ok(())
}

fn unavailable(error: impl std::fmt::Display) -> Error {
    mainstay::store::Error::Unavailable(error.to_string()).into()
}

/// A target that does nothing but count, so that what is measured is who delivers.
struct Receiver {
    address: SocketAddr,
    /// How often each key came.
    came: Arc<Mutex<HashMap<String, u64>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Receiver {
    async fn start(takes: Duration) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, came) = (listener.local_addr()?, Arc::<Mutex<HashMap<String, u64>>>::default());
        let counting = came.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, counting.clone(), takes));
            }
        });
        Ok(Self { address, came, task })
    }

    /// Different keys, and requests.
    fn counted(&self) -> (u64, u64) {
        let came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        (came.len() as u64, came.values().sum())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers the requests of one connection, one after another.
async fn answer(mut stream: TcpStream, came: Arc<Mutex<HashMap<String, u64>>>, takes: Duration) {
    // A reply that waits for more bytes would be measured too.
    let _ = stream.set_nodelay(true);
    let mut bytes = Vec::with_capacity(4 << 10);
    while stream.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
        let Some(key) = whole(&bytes) else { continue };
        bytes.clear();
        *came.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        if stream.write_all(REPLY).await.is_err() {
            return;
        }
    }
}

/// The idempotency key of a request that has come to its end.
fn whole(bytes: &[u8]) -> Option<String> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let length: usize = field("content-length")?.parse().ok()?;
    (bytes.len() >= end + 4 + length).then(|| field("idempotency-key").unwrap_or_default().to_owned())
}
