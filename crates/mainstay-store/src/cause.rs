//! The cause of what is written: correlation, causation, tenant and trace that new records inherit.
//!
//! Work, commands and projections run an author's code in the [`scope`](Cause::scope) of a cause. Events, items of work,
//! commands, publications and intents that the code makes take from it what they do not say themselves. A transaction that
//! the code begins runs in the same scope, whichever thread that is on. A task that the code spawns does not; it can be
//! given [`Cause::current`].

use mainstay_core::trace::TraceContext;
use std::future::Future;
use std::sync::Arc;

tokio::task_local! {
    static CURRENT: Option<Arc<Cause>>;
}

/// The fields that a record inherits from the record that led to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cause {
    /// The correlation: the same for everything that one request led to.
    pub correlation_id: Option<String>,
    /// The id of the command or event that led here. An item of work passes on the one that it was enqueued for.
    pub causation_id: Option<String>,
    /// The tenant that the record belongs to.
    pub tenant_id: Option<String>,
    /// The step of a trace that leads here.
    pub trace: Option<TraceContext>,
}

/// The fields of a new record that a [`Cause`] fills.
#[derive(Debug)]
pub struct Inherited<'a> {
    /// The record's correlation.
    pub correlation_id: &'a mut Option<String>,
    /// The record's causation.
    pub causation_id: &'a mut Option<String>,
    /// The record's tenant.
    pub tenant_id: &'a mut Option<String>,
    /// The record's trace.
    pub trace: &'a mut Option<TraceContext>,
}

impl Cause {
    /// The cause of what this task does now.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Clone::clone).ok().flatten()
    }

    /// Runs `work` with this cause.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        within(Some(Arc::new(self)), work).await
    }

    /// Runs `work` without a cause: its records say all of it themselves.
    pub async fn apart<F: Future>(work: F) -> F::Output {
        within(None, work).await
    }

    /// As [`apart`](Self::apart), for work that does not wait.
    pub fn apart_sync<T>(work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(None, work)
    }

    /// Fills the fields that are empty.
    pub fn fill(&self, fields: Inherited<'_>) {
        let Inherited { correlation_id, causation_id, tenant_id, trace } = fields;
        let texts = [
            (correlation_id, &self.correlation_id),
            (causation_id, &self.causation_id),
            (tenant_id, &self.tenant_id),
        ];
        for (field, inherited) in texts {
            if field.is_none() {
                field.clone_from(inherited);
            }
        }
        if trace.is_none() {
            trace.clone_from(&self.trace);
        }
    }
}

/// Runs `work` with `cause`, or without any.
pub(crate) async fn within<F: Future>(cause: Option<Arc<Cause>>, work: F) -> F::Output {
    CURRENT.scope(cause, work).await
}

/// As [`within`], for what makes a future.
pub(crate) fn within_sync<T>(cause: Option<Arc<Cause>>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(cause, work)
}
