//! Asks the database what must be known, and writes what was decided.
//!
//! All of it happens under the log's lock: on SQLite a transaction has the writer to itself, and on PostgreSQL the row of
//! `mainstay_log_head` is held until the commit. So positions are given out in the order of commits, and a reader that
//! has seen one has seen all before it.

use super::decide::{Decided, Facts, decide};
use super::prepare::Prepared;
use super::{Appended, Status};
use crate::by_id::SHARED_ID;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::index::{self, End, Groups, Probe, Recent, Terms, View, position_in};
use crate::{events_topic, read, record};
use futures_util::future::try_join_all;
use mainstay_core::clock::Clock;
use mainstay_core::query::Item;
use mainstay_core::random::Random;
use mainstay_store::{Tx, Value, params};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// What the log knows of itself wherever it appends.
pub(crate) struct Ground {
    pub(crate) terms: Terms,
    /// The newest entries of the index, where no other node appends.
    pub(crate) recent: Option<Recent>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
}

impl Ground {
    /// What a read that begins now sees of the index besides the table.
    pub(crate) fn view(&self) -> View {
        self.recent.as_ref().map_or_else(View::table, Recent::view)
    }

    /// What a transaction sees of the index besides the table.
    pub(crate) fn view_in(&self, tx: &Tx) -> View {
        match (&self.recent, tx.serial()) {
            (Some(recent), Some(serial)) => recent.writing(serial).0,
            _ => View::table(),
        }
    }
}

/// What a transaction that appends sees.
struct Sight {
    view: View,
    end: End,
    now_ms: i64,
}

/// Decides and writes `appends`, one after another; an append that is refused leaves no trace but its answer (and its
/// audit row). Fails only when the database does.
pub(crate) async fn commit(
    ground: &Ground,
    tx: &Tx,
    appends: &[Arc<Prepared>],
) -> mainstay_store::Result<Vec<Result<Appended>>> {
    let decided = look_and_decide(ground, tx, appends).await?;
    write(ground, tx, decided).await
}

/// As [`commit`], for appends that go in together: unless all of them are appended now, or were before and may have been
/// (`repeatable`), nothing is written, and whoever called ends the transaction. What is noted in memory belongs to the writer's whole group, and could not be taken back
/// with a single member of it. The audit rows of what was refused are left to the caller too.
pub(crate) async fn commit_together(
    ground: &Ground,
    tx: &Tx,
    appends: &[Arc<Prepared>],
    repeatable: &[bool],
) -> mainstay_store::Result<(Vec<Result<Appended>>, Vec<Vec<Value>>)> {
    let mut decided = look_and_decide(ground, tx, appends).await?;
    let may_go_in = |(answer, is_repeatable): (&Result<Appended>, &bool)| match answer {
        Ok(appended) => appended.status == Status::Appended || *is_repeatable,
        Err(_) => false,
    };
    if !decided.answers.iter().zip(repeatable).all(may_go_in) {
        return Ok((decided.answers, decided.audits));
    }
    let audits = std::mem::take(&mut decided.audits);
    Ok((write(ground, tx, decided).await?, audits))
}

async fn look_and_decide(
    ground: &Ground,
    tx: &Tx,
    appends: &[Arc<Prepared>],
) -> mainstay_store::Result<Decided> {
    let sight = lock(ground, tx).await?;
    let facts = gather(ground, tx, &sight, appends).await?;
    Ok(decide(ground, appends, &facts, sight.end, sight.now_ms))
}

const LOCK_HEAD: &str =
    "SELECT position, timestamp_ms, mainstay_now() FROM mainstay_log_head WHERE id = 1 FOR UPDATE";
const MOVE_HEAD: &str = "UPDATE mainstay_log_head SET position = $1, timestamp_ms = $2 WHERE id = 1";

async fn lock(ground: &Ground, tx: &Tx) -> mainstay_store::Result<Sight> {
    if let Some(recent) = &ground.recent {
        let Some(serial) = tx.serial() else {
            return Err(mainstay_store::Error::ReadOnly("an append".to_owned()));
        };
        // The process that owns the file is the database, and its clock the database's.
        let (view, end) = recent.writing(serial);
        return Ok(Sight { view, end, now_ms: ground.clock.now_ms() });
    }
    let row = tx.query_one(LOCK_HEAD, &[]).await?;
    let end = End { head: row.get(0)?, last_ms: row.get(1)? };
    Ok(Sight { view: View::table(), end, now_ms: row.get(2)? })
}

/// What an answer is about.
#[derive(Debug, Clone, Copy)]
enum Subject<'a> {
    /// The event with an idempotency key.
    Key { tenant: Option<&'a str>, key: &'a str },
    /// The event of a tenant with an id.
    Id { tenant: Option<&'a str>, id: &'a str },
    /// The last event of a stream.
    Stream { tenant: Option<&'a str>, stream_type: &'a str, id: &'a str },
    /// The newest event that an item forbids.
    Item { tenant: Option<&'a str>, item: &'a Item },
}

impl Subject<'_> {
    /// Whether an event that the index names is really meant.
    fn is(&self, event: &Event) -> bool {
        match self {
            Self::Key { tenant, key } => event.idempotency_key() == Some(key) && event.tenant() == *tenant,
            Self::Id { tenant, id } => event.id() == *id && event.tenant() == *tenant,
            Self::Stream { tenant, stream_type, id } => {
                event.tenant() == *tenant
                    && event
                        .stream()
                        .is_some_and(|stream| stream.stream_type == *stream_type && stream.id == *id)
            }
            Self::Item { tenant, item } => {
                let tags: Vec<&str> = event.tags().collect();
                item.matches(event.event_type(), &tags) && (tenant.is_none() || event.tenant() == *tenant)
            }
        }
    }
}

/// A question to the index.
struct Question<'a> {
    append: usize,
    /// The event it is about; nothing for an item of the condition.
    event: Option<usize>,
    subject: Subject<'a>,
    groups: Cow<'a, Groups>,
    after: u64,
    /// A position that may be the answer and is not in the index.
    hint: Option<u64>,
}

fn questions<'a>(ground: &Ground, appends: &'a [Arc<Prepared>]) -> Vec<Question<'a>> {
    let terms = ground.terms;
    let mut questions = Vec::new();
    for (append, prepared) in appends.iter().enumerate() {
        for (number, event) in prepared.events.iter().enumerate() {
            let (new, tenant) = (&event.new, event.new.tenant_id.as_deref());
            let mut ask = |subject, term, hint| {
                let groups = Cow::Owned(Groups::default().and(vec![term]));
                questions.push(Question { append, event: Some(number), subject, groups, after: 0, hint });
            };
            if let Some(key) = &new.idempotency_key {
                ask(Subject::Key { tenant, key }, terms.idempotency(tenant, key), None);
            }
            if let Some(id) = new.event_id.as_ref().filter(|_| !event.has_made_id) {
                ask(Subject::Id { tenant, id }, terms.event_id(id), position_in(id));
            }
            if let Some(stream) = &new.stream {
                let subject = Subject::Stream { tenant, stream_type: &stream.stream_type, id: &stream.id };
                ask(subject, terms.stream(tenant, &stream.stream_type, &stream.id), None);
            }
        }
        if let Some(condition) = &prepared.condition {
            let tenant = prepared.tenant.as_deref();
            let items = condition.condition.fail_if_events_match.items();
            for (item, groups) in items.iter().zip(&condition.items) {
                let (subject, groups) = (Subject::Item { tenant, item }, Cow::Borrowed(groups));
                questions.push(Question {
                    append,
                    event: None,
                    subject,
                    groups,
                    after: condition.after,
                    hint: None,
                });
            }
        }
    }
    questions
}

/// Answers everything that deciding needs to know.
async fn gather(
    ground: &Ground,
    tx: &Tx,
    sight: &Sight,
    appends: &[Arc<Prepared>],
) -> mainstay_store::Result<Vec<Facts>> {
    let questions = questions(ground, appends);
    let candidates = candidates(tx, sight, &questions).await?;
    let mut seen = Seen::default();
    seen.load(tx, candidates.iter().flatten().chain(questions.iter().filter_map(|one| one.hint.as_ref())))
        .await?;
    let mut facts: Vec<Facts> = appends.iter().map(|prepared| Facts::new(prepared.events.len())).collect();
    for (question, candidate) in questions.iter().zip(candidates) {
        let answer = match question.hint.and_then(|position| seen.0.get(&position)) {
            Some(Ok(event)) if question.subject.is(event) => Ok(Some(event.clone())),
            _ => seen.verify(tx, &sight.view, question, candidate).await?,
        };
        facts[question.append].learn(question.event, question.subject.into(), answer);
    }
    for (prepared, facts) in appends.iter().zip(&mut facts) {
        for scope in prepared.events.iter().filter_map(|event| event.new.scope.as_ref()) {
            facts.scopes.insert(scope.key.clone(), read::scope_version(tx, &scope.key).await?);
        }
    }
    Ok(facts)
}

/// What kind of answer it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Key,
    Id,
    Stream,
    Item,
}

impl From<Subject<'_>> for About {
    fn from(subject: Subject<'_>) -> Self {
        match subject {
            Subject::Key { .. } => Self::Key,
            Subject::Id { .. } => Self::Id,
            Subject::Stream { .. } => Self::Stream,
            Subject::Item { .. } => Self::Item,
        }
    }
}

/// The newest position that the index has for each question.
async fn candidates(
    tx: &Tx,
    sight: &Sight,
    questions: &[Question<'_>],
) -> mainstay_store::Result<Vec<Option<u64>>> {
    let (view, head) = (&sight.view, sight.end.head);
    let mut probes = Vec::with_capacity(questions.len());
    let mut owners = Vec::with_capacity(questions.len());
    for (number, question) in questions.iter().enumerate() {
        for term in question.groups.single().unwrap_or_default() {
            probes.push(Probe { term: *term, after: question.after });
            owners.push(number);
        }
    }
    let mut found: Vec<Option<u64>> = vec![None; questions.len()];
    for (owner, position) in owners.into_iter().zip(index::latest(tx, view, &probes).await?) {
        found[owner] = found[owner].max(position);
    }
    let mut leaps = Vec::new();
    for (number, question) in questions.iter().enumerate() {
        let (groups, after) = (&*question.groups, question.after);
        if groups.is_everything() {
            found[number] = (head > after).then_some(head);
        } else if groups.single().is_none() {
            match index::latest_in_memory(view, groups, after, head) {
                // What has to wait takes room, and mostly nothing has to.
                None => leaps.push(async move {
                    index::latest_in(tx, view, groups, after, head).await.map(|place| (number, place))
                }),
                Some(answer) => found[number] = answer,
            }
        }
    }
    for (number, position) in try_join_all(leaps).await? {
        found[number] = position;
    }
    Ok(found)
}

/// Events that were looked at.
#[derive(Default)]
struct Seen(HashMap<u64, Result<Event>>);

impl Seen {
    async fn load(&mut self, tx: &Tx, positions: impl Iterator<Item = &u64>) -> mainstay_store::Result<()> {
        let mut wanted: Vec<u64> =
            positions.copied().filter(|position| *position > 0 && !self.0.contains_key(position)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        wanted.sort_unstable();
        wanted.dedup();
        for row in index::rows_at(tx, &wanted).await? {
            let position = row.get(0)?;
            self.0.insert(position, record::event_of(row));
        }
        Ok(())
    }

    /// The newest event that is really meant: terms of different texts may coincide.
    async fn verify(
        &mut self,
        tx: &Tx,
        view: &View,
        question: &Question<'_>,
        mut candidate: Option<u64>,
    ) -> mainstay_store::Result<Result<Option<Event>>> {
        while let Some(position) = candidate {
            self.load(tx, std::iter::once(&position)).await?;
            match self.0.get(&position) {
                Some(Ok(event)) if question.subject.is(event) => {
                    return Ok(Ok(Some(event.clone())));
                }
                Some(Err(error)) => return Ok(Err(error.clone())),
                Some(Ok(_)) => {}
                None => {
                    let reason = UNKNOWN_PLACE.to_owned();
                    return Ok(Err(Error::Corrupt { position, reason }));
                }
            }
            candidate = match question.subject {
                Subject::Id { .. } => return self.among_sharers(tx, view, question, position - 1).await,
                _ if question.groups.is_everything() => (position > question.after + 1).then(|| position - 1),
                _ => index::latest_in(tx, view, &question.groups, question.after, position - 1).await?,
            };
        }
        Ok(Ok(None))
    }

    /// The event of a tenant among those that share its id, at `most` or before. Each tenant has one at the most.
    async fn among_sharers(
        &mut self,
        tx: &Tx,
        view: &View,
        question: &Question<'_>,
        mut most: u64,
    ) -> mainstay_store::Result<Result<Option<Event>>> {
        loop {
            let positions = index::descending(tx, view, &question.groups, 0, most, SHARED_ID).await?;
            self.load(tx, positions.iter()).await?;
            for position in &positions {
                match self.0.get(position) {
                    Some(Ok(event)) if question.subject.is(event) => return Ok(Ok(Some(event.clone()))),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Ok(Err(error.clone())),
                    None => {
                        let (position, reason) = (*position, UNKNOWN_PLACE.to_owned());
                        return Ok(Err(Error::Corrupt { position, reason }));
                    }
                }
            }
            match positions.last() {
                Some(last) if positions.len() == SHARED_ID && *last > 1 => most = last - 1,
                _ => return Ok(Ok(None)),
            }
        }
    }
}

const UNKNOWN_PLACE: &str = "the index names an event that is not there";

const MOVE_SCOPE: &str = "INSERT INTO mainstay_scopes (scope_key, version, position, updated_at) \
     VALUES ($1, $2, $3, $4) ON CONFLICT (scope_key) DO UPDATE \
     SET version = excluded.version, position = excluded.position, updated_at = excluded.updated_at";
pub(super) const WRITE_AUDIT: &str = "INSERT INTO mainstay_idempotency_audits (audit_id, idempotency_key, \
     tenant_id, reason, existing_event_id, existing_position, attempted_type, attempted_correlation_id, refused_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, mainstay_now())";

async fn write(ground: &Ground, tx: &Tx, decided: Decided) -> mainstay_store::Result<Vec<Result<Appended>>> {
    for audit in &decided.audits {
        tx.execute(WRITE_AUDIT, audit).await?;
    }
    if decided.rows.is_empty() {
        return Ok(decided.answers);
    }
    for (key, version, position) in &decided.scopes {
        let params = params![key, *version as i64, *position as i64, decided.end.last_ms];
        tx.execute(MOVE_SCOPE, params).await?;
    }
    if let (Some(recent), Some(serial)) = (&ground.recent, tx.serial()) {
        index::insert_rows(tx, &decided.rows).await?;
        recent.note(serial, decided.terms, decided.rows, decided.end);
        let recent = recent.clone();
        tx.after_commit(Arc::new(move || recent.promote(serial)))?;
    } else {
        let terms = decided.terms.iter().flat_map(|(position, terms)| {
            terms.iter().flat_map(|term| [Value::Int(*term), Value::Int(*position as i64)])
        });
        let terms: Vec<Value> = terms.collect();
        let head = [Value::Int(decided.end.head as i64), Value::Int(decided.end.last_ms)];
        tokio::try_join!(
            index::insert_rows(tx, &decided.rows),
            index::insert_new_terms(tx, &terms),
            tx.execute(MOVE_HEAD, &head)
        )?;
    }
    tx.wake(&events_topic())?;
    Ok(decided.answers)
}
