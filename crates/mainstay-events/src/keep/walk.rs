//! The log and its index, page by page.
//!
//! Every page is read on a snapshot of its own, so that no read is long and the writer never waits. That is enough for
//! whoever compares the two: an event and its entries are committed together and stay, so entries are looked for after
//! their event was read, and the event of an entry after the entry.

use crate::event::Event;
use crate::index::Terms;
use crate::record;
use futures_util::future::try_join_all;
use mainstay_store::{Error, Result, Row, Store, Tx, Value};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::LazyLock;

/// Most rows of a page: a few milliseconds of reading.
pub(super) const PAGE: usize = 512;
/// What a page of events should weigh.
const PAGE_BYTES: usize = 2 << 20;
/// Values of one statement: more than any event has terms, few enough for both databases.
const PIECE: usize = 64;

/// Whether an error says that something stored cannot be read, and not that the store is busy, away or closed.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Io(_) | Error::Decode { .. })
}

/// A row of the log as it was found.
pub(super) struct Found {
    pub(super) position: i64,
    /// The event and the length of its payload as stored, or what is wrong with it.
    pub(super) event: std::result::Result<Event, String>,
    pub(super) bytes: usize,
}

impl Found {
    fn of(row: Row) -> Self {
        let values = row.into_values();
        let position = match values.first() {
            Some(Value::Int(position)) => *position,
            _ => 0,
        };
        let bytes =
            values.iter().map(|value| if let Value::Blob(blob) = value { blob.len() } else { 8 }).sum();
        let event = match <[Value; 3]>::try_from(values) {
            Ok([Value::Int(position), Value::Blob(header), Value::Blob(payload)]) => {
                let position = u64::try_from(position).map_err(|_| "the position is negative");
                position.and_then(|position| record::decode(position, header, Some(payload)))
            }
            Ok([_, Value::Blob(_), _]) => Err("the payload is missing"),
            _ => Err("the header is missing"),
        };
        Self { position, event: event.map_err(str::to_owned), bytes }
    }
}

const AFTER: &str = "SELECT position, header, payload FROM mainstay_events \
     WHERE position > $1 AND position <= $2 ORDER BY position LIMIT $3";
const AT: &str = "SELECT position, header, payload FROM mainstay_events WHERE position = $1";

/// Walks over the events in the order of their positions.
pub(super) struct Events {
    store: Store,
    after: i64,
    most: i64,
    limit: usize,
}

/// A page of events.
pub(super) struct Page {
    pub(super) found: Vec<Found>,
    /// Positions that could not be read, and why.
    pub(super) unreadable: Vec<(u64, String)>,
    /// Up to here nothing is outstanding.
    pub(super) reached: i64,
}

impl Events {
    /// Everything up to `most`, rows at impossible positions included.
    pub(super) fn new(store: &Store, most: u64) -> Self {
        Self { store: store.clone(), after: i64::MIN, most: most as i64, limit: PIECE }
    }

    /// The next page; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Page>> {
        if self.after >= self.most {
            return Ok(None);
        }
        let asked = [self.after, self.most, self.limit as i64].map(Value::Int);
        let read =
            self.store.read_with(asked, async |tx: Tx, asked: [Value; 3]| tx.query(AFTER, &asked).await);
        match read.await {
            Ok(rows) => Ok(Some(self.page(rows))),
            Err(error) if is_damage(&error) => self.one_by_one().await.map(Some),
            Err(error) => Err(error),
        }
    }

    fn page(&mut self, rows: Vec<Row>) -> Page {
        let is_last = rows.len() < self.limit;
        let found: Vec<Found> = rows.into_iter().map(Found::of).collect();
        let last = found.last().map_or(self.most, |last| last.position);
        // A row that is not where its key says must not make the walk go back.
        let reached = if is_last { self.most } else { last.max(self.after.saturating_add(1)) };
        let bytes: usize = found.iter().map(|one| one.bytes).sum();
        self.limit = (PAGE_BYTES / (bytes / found.len().max(1)).max(1)).clamp(1, PAGE);
        self.after = reached;
        Page { found, unreadable: Vec::new(), reached }
    }

    /// Where a page cannot be read, most of its events often can.
    async fn one_by_one(&mut self) -> Result<Page> {
        let first = self.after.max(0) + 1;
        let last = self.most.min(first + PAGE as i64 - 1);
        let mut page = Page { found: Vec::new(), unreadable: Vec::new(), reached: last };
        for position in first..=last {
            let asked = [Value::Int(position)];
            let read =
                self.store.read_with(asked, async |tx: Tx, asked: [Value; 1]| tx.query(AT, &asked).await);
            match read.await {
                Ok(rows) => page.found.extend(rows.into_iter().map(Found::of)),
                Err(error) if is_damage(&error) => page.unreadable.push((position as u64, error.to_string())),
                Err(error) => return Err(error),
            }
        }
        self.after = last;
        Ok(page)
    }
}

/// An entry of the index. In a damaged table its parts can be anything.
pub(super) type Entry = (i64, i64);

static MISSING: LazyLock<String> = LazyLock::new(|| {
    let pairs: Vec<String> = (0..PIECE)
        .map(|pair| format!("(CAST(${} AS BIGINT), CAST(${} AS BIGINT))", pair * 2 + 1, pair * 2 + 2))
        .collect();
    format!(
        "WITH wanted(term, position) AS (VALUES {}) SELECT term, position FROM wanted WHERE NOT EXISTS (SELECT 1 \
         FROM mainstay_event_terms AS entry WHERE entry.term = wanted.term AND entry.position = wanted.position)",
        pairs.join(", ")
    )
});

/// Which of `wanted` the index lacks.
pub(super) async fn missing(store: &Store, wanted: Vec<Entry>) -> Result<BTreeSet<Entry>> {
    let look = async |tx: Tx, wanted: Vec<Entry>| {
        let pieces = wanted.chunks(PIECE).map(|piece| {
            let values = padded(piece).flat_map(|(term, position)| [Value::Int(term), Value::Int(position)]);
            values.collect()
        });
        query_all(&tx, &MISSING, pieces).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    };
    store.read_with(wanted, look).await
}

/// The entries that an event must have.
pub(super) fn entries_of(terms: Terms, event: &Event, out: &mut Vec<Entry>) {
    let mut own = Vec::new();
    terms.of(event, &mut own);
    out.extend(own.into_iter().map(|term| (term, event.position() as i64)));
}

const ENTRIES_AFTER: &str = "SELECT term, position FROM mainstay_event_terms \
     WHERE (term, position) > ($1, $2) ORDER BY term, position LIMIT $3";

/// Walks over the index in the order of its keys.
pub(super) struct Entries {
    store: Store,
    after: Entry,
    is_over: bool,
}

/// A page of the index.
#[derive(Default)]
pub(super) struct EntryPage {
    pub(super) entries: Vec<Entry>,
    /// How many rows hold something else than numbers, or stand where they do not belong.
    pub(super) misplaced: u64,
}

impl Entries {
    pub(super) fn new(store: &Store) -> Self {
        Self { store: store.clone(), after: (i64::MIN, i64::MIN), is_over: false }
    }

    /// The next page; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<EntryPage>> {
        if self.is_over {
            return Ok(None);
        }
        let asked = [self.after.0, self.after.1, PAGE as i64].map(Value::Int);
        let read = self
            .store
            .read_with(asked, async |tx: Tx, asked: [Value; 3]| tx.query(ENTRIES_AFTER, &asked).await)
            .await
            .inspect_err(|_| self.is_over = true)?;
        self.is_over = read.len() < PAGE;
        let (mut page, before) = (EntryPage::default(), self.after);
        for row in read {
            match &row.into_values()[..] {
                [Value::Int(term), Value::Int(position)] => {
                    let entry = (*term, *position);
                    page.misplaced += u64::from(entry <= self.after);
                    // Keys only grow, or the walk would never end.
                    self.after = self.after.max(entry);
                    page.entries.push(entry);
                }
                _ => page.misplaced += 1,
            }
        }
        self.is_over |= self.after == before;
        Ok(Some(page))
    }
}

static HEADERS: LazyLock<String> = LazyLock::new(|| {
    let mut places = String::new();
    for number in 1..=PIECE {
        // Writing to a String cannot fail.
        let _ = write!(places, "{}${number}", if number == 1 { "" } else { ", " });
    }
    format!("SELECT position, header FROM mainstay_events WHERE position IN ({places})")
});

/// An event that the index names, as far as its header tells. Nothing when that is damaged: then nobody knows what its
/// entries should be.
pub(super) type Named = Option<Event>;

/// The events at `positions`, as far as their headers tell.
pub(super) async fn headers(
    store: &Store,
    positions: impl IntoIterator<Item = i64>,
) -> Result<HashMap<i64, Named>> {
    let positions: BTreeSet<i64> = positions.into_iter().collect();
    let mut named = HashMap::new();
    let all: Vec<i64> = positions.into_iter().collect();
    match store.read_with(all.clone(), read_headers).await {
        Ok(found) => named.extend(found),
        Err(error) if is_damage(&error) => {
            for position in all {
                match store.read_with(vec![position], read_headers).await {
                    Ok(found) => named.extend(found),
                    Err(error) if is_damage(&error) => drop(named.insert(position, None)),
                    Err(error) => return Err(error),
                }
            }
        }
        Err(error) => return Err(error),
    }
    Ok(named)
}

async fn read_headers(tx: Tx, positions: Vec<i64>) -> Result<Vec<(i64, Named)>> {
    headers_in(&tx, &positions).await
}

/// The same, inside of a transaction.
pub(super) async fn headers_in(tx: &Tx, positions: &[i64]) -> Result<Vec<(i64, Named)>> {
    let pieces = positions.chunks(PIECE).map(|piece| padded(piece).map(Value::Int).collect());
    let named = |row: Row| {
        let position: i64 = row.get(0)?;
        let event = match (u64::try_from(position), row.into_values().pop()) {
            (Ok(position), Some(Value::Blob(header))) => record::decode(position, header, None).ok(),
            _ => None,
        };
        Ok((position, event))
    };
    query_all(tx, &HEADERS, pieces).await?.into_iter().map(named).collect()
}

/// One size of statement for all: the last value fills a piece up.
fn padded<T: Copy>(piece: &[T]) -> impl Iterator<Item = T> {
    (0..PIECE).filter_map(|number| piece.get(number).or(piece.last()).copied())
}

/// Runs a statement for each of `pieces`, sent one behind another without waiting for answers in between.
async fn query_all(tx: &Tx, sql: &str, pieces: impl Iterator<Item = Vec<Value>>) -> Result<Vec<Row>> {
    let pieces: Vec<Vec<Value>> = pieces.collect();
    let answers = try_join_all(pieces.iter().map(|piece| tx.query(sql, piece))).await?;
    Ok(answers.into_iter().flatten().collect())
}
