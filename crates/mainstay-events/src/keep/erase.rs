//! Takes away what events say, and leaves that they happened.
//!
//! Data and metadata are overwritten; the header stays, with the type, the tags and all that makes the log whole, so
//! that conditions, versions and idempotency go on as before. Who erased what and why is in `mainstay_erasures`.

use crate::append;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::index::{self, Groups, Recent, View};
use crate::log::Log;
use crate::record;
use mainstay_core::query::{Item, Query};
use mainstay_store::{Row, Tx, Value, params};
use std::collections::BTreeSet;

/// Events of one transaction: at most 4 MiB to overwrite, and mostly a few kilobytes.
const CHUNK: usize = 32;
/// Longest reason and longest name of an actor.
const MAX_NOTE_BYTES: usize = 1_024;

/// What is to be erased, by whom and why.
#[derive(Debug, Clone)]
pub struct Erasure {
    which: Which,
    actor: String,
    reason: String,
}

#[derive(Debug, Clone)]
enum Which {
    Event(String),
    Matching(Query),
}

/// The events of a search. An id stands for one position.
#[derive(Debug, Clone)]
enum Sought {
    At(u64),
    Matching(Query),
}

impl Erasure {
    /// The event with this id, as [`Log::find`] chooses it.
    pub fn of_event(event_id: impl Into<String>) -> Self {
        Self::of(Which::Event(event_id.into()))
    }

    /// Every event with this tag.
    pub fn of_tag(tag: impl Into<String>) -> Result<Self> {
        let query = Query::new(vec![Item { types: Vec::new(), tags: vec![tag.into()] }]);
        Ok(Self::of_query(query.map_err(|error| Error::invalid("tag", error.to_string()))?))
    }

    /// Every event that a query means.
    pub fn of_query(query: Query) -> Self {
        Self::of(Which::Matching(query))
    }

    fn of(which: Which) -> Self {
        Self { which, actor: String::new(), reason: String::new() }
    }

    /// Who does it.
    pub fn by(self, actor: impl Into<String>) -> Self {
        Self { actor: actor.into(), ..self }
    }

    /// Why.
    pub fn because(self, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..self }
    }

    /// As it stands in the audit: JSON.
    fn selector(&self) -> String {
        match &self.which {
            Which::Event(id) => serde_json::json!({ "eventId": id }),
            Which::Matching(query) => serde_json::json!({ "query": query }),
        }
        .to_string()
    }
}

/// What came of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    /// Its row in the audit.
    pub erasure_id: String,
    /// Events that were erased now. What was erased before does not count.
    pub events: u64,
    /// Whether the bytes are gone from SQLite's write-ahead log too. A read that goes on for long can keep them there,
    /// until the store is closed or [`Store::empty_log`](mainstay_store::Store::empty_log) succeeds.
    pub is_log_empty: bool,
}

impl Log {
    /// Erases data and metadata of events, those that are there when it begins. A tenant's view erases only its own.
    /// Doing it again erases nothing more; one that was stopped half-way is finished by doing it again.
    pub async fn erase(&self, erasure: Erasure) -> Result<Erased> {
        for (field, text) in [("actor", &erasure.actor), ("reason", &erasure.reason)] {
            if text.trim().is_empty() || text.len() > MAX_NOTE_BYTES {
                return Err(Error::invalid(field, format!("must be 1 to {MAX_NOTE_BYTES} bytes")));
            }
        }
        let sought = match &erasure.which {
            Which::Event(id) => Sought::At(self.position_to_erase(id).await?),
            Which::Matching(query) => Sought::Matching(query.clone()),
        };
        let head = self.head().await?;
        let mut search = Search::new(self, sought);
        let erasure_id = self.begin_erasure(&erasure).await?;
        let (mut events, mut damaged, mut after) = (0, None, 0);
        while after < head {
            search.after = after;
            search.most = head;
            let asked = (search.clone(), erasure_id.clone());
            let step = self.store().transact_with(asked, erase_some).await?;
            events += step.erased;
            damaged = damaged.or(step.damaged);
            after = step.reached;
        }
        let end = async |tx: Tx, id: String| tx.execute(END, params![id]).await;
        let is_log_empty = events == 0 || self.store().empty_log().await?;
        if let Some(position) = damaged {
            // Not ended: nobody knows what a header that is damaged said.
            return Err(Error::Corrupt {
                position,
                reason: "it could not be told whether to erase it".to_owned(),
            });
        }
        self.store().transact_with(erasure_id.clone(), end).await?;
        Ok(Erased { erasure_id, events, is_log_empty })
    }

    async fn position_to_erase(&self, event_id: &str) -> Result<u64> {
        match self.position_of(event_id).await {
            Ok(Some(position)) => Ok(position),
            // A damaged header has no id.
            Ok(None) | Err(Error::Corrupt { .. }) => Err(Error::NotFound(event_id.to_owned())),
            Err(error) => Err(error),
        }
    }

    async fn begin_erasure(&self, erasure: &Erasure) -> Result<String> {
        let random = self.store().random();
        let id = format!(
            "era_{}",
            index::made_uuid(self.store().clock().now_ms(), random.next_u64(), random.next_u64())
        );
        let row = vec![
            Value::from(&id),
            Value::from(erasure.selector()),
            Value::from(self.tenant()),
            Value::from(&erasure.actor),
            Value::from(&erasure.reason),
        ];
        self.store()
            .transact_with(row, async |tx: Tx, row: Vec<Value>| tx.execute(BEGIN, &row).await)
            .await?;
        Ok(id)
    }
}

const BEGIN: &str = "INSERT INTO mainstay_erasures (erasure_id, selector, tenant_id, actor, reason, events, began_at) \
     VALUES ($1, $2, $3, $4, $5, 0, mainstay_now())";
const COUNT: &str = "UPDATE mainstay_erasures SET events = events + $2 WHERE erasure_id = $1";
const END: &str = "UPDATE mainstay_erasures SET ended_at = mainstay_now() WHERE erasure_id = $1";
const OVERWRITE: &str = "UPDATE mainstay_events SET payload = $2 WHERE position = $1";

/// Looks for what is meant. Only headers count: a damaged payload can be erased all the same.
#[derive(Clone)]
struct Search {
    sought: Sought,
    tenant: Option<String>,
    /// What an event must have, for each way to match.
    ways: Vec<Groups>,
    after: u64,
    most: u64,
    /// Taken when the search began; it reaches as far as the search does.
    view: View,
    /// Where the newest events are in memory.
    recent: Option<Recent>,
}

impl Search {
    fn new(log: &Log, sought: Sought) -> Self {
        let ways = match &sought {
            Sought::At(_) => Vec::new(),
            Sought::Matching(query) => {
                query.items().iter().map(|item| append::groups(item, log.tenant(), log.terms())).collect()
            }
        };
        let tenant = log.tenant().map(str::to_owned);
        Self {
            sought,
            tenant,
            ways,
            after: 0,
            most: 0,
            view: log.ground().view(),
            recent: log.ground().recent.clone(),
        }
    }

    /// The next positions that may be meant, and up to where that is all of them.
    async fn candidates(&self, tx: &Tx) -> mainstay_store::Result<(Vec<u64>, u64)> {
        let mut positions = BTreeSet::new();
        if self.ways.iter().any(Groups::is_everything) {
            positions.extend((self.after + 1..=self.most).take(CHUNK));
        } else {
            for groups in &self.ways {
                positions
                    .extend(index::ascending(tx, &self.view, groups, self.after, self.most, CHUNK).await?);
            }
        }
        if let Sought::At(position) = &self.sought {
            positions.extend(Some(*position).filter(|at| (self.after + 1..=self.most).contains(at)));
        }
        let is_all = positions.len() < CHUNK;
        let positions: Vec<u64> = positions.into_iter().take(CHUNK).collect();
        let reached = positions.last().copied().filter(|_| !is_all).unwrap_or(self.most);
        Ok((positions, reached))
    }

    fn means(&self, event: &Event) -> bool {
        let is_own = self.tenant.is_none() || event.tenant() == self.tenant.as_deref();
        is_own
            && match &self.sought {
                Sought::At(position) => event.position() == *position,
                Sought::Matching(query) => {
                    query.matches(event.event_type(), &event.tags().collect::<Vec<_>>())
                }
            }
    }
}

/// A row of the log, whatever its payload is.
struct Stored {
    position: u64,
    header: Vec<u8>,
    payload: Value,
}

impl Stored {
    fn of(row: Row) -> Option<Self> {
        match <[Value; 3]>::try_from(row.into_values()) {
            Ok([Value::Int(position), Value::Blob(header), payload]) => {
                Some(Self { position: position as u64, header, payload })
            }
            _ => None,
        }
    }

    fn header(&self) -> Option<Event> {
        record::decode(self.position, self.header.clone(), None).ok()
    }

    /// What takes the payload's place; nothing when that was done before.
    fn overwritten(&self) -> Option<Vec<Value>> {
        let length = if let Value::Blob(payload) = &self.payload { payload.len() } else { 0 };
        let mark = Value::Blob(record::erased_payload(self.position, &self.header, length));
        (mark != self.payload).then(|| vec![Value::Int(self.position as i64), mark])
    }
}

/// What one transaction did.
struct Step {
    erased: u64,
    /// An event of which nobody knows whether it is meant.
    damaged: Option<u64>,
    reached: u64,
}

async fn erase_some(tx: Tx, (search, erasure_id): (Search, String)) -> mainstay_store::Result<Step> {
    let (positions, reached) = search.candidates(&tx).await?;
    let (mut damaged, mut marks) = (None, Vec::new());
    for row in index::rows_at(&tx, &positions).await? {
        let Some(stored) = Stored::of(row) else { continue };
        match stored.header() {
            Some(event) if search.means(&event) => marks.extend(stored.overwritten()),
            Some(_) => {}
            None => damaged = damaged.or(Some(stored.position)),
        }
    }
    let erased = marks.len() as u64;
    if erased > 0 {
        if let Some(recent) = &search.recent {
            // Before the end: whoever is next to decide must not find them. One that stays after all is read again.
            recent.forget(&positions);
        }
        tx.execute_many(OVERWRITE, &marks).await?;
        tx.execute(COUNT, params![erasure_id, erased as i64]).await?;
    }
    Ok(Step { erased, damaged, reached })
}
