//! The one writer: runs what waits, one after another, and ends all of it with one commit.
//!
//! A savepoint around each member would protect its neighbours from its failure, but costs a third of a small
//! transaction: every page it touches is copied. So members run without, as long as nobody fails after a write.
//! When one does, what there is of the group is rolled back and run again with savepoints, and so are the groups that
//! follow, for a while.
//!
//! Outcomes are told only after that commit, also those of members that failed: a member may have failed because
//! of what a neighbour wrote, and a neighbour's writes are not real before they are committed. When the shared
//! transaction is lost, every member is run again alone, so only the one that breaks things fails.

use super::checkpointer::WalWatch;
use super::connection::Session;
use super::job::{Attempt, Job, Mode};
use super::{Shared, failure};
use crate::figures::Figures;
use crate::wakeups::{Hub, Topic};
use crate::{Error, Options, Result};
use mainstay_core::failpoints::{Failpoints, Point};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most members of a group: beyond this the commit's cost is spread thin already.
const MAX_MEMBERS: usize = 256;

/// Longest time that statements may keep a thread of the runtime, which then neither polls sockets nor timers.
const INLINE_LIMIT: Duration = Duration::from_millis(2);

/// How many groups are run carefully after one was spoilt: where members fail, more of them will.
const CAREFUL_GROUPS: u32 = 64;

/// How long the writer looks out for the next group: whoever was answered often comes again at once.
const LOOKING_OUT: Duration = Duration::from_micros(50);

/// The connection that writes.
pub(super) struct Writer {
    session: Session,
    figures: Arc<Figures>,
    hub: Arc<Hub>,
    failpoints: Failpoints,
    /// Longest time a group collects members.
    collecting: Duration,
    usual_time: Duration,
    /// How many of the next groups run in savepoints from the start.
    careful_groups: u32,
    /// A commit failed in a way that may have left its frames in the log; nothing may be written before that is
    /// cleared up.
    is_suspect: bool,
}

/// What a member left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// The transaction, with what it wrote if it ended well and nothing otherwise.
    Intact,
    /// The transaction, with something in it that must be taken back.
    Spoilt,
    /// No transaction.
    Lost,
}

/// Why a commit did not succeed.
enum Failure {
    /// It certainly did not happen.
    RolledBack(Error),
    /// It may be found after a restart.
    Unknown(String),
}

impl Writer {
    pub(super) fn new(session: Session, figures: Arc<Figures>, hub: Arc<Hub>, options: &Options) -> Self {
        Self {
            session,
            figures,
            hub,
            failpoints: options.failpoints.clone(),
            collecting: options.collecting,
            usual_time: Duration::ZERO,
            careful_groups: 0,
            is_suspect: false,
        }
    }

    /// Lets the file go.
    pub(super) fn close(&self) {
        self.session.close();
    }

    /// How long a transaction alone usually takes.
    pub(super) fn usual_time(&self) -> Duration {
        self.usual_time
    }

    /// Runs one member in a transaction of its own, on the caller's thread; false when its statements take too long
    /// for that, and nothing was done.
    pub(super) fn run_inline(&mut self, member: &mut Attempt) -> bool {
        let began = Instant::now();
        let is_done = self.attempt_alone(member, Mode::Write, Some(INLINE_LIMIT));
        self.figures.group_size.record(1);
        self.remember(began);
        is_done
    }

    fn attempt_alone(&mut self, member: &mut Attempt, mode: Mode, limit: Option<Duration>) -> bool {
        if let Err(error) = self.begin() {
            member.fail(error);
            return true;
        }
        let ran = member.run(&self.session, mode, limit);
        if !member.is_ok() {
            self.roll_back();
            return ran.is_in_time;
        }
        match self.commit() {
            Ok(()) => {
                member.after_commit().into_iter().for_each(|hook| hook());
                self.wake(member.wakes());
            }
            Err(Failure::RolledBack(error)) => member.fail(error),
            Err(Failure::Unknown(reason)) => member.fail(Error::CommitUnknown(reason)),
        }
        true
    }

    /// Runs `first` and whatever `next` yields in one transaction; how many they were.
    fn run_group(&mut self, first: Job, mut next: impl FnMut() -> Option<Job>) -> usize {
        let began = Instant::now();
        if let Err(error) = self.begin() {
            self.refuse(first, error);
            return 0;
        }
        let mut members: Vec<Job> = Vec::new();
        let mut upcoming = Some(first);
        let mut is_intact = true;
        let mut is_careful = self.careful_groups > 0;
        self.careful_groups = self.careful_groups.saturating_sub(1);
        while let Some(mut job) = upcoming.take() {
            if job.claim(&self.figures) {
                let left = self.attempt_in_group(&mut job, !members.is_empty(), is_careful);
                members.push(job);
                if left == Left::Spoilt {
                    is_careful = true;
                    self.careful_groups = CAREFUL_GROUPS;
                }
                is_intact = match left {
                    Left::Intact => true,
                    Left::Spoilt => self.attempt_carefully(&mut members),
                    Left::Lost => false,
                };
            }
            if is_intact && members.len() < MAX_MEMBERS && began.elapsed() < self.collecting {
                upcoming = next();
            }
        }
        if members.is_empty() {
            // Everyone who waited has gone away.
            self.roll_back();
            return 0;
        }
        let lost = || Failure::RolledBack(Error::Io("the shared transaction was lost".to_owned()));
        let ended = if is_intact { self.commit() } else { Err(lost()) };
        let count = members.len();
        self.figures.group_size.record(count as u64);
        self.conclude(members, ended);
        self.remember(began);
        count
    }

    fn remember(&mut self, began: Instant) {
        self.usual_time = (self.usual_time * 7 + began.elapsed()) / 8;
    }

    /// Runs a member beside others, in a savepoint when there is reason to be careful.
    fn attempt_in_group(&self, job: &mut Job, has_neighbours: bool, is_careful: bool) -> Left {
        // The first has nobody to protect: if it fails, everything so far is rolled back.
        let is_guarded = has_neighbours && is_careful;
        if is_guarded && self.session.control("SAVEPOINT member").is_err() {
            return Left::Lost;
        }
        let ran = job.run(&self.session);
        if !self.session.is_in_transaction() {
            return Left::Lost;
        }
        let control = |sql| self.session.control(sql);
        let settled = match (job.attempt.is_ok(), is_guarded) {
            (true, true) => control("RELEASE member"),
            (false, true) => control("ROLLBACK TO member").and_then(|()| control("RELEASE member")),
            (true, false) => Ok(()),
            (false, false) if !ran.has_written => Ok(()),
            (false, false) if has_neighbours => return Left::Spoilt,
            (false, false) => control("ROLLBACK").and_then(|()| self.session.begin()),
        };
        if settled.is_ok() { Left::Intact } else { Left::Lost }
    }

    /// Takes back what a member left among its neighbours, and runs all of them again, each in a savepoint; false when
    /// even that cost them their transaction.
    fn attempt_carefully(&self, members: &mut [Job]) -> bool {
        self.roll_back();
        self.figures.rerun.add(members.len() as u64);
        self.session.begin().is_ok()
            && (0..)
                .zip(members)
                .all(|(number, job)| self.attempt_in_group(job, number > 0, true) == Left::Intact)
    }

    fn conclude(&mut self, mut members: Vec<Job>, ended: std::result::Result<(), Failure>) {
        match ended {
            Ok(()) => {
                let mut committed = attempts(&mut members);
                committed.iter_mut().flat_map(|attempt| attempt.after_commit()).for_each(|hook| hook());
                self.wake(committed.iter_mut().flat_map(|attempt| attempt.wakes()));
            }
            Err(Failure::Unknown(reason)) => {
                for attempt in attempts(&mut members) {
                    attempt.fail(Error::CommitUnknown(reason.clone()));
                }
            }
            Err(Failure::RolledBack(error)) => {
                self.roll_back();
                if let [only] = &mut members[..] {
                    // It was alone already. A member that failed by itself keeps its own error.
                    if only.attempt.is_ok() {
                        only.attempt.fail(error);
                    }
                } else {
                    return self.run_again(members);
                }
            }
        }
        for job in members {
            job.reply();
        }
    }

    fn run_again(&mut self, members: Vec<Job>) {
        self.figures.groups_lost.increment();
        for mut job in members {
            self.figures.rerun.increment();
            self.attempt_alone(&mut job.attempt, job.mode, job.limit);
            job.reply();
        }
    }

    /// Works on the bare connection, between two transactions.
    pub(super) fn with<T>(&self, work: impl FnOnce(&rusqlite::Connection) -> T) -> T {
        self.session.with(|db| work(db))
    }

    fn refuse(&self, mut job: Job, error: Error) {
        if job.claim(&self.figures) {
            job.attempt.fail(error);
            job.reply();
        }
    }

    fn begin(&mut self) -> Result<()> {
        if self.is_suspect {
            self.overwrite_leftovers().map_err(|error| Error::Unavailable(error.to_string()))?;
        }
        self.failpoints.hit(Point::StoreBegin)?;
        self.session.begin().map_err(failure::of)
    }

    fn commit(&mut self) -> std::result::Result<(), Failure> {
        if let Err(hit) = self.failpoints.hit(Point::StoreCommit) {
            self.roll_back();
            return Err(Failure::RolledBack(hit.into()));
        }
        let began = Instant::now();
        if let Err(error) = self.session.control("COMMIT") {
            self.roll_back();
            return Err(self.judge(error));
        }
        self.figures.commit_time.record_duration(began.elapsed());
        // Only an abort makes sense here: the commit has happened.
        drop(self.failpoints.hit(Point::StoreCommitted));
        Ok(())
    }

    /// Whether a failed commit may still be found in the log after a restart.
    fn judge(&mut self, error: rusqlite::Error) -> Failure {
        match failure::of(error) {
            // The frames may all be in the log, with only the sync failed.
            Error::Io(reason) => match self.overwrite_leftovers() {
                Ok(()) => Failure::RolledBack(Error::Io(reason)),
                Err(_) => Failure::Unknown(reason),
            },
            // A full disk cut the frames short, and a constraint was checked before any was written.
            other => Failure::RolledBack(other),
        }
    }

    /// Commits a change of no meaning. Its frames take the place of those that a failed commit left in the log;
    /// since every frame's checksum builds on the one before, none of the old ones can be valid afterwards.
    fn overwrite_leftovers(&mut self) -> rusqlite::Result<()> {
        self.is_suspect = true;
        self.session.with(|db| {
            let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            db.execute_batch(&format!("PRAGMA user_version = {}", (version + 1) % 1_000))
        })?;
        self.is_suspect = false;
        Ok(())
    }

    fn roll_back(&self) {
        if self.session.is_in_transaction() {
            // It fails only when the transaction is gone already, which is what was wanted.
            drop(self.session.control("ROLLBACK"));
        }
    }

    fn wake(&self, topics: impl IntoIterator<Item = Topic>) {
        let topics: BTreeSet<Topic> = topics.into_iter().collect();
        if !topics.is_empty() {
            self.figures.wakeups.add(topics.len() as u64);
            self.hub.wake(topics.iter().map(Topic::as_str));
        }
    }
}

/// The attempts that ended well.
fn attempts(members: &mut [Job]) -> Vec<&mut Attempt> {
    members.iter_mut().map(|job| &mut job.attempt).filter(|attempt| attempt.is_ok()).collect()
}

/// The writer's thread.
pub(super) fn work(shared: &Shared, runtime: &tokio::runtime::Handle, wal: &WalWatch) {
    // A closure behaves alike here and inline on a thread of the runtime.
    let _context = runtime.enter();
    // Whatever ends this thread, nobody may wait for it in vain.
    let _stop = super::StopOnExit { shared, wal: Some(wal) };
    let mut moment = Duration::ZERO;
    while shared.writes.is_filled(moment) {
        // The place first, then the job: while somebody else writes, everyone waits in the queue.
        let mut writer = shared.lock_writer();
        if let Some(first) = shared.writes.next() {
            let members = writer.run_group(first, || shared.writes.next());
            moment = if members > 1 { LOOKING_OUT } else { Duration::ZERO };
        }
    }
}
