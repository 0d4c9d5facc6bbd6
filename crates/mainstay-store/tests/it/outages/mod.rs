//! What a store on PostgreSQL does when the server, or the line to it, fails.
//!
//! - `load`: many callers at once, and the account of what they were told
//! - `server`: a server that is killed and comes back
//! - `line`: connections that are cut, or dead without saying so
//! - `cancellation`: calls whose callers have gone
//! - `wakeups`: wake-ups between nodes, whatever happens to the line
//! - `refusals`: databases that cannot be opened, and pools with nothing left

mod cancellation;
mod line;
mod load;
mod refusals;
mod server;
mod wakeups;

pub(crate) use wakeups::{forget, until_linked};

use crate::pairs::is_long;
use mainstay_store::{Options, Result, Store};
use mainstay_testkit::proxy::Proxy;
use mainstay_testkit::stores::{Kind, Place, for_each_kind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// Far above what anything here takes; whoever reaches it is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// Within what time things are well again. Five seconds are promised, and held where nothing else runs beside this.
fn soon() -> Duration {
    if is_long() { Duration::from_secs(5) } else { PATIENCE }
}

/// Runs `body` with a database of its own on the shared server.
fn on_postgres(body: impl AsyncFn(Place)) {
    for_each_kind(&[Kind::Postgres], body);
}

/// A database behind a proxy.
struct Line {
    proxy: Proxy,
    url: String,
}

impl Line {
    fn to(place: &Place) -> Self {
        let (target, _) = address(place.url());
        let proxy = Proxy::start(target).unwrap();
        let url = at_address(place.url(), proxy.addr());
        Self { proxy, url }
    }

    fn options(&self) -> Options {
        Options::new(&self.url).connections(4)
    }

    async fn open(&self) -> Store {
        self.options().open().await.unwrap()
    }
}

/// The server's address in a URL, and where it stands.
fn address(url: &str) -> (SocketAddr, std::ops::Range<usize>) {
    let start = url.find("://").unwrap() + 3;
    let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
    let start = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
    let host = if url[start..end].contains(':') {
        url[start..end].to_owned()
    } else {
        format!("{}:5432", &url[start..end])
    };
    (host.to_socket_addrs().unwrap().next().unwrap(), start..end)
}

/// The same database at another address.
fn at_address(url: &str, new: SocketAddr) -> String {
    let (_, range) = address(url);
    format!("{}{new}{}", &url[..range.start], &url[range.end..])
}

/// However short the store's own limits are: they are for what comes after.
async fn create_pairs(store: &Store) {
    let sql = "CREATE TABLE pairs (id BIGINT NOT NULL, half BIGINT NOT NULL, PRIMARY KEY (id, half))";
    let patient = store.with_time_limit(PATIENCE);
    patient.transact(async |tx| tx.execute(sql, &[]).await).await.unwrap();
}

async fn ids(store: &Store) -> Vec<i64> {
    let sql = "SELECT DISTINCT id FROM pairs ORDER BY id";
    let rows = store.read(async |tx| tx.query(sql, &[]).await).await.unwrap();
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}

/// Asks `what` of the database until the answer is `wanted`. The round trip to the server paces it.
async fn until(store: &Store, what: &'static str, wanted: i64) {
    let ask = async move || -> Result<i64> {
        store.read(move |tx| async move { tx.query_one(what, &[]).await?.get(0) }).await
    };
    let asking = async { while ask().await.unwrap() != wanted {} };
    let reached = tokio::time::timeout(PATIENCE, asking).await;
    assert!(reached.is_ok(), "never {wanted}: {what}");
}
