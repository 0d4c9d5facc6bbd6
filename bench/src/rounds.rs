//! What contests share: contenders that take turns, because the disk wobbles and must wobble for all, and the figures of
//! their rounds.

use anyhow::Result;
use mainstay_bench::disk;
use mainstay_testkit::postgres::{Postgres, Private};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use tokio_postgres::NoTls;

/// A boxed future, so that contenders fit into one list. The box is nothing beside a sync of the disk.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A way to open a contender: on an empty folder of its own, for every turn anew. Dropping it ends its server.
pub struct Entry<C: ?Sized> {
    pub name: &'static str,
    open: Box<Opener<C>>,
}

type Opener<C> = dyn Fn(PathBuf) -> Answer<'static, Arc<C>> + Send + Sync;

impl<C: ?Sized + Send + Sync + 'static> Entry<C> {
    /// An entry under this name.
    pub fn new<F, Fut>(name: &'static str, open: F) -> Self
    where
        F: Fn(PathBuf) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Arc<C>>> + Send + 'static,
    {
        Self { name, open: Box::new(move |folder| Box::pin(open(folder))) }
    }

    /// The contender, with a folder of its own.
    pub async fn open(&self) -> Result<Opened<C>> {
        let folder = tempfile::tempdir_in(".")?;
        Ok(Opened { contender: (self.open)(folder.path().to_owned()).await?, folder })
    }
}

/// A contender with its folder.
pub struct Opened<C: ?Sized> {
    pub contender: Arc<C>,
    folder: tempfile::TempDir,
}

impl<C: ?Sized + Send + Sync + 'static> Opened<C> {
    /// Contenders may wait for their threads and processes when dropped.
    pub async fn close(self) -> Result<()> {
        Ok(tokio::task::spawn_blocking(move || drop((self.contender, self.folder))).await?)
    }
}

/// For each its rates against those of everybody before it: the median of what the ratio was in each round.
pub fn ratios(names: &[&str], rates: &[Vec<f64>]) -> Vec<String> {
    let against = |mine: usize, other: usize| {
        let rounds = rates[mine].iter().zip(&rates[other]);
        let ratio = median(rounds.map(|(mine, other)| mine / other).collect(), |ratio| *ratio);
        format!("{ratio:.2}× {}", names[other])
    };
    (0..names.len())
        .map(|mine| (0..mine).map(|other| against(mine, other)).collect::<Vec<_>>().join(", "))
        .collect()
}

/// The one in the middle.
pub fn median<T>(mut of: Vec<T>, by: impl Fn(&T) -> f64) -> T {
    of.sort_by(|one, other| by(one).total_cmp(&by(other)));
    of.swap_remove(of.len() / 2)
}

/// How long the disk took for a page, measured before each round.
#[derive(Default)]
pub struct SyncTimes(Vec<f64>);

impl SyncTimes {
    /// Measures it once more.
    pub fn measure(&mut self) -> Result<()> {
        self.0.push(disk::sync_time(tempfile::tempdir_in(".")?.path())?.as_secs_f64() * 1e3);
        Ok(())
    }
}

impl std::fmt::Display for SyncTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let [shortest, .., longest] = sorted[..] else { return Ok(()) };
        let middle = sorted[sorted.len() / 2];
        write!(
            f,
            "The disk syncs a page in {middle:.3} ms; between the rounds from {shortest:.3} to {longest:.3} ms."
        )
    }
}

/// Runs a contest on a PostgreSQL of its own with fsync on; the text says which, and how it syncs.
pub async fn on_postgres(contest: impl AsyncFnOnce(&Arc<Private>, &str) -> Result<()>) -> Result<()> {
    let server = Arc::new(tokio::task::spawn_blocking(Postgres::private).await??);
    let (client, connection) = tokio_postgres::connect(server.url(), NoTls).await?;
    tokio::spawn(connection);
    let mut settings = Vec::new();
    for name in ["server_version", "fsync", "synchronous_commit"] {
        let value = client.query_one(&format!("SHOW {name}"), &[]).await?;
        settings.push(format!("{name} {}", value.get::<_, &str>(0)));
    }
    let result = contest(&server, &settings.join(", ")).await;
    drop(client);
    tokio::task::spawn_blocking(move || drop(server)).await?;
    result
}

/// The version of a crate that this program was built with.
pub fn version(name: &str) -> &'static str {
    let mut lines = include_str!("../Cargo.lock").lines();
    lines.find(|line| *line == format!("name = \"{name}\""));
    lines.next().and_then(|line| line.split('"').nth(1)).unwrap_or("of an unknown version")
}
