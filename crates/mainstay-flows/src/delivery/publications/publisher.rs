//! Publishing: a row and an item of work for each target, in one transaction.

use super::deliver::{self, Which};
use super::event::PublicEvent;
use super::forward::Forwarding;
use super::loader::Loader;
use super::record::{self, New};
use super::target::{self, DeliveryKey, Target};
use super::targets::Targets;
use super::{MAX_TARGETS, upkeep};
use crate::error::{Error, Result};
use crate::service::ServiceRef;
use crate::tenants;
use mainstay_core::failpoints::Point;
use mainstay_core::ids::{Ids, Kind};
use mainstay_core::retry::RetryPolicy;
use mainstay_events::Log;
use mainstay_store::{Cause, Store, Tx};
use mainstay_work::{Pool, Work};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What every part of publications stands on.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) log: Log,
    pub(super) work: Work,
    pub(super) ids: Ids,
    pub(super) loader: Loader,
    pub(super) targets: BTreeMap<String, Arc<(Target, RetryPolicy)>>,
    pub(super) upkeep: Option<super::Upkeep>,
    pub(super) forwardings: Vec<Forwarding>,
}

impl Shared {
    pub(super) fn target(&self, name: &str) -> Result<&Arc<(Target, RetryPolicy)>> {
        self.targets.get(name).ok_or_else(|| Error::UnknownTarget(name.to_owned()))
    }

    /// Passes a failpoint.
    pub(super) fn pass(&self, point: Point) -> mainstay_store::Result<()> {
        Ok(self.store.failpoints().hit(point)?)
    }
}

/// What came of publishing to one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// The publication: the new one, or the one that was there.
    pub publication_id: String,
    /// The target.
    pub target_context: String,
    /// Whether the event was published to this target before, so that nothing was done.
    pub is_duplicate: bool,
}

/// Publishes events to the targets of a program. Clones are the same.
#[derive(Clone)]
pub struct Publisher {
    pub(super) shared: Arc<Shared>,
    /// The tenant of the events that this view publishes and shows; all tenants without one.
    pub(super) tenant: Option<Arc<str>>,
}

impl Publisher {
    /// Opens publications on a store that was opened with [`COMPONENT`](super::COMPONENT), over a log and work of the
    /// same store, and registers the functions that deliver. Call it before the engine starts.
    pub async fn open(log: &Log, work: &Work, targets: Targets) -> Result<Self> {
        let shared = Arc::new(Shared {
            store: work.store().clone(),
            log: log.clone(),
            work: work.clone(),
            ids: Ids::new(work.store().clock().clone(), work.store().random().clone()),
            loader: Loader::new(work.store().clone()),
            targets: targets.checked()?,
            upkeep: targets.upkeep.clone(),
            forwardings: targets.forwardings.clone(),
        });
        work.register(targets.functions(&ServiceRef::new("publications", &shared))).await?;
        for (target, _) in shared.targets.values().map(|target| &**target) {
            let pool = Pool::platform_pool(super::POOL);
            match target.at_once {
                Some(most) => work.pool(pool.named(target.pool()).max_parallelism(most)).await?,
                None => work.ensure_pool(pool).await?,
            }
        }
        upkeep::schedule(work, &targets).await?;
        Ok(Self { shared, tenant: None })
    }

    /// The publications of a tenant's events: those of others are not there. Ids of events are unique within a tenant. A
    /// view of all tenants prefers the event without a tenant, then takes the only one; an id of several tenants is
    /// refused.
    pub fn for_tenant(&self, tenant: &str) -> Self {
        Self { shared: self.shared.clone(), tenant: Some(tenant.into()) }
    }

    /// The names of the targets.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.shared.targets.keys().map(String::as_str)
    }

    /// Publishes an event of the log. An event that was published to a target before is not published to it again.
    pub async fn publish<T: AsRef<str>>(
        &self,
        event_id: &str,
        source_context: &str,
        targets: impl IntoIterator<Item = T>,
    ) -> Result<Vec<Published>> {
        let targets = self.checked(source_context, targets)?;
        let found = match &self.tenant {
            Some(tenant) => self.shared.log.for_tenant(&**tenant).find(event_id).await?,
            None => self.shared.log.find(event_id).await?,
        };
        let event = found.ok_or_else(|| mainstay_events::Error::NotFound(event_id.to_owned()))?;
        self.publish_event(PublicEvent::try_from(&event)?, source_context, targets).await
    }

    /// Publishes an event that need not be in the log.
    pub async fn publish_event<T: AsRef<str>>(
        &self,
        event: PublicEvent,
        source_context: &str,
        targets: impl IntoIterator<Item = T>,
    ) -> Result<Vec<Published>> {
        let targets = self.checked(source_context, targets)?;
        let publish = async |tx: Tx, (publisher, event, source, targets): Publishing| {
            publisher.publish_in(&tx, &event, &source, targets.iter()).await
        };
        let context = (self.clone(), Arc::new(event), source_context.to_owned(), targets);
        Ok(self.shared.store.transact_with(context, publish).await?)
    }

    /// Publishes at the end of a transaction, beside what its author writes: all of it is committed, or nothing.
    pub async fn publish_in<T: AsRef<str>>(
        &self,
        tx: &Tx,
        event: &PublicEvent,
        source_context: &str,
        targets: impl IntoIterator<Item = T>,
    ) -> mainstay_store::Result<Vec<Published>> {
        let targets = self.checked(source_context, targets)?;
        let event = &Cause::current().iter().fold(event.clone(), |event, cause| event.caused_by(cause));
        event.check().map_err(|(field, reason)| Error::invalid(field, reason))?;
        if self.tenant.is_some() && self.tenant.as_deref() != event.tenant_id.as_deref() {
            let foreign = mainstay_events::Error::Tenant { field: "tenantId".to_owned() };
            return Err(Error::from(foreign).into());
        }
        let rows = targets.iter().map(|name| self.row(event, source_context, name));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let written: BTreeSet<String> = record::insert(tx, &rows).await?.into_iter().collect();
        self.shared.pass(Point::PublicationsNoted)?;
        let mut published = Vec::with_capacity(rows.len());
        for row in rows {
            let is_duplicate = !written.contains(&row.id);
            let publication_id = match is_duplicate {
                true => record::id(tx, row.event_id, row.target, Some(row.tenant)).await?.unwrap_or_default(),
                false => row.id.clone(),
            };
            if !is_duplicate && row.error.is_none() {
                let (target, policy) = &**self.shared.target(row.target)?;
                let (publication_id, event_id) = (row.id, row.event_id.to_owned());
                let which = Which { publication_id, event_id, target: row.target.to_owned() };
                let key = DeliveryKey::new(row.event_id, row.target, row.tenant);
                let item = deliver::item(target, *policy, &which, key, &row.event)?;
                self.shared.work.enqueue_as(tx, [(row.work_id, item)]).map_err(Error::from)?;
            }
            let target_context = row.target.to_owned();
            published.push(Published { publication_id, target_context, is_duplicate });
        }
        self.shared.pass(Point::PublicationsPublished)?;
        Ok(published)
    }

    fn row<'a>(&self, event: &'a PublicEvent, source_context: &'a str, name: &'a str) -> Result<New<'a>> {
        let (target, _) = &**self.shared.target(name)?;
        let (public, error) = match target.translated(event) {
            Ok(public) => (public, None),
            Err(error) => (event.clone(), Some(error)),
        };
        Ok(New {
            id: self.shared.ids.make(Kind::Publication).to_string(),
            event_id: &event.event_id,
            target: name,
            tenant: tenants::column(event.tenant_id.as_deref()),
            source_context,
            event: public,
            work_id: self.shared.work.new_id(),
            error,
        })
    }

    /// The targets, each once, if all of them are known.
    fn checked<T: AsRef<str>>(
        &self,
        source_context: &str,
        targets: impl IntoIterator<Item = T>,
    ) -> Result<Vec<String>> {
        target::name("sourceContext", source_context)?;
        let mut names = Vec::new();
        for name in targets {
            let name = name.as_ref();
            self.shared.target(name)?;
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        if !(1..=MAX_TARGETS).contains(&names.len()) {
            return Err(Error::invalid("targetContexts", format!("must be 1 to {MAX_TARGETS}")));
        }
        Ok(names)
    }
}

/// What is published to where.
type Publishing = (Publisher, Arc<PublicEvent>, String, Vec<String>);

impl std::fmt::Debug for Publisher {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.targets()).finish()
    }
}
