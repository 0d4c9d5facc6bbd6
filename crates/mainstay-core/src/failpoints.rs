//! Named points at which a test makes the program fail.
//!
//! A part that can fail carries a [`Failpoints`] handle, so tests that run side by side in one process do not
//! meet. In a build without `debug_assertions` the handle is empty and [`Failpoints::hit`] compiles to nothing.
//!
//! A child process is armed through the environment: `MAINSTAY_FAILPOINTS="store.commit=abort@3;store.begin=error"`.

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
pub struct Hit(pub &'static str);

#[cfg(debug_assertions)]
pub use armed::Failpoints;
#[cfg(not(debug_assertions))]
pub use inert::Failpoints;

#[cfg(debug_assertions)]
mod armed {
    use super::{Action, Hit};
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex, PoisonError};

    /// The points of one part of the program.
    #[derive(Debug, Clone, Default)]
    pub struct Failpoints(Arc<Mutex<Points>>);

    #[derive(Debug, Default)]
    struct Points {
        plans: HashMap<String, Plan>,
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
        /// Reads `MAINSTAY_FAILPOINTS`. What cannot be read is a mistake in a test, and panics.
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
                points.arm(name, action, nth.saturating_sub(1), 1);
            }
            points
        }

        /// Lets `name` act on `times` hits after letting `skip` pass.
        pub fn arm(&self, name: &str, action: Action, skip: u64, times: u64) {
            self.points().plans.insert(name.to_owned(), Plan { action, skip, times });
        }

        /// Whether [`Action::Die`] has struck.
        pub fn is_dead(&self) -> bool {
            self.points().is_dead
        }

        /// Passes the point `name`.
        pub fn hit(&self, name: &'static str) -> Result<(), Hit> {
            let action = {
                let mut points = self.points();
                if points.is_dead {
                    return Err(Hit(name));
                }
                let Some(plan) = points.plans.get_mut(name) else { return Ok(()) };
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
                Action::Error | Action::Die => Err(Hit(name)),
                Action::Panic => panic!("failpoint {name}"),
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
    use super::{Action, Hit};

    /// The points of one part of the program: none in this build.
    #[derive(Debug, Clone, Default)]
    pub struct Failpoints;

    impl Failpoints {
        /// Nothing is armed in this build.
        pub fn from_environment() -> Self {
            Self
        }

        /// Does nothing in this build.
        pub fn arm(&self, _name: &str, _action: Action, _skip: u64, _times: u64) {}

        /// Nothing strikes in this build.
        pub fn is_dead(&self) -> bool {
            false
        }

        /// Passes.
        #[inline(always)]
        pub fn hit(&self, _name: &'static str) -> Result<(), Hit> {
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
        assert_eq!(points.hit("store.commit"), Ok(()));
        points.arm("store.commit", Action::Error, 1, 2);
        let seen: Vec<bool> = (0..5).map(|_| points.hit("store.commit").is_err()).collect();
        assert_eq!(seen, [false, true, true, false, false]);
        assert_eq!(points.hit("store.begin"), Ok(()));
    }

    #[test]
    fn a_clone_is_the_same_points_and_another_handle_is_not() {
        let points = Failpoints::default();
        points.arm("here", Action::Error, 0, 1);
        assert_eq!(Failpoints::default().hit("here"), Ok(()));
        assert_eq!(points.clone().hit("here"), Err(Hit("here")));
    }

    #[test]
    fn nothing_passes_any_more_once_one_has_died() {
        let points = Failpoints::default();
        points.arm("here", Action::Die, 1, 1);
        assert_eq!((points.hit("here"), points.hit("there"), points.is_dead()), (Ok(()), Ok(()), false));
        assert_eq!(points.hit("here"), Err(Hit("here")));
        assert_eq!((points.hit("there"), points.is_dead()), (Err(Hit("there")), true));
    }
}
