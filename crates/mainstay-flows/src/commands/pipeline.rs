//! What a command passes before it is decided.
//!
//! Steps run in the ascending order of their numbers, however they were added: 10 structure, 20 domain, 30 authorisation,
//! 40 logging, 50 rate limit. A step that stops the command ends the way; the steps that ran are told of the outcome in
//! reverse order. They run before the transaction, since a transaction waits for nothing else.

use super::command::Issued;
use super::outcome::Outcome;
use crate::error::{Error, Result};
use futures_util::FutureExt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

/// The numbers of the steps that come with Mainstay.
pub mod order {
    /// Whether the payload has the right shape.
    pub const STRUCTURE: u16 = 10;
    /// Whether it makes sense.
    pub const DOMAIN: u16 = 20;
    /// Whether the user may.
    pub const AUTHORISATION: u16 = 30;
    /// Who wants what.
    pub const LOGGING: u16 = 40;
    /// Whether it is not too much.
    pub const RATE_LIMIT: u16 = 50;
}

/// What a step says.
#[derive(Debug, Clone)]
pub enum Flow {
    /// The command goes on.
    Continue,
    /// It ends here, and nothing of it is recorded.
    Stop(Outcome),
}

impl Flow {
    /// The command is rejected.
    pub fn reject(code: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Stop(Outcome::Rejected { code: code.into(), reason: reason.into(), context: None })
    }
}

/// A boxed future of a step.
pub type Step<'a, T> = Pin<Box<dyn Future<Output = std::result::Result<T, String>> + Send + 'a>>;

/// A step on a command's way.
pub trait Middleware: Send + Sync {
    /// What it is called where it fails.
    fn name(&self) -> &str;

    /// Its number: lower ones run first.
    fn order(&self) -> u16;

    /// Lets the command go on or stops it. An error, and a panic, ends the dispatch with `MIDDLEWARE_ERROR`.
    fn before<'a>(&'a self, issued: &'a Issued) -> Step<'a, Flow>;

    /// Hears what came of a command that it let go on. An error is logged and changes nothing.
    fn after<'a>(&'a self, issued: &'a Issued, outcome: &'a Outcome) -> Step<'a, ()> {
        let _ = (issued, outcome);
        Box::pin(async { Ok(()) })
    }
}

/// All steps, in their order.
#[derive(Clone, Default)]
pub(super) struct Pipeline(Vec<Arc<dyn Middleware>>);

impl Pipeline {
    /// Adds a step behind those of the same number.
    pub(super) fn add(&mut self, middleware: Arc<dyn Middleware>) {
        let place = self.0.partition_point(|other| other.order() <= middleware.order());
        self.0.insert(place, middleware);
    }

    /// Whether something stops the command, and how many steps let it go on.
    pub(super) async fn before(&self, issued: &Issued) -> Result<(usize, Option<Outcome>)> {
        for (number, step) in self.0.iter().enumerate() {
            match guarded(step.name(), || step.before(issued)).await? {
                Flow::Continue => {}
                Flow::Stop(outcome) => return Ok((number, Some(outcome))),
            }
        }
        Ok((self.0.len(), None))
    }

    /// Tells the steps that let the command go on.
    pub(super) async fn after(&self, passed: usize, issued: &Issued, outcome: &Outcome) {
        for step in self.0[..passed].iter().rev() {
            if let Err(error) = guarded(step.name(), || step.after(issued, outcome)).await {
                tracing::warn!(command_id = issued.command_id, %error, "an after-hook failed");
            }
        }
    }
}

async fn guarded<'a, T>(name: &str, step: impl FnOnce() -> Step<'a, T>) -> Result<T> {
    let failed = |reason: String| Error::Middleware { name: name.to_owned(), reason };
    match AssertUnwindSafe(async { step().await }).catch_unwind().await {
        Ok(answer) => answer.map_err(failed),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(failed(format!("panicked: {}", text.unwrap_or_default())))
        }
    }
}
