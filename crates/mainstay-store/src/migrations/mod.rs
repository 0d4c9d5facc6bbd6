//! The schema and its history.
//!
//! Every part that owns tables is a [`Component`]: a list of steps, each applied once, in order, never edited.
//! A step either *expands* (programs that do not know it go on working) or *contracts*: it then names the step
//! that a program must at least know, and older programs are refused at `open`. To change a table, expand in one
//! release and contract in a later one, so that nodes of the previous version work during an upgrade.

mod ground;
mod run;

pub(crate) use run::run;

/// A part of the program that owns tables, and the steps that make them.
#[derive(Debug, Clone, Copy)]
pub struct Component {
    /// The name: `events`, `work`.
    pub name: &'static str,
    /// The steps, oldest first.
    pub steps: &'static [Step],
}

/// One change of the schema.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// What it does: `create_events`.
    pub name: &'static str,
    /// The statements.
    pub script: Script,
    /// The step (counted from 1) that a program must know to work with the schema after this one; 0 when any can.
    pub needs: u32,
}

/// The statements of a step.
#[derive(Debug, Clone, Copy)]
pub enum Script {
    /// The same on both databases.
    Both(&'static [&'static str]),
    /// One text each.
    Each {
        /// On SQLite.
        sqlite: &'static [&'static str],
        /// On PostgreSQL.
        postgres: &'static [&'static str],
    },
}

impl Script {
    fn statements(&self, is_postgres: bool) -> &'static [&'static str] {
        match self {
            Self::Both(statements) => statements,
            Self::Each { postgres, .. } if is_postgres => postgres,
            Self::Each { sqlite, .. } => sqlite,
        }
    }
}

/// What opening a store did to its schema.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Steps that this call applied.
    pub applied: Vec<AppliedStep>,
    /// Every step of this program's components that is in the database.
    pub present: Vec<AppliedStep>,
}

/// A step that is in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedStep {
    /// The part it belongs to.
    pub component: String,
    /// Its number, from 1.
    pub number: u32,
    /// What it does.
    pub name: String,
    /// When it was applied, in milliseconds since the epoch.
    pub applied_at: i64,
}
