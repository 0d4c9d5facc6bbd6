//! Who follows the log while it is written and disturbed, and whether they missed anything.

use crate::ledger::Verdict;
use crate::support::item;
use mainstay_events::{Event, Log, Query, Selection};
use mainstay_testkit::history::Recorded;
use mainstay_testkit::history::subscription::Follower;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Far above what anything here takes; whoever reaches it is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Follows until everything up to `end` was seen, whatever fails on the way; errors are asked again.
pub(crate) async fn follow(
    log: &Log,
    selection: Selection,
    mut end: watch::Receiver<Option<u64>>,
    mut saw: impl FnMut(&Event),
) {
    let mut subscription = log.subscribe(selection);
    loop {
        match subscription.try_next().await {
            Ok(Some(event)) => {
                saw(&event);
                continue;
            }
            Ok(None) => {}
            Err(error) => assert!(error.is_retryable() || error.code() == "STORE_TIMEOUT", "{error}"),
        }
        if end.borrow().is_some_and(|end| subscription.position() >= end) {
            return;
        }
        tokio::select! {
            () = subscription.changed() => {}
            _ = end.changed() => {}
        }
    }
}

/// Followers of everything and of one tag on each of `logs`.
pub(crate) struct Followers {
    tasks: Vec<JoinHandle<Follower>>,
    end: watch::Sender<Option<u64>>,
}

impl Followers {
    pub(crate) fn of(logs: &[Log], tag: &str) -> Self {
        let mut followers = Self { tasks: Vec::new(), end: watch::Sender::new(None) };
        for log in logs {
            followers.add(log.clone(), None);
            followers.add(log.clone(), Some(Query::new(vec![item(&[], &[tag])]).unwrap()));
        }
        followers
    }

    fn add(&mut self, log: Log, query: Option<Query>) {
        let end = self.end.subscribe();
        self.tasks.push(tokio::spawn(async move {
            let selection = Selection { query: query.clone(), ..Selection::all() };
            let mut follower = query.map_or_else(Follower::of_all, Follower::of);
            follow(&log, selection, end, |event| follower.saw(event.position(), event.id())).await;
            follower
        }));
    }

    /// Waits until they have seen all of a log that has come to its end, and checks that they missed nothing.
    pub(crate) async fn check(self, recorded: &[Recorded]) {
        let followers = self.check_any(recorded).await;
        assert!(followers.iter().all(|follower| !follower.seen().is_empty()), "there was nothing to follow");
    }

    /// As [`check`](Self::check), also when there was nothing to be seen. Returns them in order: of everything, of the
    /// tag.
    pub(crate) async fn check_any(self, recorded: &[Recorded]) -> Vec<Follower> {
        self.end.send_replace(Some(recorded.len() as u64));
        let mut followers = Vec::new();
        for task in self.tasks {
            let follower =
                tokio::time::timeout(PATIENCE, task).await.expect("a follower never came to the end");
            let follower = follower.unwrap();
            judge(&follower, recorded).unwrap_or_else(|wrong| panic!("{wrong}"));
            followers.push(follower);
        }
        followers
    }
}

/// Whether a follower saw exactly what is in the log.
fn judge(follower: &Follower, recorded: &[Recorded]) -> Verdict {
    let wrong = |wrong: Vec<_>| format!("{} wrong for a follower, first: {}", wrong.len(), wrong[0]);
    follower.check(recorded).map(drop).map_err(wrong)
}

// --- notes that outlive a follower ------------------------------------------------------------------------------

/// What a follower of everything notes of an event: `12 app_event_…`.
pub(crate) fn note(event: &Event) -> String {
    format!("{} {}", event.position(), event.id())
}

/// And what is to be read from its notes.
pub(crate) fn noted<'a>(notes: impl IntoIterator<Item = &'a str>) -> Follower {
    let mut follower = Follower::of_all();
    for (position, id) in notes.into_iter().map(|note| note.split_once(' ').unwrap()) {
        follower.saw(position.parse().unwrap(), id);
    }
    follower
}

/// Lets a follower go on behind its last note to the end of the log, and checks that it saw exactly the log.
pub(crate) async fn catch_up(log: &Log, mut follower: Follower, recorded: &[Recorded]) -> Verdict {
    let end = watch::Sender::new(Some(recorded.len() as u64));
    let rest = Selection::all().after(follower.last());
    let following = follow(log, rest, end.subscribe(), |event| follower.saw(event.position(), event.id()));
    tokio::time::timeout(PATIENCE, following)
        .await
        .map_err(|_| "a follower never came to the end".to_owned())?;
    judge(&follower, recorded)
}

/// A file of notes, which is continued by whoever follows after another. Who dies between seeing an event and noting it
/// has not seen it.
pub(crate) struct Notes(pub(crate) PathBuf);

impl Notes {
    /// A file without notes.
    pub(crate) fn create(path: PathBuf) -> Self {
        File::create_new(&path).unwrap();
        Self(path)
    }

    pub(crate) fn read(&self) -> Follower {
        noted(std::fs::read_to_string(&self.0).unwrap().lines())
    }

    /// Follows from behind a position on until everything up to `end` is noted.
    pub(crate) async fn follow(&self, log: &Log, after: u64, end: watch::Receiver<Option<u64>>) {
        let mut file = File::options().append(true).open(&self.0).unwrap();
        // In one write, which a kill does not tear.
        let save = |event: &Event| file.write_all(format!("{}\n", note(event)).as_bytes()).unwrap();
        follow(log, Selection::all().after(after), end, save).await;
    }
}
