//! The targets of a program, before they are opened.

use super::deliver;
use super::publisher::Shared;
use super::target::Target;
use super::upkeep::{self, Upkeep};
use crate::error::{Error, Result};
use mainstay_core::retry::RetryPolicy;
use mainstay_work::Functions;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

/// The opened publisher, for functions that were registered before: work is opened with its functions, and the publisher
/// with its work.
pub(super) type Slot = Arc<OnceLock<Weak<Shared>>>;

/// How failed deliveries are tried again (item 164).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// How often at the most, after the first try (decision C1).
    pub max_retries: u32,
    /// How long the first wait is.
    pub initial_backoff_ms: u64,
    /// What each wait is multiplied with.
    pub base: f64,
}

impl Retry {
    pub(super) fn policy(&self) -> Result<RetryPolicy> {
        let usual = RetryPolicy::default();
        let attempts = self.max_retries.saturating_add(1);
        RetryPolicy::new(attempts, self.initial_backoff_ms, self.base, usual.max_backoff_ms())
            .map_err(|error| Error::invalid("retry", error.to_string()))
    }
}

/// The contexts that a program delivers events to.
#[derive(Debug, Clone)]
pub struct Targets {
    pub(super) retry: Retry,
    pub(super) targets: Vec<Target>,
    pub(super) upkeep: Option<Upkeep>,
    pub(super) slot: Slot,
}

impl Targets {
    /// None yet, and how failed deliveries are tried again.
    pub fn new(retry: Retry) -> Self {
        Self { retry, targets: Vec::new(), upkeep: None, slot: Slot::default() }
    }

    /// None at all, for a program that publishes nothing.
    pub fn none() -> Self {
        Self::new(Retry { max_retries: 0, initial_backoff_ms: 1, base: 1.0 })
    }

    /// Adds a target.
    pub fn with(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    /// Lets letters be tried again or ignored, and what was delivered be forgotten, by itself (item 174).
    pub fn upkeep(self, upkeep: Upkeep) -> Self {
        Self { upkeep: Some(upkeep), ..self }
    }

    /// Adds what delivering is as work. Call it before the work is opened.
    pub fn functions(&self, functions: Functions) -> Functions {
        if self.targets.is_empty() {
            return functions;
        }
        let functions = deliver::functions(functions, &self.targets, &self.slot);
        match &self.upkeep {
            Some(_) => upkeep::functions(functions, &self.slot),
            None => functions,
        }
    }

    /// The targets by name, each with its retry policy, if they can be taken.
    pub(super) fn checked(&self) -> Result<BTreeMap<String, Arc<(Target, RetryPolicy)>>> {
        let mut checked = BTreeMap::new();
        for target in &self.targets {
            target.check()?;
            let policy = target.retry.unwrap_or(self.retry).policy()?;
            if checked.insert(target.name.clone(), Arc::new((target.clone(), policy))).is_some() {
                return Err(Error::invalid("target", format!("there are two of the name {:?}", target.name)));
            }
        }
        Ok(checked)
    }
}

/// The opened publisher behind a slot.
pub(super) fn opened(slot: &Slot) -> mainstay_store::Result<Arc<Shared>> {
    let shared = slot.get().and_then(Weak::upgrade);
    // Another node, or this one in a moment, has it.
    shared.ok_or_else(|| mainstay_store::Error::Unavailable("publications are not open here".to_owned()))
}
