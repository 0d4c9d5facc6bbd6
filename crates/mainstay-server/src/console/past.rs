//! How things were in the last minutes, for the lines of the overview.

use crate::app::App;
use crate::report;
use mainstay_guards::circuits::State;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(10);
/// How often at first, so that somebody who has just begun sees lines at once.
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
    /// Circuits that are open.
    pub(crate) open: u64,
}

/// The last minutes, the oldest first.
#[derive(Default)]
pub(crate) struct Past(Mutex<VecDeque<Moment>>);

impl Past {
    pub(crate) fn moments(&self) -> Vec<Moment> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    fn add(&self, moment: Moment) {
        let mut moments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        tokio::time::sleep(wait(app.past().moments().len())).await;
    }
}

/// How long until the next look, when there were so many.
fn wait(looks: usize) -> Duration {
    if looks < FIRST { EVERY_AT_FIRST } else { EVERY }
}

async fn look(app: &App) -> Option<Moment> {
    let head = app.log().head().await.ok()?;
    let read = report::lately(app).await.ok()?;
    let quarantined: u64 = read.aside.iter().map(|one| one.quarantined).sum();
    let letters: u64 = read.letters.iter().map(|(_, count)| count).sum();
    let open = app.circuits().states().iter().filter(|(_, state)| *state == State::Open).count();
    Some(Moment {
        at_ms: app.store().clock().now_ms(),
        head,
        lag: read.projections.iter().map(|one| one.lag).max().unwrap_or(0),
        waiting: read.pools.iter().map(|pool| pool.depth.pending).sum(),
        letters: letters.saturating_add(quarantined),
        open: open as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_are_kept_and_a_clock_that_is_set_back_begins_anew() {
        let past = Past::default();
        for at_ms in 0..1_000 {
            past.add(Moment { at_ms, ..Moment::default() });
        }
        let moments = past.moments();
        assert_eq!((moments.len(), moments[0].at_ms), (MOST, 940));
        past.add(Moment { at_ms: 5, ..Moment::default() });
        assert_eq!(past.moments().len(), 1);
    }

    #[test]
    fn a_newcomer_sees_a_line_within_seconds() {
        assert!(wait(0) + wait(1) < Duration::from_secs(5));
        assert_eq!(wait(MOST), EVERY);
    }
}
