//! A PostgreSQL server that is killed, and a line to it that is cut or falls silent, under a load of appends that share
//! transactions.
//!
//! What was acknowledged is never lost. What has an unknown outcome is sent again with its idempotency keys until it is
//! known, and then it is there once. Who follows misses nothing.

use crate::following::Followers;
use crate::ledger::{Found, append_of, is_long, open_log, positions_of};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_events::{COMPONENT, Error, Log, Status};
use mainstay_store::{Ending, Epilogue, Options, Tx};
use mainstay_testkit::postgres::{Postgres, Private};
use mainstay_testkit::proxy::Proxy;
use mainstay_testkit::stores::{Kind, for_each_kind, open_at_last};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Far above what anything here takes; whoever reaches it is stuck.
const PATIENCE: Duration = Duration::from_secs(60);
const CALLERS: usize = 24;

// --- the load ---------------------------------------------------------------------------------------------------

/// Callers that append until they are told to stop.
struct Load {
    tasks: JoinSet<Account>,
    is_over: Arc<AtomicBool>,
    acknowledged: watch::Sender<Vec<u64>>,
    /// How many outcomes were unknown at first.
    unknown: Arc<AtomicU64>,
}

/// What callers were told.
#[derive(Debug, Default)]
struct Account {
    acknowledged: Vec<(u64, Vec<u64>)>,
    /// Nothing was done, and nobody tried again.
    failed: Vec<u64>,
    /// Outcomes that were unknown, and what they turned out to be.
    unknown_done: usize,
    unknown_undone: usize,
    codes: BTreeMap<&'static str, usize>,
}

impl Load {
    /// Callers spread over `logs`. Every third gives up on an append that certainly failed, the others go on until it is
    /// in.
    fn start(logs: &[Log]) -> Self {
        let (is_over, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (acknowledged, unknown) = (watch::Sender::new(vec![0; CALLERS]), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for (number, log) in logs.iter().cycle().take(CALLERS).enumerate() {
            let (log, is_over, next) = (log.clone(), is_over.clone(), next.clone());
            let (acknowledged, unknown) = (acknowledged.clone(), unknown.clone());
            tasks.spawn(async move {
                let (mut account, mut counted) = (Account::default(), 0);
                while !is_over.load(Ordering::Relaxed) {
                    let operation = next.fetch_add(1, Ordering::Relaxed);
                    if account.see_through(&log, operation, number % 3 == 0).await {
                        acknowledged.send_modify(|acknowledged| acknowledged[number] += 1);
                    }
                    let own = (account.unknown_done + account.unknown_undone) as u64;
                    unknown.fetch_add(own - counted, Ordering::Relaxed);
                    counted = own;
                }
                account
            });
        }
        Self { tasks, is_over, acknowledged, unknown }
    }

    /// Waits until all together have had `more` acknowledgements.
    async fn until_more(&self, more: u64) {
        let target = self.acknowledged.borrow().iter().sum::<u64>() + more;
        self.until(|acknowledged| acknowledged.iter().sum::<u64>() >= target).await;
    }

    /// Waits until every caller has had another acknowledgement.
    async fn until_each(&self) {
        let before = self.acknowledged.borrow().clone();
        self.until(|now| now.iter().zip(&before).all(|(now, before)| now > before)).await;
    }

    async fn until(&self, is_reached: impl Fn(&[u64]) -> bool) {
        let mut acknowledged = self.acknowledged.subscribe();
        let waiting = acknowledged.wait_for(|acknowledged| is_reached(acknowledged));
        let waited = tokio::time::timeout(PATIENCE, waiting).await.map(drop);
        assert!(waited.is_ok(), "the load is stuck: {:?}", self.acknowledged);
    }

    async fn stop(mut self) -> Account {
        self.is_over.store(true, Ordering::Relaxed);
        let mut sum = Account::default();
        while let Some(account) = self.tasks.join_next().await {
            sum.add(account.unwrap());
        }
        sum
    }
}

impl Account {
    /// Sends an operation until its fate is known; whether it is in.
    async fn see_through(&mut self, log: &Log, operation: u64, gives_up: bool) -> bool {
        let mut is_unknown = false;
        loop {
            match log.append(append_of(operation)).await {
                Ok(appended) => {
                    assert!(is_unknown || appended.status == Status::Appended, "never sent before");
                    if is_unknown {
                        let is_duplicate = appended.status == Status::Duplicate;
                        self.unknown_done += usize::from(is_duplicate);
                        self.unknown_undone += usize::from(!is_duplicate);
                    }
                    self.acknowledged.push((operation, positions_of(&appended)));
                    return true;
                }
                Err(error) => {
                    *self.codes.entry(error.code()).or_default() += 1;
                    let is_fit = error.is_retryable() || error.code() == "STORE_TIMEOUT";
                    assert!(is_fit, "nobody should be told this because of an outage: {error}");
                    is_unknown |= error.is_outcome_unknown();
                    if gives_up && !is_unknown {
                        self.failed.push(operation);
                        return false;
                    }
                }
            }
        }
    }

    /// Sends an operation that was sent before until it is in.
    async fn settle(&mut self, log: &Log, operation: u64) {
        let began = Instant::now();
        loop {
            match log.append(append_of(operation)).await {
                Ok(appended) => return self.acknowledged.push((operation, positions_of(&appended))),
                Err(error) => {
                    let is_fit = error.is_retryable() || error.code() == "STORE_TIMEOUT";
                    assert!(is_fit && began.elapsed() < PATIENCE, "{error}");
                }
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.failed.extend(other.failed);
        self.unknown_done += other.unknown_done;
        self.unknown_undone += other.unknown_undone;
        for (code, count) in other.codes {
            *self.codes.entry(code).or_default() += count;
        }
    }

    /// Compares what callers were told with what is there.
    async fn check(&self, log: &Log, followers: Followers) {
        println!("{self}");
        let found = Found::load(log).await.unwrap_or_else(|wrong| panic!("{wrong}"));
        let verdict = found.check(&self.acknowledged).and_then(|()| found.check_absent(&self.failed));
        verdict.unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(
            found.operations.len(),
            self.acknowledged.len(),
            "everything in the log was acknowledged in the end"
        );
        followers.check(&found.recorded).await;
        // A part of them, since each asks a server.
        let last = found.operations.keys().next_back().copied().unwrap();
        found.check_index_from(log, last.saturating_sub(500)).await.unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

impl std::fmt::Display for Account {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { acknowledged, failed, unknown_done, unknown_undone, codes } = self;
        let (acknowledged, failed) = (acknowledged.len(), failed.len());
        write!(out, "{acknowledged} acknowledged, {failed} failed, ")?;
        write!(out, "unknown: {unknown_done} done and {unknown_undone} not; {codes:?}")
    }
}

// --- a server that is killed ------------------------------------------------------------------------------------

/// Starting, killing and recovering block; the callers go on meanwhile.
async fn with_server(
    mut server: Private,
    change: impl FnOnce(&mut Private) -> anyhow::Result<()> + Send + 'static,
) -> Private {
    let changing = move || change(&mut server).map(|()| server);
    tokio::task::spawn_blocking(changing).await.unwrap().unwrap()
}

/// A node that waits for the end of an outage, and one that tells its callers.
async fn two_nodes(url: &str) -> Vec<Log> {
    let hasty = Options::new(url).connections(4).busy_timeout(Duration::from_millis(250));
    let patient = Options::new(url).connections(4);
    let patient = open_log(patient, None).await.unwrap();
    let hasty = open_at_last(hasty.component(COMPONENT)).await;
    vec![patient, Log::open(&hasty).await.unwrap()]
}

async fn survive(kills: usize, kill: fn(&mut Private) -> anyhow::Result<()>) {
    let mut server = tokio::task::spawn_blocking(Postgres::private).await.unwrap().unwrap();
    let logs = two_nodes(server.url()).await;
    let followers = Followers::of(&logs, "shared:0");
    let load = Load::start(&logs);
    for _ in 0..kills {
        load.until_more(300).await;
        server = with_server(server, kill).await;
        server = with_server(server, Private::start).await;
        load.until_each().await;
    }
    let account = load.stop().await;
    account.check(&logs[0], followers).await;
    let batches = logs[0].figures().batch_size.snapshot();
    assert!(batches.sum > batches.count, "appends share transactions: {batches:?}");
    drop(logs);
    with_server(server, Private::stop_fast).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_no_event() {
    survive(if is_long() { 50 } else { 3 }, Private::kill9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restarted_under_load_loses_no_event() {
    survive(if is_long() { 20 } else { 1 }, Private::stop_fast).await;
}

// --- a line that fails ------------------------------------------------------------------------------------------

#[test]
fn cuts_at_any_moment_lose_no_event() {
    const DELAY: Duration = Duration::from_millis(2);
    for_each_kind(&[Kind::Postgres], async |place| {
        let (proxy, url) = Proxy::before(&place).unwrap();
        let logs = two_nodes(&url).await;
        let followers = Followers::of(&logs, "shared:0");
        let (random, pacing) = (SeededRandom::new(3), place.open().await);
        let load = Load::start(&logs);
        // So that a commit is on its way at many moments.
        proxy.delay(DELAY);
        let enough = if is_long() { 2_000 } else { 20 };
        // And more until one has met a commit, but not without end.
        let is_enough = |cut| cut >= enough && load.unknown.load(Ordering::Relaxed) > 0;
        for cut in (0..enough + 200).take_while(|cut| !is_enough(*cut)) {
            load.until_more(random.below(40)).await;
            // An acknowledgement comes at the end of a transaction; the cut shall come anywhere. Round trips pace it.
            for _ in 0..random.below(24) {
                let ask = async |tx: Tx| tx.query("SELECT 1", &[]).await;
                pacing.read(ask).await.unwrap();
            }
            if cut % 15 == 14 {
                proxy.cut().await;
                proxy.heal().await;
                proxy.delay(DELAY);
            } else {
                proxy.cut_connections().await;
            }
        }
        load.until_each().await;
        let account = load.stop().await;
        account.check(&logs[1], followers).await;
        let unknown = account.unknown_done + account.unknown_undone;
        assert!(unknown > 0, "no commit was cut: {account}");
    });
}

#[test]
fn a_line_gone_silent_ends_appends_in_time_and_loses_none() {
    const LIMIT: Duration = Duration::from_millis(500);
    for_each_kind(&[Kind::Postgres], async |place| {
        let (proxy, url) = Proxy::before(&place).unwrap();
        let options = Options::new(&url).connections(4).transaction_timeout(LIMIT).read_timeout(LIMIT);
        let log = open_log(options.busy_timeout(2 * LIMIT), None).await.unwrap();
        let followers = Followers::of(std::slice::from_ref(&log), "shared:0");
        let load = Load::start(std::slice::from_ref(&log));
        load.until_more(200).await;
        proxy.half_open();
        // All of these wait in one queue; the silence of the line is for all of them, not for each in turn.
        let began = Instant::now();
        let calls: JoinSet<_> = (0..64_u64)
            .map(|number| {
                let log = log.clone();
                async move { log.append(append_of(1_000_000 + number)).await.unwrap_err() }
            })
            .collect();
        let mut errors = Vec::new();
        for error in tokio::time::timeout(PATIENCE, calls.join_all()).await.expect("appends are stuck") {
            errors.push(error.code());
        }
        let silent = began.elapsed();
        println!("appends on a silent line end after {silent:?}: {errors:?}");
        // One after the other, they would take half a minute and more.
        assert!(silent < Duration::from_secs(20), "{silent:?}");
        proxy.heal().await;
        load.until_each().await;
        let mut account = load.stop().await;
        for operation in 1_000_000..1_000_064 {
            // Nobody gave up for certain: sent again, each is known.
            account.settle(&log, operation).await;
        }
        account.check(&log, followers).await;
    });
}

/// The last thing before the commit: silences the line.
struct Silence(Arc<Proxy>);

impl Epilogue for Silence {
    fn conclude(self: Arc<Self>, _tx: Tx) -> Ending {
        Box::pin(async move {
            self.0.half_open();
            Ok(())
        })
    }
}

#[test]
fn a_commit_that_nobody_answers_is_settled_by_its_idempotency_key() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let (proxy, url) = Proxy::before(&place).unwrap();
        let proxy = Arc::new(proxy);
        let options = Options::new(&url).connections(4).transaction_timeout(Duration::from_secs(2));
        let log = open_log(options, None).await.unwrap();
        let followers = Followers::of(std::slice::from_ref(&log), "shared:1");
        let work = async |tx: Tx, (log, proxy): (Log, Arc<Proxy>)| {
            let receipt = log.append_in(&tx, append_of(1))?;
            tx.epilogue(|| Silence(proxy));
            Ok(receipt)
        };
        let unknown = log.store().transact_with((log.clone(), proxy.clone()), work).await.unwrap_err();
        assert!(Error::from(unknown).is_outcome_unknown());
        proxy.cut_connections().await;
        proxy.heal().await;
        let first = log.append(append_of(1)).await.unwrap();
        let again = log.append(append_of(1)).await.unwrap();
        assert_eq!((again.status, positions_of(&again)), (Status::Duplicate, positions_of(&first)));
        let found = Found::load(&log).await.unwrap();
        found.check(&[(1, positions_of(&first))]).unwrap();
        followers.check(&found.recorded).await;
    });
}
