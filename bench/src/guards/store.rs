//! Named limits in a store: one key that everybody wants.

use crate::rounds::{SyncTimes, median, on_postgres};
use crate::table::Table;
use anyhow::{Result, ensure};
use mainstay_bench::load::{Load, Outcome};
use mainstay_guards::limits::store::{COMPONENT, Limits};
use mainstay_guards::limits::{Definition, Kind};
use mainstay_store::Options;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const CALLERS: usize = 64;
const ROUNDS: usize = 3;
const LIMIT: &str = "hot";
/// So much that nobody is denied, and so slow that what is missing is what was taken.
const CAPACITY: f64 = 5e7;
const DAY_MS: u64 = 86_400_000;

/// Prints the table.
pub async fn run() -> Result<()> {
    println!(
        "\nStore: one key, {CALLERS} callers in all, each waiting for its answer; the median of {ROUNDS} rounds in turns. \
         Afterwards exactly as many tokens must be gone as were given"
    );
    let folder = tempfile::tempdir_in(".")?;
    let url = format!("sqlite:{}", folder.path().join("limits.db").display());
    on_postgres(async |server, _| {
        let server = server.clone();
        let databases = move || Ok::<_, anyhow::Error>([server.database()?, server.database()?]);
        let [one, two] = tokio::task::spawn_blocking(databases).await??;
        let mut entries = vec![
            Nodes::open("SQLite", &url, 1).await?,
            Nodes::open("PostgreSQL", one.url(), 1).await?,
            Nodes::open("PostgreSQL", two.url(), 2).await?,
        ];
        let mut sync_times = SyncTimes::default();
        for round in 0..ROUNDS {
            sync_times.measure()?;
            for nodes in &mut entries {
                nodes.turn(round).await?;
            }
        }
        println!("{sync_times}\n");
        for durability in entries[..2].iter().map(|nodes| nodes.limits[0].store().durability()) {
            println!("- {}", durability.await?);
        }
        let head = ["store", "nodes", "callers", "decisions /s", "p50 ms", "p99 ms", "errors"];
        let mut table = Table::new(head);
        for nodes in entries {
            table.add(nodes.row());
            nodes.close().await;
        }
        print!("\n{}", table.render());
        Ok(())
    })
    .await
}

/// Nodes on one database, and what came of their rounds.
struct Nodes {
    kind: &'static str,
    limits: Vec<Limits>,
    outcomes: Vec<Outcome>,
    errors: u64,
}

impl Nodes {
    async fn open(kind: &'static str, url: &str, nodes: usize) -> Result<Self> {
        let mut limits = Vec::new();
        for _ in 0..nodes {
            limits.push(Limits::open(Options::new(url).component(COMPONENT).open().await?).await?);
        }
        let definition = Definition::new(Kind::TokenBucket, 1.0, DAY_MS)?.with_capacity(CAPACITY)?;
        limits[0].define(LIMIT, definition).await?;
        Ok(Self { kind, limits, outcomes: Vec::new(), errors: 0 })
    }

    async fn turn(&mut self, round: usize) -> Result<()> {
        let key = format!("round-{round}");
        let given = Arc::new(AtomicU64::new(0));
        let errors: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
        let load =
            Load { callers: CALLERS, warm_up: Duration::from_millis(500), measured: Duration::from_secs(3) };
        let outcome = load.run({
            let (limits, key) = (self.limits.clone(), key.clone());
            let (given, errors) = (given.clone(), errors.clone());
            move |caller, _| {
                let (limits, key) = (limits[caller % limits.len()].clone(), key.clone());
                let (given, errors) = (given.clone(), errors.clone());
                async move {
                    match limits.consume(LIMIT, &key, 1).await {
                        Ok(decision) => {
                            ensure!(decision.allowed, "denied");
                            given.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
                            *errors.entry(error.to_string()).or_default() += 1;
                        }
                    }
                    Ok(())
                }
            }
        });
        self.outcomes.push(outcome.await);
        let standing = self.limits[0].value(LIMIT, &key).await?;
        let (gone, given) = (standing.capacity as i64 - standing.value, given.load(Ordering::Relaxed));
        let errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
        for (error, times) in &*errors {
            println!("{}, {} nodes: {times} times {error}", self.kind, self.limits.len());
        }
        self.errors += errors.values().sum::<u64>();
        ensure!(errors.is_empty() || gone >= given as i64, "{gone} tokens are gone, {given} were given");
        ensure!(!errors.is_empty() || gone == given as i64, "{gone} tokens are gone, {given} were given");
        Ok(())
    }

    fn row(&self) -> [String; 7] {
        let of =
            |figure: fn(&Outcome) -> f64| median(self.outcomes.iter().map(figure).collect(), |f: &f64| *f);
        [
            self.kind.to_owned(),
            self.limits.len().to_string(),
            CALLERS.to_string(),
            format!("{:.0}", of(Outcome::per_second)),
            format!("{:.3}", of(|outcome| outcome.latency_ms(0.5))),
            format!("{:.3}", of(|outcome| outcome.latency_ms(0.99))),
            (self.errors + self.outcomes.iter().map(|outcome| outcome.failed).sum::<u64>()).to_string(),
        ]
    }

    async fn close(self) {
        for limits in self.limits {
            limits.store().clone().close().await;
        }
    }
}
