//! Who follows the log while it is written and disturbed, and whether they missed anything.

use crate::support::item;
use mainstay_events::{Event, Log, Query, Selection};
use mainstay_testkit::history::Recorded;
use mainstay_testkit::history::subscription::Follower;
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
            follower.check(recorded).unwrap_or_else(|wrong| panic!("{wrong:?}"));
            followers.push(follower);
        }
        followers
    }
}
