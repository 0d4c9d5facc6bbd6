//! Is everything as it was written?
//!
//! Three walks, each in pages on snapshots: the events by position, the index by key, the scopes by key. What must be
//! compared across the log is compared where it lies together: the entries of a stream's term are its events in order,
//! so that the versions of all streams are checked without remembering any.

use super::order::{Order, Run};
use super::report::{Damage, Progress, Report, Stage};
use super::walk::{self, Entries, Entry, EntryPage, Events, Page, is_damage};
use crate::append::Ground;
use crate::error::Result;
use crate::index::{self, Terms};
use crate::log::Log;
use mainstay_store::{Store, Tx};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Most terms that are remembered because the index lacks entries of them.
const MAX_UNSURE: usize = 100_000;

impl Log {
    /// Looks over the whole log while it is in use: checksums, density, time, the versions of streams and scopes, the
    /// index against the log in both directions, and the database's own files. Whose view of the log it is makes no
    /// difference. What is appended meanwhile is not looked at, and disturbs nothing.
    ///
    /// It fails only when the store does; what is damaged is in the report.
    pub async fn verify(&self, mut progress: impl FnMut(Progress) + Send) -> Result<Report> {
        let mut walk = Walk {
            store: self.store().clone(),
            ground: self.ground().clone(),
            terms: self.terms(),
            report: Report::default(),
            unsure: HashSet::new(),
            is_index_readable: true,
        };
        progress(Progress { stage: Stage::Database, done: 0, of: None });
        walk.database().await?;
        walk.head().await?;
        // So that the table is whole up to the head.
        if let Some(recent) = &self.ground().recent {
            index::merge_all(self.store(), recent, walk.report.head).await?;
        }
        walk.events(&mut progress).await?;
        walk.index(&mut progress).await?;
        walk.scopes(&mut progress).await?;
        self.figures().damaged.add(walk.report.problem_count);
        Ok(walk.report)
    }
}

pub(super) struct Walk {
    pub(super) store: Store,
    pub(super) ground: Arc<Ground>,
    pub(super) terms: Terms,
    pub(super) report: Report,
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
        if !self.store.capabilities().concurrent_writers {
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
    pub(super) fn or_unreadable<T>(
        &mut self,
        read: mainstay_store::Result<T>,
        what: &str,
    ) -> Result<Option<T>> {
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
    pub(super) fn is_unsure(&self, term: i64) -> bool {
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
}
