//! The lifecycle of a projection.
//!
//! | from | move | to |
//! |---|---|---|
//! | active | START_REBUILD | rebuilding |
//! | active | PAUSE | paused |
//! | active | FAIL | error |
//! | rebuilding | COMPLETE_REBUILD | active |
//! | rebuilding | FAIL | error |
//! | paused | RESUME | active |
//! | paused | START_REBUILD | rebuilding |
//! | error | RECOVER | active |
//! | error | START_REBUILD | rebuilding |

use serde::Serialize;

/// What a projection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifecycle {
    /// It follows the log.
    Active,
    /// It is filled anew, in place.
    Rebuilding,
    /// Somebody has stopped it.
    Paused,
    /// It cannot go on by itself.
    Error,
}

/// What happens to a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// It begins to be filled anew.
    StartRebuild,
    /// It has been filled anew and has caught up.
    CompleteRebuild,
    /// It cannot go on.
    Fail,
    /// Somebody stops it.
    Pause,
    /// Somebody lets it go on.
    Resume,
    /// Somebody has mended what was wrong.
    Recover,
}

impl Lifecycle {
    /// What it is after `event`; nothing when that cannot be.
    pub fn next(self, event: Move) -> Option<Self> {
        use {Lifecycle as L, Move as M};
        match (self, event) {
            (L::Active | L::Paused | L::Error, M::StartRebuild) => Some(L::Rebuilding),
            (L::Rebuilding, M::CompleteRebuild) | (L::Paused, M::Resume) | (L::Error, M::Recover) => {
                Some(L::Active)
            }
            (L::Active, M::Pause) => Some(L::Paused),
            (L::Active | L::Rebuilding, M::Fail) => Some(L::Error),
            _ => None,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Rebuilding => "rebuilding",
            Self::Paused => "paused",
            Self::Error => "error",
        }
    }

    /// The one of this name, as it is kept.
    pub(crate) fn of(name: &str) -> Self {
        match name {
            "rebuilding" => Self::Rebuilding,
            "paused" => Self::Paused,
            "error" => Self::Error,
            _ => Self::Active,
        }
    }
}

impl Move {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StartRebuild => "START_REBUILD",
            Self::CompleteRebuild => "COMPLETE_REBUILD",
            Self::Fail => "FAIL",
            Self::Pause => "PAUSE",
            Self::Resume => "RESUME",
            Self::Recover => "RECOVER",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_table_says_can_happen() {
        use {Lifecycle as L, Move as M};
        let states = [L::Active, L::Rebuilding, L::Paused, L::Error];
        let moves = [M::StartRebuild, M::CompleteRebuild, M::Fail, M::Pause, M::Resume, M::Recover];
        let mut table = String::new();
        for state in states {
            assert_eq!(L::of(state.as_str()), state);
            for event in moves {
                if let Some(next) = state.next(event) {
                    table +=
                        &format!("//! | {} | {} | {} |\n", state.as_str(), event.as_str(), next.as_str());
                }
            }
        }
        let mut found: Vec<&str> = table.lines().collect();
        let said = include_str!("lifecycle.rs").lines().filter(|line| line.starts_with("//! | "));
        let mut said: Vec<&str> = said.filter(|line| !line.contains("from")).collect();
        found.sort_unstable();
        said.sort_unstable();
        assert_eq!(found, said);
    }
}
