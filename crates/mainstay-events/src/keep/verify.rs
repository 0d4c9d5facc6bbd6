//! Is everything as it was written?
//!
//! Three walks, each in pages on snapshots: the events by position, the index by key, the scopes by key. What must be
//! compared across the log is compared where it lies together: the entries of a stream's term are its events in order,
//! so that the versions of all streams are checked without remembering any.

use super::report::{Damage, Progress, Report, Stage};
use super::walk::{self, Entries, Entry, EntryPage, Events, Page, is_damage};
use crate::error::Result;
use crate::event::Event;
use crate::index::{self, Groups, Terms};
use crate::log::Log;
use crate::read::event_of;
use mainstay_store::{Store, Tx, Value, params};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Most terms that are remembered because the index lacks entries of them.
const MAX_UNSURE: usize = 100_000;
/// Scopes of one look, each of which asks the index.
const SCOPES_PAGE: usize = 128;

impl Log {
    /// Looks over the whole log while it is in use: checksums, density, time, the versions of streams and scopes, the
    /// index against the log in both directions, and the database's own files. Whose view of the log it is makes no
    /// difference. What is appended meanwhile is not looked at, and disturbs nothing.
    ///
    /// It fails only when the store does; what is damaged is in the report.
    pub async fn verify(&self, mut progress: impl FnMut(Progress) + Send) -> Result<Report> {
        let mut walk = Walk {
            store: self.store().clone(),
            terms: self.terms(),
            report: Report::default(),
            unsure: HashSet::new(),
            is_index_readable: true,
        };
        progress(Progress { stage: Stage::Database, done: 0, of: None });
        walk.database().await?;
        walk.head().await?;
        walk.events(&mut progress).await?;
        walk.index(&mut progress).await?;
        walk.scopes(&mut progress).await?;
        self.figures().damaged.add(walk.report.problem_count);
        Ok(walk.report)
    }
}

struct Walk {
    store: Store,
    terms: Terms,
    report: Report,
    /// Terms of which the index lacks entries: what it says about their order means nothing.
    unsure: HashSet<i64>,
    is_index_readable: bool,
}

const HEADS: &str = "SELECT (SELECT max(position) FROM mainstay_events), \
     (SELECT position FROM mainstay_log_head WHERE id = 1)";

impl Walk {
    async fn database(&mut self) -> Result<()> {
        let found = self.store.check_integrity().await?;
        self.report.database_checked = found.is_some();
        for line in found.into_iter().flatten() {
            self.report.note(0, Damage::Database, format!("the database says: {line}"));
        }
        Ok(())
    }

    /// The head, and on PostgreSQL whether its row agrees with the last event: both move in one transaction.
    async fn head(&mut self) -> Result<()> {
        if !self.store.is_shared() {
            let read = self.store.read(async |tx| tx.query_one(crate::log::HEAD, &[]).await?.get(0)).await;
            self.report.head = self.or_unreadable(read, "the head")?.flatten().unwrap_or(0);
            return Ok(());
        }
        let read = async |tx: Tx| {
            let row = tx.query_one(HEADS, &[]).await?;
            Ok((row.get::<Option<i64>>(0)?.unwrap_or(0), row.get::<Option<i64>>(1)?))
        };
        let read = self.store.read(read).await;
        let Some((last, head)) = self.or_unreadable(read, "the head")? else { return Ok(()) };
        self.report.head = u64::try_from(last.max(head.unwrap_or(0))).unwrap_or(0);
        if head != Some(last) {
            let head = head.map_or("is missing".to_owned(), |head| format!("is at {head}"));
            let sentence = format!("the head {head}, and the last event at {last}");
            self.report.note(self.report.head, Damage::Head, sentence);
        }
        Ok(())
    }

    /// Turns damage that keeps something from being read into a problem.
    fn or_unreadable<T>(&mut self, read: mainstay_store::Result<T>, what: &str) -> Result<Option<T>> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_damage(&error) => {
                self.report.note(0, Damage::Unreadable, format!("{what} cannot be read: {error}"));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn events(&mut self, progress: &mut (impl FnMut(Progress) + Send)) -> Result<()> {
        let of = self.report.head;
        let mut events = Events::new(&self.store, of);
        let mut order = Order { expected: 1, last_ms: i64::MIN };
        while let Some(page) = events.next().await? {
            let mut wanted = Vec::new();
            self.page(&page, &mut order, &mut wanted);
            self.indexed(wanted).await?;
            progress(Progress { stage: Stage::Events, done: page.reached.max(0) as u64, of: Some(of) });
        }
        order.reach(of + 1, &mut self.report);
        Ok(())
    }

    fn page(&mut self, page: &Page, order: &mut Order, wanted: &mut Vec<Entry>) {
        let report = &mut self.report;
        let mut unreadable = page.unreadable.iter().peekable();
        for found in &page.found {
            let Ok(position) = u64::try_from(found.position) else {
                report.note(0, Damage::Event, format!("there is an event at position {}", found.position));
                continue;
            };
            while let Some((at, reason)) = unreadable.next_if(|(at, _)| *at < position) {
                order.unreadable(*at, reason, report);
            }
            order.reach(position, report);
            order.expected = order.expected.max(position + 1);
            report.events += 1;
            match &found.event {
                Ok(event) => {
                    report.erased += u64::from(event.is_erased());
                    order.at(event, report);
                    walk::entries_of(self.terms, event, wanted);
                }
                Err(reason) => {
                    report.note(
                        position,
                        Damage::Event,
                        format!("the event at {position} is damaged: {reason}"),
                    );
                }
            }
        }
        for (at, reason) in unreadable {
            order.unreadable(*at, reason, report);
        }
    }

    /// Every entry that the events must have.
    async fn indexed(&mut self, wanted: Vec<Entry>) -> Result<()> {
        if wanted.is_empty() || !self.is_index_readable {
            return Ok(());
        }
        let missing = walk::missing(&self.store, wanted).await;
        let Some(missing) = self.or_unreadable(missing, "the index")? else {
            self.is_index_readable = false;
            return Ok(());
        };
        for (term, position) in missing {
            if self.unsure.len() < MAX_UNSURE {
                self.unsure.insert(term);
            }
            let sentence =
                format!("the index does not know the event at {position} by its {}", index::kind_of(term));
            self.report.note(position.unsigned_abs(), Damage::Unindexed, sentence);
        }
        Ok(())
    }

    /// Whether the index is known to lack something of a term.
    fn is_unsure(&self, term: i64) -> bool {
        !self.is_index_readable || self.unsure.len() >= MAX_UNSURE || self.unsure.contains(&term)
    }

    async fn index(&mut self, progress: &mut (impl FnMut(Progress) + Send)) -> Result<()> {
        let mut entries = Entries::new(&self.store);
        let mut run = Run::default();
        loop {
            let next = entries.next().await;
            let Some(Some(page)) = self.or_unreadable(next, "the index")? else { return Ok(()) };
            self.report.entries += page.entries.len() as u64;
            self.entries(page, &mut run).await?;
            progress(Progress { stage: Stage::Index, done: self.report.entries, of: None });
        }
    }

    async fn entries(&mut self, page: EntryPage, run: &mut Run) -> Result<()> {
        if page.misplaced > 0 {
            let sentence = format!("{} entries of the index are out of place", page.misplaced);
            self.report.note(0, Damage::Foreign, sentence);
        }
        let named = walk::headers(&self.store, page.entries.iter().map(|(_, position)| *position)).await?;
        let mut scopes: HashMap<String, (u64, u64)> = HashMap::new();
        let mut own = Vec::new();
        for (term, position) in page.entries {
            run.turn_to(term);
            let event = match named.get(&position) {
                Some(Some(event)) => event,
                // Whatever it was, the walk over the events has said so.
                Some(None) => {
                    run.has_gap = true;
                    continue;
                }
                None => {
                    run.has_gap = true;
                    self.nameless(position);
                    continue;
                }
            };
            self.terms.of(event, &mut own);
            if own.binary_search(&term).is_err() {
                let sentence =
                    format!("the index has the event at {position} under a term that is not its own");
                self.report.note(event.position(), Damage::Foreign, sentence);
                continue;
            }
            if let Some(sentence) = run.follow(self.terms, event).filter(|_| !self.is_unsure(term)) {
                self.report.note(event.position(), Damage::Stream, sentence);
            }
            if let Some(sentence) = run.unique(self.terms, event) {
                self.report.note(event.position(), Damage::Duplicate, sentence);
            }
            if let Some((key, version)) = event.scope().filter(|(key, _)| self.terms.scope(key) == term) {
                let newest = scopes.entry(key.to_owned()).or_default();
                *newest = (*newest).max((version, event.position()));
            }
        }
        self.have_rows(scopes).await
    }

    /// An entry without an event. Below the head that is a missing event, which was noted as such.
    fn nameless(&mut self, position: i64) {
        let is_inside =
            u64::try_from(position).is_ok_and(|position| (1..=self.report.head).contains(&position));
        if !is_inside {
            let sentence = format!(
                "the index names an event at {position}, beyond the head: the end of the log may have been lost"
            );
            self.report.note(position.unsigned_abs(), Damage::Foreign, sentence);
        }
    }

    /// Scopes that events have moved have rows, and those are as far at least.
    async fn have_rows(&mut self, scopes: HashMap<String, (u64, u64)>) -> Result<()> {
        for (key, (version, position)) in scopes {
            let read = async |tx: Tx, key: String| {
                let row = tx.query_optional(SCOPE, params![key]).await?;
                row.map(|row| Ok((row.get::<u64>(0)?, row.get::<u64>(1)?))).transpose()
            };
            let read = self.store.read_with(key.clone(), read).await;
            let Some(row) = self.or_unreadable(read, "a scope")? else { continue };
            if row.is_none_or(|row| row < (version, position)) {
                let sentence = match row {
                    Some((row, _)) => {
                        format!("scope {key} is at version {row}, and an event moved it to {version}")
                    }
                    None => format!("scope {key} is unknown, and an event moved it to {version}"),
                };
                self.report.note(position, Damage::Scope, sentence);
            }
        }
        Ok(())
    }

    async fn scopes(&mut self, progress: &mut (impl FnMut(Progress) + Send)) -> Result<()> {
        let mut after = String::new();
        loop {
            let asked = (after.clone(), self.terms);
            let read = self.store.read_with(asked, read_scopes).await;
            let Some(rows) = self.or_unreadable(read, "the scopes")? else { return Ok(()) };
            self.report.scopes += rows.len() as u64;
            let Some(last) = rows.last().map(|row| row.key.clone()).filter(|last| *last > after) else {
                return Ok(());
            };
            after = last;
            for row in rows {
                self.scope(&row);
            }
            progress(Progress { stage: Stage::Scopes, done: self.report.scopes, of: None });
        }
    }

    fn scope(&mut self, row: &ScopeRow) {
        let key = &row.key;
        let found = (row.version, row.position, row.updated_at);
        match &row.newest {
            Newest::Event { version, position, at } if (*version, *position, *at) != found => {
                let sentence = format!(
                    "scope {key} is at version {} by the event at {}, and its newest event moved it to {version} at \
                     {position}",
                    row.version, row.position
                );
                self.report.note(*position as u64, Damage::Scope, sentence);
            }
            Newest::None if !self.is_unsure(self.terms.scope(key)) => {
                let sentence =
                    format!("scope {key} is at version {}, and no event has moved it", row.version);
                self.report.note(row.position.unsigned_abs(), Damage::Scope, sentence);
            }
            _ => {}
        }
    }
}

/// What must hold along the log.
struct Order {
    expected: u64,
    last_ms: i64,
}

impl Order {
    /// Positions between what was expected and `position` are missing.
    fn reach(&mut self, position: u64, report: &mut Report) {
        let expected = self.expected;
        if position > expected {
            let sentence = match position - 1 {
                last if last == expected => format!("the event at {expected} is missing"),
                last => format!("the events at {expected} to {last} are missing"),
            };
            report.note(expected, Damage::Missing, sentence);
            self.expected = position;
        }
    }

    fn unreadable(&mut self, position: u64, reason: &str, report: &mut Report) {
        self.reach(position, report);
        self.expected = self.expected.max(position + 1);
        let sentence = format!("the event at {position} cannot be read: {reason}");
        report.note(position, Damage::Unreadable, sentence);
    }

    fn at(&mut self, event: &Event, report: &mut Report) {
        if event.timestamp_ms() < self.last_ms {
            let sentence = format!(
                "time goes back at {}: from {} to {}",
                event.position(),
                self.last_ms,
                event.timestamp_ms()
            );
            report.note(event.position(), Damage::Time, sentence);
        }
        self.last_ms = self.last_ms.max(event.timestamp_ms());
    }
}

type StreamKey = (Option<String>, String, String);

/// The entries of one term, one after another.
#[derive(Default)]
struct Run {
    term: Option<i64>,
    /// Streams whose term this is: one, but for texts whose terms coincide.
    versions: HashMap<StreamKey, u64>,
    /// Ids and keys whose term this is.
    texts: BTreeSet<String>,
    /// An event of the run could not be read, so that the next version is anybody's guess.
    has_gap: bool,
}

impl Run {
    fn turn_to(&mut self, term: i64) {
        if self.term != Some(term) {
            *self = Self { term: Some(term), ..Self::default() };
        }
    }

    /// Whether the event's version follows; a sentence when it does not.
    fn follow(&mut self, terms: Terms, event: &Event) -> Option<String> {
        let stream = event.stream()?;
        if Some(terms.stream(event.tenant(), stream.stream_type, stream.id)) != self.term {
            return None;
        }
        let key = (event.tenant().map(str::to_owned), stream.stream_type.to_owned(), stream.id.to_owned());
        let before = self.versions.insert(key, stream.version).unwrap_or(0);
        let is_right = stream.version == before + 1 || (self.has_gap && stream.version > before);
        (!is_right).then(|| {
            format!(
                "stream {}/{} goes from version {before} to {}",
                stream.stream_type, stream.id, stream.version
            )
        })
    }

    /// Whether an id or key was there before; a sentence when it was.
    fn unique(&mut self, terms: Terms, event: &Event) -> Option<String> {
        let term = self.term?;
        let key = event.idempotency_key().filter(|key| terms.idempotency(event.tenant(), key) == term);
        let (what, text) = if let Some(key) = key {
            ("idempotency key", format!("{:?} {key}", event.tenant()))
        } else if terms.event_id(event.id()) == term {
            ("id", event.id().to_owned())
        } else {
            return None;
        };
        let is_new = self.texts.insert(text);
        (!is_new).then(|| format!("the {what} of the event at {} was there before", event.position()))
    }
}

const SCOPE: &str = "SELECT version, position FROM mainstay_scopes WHERE scope_key = $1";
const SCOPES: &str = "SELECT scope_key, version, position, updated_at FROM mainstay_scopes WHERE scope_key > $1 \
     ORDER BY scope_key LIMIT $2";

struct ScopeRow {
    key: String,
    version: i64,
    position: i64,
    updated_at: i64,
    newest: Newest,
}

/// The newest event of a scope.
enum Newest {
    Event { version: i64, position: i64, at: i64 },
    Damaged,
    None,
}

/// Rows of scopes with their newest events, on one snapshot.
async fn read_scopes(tx: Tx, (after, terms): (String, Terms)) -> mainstay_store::Result<Vec<ScopeRow>> {
    let mut rows = Vec::new();
    for row in tx.query(SCOPES, &[Value::Text(after), Value::Int(SCOPES_PAGE as i64)]).await? {
        let key: String = row.get(0)?;
        let newest = newest_of(&tx, terms, &key).await?;
        rows.push(ScopeRow {
            version: row.get(1)?,
            position: row.get(2)?,
            updated_at: row.get(3)?,
            newest,
            key,
        });
    }
    Ok(rows)
}

async fn newest_of(tx: &Tx, terms: Terms, key: &str) -> mainstay_store::Result<Newest> {
    let groups = Groups::default().and(vec![terms.scope(key)]);
    let mut most = i64::MAX as u64;
    while let Some(position) = index::latest_in(tx, &groups, 0, most).await? {
        let Some(row) = index::rows_at(tx, &[position]).await?.pop() else { return Ok(Newest::Damaged) };
        let Ok(event) = event_of(row) else { return Ok(Newest::Damaged) };
        if let Some((_, version)) = event.scope().filter(|(own, _)| *own == key) {
            let (version, position) = (version as i64, position as i64);
            return Ok(Newest::Event { version, position, at: event.timestamp_ms() });
        }
        most = position - 1;
    }
    Ok(Newest::None)
}
