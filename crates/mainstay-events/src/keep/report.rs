//! What was found when the log was looked over.

use serde::Serialize;

/// Most problems that a report lists; the others are counted.
const MAX_LISTED: usize = 1_000;

/// What [`Log::verify`](crate::Log::verify) found.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The log's last position when it began.
    pub head: u64,
    /// Events looked at.
    pub events: u64,
    /// Those of them whose data was erased.
    pub erased: u64,
    /// Entries of the index looked at.
    pub entries: u64,
    /// Scopes looked at.
    pub scopes: u64,
    /// Whether the database was asked to check its own files; PostgreSQL cannot be asked.
    pub database_checked: bool,
    /// The first problems, at most a thousand.
    pub problems: Vec<Problem>,
    /// How many there are.
    pub problem_count: u64,
}

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The position it is about; 0 when it is about no single one.
    pub position: u64,
    /// What kind of thing it is.
    pub kind: Damage,
    /// It, in a sentence.
    pub sentence: String,
}

/// Kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Damage {
    /// The database says that its own files are damaged.
    Database,
    /// An event does not fit its checksums.
    Event,
    /// An event cannot be read at all.
    Unreadable,
    /// Positions have no event.
    Missing,
    /// The head and the last event disagree.
    Head,
    /// Time goes back.
    Time,
    /// The versions of a stream have a gap or a repetition.
    Stream,
    /// A scope's row and its newest event disagree.
    Scope,
    /// An id or an idempotency key is there twice.
    Duplicate,
    /// The index lacks an entry.
    Unindexed,
    /// The index has an entry that no event accounts for.
    Foreign,
}

impl Damage {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Event => "event",
            Self::Unreadable => "unreadable",
            Self::Missing => "missing",
            Self::Head => "head",
            Self::Time => "time",
            Self::Stream => "stream",
            Self::Scope => "scope",
            Self::Duplicate => "duplicate",
            Self::Unindexed => "unindexed",
            Self::Foreign => "foreign",
        }
    }
}

impl Report {
    /// Whether everything is as it was written.
    pub fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    pub(super) fn note(&mut self, position: u64, kind: Damage, sentence: impl Into<String>) {
        self.problem_count += 1;
        if self.problems.len() < MAX_LISTED {
            self.problems.push(Problem { position, kind, sentence: sentence.into() });
        }
    }
}

/// How far a walk over the log has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is looked at.
    pub stage: Stage,
    /// How much of it was.
    pub done: u64,
    /// Of how much, where that is known.
    pub of: Option<u64>,
}

/// The parts of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The database's own check.
    Database,
    /// The events, by position.
    Events,
    /// The entries of the index.
    Index,
    /// The rows of the scopes.
    Scopes,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Database => "database",
            Self::Events => "events",
            Self::Index => "index",
            Self::Scopes => "scopes",
        })
    }
}
