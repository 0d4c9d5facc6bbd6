//! The projections of a program, before they are opened.

use super::definition::Projection;
use super::replay::CHUNK_BUDGET;
use crate::error::{Error, Result};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The projections of a program. Its order, by kind and then as they were added, is that of rebuilds.
#[derive(Debug, Default)]
pub struct Registry {
    projections: Vec<Projection>,
    chunk_budget: Option<Duration>,
}

impl Registry {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a projection.
    pub fn with(mut self, projection: Projection) -> Self {
        self.projections.push(projection);
        self
    }

    /// Ends a chunk of a replay earlier than after [`CHUNK_BUDGET`], which is also the most. What else is running waits no
    /// longer than this for a chunk that is too slow.
    pub fn chunk_budget(self, budget: Duration) -> Self {
        Self { chunk_budget: Some(budget), ..self }
    }

    /// How long a chunk of a replay may take.
    pub(crate) fn budget(&self) -> Duration {
        self.chunk_budget.unwrap_or(CHUNK_BUDGET)
    }

    /// The definitions in the order of rebuilds, if they can be taken.
    pub(crate) fn checked(self) -> Result<Vec<Arc<Projection>>> {
        if self.chunk_budget.is_some_and(|budget| budget.is_zero() || budget > CHUNK_BUDGET) {
            let reason = format!("must be more than nothing and at most {} s", CHUNK_BUDGET.as_secs());
            return Err(Error::invalid("chunkBudget", reason));
        }
        let (mut names, mut tables) = (HashSet::new(), HashSet::new());
        for projection in &self.projections {
            projection.check()?;
            if !names.insert(&projection.name) {
                let reason = format!("there are two of the name {:?}", projection.name);
                return Err(Error::invalid("projection", reason));
            }
            if let Some(table) = projection.tables.iter().find(|table| !tables.insert(&table.name)) {
                let reason = format!("two tables are called {:?}", table.name.as_str());
                return Err(Error::invalid("projection", reason));
            }
        }
        let mut ordered: Vec<_> = self.projections.into_iter().map(Arc::new).collect();
        ordered.sort_by_key(|projection| projection.kind);
        Ok(ordered)
    }
}
