//! Commands that come at the same time are decided in one transaction.
//!
//! A command that comes alone has a transaction to itself, on its caller's task. Where several come, they queue, and are
//! decided one after another in one transaction, also those that come while it decides: one lock of the log, one statement
//! for all events, one for all items of work, one commit. So they are the cheaper the more there are, and none waits for a
//! timer.
//!
//! Nobody may notice. A handler finds what those before it have written, as if they had been committed; what is not
//! written before the end are their events, so a decision that rests on such an event is left for the next transaction.
//! Who is rejected and has written nothing is recorded with the others. When anything else goes wrong, all of it is taken
//! back and everybody is decided alone; commands that come then stay alone for a while, since more of it is likely.

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
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::Instrument;

/// Most commands of a transaction: beyond this its cost is spread thin already, and all wait for the last.
const MAX_COMMANDS: usize = 64;
/// Most commands that wait for company; beyond this they queue for the store, which says when it has had enough.
const MAX_WAITING: usize = 4_096;
/// How long handlers may take together; who has not had a turn by then has it in the next transaction.
const MAX_DECIDING: Duration = Duration::from_millis(10);
/// Handlers that take longer are decided side by side where the database can do that.
const SLOW: Duration = Duration::from_millis(2);
/// How long a transaction may take: one that waits for somebody's lock shall not keep the others waiting.
const LIMIT: Duration = Duration::from_millis(500);
/// How long the turn is waited for.
const PATIENCE: Duration = Duration::from_millis(100);
/// How many commands are decided alone after company did not go well.
const ALONE_AFTER: u32 = 256;
/// So few at once are better off alone where one writer commits them together anyway.
const FEW_EMBEDDED: usize = 4;
/// How long the one writer looks out for those who came the last time: who was answered often comes again at once.
const LOOKING_OUT: Duration = Duration::from_micros(50);

/// Who waits to be decided in company.
pub(super) struct Company {
    queue: Mutex<Queue>,
    /// Commands that are being decided.
    under_way: AtomicUsize,
    /// How many more are decided alone.
    alone: AtomicU32,
    /// Who holds it decides: two at once would only wait for the log, and overtake each other.
    turn: tokio::sync::Mutex<()>,
    few: usize,
    /// How many the last transaction decided.
    usual: AtomicUsize,
    /// Whether several transactions can run at once; where there is one writer, that is the turn.
    concurrent_writers: bool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Whether a transaction is on its way to take them up.
    is_attended: bool,
}

struct Waiting {
    member: Arc<Member>,
    reply: oneshot::Sender<Answer>,
}

/// A command in company, with the span that it came in.
struct Member {
    handler: Handler,
    issued: Arc<Issued>,
    /// The command as it is kept, written on its caller's task: the one who decides has more to do than anybody else.
    written: Arc<str>,
    span: tracing::Span,
}

/// What came of a command, and where its events will be.
type Decided = (CommandResult, Option<Appending>);

/// What came of deciding in company.
enum Answer {
    /// It is decided.
    Decided(CommandResult, Option<Appending>),
    /// It is not, and should be tried alone.
    Alone,
    /// Nobody can be decided now, or whether it is decided is not known.
    Failed(Error),
    /// It rests on what another one of the same transaction decides.
    Next,
}

/// Those of one transaction. It may be run again, and then begins with those who are there already.
#[derive(Default)]
struct Ride(Mutex<Boarded>);

#[derive(Default)]
struct Boarded {
    members: Vec<Arc<Member>>,
    replies: Vec<oneshot::Sender<Answer>>,
    /// Commands by tenant and id, of which there is no second one.
    ids: HashSet<(Option<String>, String)>,
    /// Scopes that are moved on.
    scopes: HashSet<String>,
    /// Somebody was left behind, to whom nobody else is preferred.
    is_full: bool,
    /// Nobody boards any more, and there may be a next one.
    has_left: bool,
}

impl Ride {
    fn boarded(&self) -> MutexGuard<'_, Boarded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Boarded {
    fn is_open(&self) -> bool {
        !self.is_full && !self.has_left
    }

    /// Whether one more could be first, too: of two that say the same, or move the same scope on, only one can.
    fn admits(&mut self, issued: &Issued) -> bool {
        self.ids.insert((issued.tenant_id.clone(), issued.command_id.clone()))
            && issued.scope.as_ref().is_none_or(|scope| self.scopes.insert(scope.key.clone()))
    }
}

impl Company {
    pub(super) fn new(concurrent_writers: bool) -> Self {
        Self {
            queue: Mutex::default(),
            under_way: AtomicUsize::new(0),
            alone: AtomicU32::new(0),
            turn: tokio::sync::Mutex::default(),
            few: if concurrent_writers { 1 } else { FEW_EMBEDDED },
            usual: AtomicUsize::new(0),
            concurrent_writers,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more had better be decided with others.
    fn is_worth_it(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.under_way.load(Ordering::Relaxed) > self.few
            && self.alone.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
    }

    /// The turn to decide, where several transactions can run at once. Whoever keeps it for too long is not waited for.
    async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match self.concurrent_writers {
            true => tokio::time::timeout(PATIENCE, self.turn.lock()).await.ok(),
            false => None,
        }
    }

    /// The turn to decide alone; handlers that take long need none.
    pub(super) async fn turn_of(&self, handler: &Handler) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.is_slow(handler) { None } else { self.turn().await }
    }

    /// Whether a handler is better off beside others than between them.
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
pub(super) struct UnderWay<'a>(&'a Company);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Decides a command together with those that come at the same time; nothing when it had better be decided alone.
    pub(super) async fn decide_in_company(
        self: &Arc<Self>,
        handler: &Handler,
        issued: &Arc<Issued>,
    ) -> Result<Option<Decided>> {
        let company = self.company();
        // The row of one that was deferred is there already.
        let is_apart = company.is_slow(handler) || handler.reads_log.load(Ordering::Relaxed);
        if issued.attempt > 0 || is_apart || !company.is_worth_it() {
            return Ok(None);
        }
        let (reply, answer) = oneshot::channel();
        let written = record::json(&**issued)?.into();
        let is_first = {
            let mut queue = company.queue();
            if queue.waiting.len() >= MAX_WAITING {
                return Ok(None);
            }
            let (handler, issued) = (handler.clone(), issued.clone());
            let member = Arc::new(Member { handler, issued, written, span: tracing::Span::current() });
            queue.waiting.push_back(Waiting { member, reply });
            !std::mem::replace(&mut queue.is_attended, true)
        };
        if is_first {
            tokio::spawn(self.clone().ride());
        }
        match answer.await {
            Ok(Answer::Decided(result, receipt)) => Ok(Some((result, receipt))),
            Ok(Answer::Alone | Answer::Next) => Ok(None),
            Ok(Answer::Failed(error)) => Err(error),
            Err(_) => Err(mainstay_store::Error::CommitUnknown("the runtime went away".to_owned()).into()),
        }
    }

    /// One transaction. It takes up who waits when its turn comes, and who comes while it decides.
    async fn ride(self: Arc<Self>) {
        let mut watch = Watch { company: self.company(), is_over: false };
        let _turn = self.company().turn().await;
        let ride = Arc::new(Ride::default());
        let run = async |tx: Tx, (shared, ride): (Arc<Self>, Arc<Ride>)| shared.decide_all(&tx, &ride).await;
        let store = self.log().store().with_time_limit(LIMIT);
        let done = store.transact_with((self.clone(), ride.clone()), run).await;
        watch.is_over = true;
        let Boarded { members, replies, .. } = {
            let mut boarded = ride.boarded();
            if boarded.members.is_empty() {
                // A transaction that was refused before its turn takes its passengers along all the same.
                self.board(&mut boarded);
            }
            self.leave(&mut boarded);
            std::mem::take(&mut *boarded)
        };
        let answers = match done {
            Ok(answers) => answers,
            Err(error) => self.judge(members.len(), error),
        };
        self.reply(members.into_iter().zip(replies), answers);
    }

    /// The next one to be decided, if there is time and anybody is there or comes.
    fn next(self: &Arc<Self>, ride: &Ride, number: usize, began: Instant) -> Option<Arc<Member>> {
        let company = self.company();
        let asked = Instant::now();
        let is_late = number > 0 && asked.duration_since(began) > MAX_DECIDING;
        let is_waited_for = !company.concurrent_writers && number < company.usual.load(Ordering::Relaxed);
        loop {
            let mut boarded = ride.boarded();
            if boarded.members.len() <= number && boarded.is_open() {
                self.board(&mut boarded);
            }
            match boarded.members.get(number) {
                Some(member) if !is_late => return Some(member.clone()),
                None if is_waited_for && boarded.is_open() && asked.elapsed() < LOOKING_OUT => {}
                _ => {
                    self.leave(&mut boarded);
                    return None;
                }
            }
            drop(boarded);
            std::thread::yield_now();
        }
    }

    /// Takes up who waits.
    fn board(&self, boarded: &mut Boarded) {
        let mut queue = self.company().queue();
        let mut left_behind = VecDeque::new();
        while boarded.members.len() < MAX_COMMANDS
            && let Some(Waiting { member, reply }) = queue.waiting.pop_front()
        {
            if !boarded.admits(&member.issued) {
                left_behind.push_back(Waiting { member, reply });
            } else if !reply.is_closed() {
                boarded.members.push(member);
                boarded.replies.push(reply);
            }
        }
        if !left_behind.is_empty() {
            boarded.is_full = true;
            left_behind.append(&mut queue.waiting);
            queue.waiting = left_behind;
        }
    }

    /// Takes nobody up any more; who waits by now is taken up by a next one.
    fn leave(self: &Arc<Self>, boarded: &mut Boarded) {
        if std::mem::replace(&mut boarded.has_left, true) {
            return;
        }
        self.company().usual.store(boarded.members.len(), Ordering::Relaxed);
        let mut queue = self.company().queue();
        queue.is_attended = !queue.waiting.is_empty();
        if queue.is_attended {
            tokio::spawn(self.clone().ride());
        }
    }

    /// Decides commands one after another; the answers of those that were reached.
    async fn decide_all(self: &Arc<Self>, tx: &Tx, ride: &Ride) -> mainstay_store::Result<Vec<Answer>> {
        let began = Instant::now();
        let now_ms = tx.now_ms().await?;
        let seated = tx.epilogue(Seated::default);
        let (mut answers, mut ended) = (Vec::new(), Vec::new());
        while let Some(member) = self.next(ride, answers.len(), began) {
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
            // What was written cannot be taken back without taking back the others'.
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

    /// The answers of those whose transaction failed.
    fn judge(&self, members: usize, error: mainstay_store::Error) -> Vec<Answer> {
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
            self.company().alone.store(ALONE_AFTER, Ordering::Relaxed);
        }
        (0..members).map(|_| Answer::Alone).collect()
    }

    /// Answers; who was not reached, or waits for another one, is the first to be taken up by the next transaction.
    fn reply(
        self: &Arc<Self>,
        members: impl Iterator<Item = (Arc<Member>, oneshot::Sender<Answer>)>,
        answers: Vec<Answer>,
    ) {
        let answers = answers.into_iter().chain(std::iter::repeat_with(|| Answer::Next));
        let mut again = Vec::new();
        for ((member, reply), answer) in members.zip(answers) {
            match answer {
                Answer::Next => again.push(Waiting { member, reply }),
                // Who went away meanwhile has no use for it.
                answer => drop(reply.send(answer)),
            }
        }
        if again.is_empty() {
            return;
        }
        let mut queue = self.company().queue();
        again.into_iter().rev().for_each(|waiting| queue.waiting.push_front(waiting));
        if !std::mem::replace(&mut queue.is_attended, true) {
            tokio::spawn(self.clone().ride());
        }
    }
}

/// When a transaction is ended from outside, nobody may wait for it in vain, and the next command starts another.
struct Watch<'a> {
    company: &'a Company,
    is_over: bool,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut queue = self.company.queue();
            queue.waiting.clear();
            queue.is_attended = false;
        }
    }
}

/// How long a handler usually takes.
#[derive(Default)]
pub(super) struct Pace(AtomicU64);

impl Pace {
    /// Notes a run. Two at once may lose one of them, which is no harm to a mean.
    pub(super) fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).min(1 << 32);
        self.0.store((self.0.load(Ordering::Relaxed) * 7 + took) / 8, Ordering::Relaxed);
    }

    fn usual(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}
