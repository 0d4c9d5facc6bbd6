//! The store as its users see it.

use crate::backup::{self, Draft, blocking};
use crate::body::Body;
use crate::capabilities::Capabilities;
use crate::drivers::Driver;
use crate::figures::Figures;
use crate::migrations::{self, Report};
use crate::options::Manner;
use crate::riding::Ride;
use crate::wakeups::Hub;
use crate::{Error, Isolation, Listener, Location, Options, Result, Topic, Tx};
use mainstay_core::clock::Clock;
use mainstay_core::failpoints::Failpoints;
use mainstay_core::random::Random;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// One in so many readers is for searches.
const SEARCH_SHARE: usize = 4;
/// Longest wait of a search for others. One page of a search takes less than a second.
const SEARCH_PATIENCE: Duration = Duration::from_secs(2);

/// A database that everything durable lives in. Clones are the same store.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
    manner: Manner,
}

struct Inner {
    driver: Driver,
    location: Location,
    figures: Arc<Figures>,
    hub: Arc<Hub>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    failpoints: Failpoints,
    /// Places for searches: fewer than there are readers, of which there are two at the least.
    searches: Arc<Semaphore>,
    companions: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl Store {
    /// Opens the store at `url` with default settings: `sqlite:FILE`, `sqlite::memory:` or `postgres://…`.
    pub async fn open(url: &str) -> Result<Self> {
        Options::new(url).open().await
    }

    pub(crate) async fn open_with(options: Options) -> Result<(Self, Report)> {
        let location = Location::parse(&options.url)?;
        let (figures, hub) = (Arc::new(Figures::default()), Arc::new(Hub::default()));
        let driver = Driver::open(&location, &options, &figures, &hub).await?;
        let (clock, random) = (options.clock.clone(), options.random.clone());
        let failpoints = options.failpoints.clone();
        let readers = match &location {
            Location::Memory => 1,
            Location::File(_) => options.readers,
            Location::Postgres(_) => options.connections,
        };
        let searches = Arc::new(Semaphore::new((readers / SEARCH_SHARE).max(1)));
        let companions = Mutex::default();
        let inner = Inner { driver, location, figures, hub, clock, random, failpoints, searches, companions };
        let store = Self { inner: Arc::new(inner), manner: Manner::default() };
        if !options.is_restoring && backup::is_marked(&store).await? {
            return Err(Error::NotRestored(store.location().to_string()));
        }
        let report = migrations::run(&store, &options).await?;
        store.inner.driver.opened();
        for step in &report.applied {
            tracing::info!(component = step.component, step = step.name, "schema migrated");
        }
        Ok((store, report))
    }

    /// Runs `work` in one transaction and commits it. See the [rules of a transaction](crate#the-rules-of-a-transaction).
    pub async fn transact<T, F, Fut>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(Tx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let (body, value) = Body::new(work);
        self.run_in_transaction(body).await?;
        value.take()
    }

    async fn run_in_transaction(&self, mut body: Body) -> Result<()> {
        let figures = &self.inner.figures;
        let (_in_flight, under_way) = figures.enter();
        let ride = Ride::begin();
        body.carry(ride.rider());
        let result = self.inner.driver.transact(body, self.manner, under_way).await;
        if result.is_ok() {
            ride.arrived();
        }
        match &result {
            Ok(()) => figures.committed.increment(),
            Err(Error::Busy { .. }) => figures.busy.increment(),
            Err(_) => figures.rolled_back.increment(),
        }
        result
    }

    /// As [`transact`](Self::transact), with a value that every run of `work` gets a clone of.
    pub async fn transact_with<C, T, F, Fut>(&self, context: C, work: F) -> Result<T>
    where
        C: Clone + Send + 'static,
        T: Send + 'static,
        F: Fn(Tx, C) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        self.transact(move |tx| work(tx, context.clone())).await
    }

    /// Runs `work` on a snapshot. It never waits for the writer, and cannot write.
    pub async fn read<T, F, Fut>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(Tx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let (body, value) = Body::new(work);
        self.run_on_snapshot(body).await?;
        value.take()
    }

    async fn run_on_snapshot(&self, body: Body) -> Result<()> {
        let result = self.inner.driver.read(body, self.manner).await;
        if let Err(Error::Busy { .. }) = result {
            self.inner.figures.busy.increment();
        }
        result
    }

    /// As [`read`](Self::read), with a value that every run of `work` gets a clone of.
    pub async fn read_with<C, T, F, Fut>(&self, context: C, work: F) -> Result<T>
    where
        C: Clone + Send + 'static,
        T: Send + 'static,
        F: Fn(Tx, C) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        self.read(move |tx| work(tx, context.clone())).await
    }

    /// As [`read_with`](Self::read_with), for a search: a read that looks through rows or texts which no index tells apart.
    /// Searches take at most a quarter of the readers, or of the connections on PostgreSQL, and never the last one, so that
    /// other reads do not wait for them. A store in memory has one connection for everything. A search that finds no place
    /// within two seconds ends with [`Error::SearchBusy`].
    pub async fn search_with<C, T, F, Fut>(&self, context: C, work: F) -> Result<T>
    where
        C: Clone + Send + 'static,
        T: Send + 'static,
        F: Fn(Tx, C) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let place = tokio::time::timeout(SEARCH_PATIENCE, self.inner.searches.clone().acquire_owned()).await;
        let place = match place {
            Ok(Ok(place)) => Arc::new(place),
            Ok(Err(_)) | Err(_) => return Err(Error::SearchBusy),
        };
        // The place belongs to the work, which may outlive a caller that goes away.
        self.read(move |tx| {
            let (place, searching) = (place.clone(), work(tx, context.clone()));
            async move {
                let found = searching.await;
                drop(place);
                found
            }
        })
        .await
    }

    /// The same store with transactions at another isolation level.
    pub fn with_isolation(&self, isolation: Isolation) -> Self {
        Self { inner: self.inner.clone(), manner: Manner { isolation, ..self.manner } }
    }

    /// The same store with another time limit for each transaction and read, for work that is known to take long.
    pub fn with_time_limit(&self, limit: Duration) -> Self {
        Self { inner: self.inner.clone(), manner: Manner { limit: Some(limit), ..self.manner } }
    }

    /// Waits for wake-ups of `topic` from now on.
    pub fn listen(&self, topic: Topic) -> Listener {
        self.inner.hub.listen(topic)
    }

    /// What the store measures about itself.
    pub fn figures(&self) -> &Figures {
        &self.inner.figures
    }

    /// Where the store lives; its `Display` shows no password.
    pub fn location(&self) -> &Location {
        &self.inner.location
    }

    /// How commits are made durable, for reports: `sqlite 3.54.0, WAL, synchronous=FULL`.
    pub async fn durability(&self) -> Result<String> {
        self.inner.driver.durability().await
    }

    /// Copies the whole store to a new file, as of one snapshot, while others go on writing; returns the file's size.
    /// The copy is not a store: only a restore makes one of it.
    /// See [`backup`](crate::backup).
    pub async fn backup(&self, target: &Path) -> Result<u64> {
        let draft = Draft::begin(target)?;
        self.inner.driver.backup(draft.path().to_owned()).await?;
        blocking(move || draft.finish()).await
    }

    /// What the database itself finds wrong with its files, one sentence each: SQLite's `integrity_check`. PostgreSQL
    /// has no such question to ask over a connection, and answers `None`; its own tools are `pg_amcheck` and
    /// `pg_checksums`.
    pub async fn check_integrity(&self) -> Result<Option<Vec<String>>> {
        self.inner.driver.check_integrity().await
    }

    /// Moves everything from SQLite's write-ahead log into the database and empties the log, so that bytes which were
    /// overwritten in the one are gone from the other too. False when long reads did not let that happen within
    /// ten seconds; the writer waits for them a few milliseconds at a time. Nothing is to be done on PostgreSQL.
    pub async fn empty_log(&self) -> Result<bool> {
        self.inner.driver.empty_log().await
    }

    /// This node's clock. It may be wrong by a day: what must be judged is judged by `mainstay_now()`.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// The source of randomness.
    pub fn random(&self) -> &Arc<dyn Random> {
        &self.inner.random
    }

    /// The points at which tests make things fail.
    pub fn failpoints(&self) -> &Failpoints {
        &self.inner.failpoints
    }

    /// What a part of the program keeps in memory beside this store, one of each type: the one that is there, or
    /// `fresh`.
    pub fn companion<C: Any + Send + Sync>(&self, fresh: Option<Arc<C>>) -> Option<Arc<C>> {
        let mut companions = self.inner.companions.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = companions.get(&TypeId::of::<C>()).and_then(|kept| kept.clone().downcast().ok());
        kept.or_else(|| {
            let fresh = fresh?;
            companions.insert(TypeId::of::<C>(), fresh.clone());
            Some(fresh)
        })
    }

    /// What this store's database does differently from others.
    pub fn capabilities(&self) -> Capabilities {
        self.inner.driver.capabilities()
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.inner.driver.is_postgres()
    }

    /// Lends an open PostgreSQL transaction to `work`, which runs inside of a savepoint of it. The lender commits,
    /// and then calls [`Lent::committed`](crate::Lent::committed) so that wake-ups go out.
    #[cfg(feature = "postgres")]
    pub async fn lend<T, F, Fut>(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        work: F,
    ) -> Result<crate::Lent<T>>
    where
        F: FnOnce(Tx) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let concluding = async |tx: Tx| {
            let value = work(tx.clone()).await?;
            crate::epilogue::conclude(&tx).await?;
            Ok(value)
        };
        self.inner.driver.lend(transaction, concluding).await
    }

    /// Closes the store once everything that was accepted is done. Later calls are refused.
    pub async fn close(self) {
        self.inner.driver.close().await;
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Store").field("location", &self.inner.location).finish_non_exhaustive()
    }
}
