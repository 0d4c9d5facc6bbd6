//! Named points at which a test makes the program fail.
//!
//! Every point is a variant of [`Point`], so a test cannot arm a name that no code passes. A part that can fail carries a [`Failpoints`] handle, so tests that run side by side in one process do not
//! meet. In a build without `debug_assertions` the handle is empty and [`Failpoints::hit`] compiles to nothing.
//!
//! A child process is armed through the environment: `MAINSTAY_FAILPOINTS="store.commit=abort@3;store.begin=error"`.

use std::fmt;

macro_rules! points {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A place in the program at which tests make it fail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Point {
            $($(#[$doc])* $variant,)*
        }

        impl Point {
            /// Every point.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in `MAINSTAY_FAILPOINTS` and in errors.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

points! {
    /// SQLite opens a transaction.
    StoreBegin = "store.begin",
    /// The commit of a transaction, before it.
    StoreCommit = "store.commit",
    /// The commit has happened; its caller does not know.
    StoreCommitted = "store.committed",
    /// The tag index merges segments, before the merge is written.
    EventsMerge = "events.merge",
    /// The merge is written, before its commit.
    EventsMerged = "events.merged",
    /// A node checks that it still holds its leases.
    WorkFence = "work.fence",
    /// A receiver's handler has run, before its commit.
    InboxHandled = "inbox.handled",
    /// A handler is about to decide.
    DispatchDeciding = "dispatch.deciding",
    /// A handler has decided, before its events are appended.
    DispatchDecided = "dispatch.decided",
    /// A command appends its events.
    DispatchAppending = "dispatch.appending",
    /// A command's row is written, before the commit.
    DispatchRecorded = "dispatch.recorded",
    /// Another node was first to carry a command out.
    DispatchOvertaken = "dispatch.overtaken",
    /// A command has committed; its caller does not know.
    DispatchCommitted = "dispatch.committed",
    /// A projector begins a round.
    ProjectionsStep = "projections.step",
    /// A projector compares its position before it writes.
    ProjectionsGuard = "projections.guard",
    /// A chunk is applied, before its checkpoint.
    ProjectionsApplied = "projections.applied",
    /// The checkpoint is written, before the commit.
    ProjectionsCheckpoint = "projections.checkpoint",
    /// A failure of a handler is recorded.
    ProjectionsFailure = "projections.failure",
    /// A quarantined event is applied again.
    ProjectionsRetried = "projections.retried",
    /// A batch of dead letters is deleted.
    ProjectionsPurged = "projections.purged",
    /// The row of a replay is written.
    ReplayTriggered = "replay.triggered",
    /// A replay is cancelled.
    ReplayCancelled = "replay.cancelled",
    /// A chunk of a replay is applied.
    ReplayApplied = "replay.applied",
    /// The position of a replay is written.
    ReplayAdvanced = "replay.advanced",
    /// A replay switches to its new generation.
    ReplaySwitched = "replay.switched",
    /// The switch has committed.
    ReplayShown = "replay.shown",
    /// A bulk operation on dead letters begins.
    LettersBegun = "letters.begun",
    /// An action on dead letters is carried out, before its commit.
    LettersActed = "letters.acted",
    /// A bulk operation notes its progress.
    LettersAdvanced = "letters.advanced",
    /// The cleanup of dead letters runs.
    LettersTending = "letters.tending",
    /// A publication is noted in a transaction.
    PublicationsNoted = "publications.noted",
    /// The rows of a publication are written.
    PublicationsPublished = "publications.published",
    /// A delivery is about to be sent.
    PublicationsDelivering = "publications.delivering",
    /// The target has answered.
    PublicationsDelivered = "publications.delivered",
    /// The end of a delivery is collected.
    PublicationsEnding = "publications.ending",
    /// The end of a delivery is written.
    PublicationsEnded = "publications.ended",
    /// A failed publication is enqueued again.
    PublicationsRetried = "publications.retried",
}

impl Point {
    /// The point with this name. Panics on an unknown name, so that a test which arms a renamed point fails.
    pub fn named(name: &str) -> Self {
        let point = Self::ALL.iter().find(|point| point.name() == name);
        *point.unwrap_or_else(|| panic!("unknown failpoint {name}"))
    }
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// What happens at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The part behaves as if the operation there had failed.
    Error,
    /// The thread panics.
    Panic,
    /// The process dies at once, as by `kill -9`.
    Abort,
    /// From here on every point of the handle fails, as if the process were dead: whatever is not committed yet will not
    /// be. A test then drops what it has, and opens it again.
    Die,
}

/// The failure that [`Action::Error`] stands for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failpoint {0}")]
pub struct Hit(pub Point);

#[cfg(debug_assertions)]
pub use armed::Failpoints;
#[cfg(not(debug_assertions))]
pub use inert::Failpoints;

#[cfg(debug_assertions)]
mod armed {
    use super::{Action, Hit, Point};
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex, PoisonError};

    /// The points of one part of the program.
    #[derive(Debug, Clone, Default)]
    pub struct Failpoints(Arc<Mutex<Points>>);

    #[derive(Debug, Default)]
    struct Points {
        plans: HashMap<Point, Plan>,
        /// Whether one has struck that nothing comes after.
        is_dead: bool,
    }

    #[derive(Debug)]
    struct Plan {
        action: Action,
        /// Hits that pass before the first one that acts.
        skip: u64,
        /// Hits that act; then the point is quiet again.
        times: u64,
    }

    impl Failpoints {
        /// Reads `MAINSTAY_FAILPOINTS`. An entry that cannot be read is a mistake in a test, and panics.
        pub fn from_environment() -> Self {
            let points = Self::default();
            let text = std::env::var("MAINSTAY_FAILPOINTS").unwrap_or_default();
            for entry in text.split(';').filter(|entry| !entry.is_empty()) {
                let (name, plan) = entry.split_once('=').unwrap_or_else(|| panic!("no '=' in {entry}"));
                let (action, nth) = plan.split_once('@').unwrap_or((plan, "1"));
                let action = match action {
                    "error" => Action::Error,
                    "panic" => Action::Panic,
                    "abort" => Action::Abort,
                    "die" => Action::Die,
                    other => panic!("unknown failpoint action {other}"),
                };
                let nth: u64 = nth.parse().unwrap_or_else(|_| panic!("bad number in {entry}"));
                points.arm(Point::named(name), action, nth.saturating_sub(1), 1);
            }
            points
        }

        /// Lets `point` act on `times` hits after letting `skip` pass.
        pub fn arm(&self, point: Point, action: Action, skip: u64, times: u64) {
            self.points().plans.insert(point, Plan { action, skip, times });
        }

        /// Whether [`Action::Die`] has struck.
        pub fn is_dead(&self) -> bool {
            self.points().is_dead
        }

        /// Passes `point`.
        pub fn hit(&self, point: Point) -> Result<(), Hit> {
            let action = {
                let mut points = self.points();
                if points.is_dead {
                    return Err(Hit(point));
                }
                let Some(plan) = points.plans.get_mut(&point) else { return Ok(()) };
                if plan.skip > 0 {
                    plan.skip -= 1;
                    return Ok(());
                }
                if plan.times == 0 {
                    return Ok(());
                }
                plan.times -= 1;
                let action = plan.action;
                points.is_dead = action == Action::Die;
                action
            };
            match action {
                Action::Error | Action::Die => Err(Hit(point)),
                Action::Panic => panic!("failpoint {point}"),
                Action::Abort => std::process::abort(),
            }
        }

        fn points(&self) -> std::sync::MutexGuard<'_, Points> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

#[cfg(not(debug_assertions))]
mod inert {
    use super::{Action, Hit, Point};

    /// The points of one part of the program: none in this build.
    #[derive(Debug, Clone, Default)]
    pub struct Failpoints;

    impl Failpoints {
        /// Nothing is armed in this build.
        pub fn from_environment() -> Self {
            Self
        }

        /// Does nothing in this build.
        pub fn arm(&self, _point: Point, _action: Action, _skip: u64, _times: u64) {}

        /// Nothing strikes in this build.
        pub fn is_dead(&self) -> bool {
            false
        }

        /// Passes.
        #[inline(always)]
        pub fn hit(&self, _point: Point) -> Result<(), Hit> {
            Ok(())
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn acts_on_the_hits_it_was_armed_for() {
        let points = Failpoints::default();
        assert_eq!(points.hit(Point::StoreCommit), Ok(()));
        points.arm(Point::StoreCommit, Action::Error, 1, 2);
        let seen: Vec<bool> = (0..5).map(|_| points.hit(Point::StoreCommit).is_err()).collect();
        assert_eq!(seen, [false, true, true, false, false]);
        assert_eq!(points.hit(Point::StoreBegin), Ok(()));
    }

    #[test]
    fn a_clone_is_the_same_points_and_another_handle_is_not() {
        let points = Failpoints::default();
        points.arm(Point::StoreCommit, Action::Error, 0, 1);
        assert_eq!(Failpoints::default().hit(Point::StoreCommit), Ok(()));
        assert_eq!(points.clone().hit(Point::StoreCommit), Err(Hit(Point::StoreCommit)));
    }

    #[test]
    fn nothing_passes_any_more_once_one_has_died() {
        let points = Failpoints::default();
        points.arm(Point::StoreCommit, Action::Die, 1, 1);
        assert_eq!(
            (points.hit(Point::StoreCommit), points.hit(Point::StoreBegin), points.is_dead()),
            (Ok(()), Ok(()), false)
        );
        assert_eq!(points.hit(Point::StoreCommit), Err(Hit(Point::StoreCommit)));
        assert_eq!((points.hit(Point::StoreBegin), points.is_dead()), (Err(Hit(Point::StoreBegin)), true));
    }

    #[test]
    #[should_panic(expected = "unknown failpoint store.comit")]
    fn an_unknown_name_panics() {
        Point::named("store.comit");
    }
}
