//! How things were in the last minutes, for the lines of the overview.

use crate::app::App;
use crate::report::{self, Collected};
use mainstay_guards::circuits::State;
use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(10);
/// How often at first while somebody watches, so that who has just begun sees lines at once.
const EVERY_AT_FIRST: Duration = Duration::from_secs(2);
/// As many looks are the first ones: half a minute.
const FIRST: usize = 15;
/// Ten minutes.
const MOST: usize = 60;

/// How things were at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moment {
    pub(crate) at_ms: i64,
    /// Events in the log.
    pub(crate) head: u64,
    /// Events that the slowest read model has still to look at.
    pub(crate) lag: u64,
    /// Items of work that wait.
    pub(crate) waiting: u64,
    /// Dead letters that nobody has dealt with.
    pub(crate) letters: u64,
    /// Events that read models go on without.
    pub(crate) aside: u64,
    /// Circuits that are open.
    pub(crate) open: u64,
}

/// The last minutes, the oldest first.
#[derive(Default)]
pub(crate) struct Past {
    moments: Mutex<VecDeque<Moment>>,
    shown: Notify,
}

impl Past {
    /// For somebody who looks at them.
    pub(crate) fn show(&self) -> Vec<Moment> {
        self.shown.notify_one();
        self.moments().iter().copied().collect()
    }

    fn moments(&self) -> MutexGuard<'_, VecDeque<Moment>> {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time until the next look: as long as usual, or only until somebody watches while there is little to see.
    async fn rest(&self, at_first: Duration, usual: Duration) {
        tokio::time::sleep(at_first).await;
        let is_young = self.moments().len() < FIRST;
        let watched = async { if is_young { self.shown.notified().await } else { pending().await } };
        // Whether anybody watches or not, it is looked again.
        let _ = tokio::time::timeout(usual.saturating_sub(at_first), watched).await;
    }

    fn add(&self, moment: Moment) {
        let mut moments = self.moments();
        // A clock that was set back would draw lines backwards.
        if moments.back().is_some_and(|last| last.at_ms >= moment.at_ms) {
            moments.clear();
        }
        if moments.len() == MOST {
            moments.pop_front();
        }
        moments.push_back(moment);
    }
}

/// Looks again and again, for ever.
pub(crate) async fn remember(app: &App) {
    loop {
        // A store that does not answer leaves a gap.
        if let Some(moment) = look(app).await {
            app.past().add(moment);
        }
        app.past().rest(EVERY_AT_FIRST, EVERY).await;
    }
}

async fn look(app: &App) -> Option<Moment> {
    let head = app.log().head().await.ok()?;
    let read = report::lately(app).await.ok()?;
    let open = app.circuits().states().iter().filter(|(_, state)| *state == State::Open).count();
    Some(Moment { at_ms: app.store().clock().now_ms(), head, open: open as u64, ..Moment::of(&read) })
}

impl Moment {
    /// What was read tells of a moment.
    fn of(read: &Collected) -> Self {
        Self {
            lag: read.projections.iter().map(|one| one.lag).max().unwrap_or(0),
            waiting: read.pools.iter().map(|pool| pool.depth.pending).sum(),
            // Quarantined events are among them, and have a tile of their own.
            letters: read.letters.iter().map(|(_, count)| count).sum(),
            aside: read.aside.iter().map(|one| one.quarantined).sum(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_flows::projections::Aside;
    use mainstay_work::inbox::Kind;
    use std::time::Instant;

    #[test]
    fn ten_minutes_are_kept_and_a_clock_that_is_set_back_begins_anew() {
        let past = Past::default();
        for at_ms in 0..1_000 {
            past.add(Moment { at_ms, ..Moment::default() });
        }
        let moments = past.show();
        assert_eq!((moments.len(), moments[0].at_ms), (MOST, 940));
        past.add(Moment { at_ms: 5, ..Moment::default() });
        assert_eq!(past.show().len(), 1);
    }

    #[test]
    fn letters_are_those_of_the_inbox_and_quarantined_events_are_counted_once_more() {
        let aside = Aside { projection: "orders".to_owned(), letters: 1, quarantined: 3 };
        let read = Collected {
            at: Instant::now(),
            projections: Vec::new(),
            aside: vec![aside],
            pools: Vec::new(),
            letters: vec![(Kind::Projection, 1), (Kind::QuarantinedEvent, 3), (Kind::Work, 1)],
            intents: Default::default(),
            replays: Vec::new(),
        };
        let moment = Moment::of(&read);
        assert_eq!((moment.letters, moment.aside), (5, 3));
    }

    #[tokio::test]
    async fn it_is_looked_often_only_while_a_newcomer_watches() {
        const SOON: Duration = Duration::from_millis(1);
        const LATE: Duration = Duration::from_secs(3_600);
        let past = Past::default();
        let rests = async || tokio::time::timeout(SOON * 50, past.rest(SOON, LATE)).await.is_err();
        assert!(rests().await, "nobody watches");
        past.show();
        past.rest(SOON, LATE).await;
        assert!(rests().await, "nobody watches any more");
        past.rest(SOON, SOON * 2).await;
        (0..).take(FIRST).for_each(|at_ms| past.add(Moment { at_ms, ..Moment::default() }));
        past.show();
        assert!(rests().await, "there is enough to see");
    }
}
