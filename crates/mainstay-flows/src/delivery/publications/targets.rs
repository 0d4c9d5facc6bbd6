//! The targets of a program, before they are opened.

use super::MAX_TARGETS_OF_PROGRAM;
use super::deliver;
use super::forward::Forwarding;
use super::publisher::Shared;
use super::target::Target;
use super::upkeep::{self, Upkeep};
use crate::error::{Error, Result};
use crate::service::ServiceRef;
use mainstay_core::circuit::Circuit;
use mainstay_core::retry::RetryPolicy;
use mainstay_work::Functions;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    pub(super) forwardings: Vec<Forwarding>,
}

impl Targets {
    /// None yet, and how failed deliveries are tried again.
    pub fn new(retry: Retry) -> Self {
        Self { retry, targets: Vec::new(), upkeep: None, forwardings: Vec::new() }
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

    /// Publishes every event of these types to targets by a projection of this name, each exactly once: its checkpoint and the
    /// publications are one transaction. Events whose data were erased are skipped. The projection is one of
    /// [`Publisher::forwardings`](super::Publisher::forwardings).
    pub fn forward(
        mut self,
        name: impl Into<String>,
        event_types: &[&str],
        source_context: impl Into<String>,
        targets: &[&str],
    ) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let (event_types, targets) = (owned(event_types), owned(targets));
        let (name, source_context) = (name.into(), source_context.into());
        self.forwardings.push(Forwarding { name, event_types, source_context, targets });
        self
    }

    /// Puts a circuit before the target of this name: while the circuit is open, publications wait and spend no attempts.
    pub fn behind(mut self, target: &str, circuit: Arc<dyn Circuit>) -> Result<Self> {
        let found = self.targets.iter_mut().find(|one| one.name == target);
        let found =
            found.ok_or_else(|| Error::invalid("circuit", format!("there is no target {target:?}")))?;
        found.circuit = Some(circuit);
        Ok(self)
    }

    /// The functions that deliver.
    pub(super) fn functions(&self, service: &ServiceRef<Shared>) -> Functions {
        if self.targets.is_empty() {
            return Functions::new();
        }
        let functions = deliver::functions(Functions::new(), &self.targets, service);
        match &self.upkeep {
            Some(_) => upkeep::functions(functions, service),
            None => functions,
        }
    }

    /// The targets by name, each with its retry policy, if they can be taken.
    pub(super) fn checked(&self) -> Result<BTreeMap<String, Arc<(Target, RetryPolicy)>>> {
        if self.targets.len() > MAX_TARGETS_OF_PROGRAM {
            let reason = format!("a program has at most {MAX_TARGETS_OF_PROGRAM} of them");
            return Err(Error::invalid("targets", reason));
        }
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
