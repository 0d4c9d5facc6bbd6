//! Quarantined events (items 185 to 191).

use super::retry;
use crate::error::{Error, Result};
use crate::projections::MAX_PAGE;
use crate::projections::definition::Projection;
use crate::projections::opened::{Projections, Shared};
use mainstay_events::Append;
use mainstay_store::{Hold, Row, Tx, params};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

type Hook = dyn Fn(Quarantined) + Send + Sync;

/// When an event is put aside, and who is told.
#[derive(Clone)]
pub struct Poison {
    pub(crate) max_attempts: u32,
    alerts: bool,
    hook: Option<Arc<Hook>>,
}

impl Poison {
    /// Puts an event aside at its `max_attempts`th failure.
    pub fn new(max_attempts: u32, alert_on_quarantine: bool) -> Self {
        Self { max_attempts, alerts: alert_on_quarantine, hook: None }
    }

    /// Is called on the node where it happens once an event was put aside, if alerts are wanted.
    pub fn on_quarantine(mut self, hook: impl Fn(Quarantined) + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Tells of an event that was put aside.
    pub(crate) fn alert(&self, quarantined: Quarantined) {
        if !self.alerts {
            return;
        }
        let Quarantined { event_id, projection_name, attempts, error } = &quarantined;
        tracing::error!(event_id, projection_name, attempts, error, "an event was quarantined");
        if let Some(hook) = &self.hook {
            let call = std::panic::AssertUnwindSafe(|| hook(quarantined));
            if std::panic::catch_unwind(call).is_err() {
                tracing::error!("the hook of a quarantine panicked");
            }
        }
    }
}

/// An event that was put aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Quarantined {
    /// The event.
    pub event_id: String,
    /// The projection that cannot take it.
    pub projection_name: String,
    /// How often it was tried.
    pub attempts: u32,
    /// What happened last.
    pub error: String,
}

/// What becomes of an event that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PoisonStatus {
    /// It is tried again.
    Failing,
    /// It was put aside.
    Quarantined,
    /// It was let out and is tried again.
    Replayed,
    /// It was left for good.
    Ignored,
}

/// An event that a projection with poison handling has failed for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoisonEvent {
    /// The event.
    pub event_id: String,
    /// The projection.
    pub projection_name: String,
    /// The event's position.
    pub position: u64,
    /// The event's type.
    pub event_type: String,
    /// What becomes of it.
    pub status: PoisonStatus,
    /// How often it has failed.
    pub attempts: u32,
    /// What happened last.
    pub error: String,
    /// When.
    pub failed_at: i64,
}

/// How many events are quarantined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoisonStats {
    /// Over all projections.
    pub total: u64,
    /// For each that has some.
    pub by_projection: BTreeMap<String, u64>,
}

const COLUMNS: &str = "event_id, projection, position, event_type, status, attempts, error, failed_at";
/// Rows of the generation that readers see.
pub(super) const CURRENT: &str =
    "generation = (SELECT p.generation FROM mainstay_projections p WHERE p.name = projection)";
const COUNT: &str =
    "SELECT projection, count(*) FROM mainstay_projection_failures WHERE status = 'quarantined'";
const SET: &str = "UPDATE mainstay_projection_failures SET status = $3, attempts = $4, retry_run_id = $5 \
     WHERE projection = $1 AND event_id = $2 AND is_poison = 1";

fn poison_event(row: &Row) -> mainstay_store::Result<PoisonEvent> {
    Ok(PoisonEvent {
        event_id: row.get(0)?,
        projection_name: row.get(1)?,
        position: row.get(2)?,
        event_type: row.get(3)?,
        status: match row.get(4)? {
            "quarantined" => PoisonStatus::Quarantined,
            "replayed" => PoisonStatus::Replayed,
            "ignored" => PoisonStatus::Ignored,
            _ => PoisonStatus::Failing,
        },
        attempts: row.get(5)?,
        error: row.get(6)?,
        failed_at: row.get(7)?,
    })
}

/// A quarantined event, held until the transaction ends.
async fn hold(tx: &Tx, projection: &str, event_id: &str) -> mainstay_store::Result<PoisonEvent> {
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_projection_failures \
         WHERE projection = $1 AND event_id = $2 AND is_poison = 1 AND status = 'quarantined' AND {CURRENT}"
    );
    let rows = tx.query_holding(&sql, params![projection, event_id], Hold::Alone).await?;
    let missing =
        || Error::NotQuarantined { projection: projection.to_owned(), event_id: event_id.to_owned() };
    poison_event(rows.first().ok_or_else(missing)?)
}

impl Projections {
    /// Whether an event is put aside for a projection.
    pub async fn is_quarantined(&self, projection: &str, event_id: &str) -> Result<bool> {
        let found = self.poison_event(projection, event_id).await?;
        Ok(found.is_some_and(|event| event.status == PoisonStatus::Quarantined))
    }

    /// What is known of an event that a projection has failed for.
    pub async fn poison_event(&self, projection: &str, event_id: &str) -> Result<Option<PoisonEvent>> {
        let projection = self.shared.find(projection)?;
        let read = async |tx: Tx, (name, event_id): (String, String)| {
            let sql = format!(
                "SELECT {COLUMNS} FROM mainstay_projection_failures \
                 WHERE projection = $1 AND event_id = $2 AND is_poison = 1 AND {CURRENT}"
            );
            let row = tx.query_optional(&sql, params![name, event_id]).await?;
            row.as_ref().map(poison_event).transpose()
        };
        let context = (projection.name.clone(), event_id.to_owned());
        Ok(self.shared.store.read_with(context, read).await?)
    }

    /// Events that are put aside, of one projection or of all, in the order of the log; after one of them, by its position
    /// and projection.
    pub async fn quarantined(
        &self,
        projection: Option<&str>,
        after: Option<(u64, String)>,
        limit: usize,
    ) -> Result<Vec<PoisonEvent>> {
        let read = async |tx: Tx, (name, (position, after), limit): (Option<String>, (i64, String), i64)| {
            let sql = format!(
                "SELECT {COLUMNS} FROM mainstay_projection_failures WHERE status = 'quarantined' \
                 AND (CAST($1 AS TEXT) IS NULL OR projection = $1) \
                 AND (position > $2 OR (position = $2 AND projection > $3)) AND {CURRENT} \
                 ORDER BY position, projection LIMIT $4"
            );
            let rows = tx.query(&sql, params![name, position, after, limit]).await?;
            rows.iter().map(poison_event).collect::<mainstay_store::Result<Vec<_>>>()
        };
        let (position, name) = after.unwrap_or_default();
        let place = (i64::try_from(position).unwrap_or(i64::MAX), name);
        let context = (projection.map(str::to_owned), place, limit.clamp(1, MAX_PAGE) as i64);
        Ok(self.shared.store.read_with(context, read).await?)
    }

    /// Events of a correlation that are put aside, in the order of the log.
    pub(crate) async fn quarantined_of(
        &self,
        correlation_id: &str,
        limit: usize,
    ) -> Result<Vec<PoisonEvent>> {
        let read = async |tx: Tx, (correlation_id, limit): (String, i64)| {
            let sql = format!(
                "SELECT {COLUMNS} FROM mainstay_projection_failures WHERE correlation_id = $1 \
                 AND status = 'quarantined' AND {CURRENT} ORDER BY position, projection LIMIT $2"
            );
            let rows = tx.query(&sql, params![correlation_id, limit]).await?;
            rows.iter().map(poison_event).collect::<mainstay_store::Result<Vec<_>>>()
        };
        let context = (correlation_id.to_owned(), limit.clamp(1, MAX_PAGE) as i64);
        Ok(self.shared.store.read_with(context, read).await?)
    }

    /// How many events are put aside.
    pub async fn poison_stats(&self) -> Result<PoisonStats> {
        let count = async |tx: Tx| {
            let mut stats = PoisonStats::default();
            for row in tx.query(&format!("{COUNT} AND {CURRENT} GROUP BY projection"), &[]).await? {
                let count: u64 = row.get(1)?;
                stats.total += count;
                stats.by_projection.insert(row.get(0)?, count);
            }
            Ok(stats)
        };
        Ok(self.shared.store.read(count).await?)
    }

    /// Lets an event out of quarantine: it is tried again, from no attempts, as an item of work whose id is returned.
    pub async fn unquarantine(&self, projection: &str, event_id: &str) -> Result<String> {
        let event = self.shared.event(event_id).await?;
        let release = async |tx: Tx, (shared, projection, event): Releasing| {
            hold(&tx, &projection.name, event.id()).await?;
            let item = retry::item(&projection, &event)?;
            let receipt = shared.work.enqueue_in(&tx, [item]).map_err(Error::from)?;
            let work_id = receipt.work_ids()[0].clone();
            let params = params![&projection.name, event.id(), "replayed", 0, &work_id];
            // In a generation that is filled beside it stays aside, and is known to be.
            tx.execute(&format!("{SET} AND {CURRENT}"), params).await?;
            Ok(work_id)
        };
        let context = (self.shared.clone(), self.shared.find(projection)?, Arc::new(event));
        Ok(self.shared.store.transact_with(context, release).await?)
    }

    /// Leaves a quarantined event for good: it stays out of the read model, also when that is rebuilt.
    pub async fn ignore_quarantined(&self, projection: &str, event_id: &str) -> Result<()> {
        self.dismiss(projection, event_id, None).await
    }

    /// Leaves a quarantined event for good and appends what makes up for it, in one transaction.
    pub async fn compensate(&self, projection: &str, event_id: &str, append: Append) -> Result<()> {
        self.dismiss(projection, event_id, Some(append)).await
    }

    async fn dismiss(&self, projection: &str, event_id: &str, append: Option<Append>) -> Result<()> {
        let projection = self.shared.find(projection)?;
        let dismiss = async |tx: Tx, (shared, name, event_id, append): Dismissing| {
            let found = hold(&tx, &name, &event_id).await?;
            let params = params![name, event_id, "ignored", found.attempts, None::<&str>];
            tx.execute(SET, params).await?;
            if let Some(append) = append {
                shared.log.append_in(&tx, append).map_err(Error::from)?;
            }
            Ok(())
        };
        let context = (self.shared.clone(), projection.name.clone(), event_id.to_owned(), append);
        Ok(self.shared.store.transact_with(context, dismiss).await?)
    }
}

type Releasing = (Arc<Shared>, Arc<Projection>, Arc<mainstay_events::Event>);
type Dismissing = (Arc<Shared>, String, String, Option<Append>);
