//! File descriptors of a server: how many it may open, and what it needs them for.
//!
//! A server without free descriptors accepts no connection, not even a probe's. So the limit is raised as far as the system lets it,
//! and what still does not fit is taken from `server.maxConnections`.

use crate::config::{self, Config};
use mainstay::store::{Location, Store};
use mainstay::work::PoolStatus;
use mainstay_server::Options;

/// Descriptors of the process itself: standard streams, the runtime, the listener, backups, Redis, the collector of traces.
const OWN: usize = 64;
/// Descriptors of one connection to a SQLite file: the file and its log.
const PER_SQLITE_CONNECTION: usize = 2;
/// Connections to a SQLite file beside its readers: the writer, the checkpointer, and one for backups and checks.
const BESIDE_READERS: usize = 3;
/// Files beside those: shared memory and the owner's mark.
const BESIDE_CONNECTIONS: usize = 2;
/// Fewest connections of clients. With fewer descriptors a server is of no use, and starts all the same.
const LEAST_FOR_CLIENTS: usize = 16;

/// What descriptors are for, beside connections of clients.
#[derive(Debug, Clone, Copy)]
struct Needs {
    store: usize,
    calls: usize,
}

impl Needs {
    /// Calls of endpoints elsewhere are as many as items of work that run at once.
    fn of(config: &Config, store: &Store, pools: &[PoolStatus]) -> Self {
        let number = |setting| usize::try_from(config.number(setting)).unwrap_or(usize::MAX);
        let store = match store.location() {
            Location::Memory => 0,
            Location::File(_) => {
                (number(&config::store::READERS) + BESIDE_READERS) * PER_SQLITE_CONNECTION
                    + BESIDE_CONNECTIONS
            }
            Location::Postgres(_) => number(&config::store::CONNECTIONS) + 1,
        };
        let has_calls = !config.functions().is_empty() || !config.targets().is_empty();
        let at_once = pools.iter().map(|pool| pool.settings.at_once() as usize);
        Self { store, calls: if has_calls { at_once.sum() } else { 0 } }
    }

    fn sum(self) -> usize {
        OWN.saturating_add(self.store).saturating_add(self.calls)
    }
}

/// Raises the limit of this process as far as it may, and returns the options with as many connections as fit beside what the store
/// and calls need. Says so when that is fewer than were asked for.
pub(crate) fn fit(options: Options, config: &Config, store: &Store, pools: &[PoolStatus]) -> Options {
    let Some(limit) = raise() else { return options };
    let (needs, asked) = (Needs::of(config, store, pools), options.connections());
    let for_clients = limit.saturating_sub(needs.sum()).max(LEAST_FOR_CLIENTS);
    let needed = options.descriptors().saturating_add(needs.sum());
    let options = options.within_descriptors(for_clients);
    let connections = options.connections();
    if connections < asked {
        let Needs { store, calls } = needs;
        tracing::warn!(
            limit,
            needed,
            connections,
            asked,
            store,
            calls,
            own = OWN,
            hint =
                "raise the limit to what is needed (LimitNOFILE, ulimit -n), or lower server.maxConnections",
            "limit of open files too low: fewer connections than server.maxConnections"
        );
    }
    options
}

/// Raises the soft limit to the hard one. Returns what holds then; nothing when there is no limit.
#[cfg(unix)]
fn raise() -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(not(unix))]
fn raise() -> Option<usize> {
    None
}
