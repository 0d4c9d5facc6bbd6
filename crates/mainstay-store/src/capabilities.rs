//! Capabilities: what the databases do differently, each under a name of its own.

/// What a database offers beyond the common ground. Code asks for the capability that it depends on, not for the database,
/// so that a new driver states its own and finds every place by name.
///
/// ```
/// # async fn example() -> mainstay_store::Result<()> {
/// let store = mainstay_store::Store::open("sqlite::memory:").await?;
/// assert!(!store.capabilities().concurrent_writers);
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Several processes may have the database open. Otherwise the process that holds the file is its only owner: what it
    /// keeps in memory stays true, and leases found at start belong to a process that has ended.
    pub many_nodes: bool,
    /// Several transactions may write at once, so rows are held against each other. Otherwise each has the writer to itself.
    pub concurrent_writers: bool,
    /// The database has a clock of its own, which costs a statement to read. Otherwise [`Store::clock`](crate::Store::clock)
    /// is the clock of the database.
    pub own_clock: bool,
    /// Statements are planned by statistics about the tables, which may be stale.
    pub plans_by_statistics: bool,
}

impl Capabilities {
    #[cfg(feature = "sqlite")]
    pub(crate) const SQLITE: Self =
        Self { many_nodes: false, concurrent_writers: false, own_clock: false, plans_by_statistics: false };
    #[cfg(feature = "postgres")]
    pub(crate) const POSTGRES: Self =
        Self { many_nodes: true, concurrent_writers: true, own_clock: true, plans_by_statistics: true };
}
