//! Many callers at once, and the account of what they were told.

use mainstay_store::{Error, Result, Store, Tx, params};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Callers that write pairs of rows until they are told to stop.
pub(super) struct Load {
    tasks: JoinSet<Account>,
    is_over: Arc<AtomicBool>,
    /// How often each task was told that its pair is in.
    acks: watch::Sender<Vec<u64>>,
}

/// What callers were told.
#[derive(Debug, Default)]
pub(super) struct Account {
    acknowledged: BTreeSet<i64>,
    /// Nothing was done.
    refused: BTreeSet<i64>,
    /// It may or may not have been done.
    unknown: BTreeSet<i64>,
    codes: BTreeMap<&'static str, usize>,
    /// What nobody should be told because of an outage.
    unfit: Vec<String>,
}

impl Load {
    /// `count` tasks, spread over `stores`.
    pub(super) fn start(stores: &[Store], count: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ids = Arc::new(AtomicI64::new(0));
        let acks = watch::Sender::new(vec![0; count]);
        let mut tasks = JoinSet::new();
        for (number, store) in stores.iter().cycle().take(count).enumerate() {
            let (store, is_over, ids, acks) = (store.clone(), is_over.clone(), ids.clone(), acks.clone());
            tasks.spawn(async move {
                let mut account = Account::default();
                while !is_over.load(Ordering::Relaxed) {
                    let id = ids.fetch_add(1, Ordering::Relaxed);
                    let result = store.transact_with(id, pair).await;
                    if result.is_ok() {
                        acks.send_modify(|acks| acks[number] += 1);
                    }
                    account.enter(id, result);
                }
                account
            });
        }
        Self { tasks, is_over, acks }
    }

    pub(super) fn acks(&self) -> Vec<u64> {
        self.acks.borrow().clone()
    }

    /// Waits until all tasks together have had `more` acknowledgements.
    pub(super) async fn until_more(&self, more: u64) {
        let target = self.acks.borrow().iter().sum::<u64>() + more;
        self.until(|acks| acks.iter().sum::<u64>() >= target).await;
    }

    /// Waits until every task has had an acknowledgement since `before`, and tells how long that took.
    pub(super) async fn until_each_since(&self, before: &[u64]) -> Duration {
        let began = Instant::now();
        self.until(|acks| acks.iter().zip(before).all(|(now, then)| now > then)).await;
        began.elapsed()
    }

    async fn until(&self, reached: impl Fn(&[u64]) -> bool) {
        let mut acks = self.acks.subscribe();
        let waiting = acks.wait_for(|acks| reached(acks));
        let waited = tokio::time::timeout(super::PATIENCE, waiting).await.map(drop);
        assert!(waited.is_ok(), "the load is stuck: {:?}", self.acks);
    }

    pub(super) async fn stop(mut self) -> Account {
        self.is_over.store(true, Ordering::Relaxed);
        let mut sum = Account::default();
        while let Some(account) = self.tasks.join_next().await {
            sum.add(account.unwrap());
        }
        sum
    }
}

/// Two rows that belong together. A second run of one that had been committed would break the primary key.
pub(super) async fn pair(tx: Tx, id: i64) -> Result<()> {
    for half in [1, 2] {
        tx.execute("INSERT INTO pairs (id, half) VALUES ($1, $2)", params![id, half]).await?;
    }
    Ok(())
}

impl Account {
    fn enter(&mut self, id: i64, result: Result<()>) {
        let Err(error) = result else {
            self.acknowledged.insert(id);
            return;
        };
        *self.codes.entry(error.code()).or_default() += 1;
        let entries = if error.is_outcome_unknown() { &mut self.unknown } else { &mut self.refused };
        entries.insert(id);
        if !error.is_retryable() {
            self.unfit.push(error.to_string());
        }
    }

    fn add(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.refused.extend(other.refused);
        self.unknown.extend(other.unknown);
        for (code, count) in other.codes {
            *self.codes.entry(code).or_default() += count;
        }
        self.unfit.extend(other.unfit);
    }

    /// Compares what callers were told with what is there.
    pub(super) async fn check(&self, store: &Store) {
        assert!(self.unfit.is_empty(), "{:?}", self.unfit);
        let sql = "SELECT id, count(*) FROM pairs GROUP BY id";
        let rows = store.read(async |tx| tx.query(sql, &[]).await).await.unwrap();
        let halves: BTreeMap<i64, i64> =
            rows.iter().map(|row| (row.get(0).unwrap(), row.get(1).unwrap())).collect();
        let torn: Vec<_> = halves.iter().filter(|(_, halves)| **halves != 2).collect();
        assert!(torn.is_empty(), "half a transaction: {torn:?}");
        let present: BTreeSet<i64> = halves.into_keys().collect();
        let lost: Vec<_> = self.acknowledged.difference(&present).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let kept: Vec<_> = self.refused.intersection(&present).collect();
        assert!(kept.is_empty(), "said not to be done, and done: {kept:?}");
        let known: BTreeSet<i64> = self.acknowledged.union(&self.unknown).copied().collect();
        assert!(present.is_subset(&known));
    }
}

impl std::fmt::Display for Account {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { acknowledged, refused, unknown, codes, .. } = self;
        let (acknowledged, refused, unknown) = (acknowledged.len(), refused.len(), unknown.len());
        write!(out, "{acknowledged} acknowledged, {refused} refused, {unknown} unknown {codes:?}")
    }
}

/// The codes that a call may end with while nobody answers it.
pub(super) fn is_about_silence(error: &Error) -> bool {
    ["STORE_TIMEOUT", "STORE_UNAVAILABLE", "STORE_COMMIT_UNKNOWN"].contains(&error.code())
}
