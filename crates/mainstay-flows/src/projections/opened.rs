//! Projections of a store, opened.

use super::checkpoints;
use super::definition::Projection;
use super::failures::retry;
use super::registry::Registry;
use super::replay;
use super::running::Projecting;
use super::{status, tables};
use crate::error::{Error, Result};
use crate::service::ServiceRef;
use mainstay_core::ids::Ids;
use mainstay_events::Log;
use mainstay_store::{Store, Tx};
use mainstay_work::{Functions, Pool, Work};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The pool of events that are applied again one by one.
pub(crate) const PROJECTION_POOL: &str = "projectionPool";

/// The pool of chunks of replays.
pub(crate) const REPLAY_POOL: &str = "eventReplayPool";

/// What every part of projections stands on.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) log: Log,
    pub(crate) work: Work,
    pub(crate) ids: Ids,
    /// In the order of rebuilds.
    pub(crate) projections: Vec<Arc<Projection>>,
    shapes: HashMap<String, String>,
    /// Grows when a lane of a projection has moved here.
    moved: HashMap<String, watch::Sender<u64>>,
}

impl Shared {
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Projection>> {
        let found = self.projections.iter().find(|projection| projection.name == name);
        found.cloned().ok_or_else(|| Error::UnknownProjection(name.to_owned()))
    }

    /// What this program makes the managed tables of a projection of.
    pub(crate) fn shape(&self, projection: &Projection) -> &str {
        self.shapes.get(&projection.name).map_or("", String::as_str)
    }

    /// Tells whoever waits here that a lane has moved.
    pub(crate) fn tell_moved(&self, projection: &str) {
        if let Some(moved) = self.moved.get(projection) {
            moved.send_modify(|count| *count += 1);
        }
    }

    pub(crate) fn moves(&self, projection: &str) -> Option<watch::Receiver<u64>> {
        self.moved.get(projection).map(watch::Sender::subscribe)
    }
}

/// The projections of a program, on a store. Clones are the same.
#[derive(Clone)]
pub struct Projections {
    pub(crate) shared: Arc<Shared>,
    /// The tenant of the failed events that this view shows; all tenants without one.
    pub(crate) tenant: Option<Arc<str>>,
}

impl Projections {
    /// Opens the projections of `registry` on a store that was opened with [`COMPONENT`](super::COMPONENT), over a log
    /// and work of the same store, and registers the functions that retry and replay them. Call it before the engine starts.
    pub async fn open(store: &Store, log: &Log, work: &Work, registry: Registry) -> Result<Self> {
        let budget = registry.budget();
        let projections = registry.checked()?;
        let named = |make: fn(&Projection) -> String| {
            projections.iter().map(move |projection| (projection.name.clone(), make(projection)))
        };
        let shapes = named(|projection| tables::shape(&projection.tables)).collect();
        let moved = projections.iter().map(|projection| (projection.name.clone(), watch::Sender::new(0)));
        let shared = Arc::new(Shared {
            store: store.clone(),
            log: log.clone(),
            work: work.clone(),
            ids: Ids::new(store.clock().clone(), store.random().clone()),
            shapes,
            moved: moved.collect(),
            projections,
        });
        if !shared.projections.is_empty() {
            let service = ServiceRef::new("projections", &shared);
            let functions = retry::functions(Functions::new(), &service);
            work.register(replay::functions(functions, &service, budget)).await?;
        }
        let is_needed = |pool: &Pool| !shared.projections.is_empty() && POOLS.contains(&pool.name());
        for pool in Pool::platform().into_iter().filter(is_needed) {
            work.ensure_pool(pool).await?;
        }
        for projection in &shared.projections {
            let shape = shared.shape(projection).to_owned();
            store.transact_with((projection.clone(), shape), ensure).await?;
        }
        Ok(Self { shared, tenant: None })
    }

    /// Begins to follow the log with all projections.
    pub fn start(&self) -> Projecting {
        Projecting::start(self.shared.clone())
    }

    /// The definitions, in the order of rebuilds.
    pub fn definitions(&self) -> impl Iterator<Item = &Projection> {
        self.shared.projections.iter().map(|projection| &**projection)
    }
}

/// The platform's pools that projections use.
const POOLS: [&str; 2] = [PROJECTION_POOL, REPLAY_POOL];

/// Makes a projection that is new, and checks one that is not.
async fn ensure(tx: Tx, (projection, shape): (Arc<Projection>, String)) -> mainstay_store::Result<()> {
    tx.lock(&format!("mainstay.projection:{}", projection.name)).await?;
    if status::look(&tx, &projection.name).await?.is_none() {
        status::create(&tx, &projection.name, &shape).await?;
        checkpoints::create(&tx, &projection, 0, 1).await?;
        tables::create(&tx, &projection.tables, 1).await?;
        return tables::show(&tx, &projection.name, &projection.tables, &[1]).await;
    }
    let lanes = checkpoints::hold_all(&tx, &projection.name).await?;
    let Some(first) = lanes.first().copied().filter(|first| first.lanes != projection.lanes) else {
        return Ok(());
    };
    if lanes.iter().any(|lane| lane.position != first.position) {
        return Err(Error::LanesChanged(projection.name.clone()).into());
    }
    checkpoints::create(&tx, &projection, first.position, first.generation).await?;
    checkpoints::set_state(&tx, &projection.name, first.state).await
}

impl std::fmt::Debug for Projections {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(&self.shared.projections).finish()
    }
}
