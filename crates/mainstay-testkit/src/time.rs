//! Virtual time: the database's clock in the hands of a test.

use crate::stores::{Kind, Place};
use mainstay_core::clock::{Clock, ManualClock};
use mainstay_store::{Options, Result, Store, params};
use std::sync::Arc;

/// Where virtual time begins unless a test says otherwise: 1 January 2026, 00:00 UTC.
pub const START_MS: i64 = 1_767_225_600_000;

/// PostgreSQL's `mainstay_now()` is replaced by one that reads a table, so every node of the database sees it.
const TAKE_THE_CLOCK: [&str; 3] = [
    "CREATE TABLE mainstay_test_clock (now_ms BIGINT NOT NULL)",
    "CREATE OR REPLACE FUNCTION mainstay_now() RETURNS BIGINT LANGUAGE sql STABLE AS \
     $$ SELECT now_ms FROM mainstay_test_clock $$",
    "INSERT INTO mainstay_test_clock (now_ms) VALUES (0)",
];

/// The time that `mainstay_now()` tells in one place.
#[derive(Clone)]
pub struct VirtualTime {
    clock: Arc<ManualClock>,
    /// The store through which the clock of a server is set.
    server: Option<Store>,
}

impl VirtualTime {
    /// Opens a store at `place` whose time stands at [`START_MS`] and moves only when told to.
    pub async fn open(place: &Place) -> Result<(Store, Self)> {
        Self::open_with(place, place.options()).await
    }

    /// As [`open`](Self::open), with settings.
    pub async fn open_with(place: &Place, options: Options) -> Result<(Store, Self)> {
        let clock = Arc::new(ManualClock::at(START_MS));
        let store = options.clock(clock.clone()).open().await?;
        let server = (place.kind() == Kind::Postgres).then(|| store.clone());
        if let Some(server) = &server {
            server
                .transact(async |tx| {
                    for sql in TAKE_THE_CLOCK {
                        tx.execute(sql, &[]).await?;
                    }
                    Ok(())
                })
                .await?;
        }
        let time = Self { clock, server };
        time.set(START_MS).await?;
        Ok((store, time))
    }

    /// Puts the clock to `now_ms`, which may be in the past.
    pub async fn set(&self, now_ms: i64) -> Result<()> {
        self.clock.set(now_ms);
        let Some(server) = &self.server else { return Ok(()) };
        let set = async |tx: mainstay_store::Tx, now_ms: i64| {
            tx.execute("UPDATE mainstay_test_clock SET now_ms = $1", params![now_ms]).await
        };
        server.transact_with(now_ms, set).await.map(drop)
    }

    /// Moves the clock by `by_ms`, backwards if negative.
    pub async fn advance(&self, by_ms: i64) -> Result<()> {
        self.set(self.clock.now_ms() + by_ms).await
    }

    /// The clock itself, for parts that take one.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
}
