//! Quarantined events (items 185 to 191).

use super::key;
use super::many::{QUARANTINE, Which};
use super::payload;
use crate::error::{Error, Result};
use crate::projections::MAX_PAGE;
use crate::projections::opened::Projections;
use mainstay_events::Append;
use mainstay_store::{Hold, Row, Tx, params};
use serde::Serialize;
use serde_json::value::RawValue;
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
    /// The tenant of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
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

/// A quarantined event, as the inbox of dead letters shows it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QuarantinedEvent {
    #[serde(flatten)]
    event: PoisonEvent,
    correlation_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
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

fn poison_event(row: &Row) -> mainstay_store::Result<PoisonEvent> {
    let (event_id, tenant) = key::split(row.get(0)?);
    Ok(PoisonEvent {
        event_id: event_id.to_owned(),
        tenant_id: tenant.map(str::to_owned),
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

fn not_quarantined(projection: &str, event_id: &str) -> Error {
    Error::NotQuarantined { projection: projection.to_owned(), event_id: event_id.to_owned() }
}

/// A quarantined event, held until the transaction ends.
async fn hold(tx: &Tx, projection: &str, key: &str) -> mainstay_store::Result<PoisonEvent> {
    let sql = format!(
        "SELECT {COLUMNS} FROM mainstay_projection_failures \
         WHERE projection = $1 AND event_id = $2 AND is_poison = 1 AND status = 'quarantined' AND {CURRENT}"
    );
    let rows = tx.query_holding(&sql, params![projection, key], Hold::Alone).await?;
    let missing = || not_quarantined(projection, key::split(key).0);
    poison_event(rows.first().ok_or_else(missing)?)
}

impl Projections {
    /// Whether an event is put aside for a projection.
    pub async fn is_quarantined(&self, projection: &str, event_id: &str) -> Result<bool> {
        let found = self.poison_event(projection, event_id).await?;
        Ok(found.is_some_and(|event| event.status == PoisonStatus::Quarantined))
    }

    /// The quarantined event of a key; none once it is resolved, or if another program has the projection.
    pub(crate) async fn quarantined_at(
        &self,
        projection: &str,
        key: &str,
    ) -> Result<Option<QuarantinedEvent>> {
        let read = async |tx: Tx, (name, key): (String, String)| {
            let sql = format!(
                "SELECT {COLUMNS}, correlation_id FROM mainstay_projection_failures \
                 WHERE projection = $1 AND event_id = $2 AND is_poison = 1 AND status <> 'failing' AND {CURRENT}"
            );
            let Some(row) = tx.query_optional(&sql, params![name, key]).await? else { return Ok(None) };
            let correlation_id = row.get(8)?;
            Ok(Some(QuarantinedEvent { event: poison_event(&row)?, correlation_id, payload: None }))
        };
        let context = (projection.to_owned(), key.to_owned());
        let mut found = self.shared.store.read_with(context, read).await?;
        if let Some(found) = &mut found {
            found.payload =
                payload::of(&self.shared.log, found.event.position, &found.event.event_id).await?;
        }
        Ok(found)
    }

    /// What is known of an event that a projection has failed for.
    pub async fn poison_event(&self, projection: &str, event_id: &str) -> Result<Option<PoisonEvent>> {
        let projection = self.shared.find(projection)?;
        let read = async |tx: Tx, (name, key): (String, String)| {
            let sql = format!(
                "SELECT {COLUMNS} FROM mainstay_projection_failures \
                 WHERE projection = $1 AND event_id = $2 AND is_poison = 1 AND {CURRENT}"
            );
            let row = tx.query_optional(&sql, params![name, key]).await?;
            row.as_ref().map(poison_event).transpose()
        };
        let context = (projection.name.clone(), self.key_of(&projection.name, event_id).await?);
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
        // They are sorted, whatever is asked for.
        Ok(self.shared.store.search_with(context, read).await?)
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
        let release = async |tx: Tx, (projections, which): (Self, Which)| {
            hold(&tx, &which.0, &which.1).await?;
            let retried = projections.retry_in(&tx, QUARANTINE, std::slice::from_ref(&which), false);
            let (_, retried) =
                retried.await?.pop().ok_or_else(|| not_quarantined(&which.0, key::split(&which.1).0))?;
            Ok(retried?)
        };
        let name = self.shared.find(projection)?.name.clone();
        let key = self.key_of(&name, event_id).await?;
        Ok(self.shared.store.transact_with((self.clone(), (name, key)), release).await?)
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
        let dismiss = async |tx: Tx, (projections, which, append): Dismissing| {
            hold(&tx, &which.0, &which.1).await?;
            projections.ignore_in(&tx, QUARANTINE, std::slice::from_ref(&which)).await?;
            if let Some(append) = append {
                projections.shared.log.append_in(&tx, append).map_err(Error::from)?;
            }
            Ok(())
        };
        let key = self.key_of(&projection.name, event_id).await?;
        let context = (self.clone(), (projection.name.clone(), key), append);
        Ok(self.shared.store.transact_with(context, dismiss).await?)
    }
}

type Dismissing = (Projections, Which, Option<Append>);
