//! Commands that arrive at the same time are decided in one transaction.
//!
//! A lone command has a transaction to itself, on its caller's task. Concurrent commands queue and are decided one after
//! another in one transaction, also those that arrive while it runs: one lock of the log, one statement for all events, one for
//! all items of work, one commit. No command waits for a timer.
//!
//! A command has the same outcome alone and in a batch. A handler reads what the handlers before it have written, as if that had
//! been committed. Their events are written at the end, so a decision that rests on such an event waits for the next
//! transaction. A rejected command that has written nothing is recorded with the others. After any other failure the transaction
//! is rolled back and its commands are decided alone, as are the next commands for a while: the failure is likely to come back.

use super::command::Issued;
use super::decider::Rejection;
use super::dispatch::Shared;
use super::handlers::Handler;
use super::outcome::CommandResult;
use super::record::{self, NewRecord, State};
use super::seated::Seated;
use super::span::Appending;
use crate::{Error, Result};
use mainstay_store::Tx;
use mainstay_store::batch::{Admit, Batch, Lane, Queue, Waiting};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::Instrument;

/// Most commands of a transaction: beyond this its cost is spread thin already, and all wait for the last.
const MAX_COMMANDS: usize = 64;
/// Most commands that wait for a batch. Further commands queue for the store, which refuses them when it is full.
const MAX_WAITING: usize = 4_096;
/// Time for all handlers of one transaction; later commands are decided in the next one.
const MAX_DECIDING: Duration = Duration::from_millis(10);
/// Handlers that take longer are decided concurrently where the database can do that.
const SLOW: Duration = Duration::from_millis(2);
/// Time limit of a transaction, so that one that waits for a lock does not delay the others.
const LIMIT: Duration = Duration::from_millis(500);
/// Longest wait of a command for its turn.
const PATIENCE: Duration = Duration::from_millis(100);
/// Number of commands that are decided alone after a batch failed.
const ALONE_AFTER: u32 = 256;
/// Up to so many concurrent commands are faster alone where one writer commits them together anyway.
const FEW_EMBEDDED: usize = 4;
/// Time for which the one writer waits for callers of the last batch: they often dispatch again at once.
const LOOKING_OUT: Duration = Duration::from_micros(50);

/// Makes batches of commands.
pub(super) struct Batcher {
    queue: Queue<Arc<Member>, Answer>,
    /// Commands that are being decided.
    under_way: AtomicUsize,
    /// Number of further commands that are decided alone.
    alone: AtomicU32,
    /// Held while a transaction decides: two at once would only wait for the log, and overtake each other.
    turn: tokio::sync::Mutex<()>,
    few: usize,
    /// Number of commands of the last transaction.
    usual: AtomicUsize,
    /// Whether several transactions can run at once. Where there is one writer, the writer is the turn.
    concurrent_writers: bool,
}

/// A command in a batch, with its caller's span.
pub(super) struct Member {
    handler: Handler,
    issued: Arc<Issued>,
    /// The command as it is stored, serialised on its caller's task to keep the writer free.
    written: Arc<str>,
    span: tracing::Span,
}

/// The result of a command, and the positions of its events once they are known.
type Decided = (CommandResult, Option<Appending>);

/// The answer to a command in a batch.
pub(super) enum Answer {
    /// It is decided.
    Decided(CommandResult, Option<Appending>),
    /// It is not decided, and should be tried alone.
    Alone,
    /// No command can be decided now, or the outcome is unknown.
    Failed(Error),
    /// It rests on a decision of the same transaction.
    Next,
}

/// The commands of a transaction that still takes commands. When it runs again, it begins with the same commands.
struct Open(Mutex<Members>);

struct Members {
    callers: Vec<Waiting<Arc<Member>, Answer>>,
    /// Commands by tenant and id. A command joins once.
    ids: HashSet<(Option<String>, String)>,
    /// Scopes whose version a command of this transaction changes.
    scopes: HashSet<String>,
    /// A command was left in the queue; later ones must not overtake it.
    is_full: bool,
    /// Taken while the transaction takes commands. When it is dropped, the next one may start.
    lane: Option<Lane<Shared>>,
}

impl Open {
    fn new(lane: Lane<Shared>) -> Self {
        let lane = Some(lane);
        let (ids, scopes) = (HashSet::new(), HashSet::new());
        Self(Mutex::new(Members { callers: Vec::new(), ids, scopes, is_full: false, lane }))
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    fn is_open(&self) -> bool {
        !self.is_full && self.lane.is_some()
    }

    /// Takes commands that wait. Of two with the same id, or that change the same scope, only one can be first: the other
    /// waits for the next transaction.
    fn take(&mut self) {
        let Self { callers, ids, scopes, is_full, lane } = self;
        let Some(lane) = lane else { return };
        callers.extend(lane.take(MAX_COMMANDS - callers.len(), |member| {
            let issued = &member.issued;
            let is_first = ids.insert((issued.tenant_id.clone(), issued.command_id.clone()))
                && issued.scope.as_ref().is_none_or(|scope| scopes.insert(scope.key.clone()));
            *is_full |= !is_first;
            if is_first { Admit::Take } else { Admit::Leave }
        }));
    }
}

impl Batcher {
    pub(super) fn new(concurrent_writers: bool) -> Self {
        Self {
            queue: Queue::new(1).max_waiting(MAX_WAITING),
            under_way: AtomicUsize::new(0),
            alone: AtomicU32::new(0),
            turn: tokio::sync::Mutex::default(),
            few: if concurrent_writers { 1 } else { FEW_EMBEDDED },
            usual: AtomicUsize::new(0),
            concurrent_writers,
        }
    }

    /// Whether another command is faster in a batch.
    fn is_worth_it(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.under_way.load(Ordering::Relaxed) > self.few
            && self.alone.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
    }

    /// The turn to decide, where several transactions can run at once; nothing when it is not free in time.
    async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match self.concurrent_writers {
            true => tokio::time::timeout(PATIENCE, self.turn.lock()).await.ok(),
            false => None,
        }
    }

    /// The turn to decide alone. Slow handlers need none.
    pub(super) async fn turn_of(&self, handler: &Handler) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.is_slow(handler) { None } else { self.turn().await }
    }

    /// Whether a handler is better decided beside other commands than between them.
    fn is_slow(&self, handler: &Handler) -> bool {
        self.concurrent_writers && handler.pace.usual() > SLOW
    }

    /// Counts a command as being decided.
    pub(super) fn enter(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }
}

/// Counts a command as being decided.
pub(super) struct UnderWay<'a>(&'a Batcher);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Batch for Shared {
    type Request = Arc<Member>;
    type Answer = Answer;

    fn queue(&self) -> &Queue<Arc<Member>, Answer> {
        &self.batcher().queue
    }

    /// One transaction. It takes the commands that wait when its turn comes, and those that arrive while it decides.
    async fn run(self: Arc<Self>, lane: Lane<Self>) {
        let _turn = self.batcher().turn().await;
        let open = Arc::new(Open::new(lane));
        let run = async |tx: Tx, (shared, open): (Arc<Self>, Arc<Open>)| shared.decide_all(&tx, &open).await;
        let store = self.log().store().with_time_limit(LIMIT);
        let done = store.transact_with((self.clone(), open.clone()), run).await;
        let callers = {
            let mut members = open.members();
            if members.callers.is_empty() {
                // The callers get an answer also when the transaction was refused before its turn.
                members.take();
            }
            self.close(&mut members);
            std::mem::take(&mut members.callers)
        };
        let answers = match done {
            Ok(answers) => answers,
            Err(error) => self.answers_of_failure(callers.len(), error),
        };
        self.reply(callers, answers);
    }
}

impl Shared {
    /// Decides a command in a batch; nothing when it is better decided alone.
    pub(super) async fn decide_in_batch(
        self: &Arc<Self>,
        handler: &Handler,
        issued: &Arc<Issued>,
    ) -> Result<Option<Decided>> {
        let batcher = self.batcher();
        // A deferred command has its row already.
        let is_apart = batcher.is_slow(handler) || handler.reads_log.load(Ordering::Relaxed);
        if issued.attempt > 0 || is_apart || !batcher.is_worth_it() {
            return Ok(None);
        }
        let written = record::json(&**issued)?.into();
        let (handler, issued) = (handler.clone(), issued.clone());
        let member = Arc::new(Member { handler, issued, written, span: tracing::Span::current() });
        let Ok(answer) = Lane::wait(self, member) else { return Ok(None) };
        match answer.await {
            Ok(Answer::Decided(result, receipt)) => Ok(Some((result, receipt))),
            Ok(Answer::Alone | Answer::Next) => Ok(None),
            Ok(Answer::Failed(error)) => Err(error),
            Err(_) => Err(mainstay_store::Error::CommitUnknown("the runtime went away".to_owned()).into()),
        }
    }

    /// The next command of a transaction, if there is time.
    fn next(&self, open: &Open, number: usize, began: Instant) -> Option<Arc<Member>> {
        let batcher = self.batcher();
        let asked = Instant::now();
        let is_late = number > 0 && asked.duration_since(began) > MAX_DECIDING;
        let is_waited_for = !batcher.concurrent_writers && number < batcher.usual.load(Ordering::Relaxed);
        loop {
            let mut members = open.members();
            if members.callers.len() <= number && members.is_open() {
                members.take();
            }
            match members.callers.get(number) {
                Some(caller) if !is_late => return Some(caller.request.clone()),
                None if is_waited_for && members.is_open() && asked.elapsed() < LOOKING_OUT => {}
                _ => {
                    self.close(&mut members);
                    return None;
                }
            }
            drop(members);
            std::thread::yield_now();
        }
    }

    /// Takes no more commands. The next transaction may start.
    fn close(&self, members: &mut Members) {
        if let Some(lane) = members.lane.take() {
            self.batcher().usual.store(members.callers.len(), Ordering::Relaxed);
            drop(lane);
        }
    }

    /// Decides commands one after another. The answers are those of the commands that were reached.
    async fn decide_all(self: &Arc<Self>, tx: &Tx, open: &Open) -> mainstay_store::Result<Vec<Answer>> {
        let began = Instant::now();
        let now_ms = tx.now_ms().await?;
        let seated = tx.epilogue(Seated::default);
        let (mut answers, mut ended) = (Vec::new(), Vec::new());
        while let Some(member) = self.next(open, answers.len(), began) {
            let Member { handler, issued, written, span } = &*member;
            let marks = tx.marks();
            let boundary = Arc::default();
            let handling = self.handle_in(tx.clone(), handler, issued.clone(), boundary, now_ms);
            let error = match handling.instrument(span.clone()).await {
                Ok((result, receipt)) => {
                    ended.push(NewRecord::of(issued, written, State::Executed, &result)?);
                    self.tell(tx, issued, &result)?;
                    answers.push(Answer::Decided(result, receipt));
                    continue;
                }
                Err(error) => error,
            };
            // Its writes cannot be rolled back without those of the other commands.
            if tx.marks() != marks || tx.intact().is_err() {
                return Err(error);
            }
            answers.push(match Rejection::try_from(error) {
                Ok(rejection) => {
                    let result = rejection.into_result();
                    ended.push(NewRecord::of(issued, written, State::Rejected, &result)?);
                    self.tell(tx, issued, &result)?;
                    Answer::Decided(result, None)
                }
                Err(error) => match Error::from_handler(error) {
                    Error::Late => Answer::Next,
                    _ => Answer::Alone,
                },
            });
        }
        drop(seated);
        let count = ended.len() as u64;
        if record::insert_all(tx, ended, now_ms).await? != count {
            return Err(Error::Late.into());
        }
        Ok(answers)
    }

    /// The answers of a transaction that failed.
    fn answers_of_failure(&self, members: usize, error: mainstay_store::Error) -> Vec<Answer> {
        use mainstay_store::Error as Store;
        let is_for_all = matches!(
            error,
            Store::Busy { .. }
                | Store::Unavailable(_)
                | Store::CommitUnknown(_)
                | Store::Closed
                | Store::DiskFull(_)
        );
        if is_for_all {
            let error = Error::from(error);
            return (0..members).map(|_| Answer::Failed(error.clone())).collect();
        }
        if members > 1 {
            self.batcher().alone.store(ALONE_AFTER, Ordering::Relaxed);
        }
        (0..members).map(|_| Answer::Alone).collect()
    }

    /// Answers the callers. Commands that were not reached, or wait for another one, are the first of the next transaction.
    fn reply(self: &Arc<Self>, callers: Vec<Waiting<Arc<Member>, Answer>>, answers: Vec<Answer>) {
        let answers = answers.into_iter().chain(std::iter::repeat_with(|| Answer::Next));
        let mut again = Vec::new();
        for (caller, answer) in callers.into_iter().zip(answers) {
            match answer {
                Answer::Next => again.push(caller),
                // A caller that has gone away needs no answer.
                answer => drop(caller.reply.send(answer)),
            }
        }
        Lane::put_back(self, again);
    }
}

/// Usual duration of a handler.
#[derive(Default)]
pub(super) struct Pace(AtomicU64);

impl Pace {
    /// Notes a run. Two at once may lose one of them, which hardly moves a mean.
    pub(super) fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).min(1 << 32);
        self.0.store((self.0.load(Ordering::Relaxed) * 7 + took) / 8, Ordering::Relaxed);
    }

    fn usual(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}
