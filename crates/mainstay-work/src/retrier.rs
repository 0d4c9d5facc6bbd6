//! The retrier and timers: work in pools of their own.

use crate::enqueue::check;
use crate::error::{Error, Result};
use crate::item::NewWork;
use crate::pool::Pool;
use crate::work::{Ground, Work};
use mainstay_core::retry::RetryPolicy;
use mainstay_core::trace::TraceContext;
use mainstay_store::{Tx, params};
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;

/// The pool of what [`Work::run`] starts.
pub const RETRIER_POOL: &str = "retrier";
/// The pool of what [`Work::set_timer`] starts.
pub const TIMER_POOL: &str = "timers";

/// How many runs and timers go at once, over all nodes.
const AT_ONCE: u32 = 100;

/// How the retrier goes about an action.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// How often it is tried again: `n` means at most `n + 1` executions.
    pub max_failures: u32,
    /// How long the first wait is.
    pub initial_backoff_ms: u64,
    /// What each wait is multiplied with.
    pub base: f64,
    /// The function that is told how it ended.
    pub on_complete: Option<String>,
    /// What it is told beside.
    pub context: Option<Box<RawValue>>,
    /// The trace that the run belongs to.
    pub trace: Option<TraceContext>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            max_failures: 4,
            initial_backoff_ms: 250,
            base: 2.0,
            on_complete: None,
            context: None,
            trace: None,
        }
    }
}

/// The pools that are there without being declared.
pub(crate) fn own_pools() -> [Pool; 2] {
    [RETRIER_POOL, TIMER_POOL].map(|name| Pool::new(name).max_parallelism(AT_ONCE))
}

const KIND: &str = "SELECT kind FROM mainstay_functions WHERE name = $1";

impl Work {
    /// Runs an action, again and again if it fails, and returns the id of the run: its status, cancelling and forgetting
    /// are those of an item.
    pub async fn run(
        &self,
        function: &str,
        args: &(impl Serialize + ?Sized),
        options: RunOptions,
    ) -> Result<String> {
        let item = self.run_item(function, args, options)?;
        check(&self.ground().functions(), std::slice::from_ref(&item))?;
        self.check_action(function).await?;
        Ok(self.enqueue(item).await?.work_id)
    }

    pub(crate) fn run_item(
        &self,
        function: &str,
        args: &(impl Serialize + ?Sized),
        options: RunOptions,
    ) -> Result<NewWork> {
        let usual = RetryPolicy::default();
        let attempts = options.max_failures.saturating_add(1);
        let policy =
            RetryPolicy::new(attempts, options.initial_backoff_ms, options.base, usual.max_backoff_ms());
        let policy = policy.map_err(|error| Error::invalid("retry", error.to_string()))?;
        let mut item = NewWork::new(RETRIER_POOL, function, args)?.retry(policy);
        item.on_complete = options.on_complete;
        item.context = options.context;
        item.trace = options.trace;
        Ok(item)
    }

    /// Only actions: what a mutation does is undone when it fails, and a pool tries it again just as well.
    pub(crate) async fn check_action(&self, function: &str) -> Result<()> {
        let read = async |tx: Tx, (ground, function): (Arc<Ground>, String)| {
            let row = tx.query_optional(KIND, params![&function]).await?;
            drop(ground);
            row.map(|row| row.get::<String>(0)).transpose()
        };
        let context = (self.ground().clone(), function.to_owned());
        match self.store().read_with(context, read).await?.as_deref() {
            None => Err(Error::UnknownFunction(function.to_owned())),
            Some("mutation") => {
                Err(Error::invalid("function", "is a mutation; the retrier runs actions only"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Calls a function once, at a moment in milliseconds since the epoch; the id of the timer, by which it can be
    /// cancelled.
    pub async fn set_timer(
        &self,
        at_ms: i64,
        function: &str,
        args: &(impl Serialize + ?Sized),
    ) -> Result<String> {
        let timer = NewWork::new(TIMER_POOL, function, args)?.run_at_ms(at_ms);
        Ok(self.enqueue(timer).await?.work_id)
    }

    /// As [`set_timer`](Self::set_timer), at the end of a transaction.
    pub fn set_timer_in(
        &self,
        tx: &Tx,
        at_ms: i64,
        function: &str,
        args: &(impl Serialize + ?Sized),
    ) -> Result<String> {
        let timer = NewWork::new(TIMER_POOL, function, args)?.run_at_ms(at_ms);
        let receipt = self.enqueue_in(tx, [timer])?;
        Ok(receipt.work_ids()[0].clone())
    }
}
