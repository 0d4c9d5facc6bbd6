//! Reading: pages of events by position, query, stream, correlation and time.
//!
//! A page is read on one snapshot, and never waits for the writer. It is bounded in events and in bytes, whatever is
//! asked for; `next` tells where to go on.

use crate::error::{Error, Result, Versioned};
use crate::event::Event;
use crate::index::{self, Groups, View, position_in};
use crate::log::{HEAD, Log};
use crate::record::{event_of, missing};
use crate::{MAX_PAGE, append};
use mainstay_core::query::{Item, Query};
use mainstay_store::{Row, Tx, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Most bytes of one page, as they are stored.
pub(crate) const MAX_BYTES: usize = 4 << 20;
/// Events of the first look, when nothing is known yet of their size.
pub(crate) const FIRST_LOOK: usize = 64;

/// Which events are wanted. Everything that is given must hold.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// After this position.
    pub after: u64,
    /// Up to this position, itself included.
    pub until: Option<u64>,
    /// That the query means.
    pub query: Option<Query>,
    /// Of this stream: type and id.
    pub stream: Option<(String, String)>,
    /// That belong together under this id.
    pub correlation_id: Option<String>,
    /// Committed at this time or later, in milliseconds since the epoch.
    pub since_ms: Option<i64>,
    /// Committed before this time.
    pub before_ms: Option<i64>,
}

impl Selection {
    /// Every event.
    pub fn all() -> Self {
        Self::default()
    }

    /// Those after a position.
    pub fn after(self, after: u64) -> Self {
        Self { after, ..self }
    }

    /// Those up to a position.
    pub fn until(self, until: u64) -> Self {
        Self { until: Some(until), ..self }
    }

    /// Those that a query means.
    pub fn matching(self, query: Query) -> Self {
        Self { query: Some(query), ..self }
    }

    /// Those that have a tag.
    pub fn tagged(self, tag: impl Into<String>) -> Result<Self> {
        let query = Query::new(vec![Item { types: Vec::new(), tags: vec![tag.into()] }]);
        Ok(self.matching(query.map_err(|error| Error::invalid("tag", error.to_string()))?))
    }

    /// Those of a type.
    pub fn of_type(self, event_type: impl Into<String>) -> Result<Self> {
        let query = Query::new(vec![Item { types: vec![event_type.into()], tags: Vec::new() }]);
        Ok(self.matching(query.map_err(|error| Error::invalid("type", error.to_string()))?))
    }

    /// Those of a stream.
    pub fn of_stream(self, stream_type: impl Into<String>, id: impl Into<String>) -> Self {
        Self { stream: Some((stream_type.into(), id.into())), ..self }
    }

    /// Those that belong together.
    pub fn correlated(self, id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..self }
    }

    /// Those of a time.
    pub fn since_ms(self, since_ms: i64) -> Self {
        Self { since_ms: Some(since_ms), ..self }
    }

    /// Those before a time.
    pub fn before_ms(self, before_ms: i64) -> Self {
        Self { before_ms: Some(before_ms), ..self }
    }
}

/// A part of the log.
#[derive(Debug)]
pub struct Page {
    /// The events, in order.
    pub events: Vec<Event>,
    /// The log's last position on the snapshot that was read: nothing up to here is missing from what was selected.
    pub head: u64,
    /// The `after` of the next page, when there is more.
    pub next: Option<u64>,
    /// Which life of the log it is.
    pub epoch: u64,
}

/// A part of a stream.
#[derive(Debug)]
pub struct StreamPage {
    /// Its events.
    pub page: Page,
    /// Its version; 0 when there is no such stream.
    pub version: u64,
}

/// What is asked of a snapshot.
#[derive(Clone)]
pub(crate) struct Request<'a> {
    pub(crate) selection: Cow<'a, Selection>,
    tenant: Option<String>,
    pub(crate) limit: usize,
    /// What an event must have, for each way to match; empty when everything is wanted.
    pub(crate) ways: Vec<Groups>,
    /// Taken before the snapshot: what was merged since is still in it, and what came since is left for later.
    pub(crate) view: View,
}

impl Log {
    /// Reads the first events of `selection`, at most `limit` (or [`MAX_PAGE`]) and at most 4 MiB of them.
    pub async fn read(&self, selection: &Selection, limit: usize) -> Result<Page> {
        let request = self.request(selection, limit);
        let read = async |tx: Tx, request: Request<'static>| read_page(&tx, &request).await;
        let (events, head, next, epoch) = self.store().read_with(request, read).await?;
        let events = self.counted(events)?;
        Ok(Page { events, head, next, epoch })
    }

    /// As [`read`](Self::read), inside of a transaction: what it sees is what a decision in it rests on.
    pub async fn read_in(&self, tx: &Tx, selection: &Selection, limit: usize) -> Result<Page> {
        let request = self.request_of(Cow::Borrowed(selection), limit, self.ground().view_in(tx));
        let (events, head, next, epoch) = read_page(tx, &request).await?;
        let events = self.counted(events)?;
        Ok(Page { events, head, next, epoch })
    }

    /// Reads a stream after one of its versions, and tells its version.
    pub async fn read_stream(
        &self,
        stream_type: &str,
        id: &str,
        after_version: u64,
        limit: usize,
    ) -> Result<StreamPage> {
        let request = self.request(&Selection::all().of_stream(stream_type, id), limit);
        let read = async |tx: Tx, (mut request, after_version): (Request<'static>, u64)| {
            let version = last_of(&tx, &request).await?.map(|last| last.map(|last| version_of(&last)));
            request.selection.to_mut().after = position_of(&tx, &request, after_version).await?;
            Ok((version, read_page(&tx, &request).await?))
        };
        let (version, (events, head, next, epoch)) =
            self.store().read_with((request, after_version), read).await?;
        let mut events = self.counted(events)?;
        events.retain(|event| version_of(event) > after_version);
        Ok(StreamPage {
            page: Page { events, head, next, epoch },
            version: version.transpose()?.unwrap_or(0),
        })
    }

    /// The version of a stream; 0 when there is none.
    pub async fn stream_version(&self, stream_type: &str, id: &str) -> Result<u64> {
        let request = self.request(&Selection::all().of_stream(stream_type, id), 1);
        let last = self
            .store()
            .read_with(request, async |tx: Tx, request: Request<'static>| last_of(&tx, &request).await);
        Ok(last.await?.transpose()?.as_ref().map_or(0, version_of))
    }

    /// As [`stream_version`](Self::stream_version), inside of a transaction.
    pub async fn stream_version_in(&self, tx: &Tx, stream_type: &str, id: &str) -> Result<u64> {
        let selection = Selection::all().of_stream(stream_type, id);
        let request = self.request_of(Cow::Owned(selection), 1, self.ground().view_in(tx));
        Ok(last_of(tx, &request).await?.transpose()?.as_ref().map_or(0, version_of))
    }

    /// The version of a scope; 0 when there is none.
    pub async fn scope_version(&self, key: &crate::ScopeKey) -> Result<u64> {
        if self.tenant().is_some_and(|tenant| tenant != key.tenant_id) {
            return Ok(0);
        }
        let read = async |tx: Tx, key: String| scope_version(&tx, &key).await;
        Ok(self.store().read_with(key.to_string(), read).await?)
    }

    /// Refuses, as an append would, when a scope is not at the version that is expected of it.
    /// A tenant's view learns nothing of another tenant's scope.
    pub async fn expect_scope_in(&self, tx: &Tx, claim: &crate::ScopeClaim) -> Result<()> {
        let field = || "scope.key".to_owned();
        let key: crate::ScopeKey =
            claim.key.parse().map_err(|source| Error::ScopeKey { field: field(), source })?;
        if self.tenant().is_some_and(|tenant| tenant != key.tenant_id) {
            return Err(Error::Tenant { field: field() });
        }
        let current = scope_version(tx, &claim.key).await?;
        if current == claim.expected_version {
            return Ok(());
        }
        let head = tx.query_one(HEAD, &[]).await?.get::<Option<u64>>(0)?.unwrap_or(0);
        let of = Versioned::Scope { key: claim.key.clone() };
        Err(Error::VersionConflict { of, expected: claim.expected_version, current, head })
    }

    /// The event of `tenant`, or of nobody, that has this idempotency key, inside of a transaction.
    pub async fn find_by_key_in(&self, tx: &Tx, tenant: Option<&str>, key: &str) -> Result<Option<Event>> {
        if self.tenant().is_some_and(|own| tenant != Some(own)) {
            return Ok(None);
        }
        let groups = Groups::default().and(vec![self.terms().idempotency(tenant, key)]);
        let (view, mut most) = (self.ground().view_in(tx), i64::MAX as u64);
        while let Some(position) = index::latest_in(tx, &view, &groups, 0, most).await? {
            let row = index::rows_at(tx, &[position]).await?.pop();
            let event = row.map_or_else(|| Err(missing(position)), event_of)?;
            if event.idempotency_key() == Some(key) && event.tenant() == tenant {
                return Ok(Some(event));
            }
            most = position - 1;
        }
        Ok(None)
    }

    pub(crate) fn request(&self, selection: &Selection, limit: usize) -> Request<'static> {
        self.request_of(Cow::Owned(selection.clone()), limit, self.ground().view())
    }

    fn request_of<'a>(&self, selection: Cow<'a, Selection>, limit: usize, view: View) -> Request<'a> {
        let terms = self.terms();
        let any = [Item::default()];
        let items = selection.query.as_ref().map_or(&any[..], Query::items);
        let stream = selection.stream.as_ref();
        let stream = stream.map(|(stream_type, id)| terms.stream(self.tenant(), stream_type, id));
        let correlation = selection.correlation_id.as_ref().map(|id| terms.correlation(id));
        let ways = items.iter().map(|item| {
            // The rarest first, so that most leaps are long.
            Groups::default()
                .and(stream.into_iter().collect())
                .and(correlation.into_iter().collect())
                .and_all(append::groups(item, self.tenant(), terms))
        });
        let ways: Vec<Groups> = ways.collect();
        let is_everything = ways.iter().any(Groups::is_everything);
        Request {
            selection,
            tenant: self.tenant().map(str::to_owned),
            limit: limit.clamp(1, MAX_PAGE),
            ways: if is_everything { Vec::new() } else { ways },
            view,
        }
    }

    pub(crate) fn counted(&self, events: Vec<Result<Event>>) -> Result<Vec<Event>> {
        let events: Result<Vec<Event>> = events.into_iter().collect();
        match &events {
            Ok(events) => self.figures().read.add(events.len() as u64),
            Err(_) => self.figures().damaged.increment(),
        }
        events
    }
}

impl Request<'_> {
    /// A term that every event that is meant has, the rarest one.
    fn lead(&self) -> Option<i64> {
        let [way] = &self.ways[..] else { return None };
        let made = self.selection.correlation_id.as_deref().and_then(position_in);
        match way.first() {
            // An id that was made for its event is not in the index.
            Some([term]) if made.is_none() => Some(*term),
            _ => None,
        }
    }

    pub(crate) fn means(&self, event: &Event) -> bool {
        let selection = &self.selection;
        let has = |wanted: &str| event.tags().any(|tag| tag == wanted);
        (self.tenant.is_none() || event.tenant() == self.tenant.as_deref())
            && selection.query.as_ref().is_none_or(|query| query.matches_where(event.event_type(), has))
            && selection.correlation_id.as_ref().is_none_or(|id| event.correlation_id() == id)
            && selection.stream.as_ref().is_none_or(|(stream_type, id)| {
                event.stream().is_some_and(|stream| stream.stream_type == *stream_type && stream.id == *id)
            })
    }
}

/// The version of a scope; 0 when there is none.
pub(crate) async fn scope_version(tx: &Tx, key: &str) -> mainstay_store::Result<u64> {
    let sql = "SELECT version FROM mainstay_scopes WHERE scope_key = $1";
    tx.query_optional(sql, &[Value::from(key)]).await?.map_or(Ok(0), |row| row.get(0))
}

fn version_of(event: &Event) -> u64 {
    event.stream().map_or(0, |stream| stream.version)
}

/// The newest event of a request with one way to match.
async fn last_of(tx: &Tx, request: &Request<'_>) -> mainstay_store::Result<Option<Result<Event>>> {
    let mut most = i64::MAX as u64;
    let Some(groups) = request.ways.first() else { return Ok(None) };
    while let Some(position) = index::latest_in(tx, &request.view, groups, 0, most).await? {
        let event =
            index::rows_at(tx, &[position]).await?.pop().map_or_else(|| Err(missing(position)), event_of);
        match event {
            Ok(event) if !request.means(&event) => most = position - 1,
            other => return Ok(Some(other)),
        }
    }
    Ok(None)
}

/// The position of a version of a stream, or one before it. A stream's entries in the index are its versions in order;
/// where terms of different texts coincide that is not so, and then the stream is read from its start.
async fn position_of(tx: &Tx, request: &Request<'_>, version: u64) -> mainstay_store::Result<u64> {
    let Some(groups) = request.ways.first().filter(|_| version > 0) else { return Ok(0) };
    let most = i64::MAX as u64;
    let entries =
        index::ascending(tx, &request.view, groups, 0, most, version.min(MAX_SKIP) as usize).await?;
    let Some(position) = entries.last().copied().filter(|_| entries.len() as u64 == version) else {
        return Ok(0);
    };
    let event = index::rows_at(tx, &[position]).await?.pop().map(event_of);
    let is_right = matches!(&event, Some(Ok(event)) if request.means(event) && version_of(event) == version);
    Ok(if is_right { position } else { 0 })
}

/// Longest part of a stream that is skipped by its index.
const MAX_SKIP: u64 = 1_000_000;

pub(crate) type Read = (Vec<Result<Event>>, u64, Option<u64>, u64);

const BOUNDS: &str = "SELECT (SELECT max(position) FROM mainstay_events), \
     (SELECT epoch FROM mainstay_log WHERE name = 'events')";
const AFTER: &str = "SELECT position, header, payload FROM mainstay_events \
     WHERE position > $1 AND position <= $2 ORDER BY position LIMIT $3";

async fn read_page(tx: &Tx, request: &Request<'_>) -> mainstay_store::Result<Read> {
    let ((mut head, epoch), mut ahead) = look_ahead(tx, request).await?;
    if !request.ways.is_empty() {
        head = head.min(request.view.head);
    }
    let selection = &request.selection;
    let mut most = selection.until.map_or(head, |until| until.min(head));
    let mut after = selection.after;
    if let Some(since_ms) = selection.since_ms {
        after = after.max(before_time(tx, since_ms, head).await?);
    }
    if let Some(before_ms) = selection.before_ms {
        most = most.min(before_time(tx, before_ms, head).await?);
    }
    let mut events = Vec::new();
    let (mut bytes, mut seen): (usize, usize) = (0, 0);
    while events.len() < request.limit && bytes < MAX_BYTES && after < most {
        // As many as are likely to fit, once something is known of their size.
        let usual_bytes = bytes.checked_div(seen);
        let look = usual_bytes.map_or(FIRST_LOOK, |usual| (MAX_BYTES - bytes) / usual.max(1) + 1);
        let look = look.min(request.limit - events.len());
        let (found, reached) = match ahead.take() {
            Some(found) => up_to(found, FIRST_LOOK.min(request.limit), most),
            None => {
                // What has the rarest term is mostly meant, and then asking for the other terms too only costs. Where it
                // turns out otherwise, they are asked for.
                let is_mostly_meant = events.len() * 4 >= seen;
                look_at(tx, request, after, most, look, is_mostly_meant).await?
            }
        };
        after = reached;
        for event in found {
            if let Ok(event) = &event {
                (bytes, seen) = (bytes + event.bytes(), seen + 1);
                if !request.means(event) {
                    continue;
                }
            }
            events.push(event);
        }
    }
    Ok((events, head, (after < most).then_some(after), epoch))
}

/// Events by their positions.
type Found = Vec<(u64, Result<Event>)>;
/// The last position and the epoch.
pub(crate) type Bounds = (u64, u64);

/// The bounds of the log, and with them the first events that may be meant, where a round trip is worth saving. The bounds
/// are asked for first: what came after them is left out.
async fn look_ahead(tx: &Tx, request: &Request<'_>) -> mainstay_store::Result<(Bounds, Option<Found>)> {
    let (selection, view) = (&request.selection, &request.view);
    if let Some(epoch) = view.epoch() {
        return Ok(((view.head, epoch), None));
    }
    let is_simple = selection.since_ms.is_none() && selection.before_ms.is_none();
    match request.lead().filter(|_| is_simple && view.is_table()) {
        None => Ok((bounds(tx).await?, None)),
        Some(term) => {
            let limit = FIRST_LOOK.min(request.limit);
            let most = selection.until.unwrap_or(i64::MAX as u64);
            let found = index::events_of(tx, view, term, selection.after, most, limit);
            let (bounds, found) = tokio::try_join!(biased; bounds(tx), found)?;
            Ok((bounds, Some(found)))
        }
    }
}

pub(crate) async fn bounds(tx: &Tx) -> mainstay_store::Result<Bounds> {
    let row = tx.query_one(BOUNDS, &[]).await?;
    Ok((row.get::<Option<u64>>(0)?.unwrap_or(0), row.get(1)?))
}

/// The events of `found`, of which at most `limit` were asked for, and the position up to which that is all of them.
fn up_to(found: Found, limit: usize, most: u64) -> (Vec<Result<Event>>, u64) {
    let is_all = found.len() < limit || found.last().is_some_and(|(position, _)| *position > most);
    let reached = found.last().map_or(most, |(position, _)| *position);
    let meant = found.into_iter().take_while(|(position, _)| *position <= most);
    (meant.map(|(_, event)| event).collect(), if is_all { most } else { reached })
}

/// The next events that may be meant, and the position up to which that is all of them.
async fn look_at(
    tx: &Tx,
    request: &Request<'_>,
    after: u64,
    most: u64,
    limit: usize,
    by_lead: bool,
) -> mainstay_store::Result<(Vec<Result<Event>>, u64)> {
    if request.ways.is_empty() {
        let params = [after as i64, most as i64, limit as i64].map(Value::Int);
        let rows = tx.query(AFTER, &params).await?;
        let reached = if rows.len() < limit { most } else { after + limit as u64 };
        return Ok((dense(rows, after, reached.min(most))?, reached.min(most)));
    }
    if let Some(term) = request.lead().filter(|_| by_lead) {
        let found = index::events_of(tx, &request.view, term, after, most, limit).await?;
        return Ok(up_to(found, limit, most));
    }
    let mut positions = BTreeSet::new();
    for groups in &request.ways {
        positions.extend(index::ascending(tx, &request.view, groups, after, most, limit).await?);
    }
    // An id that was made for its event is not in the index: it holds the position itself.
    let made = request.selection.correlation_id.as_deref().and_then(position_in);
    positions.extend(made.filter(|position| (after + 1..=most).contains(position)));
    let is_all = positions.len() < limit;
    let positions: Vec<u64> = positions.into_iter().take(limit).collect();
    let reached = positions.last().copied().filter(|_| !is_all).unwrap_or(most);
    let found = index::events_at(tx, &request.view, positions).await?;
    Ok((found.into_iter().map(|(_, event)| event).collect(), reached))
}

/// The events of `rows`, which must be every position from `after` on, up to `reached`.
fn dense(rows: Vec<Row>, after: u64, reached: u64) -> mainstay_store::Result<Vec<Result<Event>>> {
    let mut expected = after + 1;
    let mut events = Vec::with_capacity(rows.len());
    for row in rows {
        let position: u64 = row.get(0)?;
        if position != expected {
            events.push(Err(missing(expected)));
        }
        expected = position + 1;
        events.push(event_of(row));
    }
    if expected <= reached {
        events.push(Err(missing(expected)));
    }
    Ok(events)
}

const ONE: &str = "SELECT position, header, payload FROM mainstay_events WHERE position = $1";

/// The last position that was committed before a time, by halving: time never goes back along the log.
pub(crate) async fn before_time(tx: &Tx, time_ms: i64, head: u64) -> mainstay_store::Result<u64> {
    let (mut low, mut high) = (0, head);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let row = tx.query_optional(ONE, &[Value::Int(middle as i64)]).await?;
        let event = row.map_or_else(|| Err(missing(middle)), event_of)?;
        if event.timestamp_ms() < time_ms {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Ok(low)
}
