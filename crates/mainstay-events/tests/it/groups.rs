//! Transactions that share a commit on SQLite: the index in memory follows what is committed, exactly.
//!
//! Members of one group append, are refused, fail after they have written, and lose the transaction for all. Afterwards
//! the log and its index must hold what was acknowledged and nothing else, without holes.

use crate::following::Followers;
use crate::ledger::{Found, append_of, is_long, open_log, positions_of, tag_of};
use crate::support::append;
use mainstay_core::failpoints::{Action, Failpoints, Point};
use mainstay_core::random::{Random, SeededRandom};
use mainstay_events::{Condition, Error, Log, Result, Status};
use mainstay_store::{Store, Tx, params};
use mainstay_testkit::stores::{Kind, for_each_kind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const KINDS: [Kind; 2] = [Kind::SqliteFile, Kind::SqliteMemory];
const MEMBERS: u64 = 12;
const CULPRIT: u64 = 5;
/// Longer than a group collects members.
const COLLECTING: Duration = Duration::from_millis(12);
/// Small segments, so that groups meet merges too.
const SEGMENT_EVENTS: usize = 64;

/// What a member of a group does with its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// Appends it.
    Append,
    /// Writes a row and appends it beside.
    AppendInTransaction,
    /// Appends it and one that is refused, in one transaction: events are decided, and all of it is undone.
    AppendBesideOneThatIsRefused,
    /// Writes a row, and is refused.
    WriteAndBeRefused,
    /// Writes a row and appends it, and then ends the transaction for everyone.
    RollEveryoneBack,
    /// Appends it, and panics.
    Panic,
    /// Appends something that is in the log already.
    Repeat,
}

use Deed::{
    Append, AppendBesideOneThatIsRefused, AppendInTransaction, Panic, Repeat, RollEveryoneBack,
    WriteAndBeRefused,
};

const DEEDS: [Deed; 7] = [
    Append,
    AppendInTransaction,
    AppendBesideOneThatIsRefused,
    WriteAndBeRefused,
    RollEveryoneBack,
    Panic,
    Repeat,
];

/// Never in the log but for the one that every repetition repeats.
const REPEATED: u64 = 0;
const BLOCKED: &str = "op:0";

impl Deed {
    /// Whether it succeeds when nothing else goes wrong.
    fn succeeds(self) -> bool {
        matches!(self, Append | AppendInTransaction | Repeat)
    }

    async fn run(self, log: Log, operation: u64) -> Result<Vec<u64>> {
        if self == Append {
            return log.append(append_of(operation)).await.map(|appended| positions_of(&appended));
        }
        if self == Repeat {
            let again = log.append(append_of(REPEATED)).await?;
            assert_eq!(again.status, Status::Duplicate);
            return Ok(Vec::new());
        }
        let work = move |tx: Tx, log: Log| async move {
            tx.execute("INSERT INTO notes (id) VALUES ($1)", params![operation as i64]).await?;
            let blocked = || append("Blocked", &[]).unless(Condition::no_tag(BLOCKED).unwrap());
            if self == WriteAndBeRefused {
                return Ok(log.append_in(&tx, blocked())?);
            }
            let receipt = log.append_in(&tx, append_of(operation))?;
            match self {
                AppendBesideOneThatIsRefused => drop(log.append_in(&tx, blocked())?),
                RollEveryoneBack => {
                    tx.execute("INSERT OR ROLLBACK INTO notes (id) VALUES ($1)", params![operation as i64])
                        .await?;
                }
                Panic => panic!("on purpose"),
                _ => {}
            }
            Ok(receipt)
        };
        let receipt = log.store().transact_with(log.clone(), work).await?;
        Ok(positions_of(receipt.get().unwrap()))
    }
}

/// Occupies the writer until the sender is dropped, so that everyone after it waits for the same commit.
async fn hold_writer(store: &Store) -> (Sender<()>, JoinHandle<mainstay_store::Result<()>>) {
    let (release, released) = channel();
    let (held, mut is_held) = tokio::sync::mpsc::unbounded_channel();
    let (context, store) = ((Arc::new(Mutex::new(released)), held), store.clone());
    let holder = tokio::spawn(async move {
        let hold = async |_tx: Tx, (released, held): (Arc<Mutex<std::sync::mpsc::Receiver<()>>>, _)| {
            let held: tokio::sync::mpsc::UnboundedSender<()> = held;
            let began = Instant::now();
            let _ = held.send(());
            let _ = released.lock().unwrap().recv();
            // Until nobody may join its own commit any more.
            while began.elapsed() < COLLECTING {
                std::thread::yield_now();
            }
            Ok(())
        };
        store.transact_with(context, hold).await
    });
    is_held.recv().await.unwrap();
    (release, holder)
}

/// What became of each operation.
#[derive(Debug, Default)]
struct Account {
    acknowledged: Vec<(u64, Vec<u64>)>,
    failed: Vec<u64>,
}

impl Account {
    /// Runs `deeds` as one group, in order, for operations from `first` on.
    async fn run_group(&mut self, log: &Log, first: u64, deeds: &[Deed]) -> Vec<Result<Vec<u64>>> {
        let (hold, holder) = hold_writer(log.store()).await;
        let mut members = Vec::new();
        for (operation, deed) in (first..).zip(deeds) {
            members.push((operation, *deed, tokio::spawn(deed.run(log.clone(), operation))));
            // So few appends are transactions of their own.
            while log.store().figures().queued.get() < members.len() as i64 {
                tokio::task::yield_now().await;
            }
        }
        drop(hold);
        // A failpoint may have been meant for the group, and met the one who held the writer.
        let _ = holder.await.unwrap();
        let mut outcomes = Vec::new();
        for (operation, deed, member) in members {
            let outcome = member.await.unwrap();
            match &outcome {
                Ok(positions) if deed != Repeat => self.acknowledged.push((operation, positions.clone())),
                Ok(_) => {}
                Err(error) => {
                    assert!(!error.is_outcome_unknown(), "{deed:?}: {error}");
                    self.failed.extend((deed != Repeat).then_some(operation));
                }
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    /// The log and its index hold what was acknowledged and nothing else; what failed goes in when it is sent again. Who
    /// followed saw all of it and nothing that was undone.
    async fn check(&self, log: &Log, followers: Followers) {
        let found = Found::load(log).await.unwrap_or_else(|wrong| panic!("{wrong}"));
        let verdict = found.check(&self.acknowledged).and_then(|()| found.check_absent(&self.failed));
        verdict.unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(found.operations.len(), self.acknowledged.len() + 1);
        found.check_index(log).await.unwrap_or_else(|wrong| panic!("{wrong}"));
        let settled = found.settle(log, self.failed.iter().copied()).await;
        let settled = settled.unwrap_or_else(|wrong| panic!("{wrong}"));
        settled.check_index(log).await.unwrap();
        followers.check(&settled.recorded).await;
    }
}

async fn open(place: &mainstay_testkit::stores::Place, points: &Failpoints) -> Log {
    let options = place.options().failpoints(points.clone());
    let log = open_log(options, Some(SEGMENT_EVENTS)).await.unwrap();
    let create = async |tx: Tx| tx.execute("CREATE TABLE notes (id BIGINT PRIMARY KEY)", &[]).await;
    log.store().transact(create).await.unwrap();
    log.append(append_of(REPEATED)).await.unwrap();
    assert_eq!(tag_of(REPEATED), BLOCKED);
    log
}

fn follow(logs: &[Log]) -> Followers {
    Followers::of(logs, "shared:0")
}

/// Several groups with a culprit in the middle: from the second on, members run in savepoints.
fn a_culprit_costs_only_itself(deed: Deed) {
    for_each_kind(&KINDS, async |place| {
        let log = open(&place, &Failpoints::default()).await;
        let followers = follow(std::slice::from_ref(&log));
        let mut account = Account::default();
        for round in 0..4 {
            let deeds: Vec<Deed> = (0..MEMBERS)
                .map(|number| match number {
                    CULPRIT => deed,
                    number if number % 2 == 0 => Append,
                    _ => AppendInTransaction,
                })
                .collect();
            let outcomes = account.run_group(&log, 1 + round * MEMBERS, &deeds).await;
            for (number, outcome) in (0..).zip(outcomes) {
                assert_eq!(
                    outcome.is_err(),
                    number == CULPRIT,
                    "round {round}, member {number}: {outcome:?}"
                );
            }
        }
        assert!(log.store().figures().rerun.get() > 0 || deed == Panic, "nothing was run again");
        account.check(&log, followers).await;
    });
}

#[test]
fn a_member_that_is_refused_after_writing_leaves_nothing_in_the_index() {
    a_culprit_costs_only_itself(WriteAndBeRefused);
}

#[test]
fn events_that_are_undone_with_their_transaction_leave_nothing_in_the_index() {
    a_culprit_costs_only_itself(AppendBesideOneThatIsRefused);
}

#[test]
fn a_lost_group_leaves_nothing_in_the_index() {
    a_culprit_costs_only_itself(RollEveryoneBack);
}

#[test]
fn a_panic_leaves_nothing_in_the_index() {
    a_culprit_costs_only_itself(Panic);
}

#[test]
fn a_commit_that_fails_leaves_nothing_in_the_index() {
    for_each_kind(&KINDS, async |place| {
        let points = Failpoints::default();
        let log = open(&place, &points).await;
        // In memory, reads share the commits that are counted here.
        let counts_reads = place.kind() == Kind::SqliteMemory;
        let followers = follow(if counts_reads { &[] } else { std::slice::from_ref(&log) });
        let mut account = Account::default();
        let deeds = [Append; MEMBERS as usize];
        // The commit of the group alone: everyone is run again, and gets in.
        points.arm(Point::StoreCommit, Action::Error, 1, 1);
        let outcomes = account.run_group(&log, 1, &deeds).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        // And those of the members as well, but for the last one.
        points.arm(Point::StoreCommit, Action::Error, 1, MEMBERS);
        let outcomes = account.run_group(&log, 1 + MEMBERS, &deeds).await;
        let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count() as u64;
        // Unless a slow machine cuts the group in two: then each part has a commit of its own that fails.
        assert!((1..MEMBERS).contains(&failed), "{outcomes:?}");
        // Alone, without anybody beside it.
        points.arm(Point::StoreCommit, Action::Error, 0, 1);
        let alone = 1 + 2 * MEMBERS;
        assert_eq!(log.append(append_of(alone)).await.unwrap_err().code(), "STORE_IO_FAILED");
        account.failed.push(alone);
        points.arm(Point::StoreBegin, Action::Error, 0, 1);
        assert!(log.append(append_of(alone)).await.is_err());
        account.check(&log, followers).await;
    });
}

#[test]
fn the_index_follows_groups_of_any_kind() {
    let rounds = if is_long() { 3_000 } else { 80 };
    for_each_kind(&KINDS, async |place| {
        let (points, random) = (Failpoints::default(), SeededRandom::new(5));
        let log = open(&place, &points).await;
        let followers = follow(std::slice::from_ref(&log));
        let mut account = Account::default();
        let (mut next, mut commits_failed) = (1, 0);
        for _ in 0..rounds {
            let count = 1 + random.below(MEMBERS);
            // Most succeed, as they do in life.
            let deed = |_| if random.below(3) > 0 { Append } else { DEEDS[random.below(7) as usize] };
            let deeds: Vec<Deed> = (0..count).map(deed).collect();
            let is_commit_failing = random.below(4) == 0;
            if is_commit_failing {
                points.arm(Point::StoreCommit, Action::Error, 1 + random.below(3), 1 + random.below(2));
            }
            let outcomes = account.run_group(&log, next, &deeds).await;
            for (deed, outcome) in deeds.iter().zip(outcomes) {
                match outcome {
                    Ok(_) => assert!(deed.succeeds(), "{deed:?}"),
                    Err(Error::Store(error)) if error.code() == "STORE_IO_FAILED" && is_commit_failing => {
                        commits_failed += 1;
                    }
                    Err(error) => assert!(!deed.succeeds(), "{deed:?}: {error}"),
                }
            }
            points.arm(Point::StoreCommit, Action::Error, 0, 0);
            next += count;
        }
        assert!(account.acknowledged.len() > 2 * account.failed.len() && commits_failed > 0);
        assert!(log.store().figures().groups_lost.get() > 0);
        account.check(&log, followers).await;
    });
}

#[test]
fn an_append_in_a_read_does_not_disturb_the_writer() {
    for_each_kind(&KINDS, async |place| {
        let log = open(&place, &Failpoints::default()).await;
        let followers = follow(std::slice::from_ref(&log));
        let reader = log.clone();
        let reading = tokio::spawn(async move {
            loop {
                let read =
                    async |tx: Tx, log: Log| Ok(log.append_in(&tx, append("Wrong", &[]))?.event_ids().len());
                let error = reader.store().read_with(reader.clone(), read).await.unwrap_err();
                assert_eq!(error.code(), "STORE_READ_ONLY");
                tokio::task::yield_now().await;
            }
        });
        let mut account = Account::default();
        for round in 0..100 {
            let mut members = tokio::task::JoinSet::new();
            for operation in 1 + round * MEMBERS..1 + (round + 1) * MEMBERS {
                let log = log.clone();
                members.spawn(async move { (operation, log.append(append_of(operation)).await) });
            }
            for (operation, appended) in members.join_all().await {
                account.acknowledged.push((operation, positions_of(&appended.unwrap())));
            }
        }
        assert!(!reading.is_finished());
        reading.abort();
        account.check(&log, followers).await;
    });
}
