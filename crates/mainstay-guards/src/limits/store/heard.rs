//! What was decided, counted by limit.

use crate::limits::{Figures, MAX_LIMITS};
use crate::{Error, Result};
use mainstay_core::limits::Decision;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Counts of this process by limit. Only limits that exist, or did, are in it.
#[derive(Default)]
pub(super) struct Heard {
    all: Figures,
    of_each: RwLock<HashMap<String, Arc<Figures>>>,
}

impl Heard {
    pub(super) fn record(&self, name: &str, key: &str, answer: &Result<Decision>) {
        match answer {
            Ok(decision) => {
                self.all.count(decision);
                // Those that were allowed are not told apart, and nobody need wait for it.
                if !decision.allowed {
                    self.of(name).unwrap_or_else(|| self.begin(name)).record(key, decision);
                }
            }
            Err(Error::UnknownLimit(_)) => {}
            Err(_) => self.all.failed.increment(),
        }
    }

    pub(super) fn all(&self) -> &Figures {
        &self.all
    }

    pub(super) fn of(&self, name: &str) -> Option<Arc<Figures>> {
        self.of_each.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn begin(&self, name: &str) -> Arc<Figures> {
        let mut of_each = self.of_each.write().unwrap_or_else(PoisonError::into_inner);
        if of_each.len() >= 2 * MAX_LIMITS {
            // More than there can be, so most were deleted.
            of_each.clear();
        }
        of_each.entry(name.to_owned()).or_default().clone()
    }
}
