//! Whose fault it was that executions could not be ended together, and how they are ended without.

use crate::error::Error;
use crate::functions::{Body, Functions};
use crate::next::Outcome;
use crate::settle::{Ending, Plan};
use mainstay_core::failure::{Class, Failure};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which author's code is running, for when a transaction fails without saying where.
#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicUsize);

impl Progress {
    pub(crate) fn enter(&self, index: usize, part: Part) {
        self.0.store((index << 2) | part as usize, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// What was running when the transaction ended.
    pub(crate) fn at(&self) -> Option<(usize, Part)> {
        let at = self.0.load(Ordering::Relaxed);
        let part = match at & 3 {
            1 => Part::Run,
            2 => Part::Tell,
            _ => return None,
        };
        Some((at >> 2, part))
    }
}

/// Whose code failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The mutation.
    Run = 1,
    /// The `onComplete`.
    Tell = 2,
}

/// An author's code failed, and the transaction with it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{failure}")]
pub(crate) struct AuthorFailed {
    pub(crate) index: usize,
    pub(crate) part: Part,
    pub(crate) failure: Failure,
}

/// What an author's code failed with, unless it was the store that failed under it.
pub(crate) fn author_failed(index: usize, part: Part, error: mainstay_store::Error) -> mainstay_store::Error {
    if error.is_retryable() {
        return error;
    }
    let failure = failure_of(error);
    mainstay_store::Error::application(AuthorFailed { index, part, failure })
}

/// The failure that an author's error stands for.
pub(crate) fn failure_of(error: mainstay_store::Error) -> Failure {
    match error {
        mainstay_store::Error::Application(reason) => match reason.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(other) => match other.downcast_ref::<Error>() {
                Some(own) if !own.is_retryable() => {
                    Failure::new(Class::ValidationError, format!("{}: {own}", own.code()))
                }
                _ => Failure::retryable(other.to_string()),
            },
        },
        other => Failure::retryable(other.to_string()),
    }
}

/// The failure that an error stands for which nobody has passed on.
fn failure_in(error: &Error) -> Failure {
    match error {
        Error::Store(store) => {
            store.downcast_ref().cloned().unwrap_or_else(|| Failure::retryable(store.to_string()))
        }
        own => failure_of(mainstay_store::Error::application(own.clone())),
    }
}

/// What a transaction that settles failed for.
pub(crate) enum Blame {
    /// The lease is over.
    Lease,
    /// The code of one of the items' authors.
    Author(AuthorFailed),
    /// One of several, and nobody knows which.
    Somebody,
    /// The store. It may have committed all the same.
    Store { is_unknown: bool },
}

/// Whose code to leave out next of an item that cannot be settled even alone: telling its end later harms nobody, so that
/// comes first.
pub(crate) fn suspect(functions: &Functions, ending: &Ending) -> Option<Part> {
    let tells = ending.taken.item.on_complete.as_ref().and_then(|function| functions.get(function));
    if tells.is_some_and(|function| matches!(function.body, Body::Mutation(_))) && !ending.is_told_later {
        return Some(Part::Tell);
    }
    matches!(ending.plan, Plan::Run).then_some(Part::Run)
}

/// Whose fault it is that `count` items could not be settled; of one alone it is the suspect's, unless somebody else is
/// known.
pub(crate) fn blame(error: &Error, count: usize, suspect: Option<Part>, progress: &Progress) -> Blame {
    let store = match error {
        Error::LeaseLost(_) => return Blame::Lease,
        Error::Store(store) => Some(&**store),
        _ => None,
    };
    if let Some(failed) = store.and_then(|store| store.downcast_ref::<AuthorFailed>()) {
        return Blame::Author(failed.clone());
    }
    if let Some(store) = store.filter(|store| store.is_retryable() || store.is_outcome_unknown()) {
        return Blame::Store { is_unknown: store.is_outcome_unknown() };
    }
    // Whoever is running when the time is up need not be who has used it up.
    let is_shared = count > 1 && matches!(store, Some(mainstay_store::Error::Timeout { .. }));
    let at = progress.at().filter(|_| !is_shared);
    match at.or_else(|| suspect.filter(|_| count == 1).map(|part| (0, part))) {
        Some((index, part)) => Blame::Author(AuthorFailed { index, part, failure: failure_in(error) }),
        None if count > 1 => Blame::Somebody,
        None => Blame::Store { is_unknown: false },
    }
}

/// An author's code failed: the item is settled without it.
pub(crate) fn adjust(ending: &mut Ending, failed: &AuthorFailed) {
    match failed.part {
        Part::Run => ending.plan = Plan::Ended(Outcome::Failed(failed.failure.clone())),
        Part::Tell => {
            tracing::warn!(
                work = %ending.taken.id, failure = %failed.failure, "an onComplete failed; it is tried again by itself"
            );
            ending.is_told_later = true;
        }
    }
}

impl Ending {
    /// Whether what failed is not even part of it any more, so that settling it without cannot help.
    pub(crate) fn has_been_adjusted_for(&self, failed: &AuthorFailed) -> bool {
        match failed.part {
            Part::Run => !matches!(self.plan, Plan::Run),
            Part::Tell => self.is_told_later,
        }
    }
}
