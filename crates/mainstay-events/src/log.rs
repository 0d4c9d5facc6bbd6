//! The log as its users see it.

use crate::append::{Append, Appended, Batcher, Ground, NewEvent, Noted, Prepared, Receipt};
use crate::error::{Error, Result};
use crate::events_topic;
use crate::figures::Figures;
use crate::index::{End, Recent, SEGMENT_EVENTS, Terms};
use crate::record;
use mainstay_core::ids::{Context, Ids, Kind};
use mainstay_store::{Cause, Store, Tx, params};
use std::sync::Arc;
use std::time::Duration;

/// How long a wait goes on without being woken before it looks by itself: a node may die between its commit and its
/// wake-up.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The log of a store. Clones are the same log.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
    tenant: Option<Arc<str>>,
}

struct Inner {
    store: Store,
    ground: Arc<Ground>,
    figures: Arc<Figures>,
    batcher: Batcher,
    ids: Ids,
}

const FIND_LOG: &str = "SELECT term_key FROM mainstay_log WHERE name = 'events'";
const BEGIN_LOG: &str = "INSERT INTO mainstay_log (name, epoch, indexed, term_key, began_at) \
     VALUES ('events', 1, 0, $1, mainstay_now()) ON CONFLICT DO NOTHING";
const EPOCH: &str = "SELECT epoch FROM mainstay_log WHERE name = 'events'";
pub(crate) const HEAD: &str = "SELECT max(position) FROM mainstay_events";

impl Log {
    /// Opens the log of a store that was opened with [`COMPONENT`](crate::COMPONENT).
    pub async fn open(store: &Store) -> Result<Self> {
        Self::open_in_segments(store, SEGMENT_EVENTS).await
    }

    /// As [`open`](Self::open), with other segments of the index in memory: small ones are merged all the time, which
    /// is what tests of merging need.
    #[doc(hidden)]
    pub async fn open_in_segments(store: &Store, segment_events: usize) -> Result<Self> {
        let random = store.random();
        let fresh = format!("{:016x}{:016x}", random.next_u64(), random.next_u64());
        let begin = async |tx: Tx, fresh: String| {
            tx.execute(BEGIN_LOG, params![fresh]).await?;
            tx.query_one(FIND_LOG, &[]).await?.get::<String>(0)
        };
        let found = store.read(async |tx| tx.query_optional(FIND_LOG, &[]).await).await?;
        let key = match found {
            Some(row) => row.get(0)?,
            None => store.transact_with(fresh, begin).await?,
        };
        let half = |range| key.get(range).and_then(|half| u64::from_str_radix(half, 16).ok());
        let (Some(first), Some(second)) = (half(0..16), half(16..32)) else {
            return Err(Error::Corrupt {
                position: 0,
                reason: "the key of the index is unreadable".to_owned(),
            });
        };
        let terms = Terms::new((first, second));
        let recent = if store.capabilities().many_nodes {
            None
        } else {
            Some(recent(store, terms, segment_events).await?)
        };
        let clock = store.clock().clone();
        let ground = Arc::new(Ground { terms, recent, clock, random: random.clone() });
        let figures = Arc::new(Figures::default());
        let batcher = Batcher::new(store.clone(), ground.clone(), figures.clone());
        let ids = Ids::new(store.clock().clone(), random.clone());
        let inner = Inner { store: store.clone(), ground, figures, batcher, ids };
        let log = Self { inner: Arc::new(inner), tenant: None };
        log.inner.figures.head.set(log.head().await? as i64);
        Ok(log)
    }

    /// The log as a tenant sees it: only its own events are read, followed and counted by conditions, and what it
    /// appends is its own.
    pub fn for_tenant(&self, tenant: impl Into<String>) -> Self {
        Self { inner: self.inner.clone(), tenant: Some(tenant.into().into()) }
    }

    /// Whose view it is.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// Appends, sharing a transaction with whoever else appends at this moment.
    pub fn append(&self, append: impl Into<Append>) -> impl Future<Output = Result<Appended>> + Send + '_ {
        // Not in the future, which would be a kilobyte larger for it.
        let prepared = self.prepare(append.into()).map(Arc::new);
        async move { self.inner.batcher.append(prepared?).await }
    }

    /// Appends at the end of a transaction, beside what its author writes: all of it is committed, or nothing. What
    /// was [applied before](Error::AlreadyApplied) ends the transaction too, since all of it was.
    pub fn append_in(&self, tx: &Tx, append: impl Into<Append>) -> Result<Receipt> {
        self.note(tx, append.into(), false)
    }

    /// As [`append_in`](Self::append_in), but what was applied before adds nothing and the transaction goes on; the receipt
    /// says which events are meant. Every event needs an idempotency key.
    pub fn append_once_in(&self, tx: &Tx, append: impl Into<Append>) -> Result<Receipt> {
        let append = append.into();
        if let Some(number) = append.events.iter().position(|event| event.idempotency_key.is_none()) {
            return Err(Error::invalid(format!("events[{number}].idempotencyKey"), "is missing"));
        }
        self.note(tx, append, true)
    }

    /// Checks an append as far as that needs no database.
    pub fn check_append(&self, append: impl Into<Append>) -> Result<()> {
        self.prepare(append.into()).map(drop)
    }

    fn note(&self, tx: &Tx, append: Append, is_repeatable: bool) -> Result<Receipt> {
        let prepared = self.prepare(append)?;
        let Inner { store, ground, figures, ids, .. } = &*self.inner;
        let noted = tx.epilogue(|| Noted::new(store.clone(), ground.clone(), figures.clone()));
        Ok(noted.add(prepared, is_repeatable, |context| {
            let context =
                context.and_then(|name| Context::new(name).ok()).or_else(|| Context::new("app").ok());
            ids.make(context.map_or(Kind::IntegrationEvent, Kind::Event)).to_string()
        }))
    }

    fn prepare(&self, mut append: Append) -> Result<Prepared> {
        if let Some(cause) = Cause::current() {
            let inherit = |event: NewEvent| match &self.tenant {
                Some(tenant) => event.or_tenant(tenant).caused_by(&cause),
                None => event.caused_by(&cause),
            };
            append.events = append.events.into_iter().map(inherit).collect();
        }
        Prepared::new(append, self.tenant(), self.terms())
    }

    /// The last position; 0 for an empty log.
    pub async fn head(&self) -> Result<u64> {
        let head = self.store().read(async |tx| tx.query_one(HEAD, &[]).await?.get::<Option<u64>>(0)).await?;
        Ok(head.unwrap_or(0))
    }

    /// Which life of the log this is: it changes when a backup is restored, and then positions beyond the backup mean
    /// other events than before.
    pub async fn epoch(&self) -> Result<u64> {
        Ok(self.store().read(async |tx| tx.query_one(EPOCH, &[]).await?.get(0)).await?)
    }

    /// Waits until the log has reached `position`, for at most `patience`; returns the head.
    pub async fn wait_for(&self, position: u64, patience: Duration) -> Result<u64> {
        let deadline = tokio::time::Instant::now() + patience;
        let mut listener = self.store().listen(events_topic());
        loop {
            let head = self.head().await?;
            if head >= position {
                return Ok(head);
            }
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            if left.is_zero() {
                let waited_ms = patience.as_millis() as u64;
                return Err(Error::NotReached { position, waited_ms, head });
            }
            listener.woken(left.min(LOOK_AGAIN)).await;
        }
    }

    /// The store that the log is in.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// What the log measures about itself.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.inner.figures
    }

    pub(crate) fn ground(&self) -> &Arc<Ground> {
        &self.inner.ground
    }

    pub(crate) fn terms(&self) -> Terms {
        self.inner.ground.terms
    }
}

const INDEXED: &str = "SELECT indexed, epoch FROM mainstay_log WHERE name = 'events'";
const TAIL: &str =
    "SELECT position, header FROM mainstay_events WHERE position > $1 ORDER BY position LIMIT 1000";

/// The newest entries of the index: those that this store has in memory, or else read from the tail of the log.
async fn recent(store: &Store, terms: Terms, segment_events: usize) -> Result<Recent> {
    if let Some(kept) = store.companion::<Recent>(None) {
        return Ok((*kept).clone());
    }
    let begun = async |tx: Tx| {
        let row = tx.query_one(INDEXED, &[]).await?;
        Ok((row.get::<u64>(0)?, row.get::<u64>(1)?))
    };
    let (merged, epoch) = store.read(begun).await?;
    let recent = Recent::new(merged, epoch, segment_events);
    let (mut after, mut last_ms, mut own) = (merged, 0, Vec::new());
    loop {
        let read = async |tx: Tx, after: i64| tx.query(TAIL, params![after]).await;
        let rows = store.read_with(after as i64, read).await?;
        let Some(last) = rows.last() else { break };
        after = last.get(0)?;
        for row in rows {
            let position = row.get(0)?;
            // A damaged event cannot be found by what it was; whoever reads it is told.
            match record::header_of(&row) {
                Ok(event) => {
                    terms.of(&event, &mut own);
                    last_ms = event.timestamp_ms();
                }
                Err(error) => {
                    tracing::error!(%error, "a damaged event is left out of the index");
                    own.clear();
                }
            }
            recent.restore(position, &own, End { head: position, last_ms });
        }
    }
    if last_ms == 0 && merged > 0 {
        // Everything is merged; only the time of the last event is still to be known.
        let last = async |tx: Tx, at: i64| tx.query_optional(LAST, params![at]).await;
        if let Some(Ok(event)) = store.read_with(merged as i64, last).await?.as_ref().map(record::header_of) {
            recent.end_at(End { head: merged, last_ms: event.timestamp_ms() });
        }
    }
    // Somebody else may have been faster.
    let kept = store.companion(Some(Arc::new(recent.clone())));
    Ok(kept.map_or(recent, |kept| (*kept).clone()))
}

const LAST: &str = "SELECT position, header FROM mainstay_events WHERE position = $1";

impl std::fmt::Debug for Log {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Log").field("store", self.store()).field("tenant", &self.tenant).finish()
    }
}
