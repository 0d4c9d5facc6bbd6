//! Enqueueing, at the end of a transaction.
//!
//! Items are only noted while an author's closure runs, and written when it has ended: all of them with few statements,
//! keys in their order. Their ids are known at once.

use crate::blame::{Part, author_failed};
use crate::bounds::Bound;
use crate::directory::{Directory, Lane, pool_topic, time_topic};
use crate::error::{Error, Result};
use crate::functions::{FunctionKind, Functions};
use crate::item::{Item, NewWork, Start};
use crate::schema::waiting;
use crate::work::Ground;
use crate::{MAX_BATCH, MAX_DEPTH, keys, settle};
use mainstay_core::ids::Kind;
use mainstay_core::names::{Reserved, is_reserved};
use mainstay_store::Column::{Blob, Int, Text};
use mainstay_store::{Bulk, Cause, Ending, Epilogue, Tx, Value, params};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::try_join;
use uuid::Uuid;

/// What came of enqueueing one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Enqueued {
    /// The item: the new one, or the one that it would have repeated.
    pub work_id: String,
    /// Whether its dedupe key was in use, so that nothing was enqueued.
    pub is_duplicate: bool,
}

/// What came of enqueueing in a transaction.
#[derive(Debug, Clone, Default)]
pub struct Receipt {
    work_ids: Arc<[String]>,
    enqueued: Arc<OnceLock<Vec<Enqueued>>>,
}

impl Receipt {
    /// The ids that the items have, unless a dedupe key is in use.
    pub fn work_ids(&self) -> &[String] {
        &self.work_ids
    }

    /// What came of it, once the transaction has committed.
    pub fn get(&self) -> Option<&[Enqueued]> {
        self.enqueued.get().map(Vec::as_slice)
    }
}

pub(crate) static INSERT_WORK: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::insert(
        "INSERT INTO mainstay_work (id, pool, lane, state, due_at, work_key, item) VALUES {rows}",
        &[Blob, Int, Int, Int, Int, Text, Text],
    )
});
const CHANGE: &str = "INSERT INTO mainstay_pool_changes (pool, changed_at, pending, started, ended) \
     VALUES ($1, $2, $3, $4, $5)";
const DEDUPE: &str = "INSERT INTO mainstay_dedupe (pool, dedupe_key, id, until_ms) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (pool, dedupe_key) DO UPDATE SET id = excluded.id, until_ms = excluded.until_ms \
     WHERE mainstay_dedupe.until_ms <= $5";
const FIND_DEDUPE: &str = "SELECT id FROM mainstay_dedupe WHERE pool = $1 AND dedupe_key = $2";
const DEDUPE_OF_TENANT: &str = "INSERT INTO mainstay_dedupe_of_tenants (pool, dedupe_key, id, until_ms, tenant) \
     VALUES ($1, $2, $3, $4, $6) ON CONFLICT (pool, tenant, dedupe_key) DO UPDATE SET id = excluded.id, \
     until_ms = excluded.until_ms WHERE mainstay_dedupe_of_tenants.until_ms <= $5";
const FIND_DEDUPE_OF_TENANT: &str =
    "SELECT id FROM mainstay_dedupe_of_tenants WHERE pool = $1 AND dedupe_key = $2 AND tenant = $3";

/// Notes how the numbers of a pool have changed.
pub(crate) async fn change(
    tx: &Tx,
    pool: i64,
    now_ms: i64,
    pending: i64,
    started: i64,
    ended: i64,
) -> mainstay_store::Result<()> {
    if (pending, started, ended) == (0, 0, 0) {
        return Ok(());
    }
    tx.execute(CHANGE, params![pool, now_ms, pending, started, ended]).await.map(drop)
}

/// The items of one transaction, written at its end.
pub(crate) struct Noted {
    ground: Arc<Ground>,
    items: Mutex<Vec<Entry>>,
    promises: Mutex<Vec<Promise>>,
    receipts: Mutex<Vec<(usize, Receipt)>>,
    /// What runs now.
    now: Mutex<Now>,
}

/// Whose code notes items at this moment.
#[derive(Debug, Clone, Copy, Default)]
struct Now {
    /// How many completions led to it.
    depth: u32,
    /// One of those whose items are ended in this transaction.
    author: Option<(usize, Part)>,
}

struct Entry {
    new: NewWork,
    id: Uuid,
    depth: u32,
    /// Whose fault it is if it cannot be enqueued.
    author: Option<(usize, Part)>,
}

/// Work that the transaction does not enqueue, but that will come of what it writes: its lane is made now.
struct Promise {
    pool: String,
    function: String,
    author: Option<(usize, Part)>,
}

/// The text of an item's id.
pub(crate) fn text(id: Uuid) -> String {
    mainstay_core::ids::Id { kind: Kind::Work, uuid: id }.to_string()
}

/// The id in a text, if it is one of ours.
pub(crate) fn parse(text: &str) -> Option<Uuid> {
    let id: mainstay_core::ids::Id = text.parse().ok()?;
    (id.kind == Kind::Work).then_some(id.uuid)
}

/// The id in a column.
pub(crate) fn uuid(bytes: &[u8]) -> Uuid {
    Uuid::from_slice(bytes).unwrap_or_default()
}

/// The items of a transaction, to be added to.
pub(crate) fn noted(ground: &Arc<Ground>, tx: &Tx) -> Arc<Noted> {
    tx.epilogue(|| Noted {
        ground: ground.clone(),
        items: Mutex::default(),
        promises: Mutex::default(),
        receipts: Mutex::default(),
        now: Mutex::default(),
    })
}

/// Items as an author's code gives them: with what they inherit, and checked as far as that needs no database.
pub(crate) fn given(functions: &Functions, items: impl IntoIterator<Item = NewWork>) -> Result<Vec<NewWork>> {
    let items: Vec<NewWork> = match Cause::current() {
        Some(cause) => items.into_iter().map(|item| item.caused_by(&cause)).collect(),
        None => items.into_iter().collect(),
    };
    check(functions, &items)?;
    Ok(items)
}

pub(crate) fn check(functions: &Functions, items: &[NewWork]) -> Result<()> {
    if items.is_empty() {
        return Err(Error::invalid("items", "must be at least one"));
    }
    if items.len() > MAX_BATCH {
        return Err(Error::TooMany { count: items.len() });
    }
    for (number, item) in items.iter().enumerate() {
        let field =
            |name: &str| if items.len() == 1 { name.to_owned() } else { format!("items[{number}].{name}") };
        item.check(&field)?;
        if let Some(function) = functions.get(&item.function) {
            (function.check)(&item.args).map_err(|reason| Error::BadArgs {
                field: field("args"),
                function: item.function.clone(),
                reason,
            })?;
        }
    }
    Ok(())
}

impl Noted {
    /// Notes items that have been checked.
    pub(crate) fn add(&self, items: Vec<NewWork>) -> Receipt {
        let Now { depth, author } = *self.now();
        let mut noted = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        let mut work_ids = Vec::with_capacity(items.len());
        for new in items {
            let id = self.ground.ids.uuid();
            work_ids.push(text(id));
            noted.push(Entry { new, id, depth, author });
        }
        let receipt = Receipt { work_ids: work_ids.into(), ..Receipt::default() };
        let mut receipts = self.receipts.lock().unwrap_or_else(PoisonError::into_inner);
        receipts.push((receipt.work_ids.len(), receipt.clone()));
        receipt
    }

    /// Notes an item whose id is known already.
    pub(crate) fn add_as(&self, new: NewWork, id: Uuid) {
        let Now { depth, author } = *self.now();
        self.add_entry(Entry { new, id, depth, author });
    }

    /// Notes the telling of an item's end.
    pub(crate) fn add_telling(&self, new: NewWork, depth: u32) {
        let (id, new) = (self.ground.ids.uuid(), NewWork { is_owed: true, ..new });
        self.add_entry(Entry { new, id, depth, author: None });
    }

    fn add_entry(&self, entry: Entry) {
        self.items.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        let receipt = (1, Receipt::default());
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner).push(receipt);
    }

    /// Notes that work of this function will come into a pool, without an item.
    pub(crate) fn promise(&self, pool: &str, function: &str) {
        let Now { author, .. } = *self.now();
        let promise = Promise { pool: pool.to_owned(), function: function.to_owned(), author };
        self.promises.lock().unwrap_or_else(PoisonError::into_inner).push(promise);
    }

    /// What is noted from now on is an author's, and was led to by so many completions.
    pub(crate) fn enter(&self, depth: u32, author: (usize, Part)) {
        *self.now() = Now { depth, author: Some(author) };
    }

    /// What is noted from now on is nobody's.
    pub(crate) fn leave(&self) {
        *self.now() = Now::default();
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Epilogue for Noted {
    fn conclude(self: Arc<Self>, tx: Tx) -> Ending {
        Box::pin(async move {
            let promises = std::mem::take(&mut *self.promises.lock().unwrap_or_else(PoisonError::into_inner));
            keep(&self.ground, &tx, promises).await?;
            let entries = std::mem::take(&mut *self.items.lock().unwrap_or_else(PoisonError::into_inner));
            if entries.is_empty() {
                return Ok(());
            }
            let mut enqueued = write(&self.ground, &tx, entries).await?;
            let receipts = std::mem::take(&mut *self.receipts.lock().unwrap_or_else(PoisonError::into_inner));
            let receipts: Vec<(Receipt, Vec<Enqueued>)> = receipts
                .into_iter()
                .map(|(count, receipt)| (receipt, enqueued.drain(..count.min(enqueued.len())).collect()))
                .collect();
            tx.after_commit(Arc::new(move || {
                for (receipt, enqueued) in &receipts {
                    // Only a transaction that ran twice finds it set, and says the same.
                    drop(receipt.enqueued.set(enqueued.clone()));
                }
            }))
        })
    }
}

/// What was found out about an entry.
struct Place {
    pool: i64,
    lane: i64,
    due_at: i64,
    fate: Fate,
}

/// What becomes of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    /// It is an item that waits.
    Waits,
    /// Its dedupe key is that of another item.
    Repeats(Uuid),
    /// The platform owes it, and it cannot be enqueued: it is a dead letter.
    Fails(String),
}

/// Makes the lanes of work that is promised.
async fn keep(ground: &Arc<Ground>, tx: &Tx, promises: Vec<Promise>) -> mainstay_store::Result<()> {
    if promises.is_empty() {
        return Ok(());
    }
    let pools = Directory::hold_pools(tx, promises.iter().map(|promise| &*promise.pool)).await?;
    for Promise { pool, function, author } in promises {
        let kept = async {
            let number = *pools.get(&pool).ok_or_else(|| Error::UnknownPool(pool.clone()))?;
            ground.promised_lane(tx, number, &function).await
        };
        kept.await.map(drop).map_err(|error| blamed(author, error))?;
    }
    Ok(())
}

/// An error of what an author has noted is the author's.
fn blamed(author: Option<(usize, Part)>, error: mainstay_store::Error) -> mainstay_store::Error {
    match author {
        Some((index, part)) => author_failed(index, part, error),
        None => error,
    }
}

async fn write(ground: &Arc<Ground>, tx: &Tx, entries: Vec<Entry>) -> mainstay_store::Result<Vec<Enqueued>> {
    let names = entries.iter().map(|entry| entry.new.pool.as_str());
    // Sent at once.
    let (now_ms, pools) = try_join!(biased; tx.now_ms(), Directory::hold_pools(tx, names))?;
    let mut places = Vec::with_capacity(entries.len());
    let mut lanes = HashMap::new();
    for entry in &entries {
        let place = match place(ground, tx, entry, (now_ms, &pools), &mut lanes).await {
            Err(error) if entry.new.is_owed => unplaced(entry, &pools, error)?,
            placed => placed.map_err(|error| blamed(entry.author, error))?,
        };
        places.push(place);
    }
    dedupe(tx, &entries, &mut places, now_ms).await?;
    let mut counts: BTreeMap<(i64, String), i64> = BTreeMap::new();
    for (entry, place) in entries.iter().zip(&places).filter(|(_, place)| place.fate == Fate::Waits) {
        if let Some(key) = &entry.new.key {
            *counts.entry((place.pool, key.clone())).or_default() += 1;
        }
    }
    let mut is_free = keys::enter(tx, &counts).await?;
    let (mut rows, mut enqueued) = (Vec::with_capacity(entries.len() * 7), Vec::with_capacity(entries.len()));
    let (mut pending, mut is_delayed) = (BTreeMap::<i64, i64>::new(), false);
    for (entry, place) in entries.into_iter().zip(places) {
        let (id, key) = (entry.id, entry.new.key.clone());
        match place.fate {
            Fate::Waits => {}
            Fate::Repeats(existing) => {
                enqueued.push(Enqueued { work_id: text(existing), is_duplicate: true });
                continue;
            }
            Fate::Fails(error) => {
                enqueued.push(Enqueued { work_id: text(id), is_duplicate: false });
                settle::fail_unstarted(tx, (place.pool, id), &kept(entry, now_ms), error, now_ms).await?;
                continue;
            }
        }
        // The first of a key that was free is in front.
        let front = key.as_ref().and_then(|key| is_free.get_mut(&(place.pool, key.clone())));
        let is_behind = front.is_some_and(|is_free| !std::mem::take(is_free));
        let state = match is_behind {
            true => waiting::BEHIND,
            false if place.due_at > now_ms => waiting::DELAYED,
            false => waiting::READY,
        };
        is_delayed |= state == waiting::DELAYED;
        *pending.entry(place.pool).or_default() += 1;
        let item = kept(entry, now_ms);
        let item = serde_json::to_string(&item).map_err(mainstay_store::Error::application)?;
        enqueued.push(Enqueued { work_id: text(id), is_duplicate: false });
        rows.extend([
            Value::Blob(id.into_bytes().to_vec()),
            Value::Int(place.pool),
            Value::Int(place.lane),
            Value::Int(state),
            Value::Int(place.due_at),
            Value::from(key),
            Value::Text(item),
        ]);
    }
    INSERT_WORK.execute(tx, &rows).await?;
    for (pool, count) in pending {
        change(tx, pool, now_ms, count, 0, 0).await?;
        tx.wake(&pool_topic(pool))?;
    }
    if is_delayed {
        tx.wake(&time_topic())?;
    }
    Ok(enqueued)
}

/// What becomes of an item that the platform owes and that is refused. Other failures are the store's.
fn unplaced(
    entry: &Entry,
    pools: &HashMap<String, i64>,
    error: mainstay_store::Error,
) -> mainstay_store::Result<Place> {
    match Error::from(error) {
        Error::Store(error) => Err(Error::Store(error).into()),
        error if error.is_retryable() => Err(error.into()),
        error => {
            let pool = pools.get(&entry.new.pool).copied().unwrap_or_default();
            let fate = Fate::Fails(format!("{}: {error}", error.code()));
            Ok(Place { pool, lane: 0, due_at: 0, fate })
        }
    }
}

/// Whether a bound holds for a lane that an item needs. It does not for what is not a caller's choice: functions of the
/// platform, the usual priority of a function that this program registers, and items that tell an end or retry a dead letter.
fn bound_of(ground: &Ground, new: &NewWork, (function, priority): (&str, i16)) -> Bound {
    let is_owed = new.is_owed || new.completes.is_some() || new.retry_of.is_some();
    match is_owed || ground.is_own(function, priority) {
        true => Bound::Waived,
        false => Bound::Held,
    }
}

/// Refuses the call of a function of the platform that the platform has not made. Ends are checked when they are told.
fn check_reserved(new: &NewWork) -> Result<()> {
    let is_platform = new.is_platform || new.completes.is_some();
    match is_reserved(&new.function) && !is_platform {
        true => Err(Reserved { field: "function".to_owned() }.into()),
        false => Ok(()),
    }
}

async fn place(
    ground: &Ground,
    tx: &Tx,
    entry: &Entry,
    (now_ms, pools): (i64, &HashMap<String, i64>),
    lanes: &mut HashMap<Lane, i64>,
) -> mainstay_store::Result<Place> {
    let (new, directory) = (&entry.new, &ground.directory);
    // An end is told however deep it is; what that leads to is not begun.
    if entry.depth > MAX_DEPTH && new.completes.is_none() {
        return Err(Error::Recursion.into());
    }
    check_reserved(new)?;
    let pool = *pools.get(&new.pool).ok_or_else(|| Error::UnknownPool(new.pool.clone()))?;
    directory.function(tx, &new.function).await??;
    if let Some(on_complete) = &new.on_complete
        && directory.function(tx, on_complete).await?? == FunctionKind::Action.as_str()
    {
        // The end is told by an item of its own, which finds its lane here.
        lane_of(ground, tx, entry, (pool, on_complete, 0), lanes).await?;
    }
    let number = lane_of(ground, tx, entry, (pool, &new.function, new.priority), lanes).await?;
    let due_at = match new.start {
        Start::Now => now_ms,
        Start::AfterMs(delay) => now_ms.saturating_add(delay),
        Start::AtMs(at) => at,
    };
    Ok(Place { pool, lane: number, due_at, fate: Fate::Waits })
}

/// The lane of a function in a pool, which is made when it is not there. `lanes` has those that this transaction has found.
async fn lane_of(
    ground: &Ground,
    tx: &Tx,
    entry: &Entry,
    (pool, function, priority): (i64, &str, i16),
    lanes: &mut HashMap<Lane, i64>,
) -> mainstay_store::Result<i64> {
    let lane = Lane { pool, function: function.into(), priority: priority.into() };
    if let Some(number) = lanes.get(&lane) {
        return Ok(*number);
    }
    let number = ground.directory.lane(tx, &lane, bound_of(ground, &entry.new, (function, priority))).await?;
    lanes.insert(lane, number);
    Ok(number)
}

/// Finds the entries whose dedupe key is in use within their tenant, also by another one of them.
async fn dedupe(tx: &Tx, entries: &[Entry], places: &mut [Place], now_ms: i64) -> mainstay_store::Result<()> {
    let keyed = entries.iter().enumerate().filter_map(|(number, entry)| {
        let (key, window) = entry.new.dedupe.as_ref()?;
        let tenant = entry.new.tenant.as_deref();
        let window_ms = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
        Some((places[number].pool, tenant, key.as_str(), number, window_ms))
    });
    // In the order of the keys, as everybody takes them.
    let keyed: BTreeSet<(i64, Option<&str>, &str, usize, i64)> = keyed.collect();
    for (pool, tenant, key, number, window_ms) in keyed {
        let until = now_ms.saturating_add(window_ms);
        let id = entries[number].id.into_bytes();
        let is_new = match tenant {
            None => tx.execute(DEDUPE, params![pool, key, &id[..], until, now_ms]).await?,
            Some(tenant) => {
                tx.execute(DEDUPE_OF_TENANT, params![pool, key, &id[..], until, now_ms, tenant]).await?
            }
        };
        if is_new == 0 {
            let existing = match tenant {
                None => tx.query_one(FIND_DEDUPE, params![pool, key]).await?,
                Some(tenant) => tx.query_one(FIND_DEDUPE_OF_TENANT, params![pool, key, tenant]).await?,
            };
            places[number].fate = Fate::Repeats(uuid(existing.get(0)?));
        }
    }
    Ok(())
}

fn kept(entry: Entry, now_ms: i64) -> Item {
    let Entry { new, depth, .. } = entry;
    let completes = new.completes;
    Item {
        function: new.function,
        args: new.args,
        context: new.context,
        key: new.key,
        priority: new.priority,
        retry: new.retry,
        on_complete: new.on_complete,
        trace: new.trace,
        enqueued_at: now_ms,
        deadline_at: new
            .deadline
            .map(|within| now_ms.saturating_add(i64::try_from(within.as_millis()).unwrap_or(i64::MAX))),
        attempts: 0,
        errors: Vec::new(),
        depth,
        retry_of: new.retry_of,
        completes: completes.as_ref().map(|ended| ended.work_id.clone()),
        completes_function: completes.as_ref().and_then(|ended| ended.function.clone()),
        completes_retry_of: completes.and_then(|ended| ended.retry_of),
        letter_kind: new.letter_kind,
        letter: new.letter,
        is_unlisted: new.is_unlisted,
        is_platform: new.is_platform,
        correlation: new.correlation,
        causation: new.causation,
        tenant: new.tenant,
    }
}

impl Ground {
    /// Whether the lane of a function and priority is one of the platform or of this program.
    fn is_own(&self, function: &str, priority: i16) -> bool {
        is_reserved(function) || priority == 0 && self.functions().get(function).is_some()
    }

    /// The lane of work that will come into a pool. It is made now, so that the caller is refused and not the platform later.
    pub(crate) async fn promised_lane(
        &self,
        tx: &Tx,
        pool: i64,
        function: &str,
    ) -> mainstay_store::Result<i64> {
        let bound = if self.is_own(function, 0) { Bound::Waived } else { Bound::Held };
        let lane = Lane { pool, function: function.into(), priority: 0 };
        self.directory.lane(tx, &lane, bound).await
    }
}
