//! Commands that somebody else's decision has overtaken: they are decided again, durably, one after another for each
//! boundary, on a pool of their own.
//!
//! | at attempt | what comes | then |
//! |---|---|---|
//! | n, fewer than `maxRetries` | a conflict | an item of work for attempt n + 1, after the backoff; the command is `deferred` |
//! | `maxRetries` | a conflict | rejected with `DCB_MAX_RETRIES_EXCEEDED` |
//! | any | a decision | the end: `onComplete` is told in the same transaction |
//! | any | an error of the handler | the end: failed, `onComplete` is told |
//!
//! The command's row says which attempt it is at, and every change of it says which one it comes from: an item that is run
//! twice finds the command moved on, and does nothing. So the death of a node, or a database that is away, costs an item no
//! more than time: it is run again, and so is what a node took that has no handler for it. The pool itself never tries anything again, and what a handler fails with is final.

use super::command::Issued;
use super::dispatch::Shared;
use super::outcome::{CommandResult, Deferred};
use super::record::{self, State};
use super::{snapshots, span};
use crate::completion;
use crate::error::{Error, Result};
use crate::service::ServiceRef;
use crate::tenants;
use mainstay_core::backoff::Backoff;
use mainstay_core::failure::Failure;
use mainstay_core::names::check_unreserved;
use mainstay_store::Tx;
use mainstay_work::{
    Call, Cron, Functions, NewWork, OnComplete, Pool, RetryPolicy, Schedule, Work, WorkResult,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;

/// The pool that commands are decided again on.
pub const RETRY_POOL: &str = "dcbRetryPool";
/// Decides a command again.
const RETRY: &str = "mainstay.command.retry";
/// Hears how that ended.
const RETRIED: &str = "mainstay.command.retried";
/// Forgets what was kept long enough.
const PRUNE: &str = "mainstay.command.prune";
/// How often it is looked whether commands were kept long enough.
const PRUNED_EVERY_MS: u64 = 3_600_000;
/// Commands, and snapshots, that are forgotten in one transaction.
const PRUNED_AT_ONCE: u64 = 500;
/// Most retries of one command: who has lost so often loses for another reason.
const MAX_RETRIES: u32 = 100;
/// Nodes that may die over one item, or times that the database may be away, before it counts as failed.
const OUTLASTED: u32 = 20;
/// Longest boundary in a key; what is cut off only makes more retries take turns than must.
const MAX_BOUNDARY_BYTES: usize = 500;

/// What becomes of a command when somebody else decides first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ConflictRetry {
    /// How often it is decided again at the most.
    pub max_retries: u32,
    /// How long the first wait is.
    pub initial_backoff_ms: u64,
    /// What each wait is multiplied with.
    pub base: f64,
    /// The longest wait.
    pub max_backoff_ms: u64,
    /// The function that is told what came of it in the end; see [`Ended`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_complete: Option<String>,
    /// What it is told beside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Box<RawValue>>,
}

impl Default for ConflictRetry {
    fn default() -> Self {
        Self {
            max_retries: 5,
            initial_backoff_ms: 100,
            base: 2.0,
            max_backoff_ms: 30_000,
            on_complete: None,
            context: None,
        }
    }
}

impl ConflictRetry {
    /// The function that is told what came of the command in the end, with `context`.
    pub fn on_complete(
        self,
        function: impl Into<String>,
        context: &(impl Serialize + ?Sized),
    ) -> Result<Self> {
        let context = to_raw_value(context).map_err(|error| Error::invalid("context", error.to_string()))?;
        Ok(Self { on_complete: Some(function.into()), context: Some(context), ..self })
    }

    pub(super) fn check(&self) -> Result<()> {
        if let Some(function) = &self.on_complete {
            check_unreserved("retry.onComplete", function).map_err(mainstay_work::Error::from)?;
        }
        self.backoff().map(drop)
    }

    pub(super) fn backoff(&self) -> Result<Backoff> {
        if self.max_retries > MAX_RETRIES {
            return Err(Error::invalid("retry.maxRetries", format!("must be at most {MAX_RETRIES}")));
        }
        Backoff::new(self.initial_backoff_ms as f64, self.base, self.max_backoff_ms as f64)
            .map_err(|error| Error::invalid("retry", error.to_string()))
    }
}

/// What an `onComplete` function of a command is called with.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended<C = Box<RawValue>> {
    /// The command.
    pub command_id: String,
    /// The tenant that the command belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// What came of it.
    pub result: CommandResult,
    /// What the command was given for it.
    #[serde(default)]
    pub context: Option<C>,
}

/// What the item of work that decides a command again is called with.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RetryArgs {
    command_id: String,
    /// Empty for a command without a tenant; missing in items from before ids were a tenant's own.
    #[serde(default)]
    tenant: Option<String>,
    expected_version: u64,
    options: RetryOptions,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RetryOptions {
    attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_complete: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<Box<RawValue>>,
}

/// Which attempt of which command an item of work is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attempt {
    command_id: String,
    /// As in [`RetryArgs`].
    #[serde(default)]
    tenant: Option<String>,
    attempt: u32,
}

/// A decision that was overtaken.
#[derive(Debug, Clone)]
pub(super) struct Overtaken {
    /// What the decision was about.
    pub(super) boundary: String,
    /// Where that is now: a scope's or a stream's version, or the position of the event that was first.
    pub(super) current: u64,
}

impl Shared {
    /// Lets a command be decided again later, or rejects it when that was done often enough. Nothing when somebody else
    /// was first with this very attempt.
    pub(super) async fn defer(
        self: &Arc<Self>,
        issued: &Arc<Issued>,
        overtaken: Overtaken,
    ) -> Result<Option<CommandResult>> {
        let Some(retry) = &issued.retry else { return Ok(None) };
        if issued.attempt >= retry.max_retries {
            let context = json!({ "attempts": issued.attempt, "lastVersion": overtaken.current });
            let reason = format!("OCC conflict after {} attempts", issued.attempt);
            let code = "DCB_MAX_RETRIES_EXCEEDED".to_owned();
            return self.conclude(issued, CommandResult::rejected(code, reason, Some(context))).await;
        }
        let delay_ms = retry
            .backoff()?
            .delay_ms(f64::from(issued.attempt), self.jitter())
            .map_err(|error| Error::invalid("jitter", error.to_string()))?;
        let mut next = Issued::clone(issued);
        next.attempt += 1;
        if let Some(scope) = &mut next.scope {
            scope.expected_version = overtaken.current;
        }
        let context = (self.clone(), Arc::new(next), overtaken, delay_ms);
        let write = async |tx: Tx, (shared, next, overtaken, delay_ms): (Arc<Self>, Arc<Issued>, _, u64)| {
            shared.defer_in(&tx, &next, &overtaken, delay_ms).await
        };
        Ok(self.log().store().transact_with(context, write).await?)
    }

    async fn defer_in(
        &self,
        tx: &Tx,
        next: &Issued,
        overtaken: &Overtaken,
        delay_ms: u64,
    ) -> mainstay_store::Result<Option<CommandResult>> {
        let retry_key = format!("dcb:{}", cut(&overtaken.boundary));
        let tenant = Some(tenants::column(next.tenant_id.as_deref()).to_owned());
        let attempt =
            Attempt { command_id: next.command_id.clone(), tenant: tenant.clone(), attempt: next.attempt };
        let retry = next.retry.as_ref();
        let args = RetryArgs {
            command_id: next.command_id.clone(),
            tenant,
            expected_version: overtaken.current,
            options: RetryOptions {
                attempt: next.attempt,
                on_complete: retry.and_then(|retry| retry.on_complete.clone()),
                context: retry.and_then(|retry| retry.context.clone()),
            },
        };
        let item = NewWork::platform(RETRY_POOL, RETRY, &args)?
            .key(&retry_key)
            .retry(outlasting())
            .run_after(Duration::from_millis(delay_ms))
            .tell_platform(RETRIED)
            .context(&attempt)?
            .caused_by(&next.cause());
        let receipt = self.work().enqueue_in(tx, [item])?;
        if let Some(function) = retry.and_then(|retry| retry.on_complete.as_ref()) {
            self.work().promise_in(tx, RETRY_POOL, function);
        }
        let result = CommandResult::deferred(Deferred {
            retry_key,
            scheduled_at: tx.now_ms().await?.saturating_add_unsigned(delay_ms),
            work_id: receipt.work_ids().first().cloned().unwrap_or_default(),
            retry_attempt: next.attempt,
            scheduled_after_ms: delay_ms,
        });
        let is_first = match next.attempt {
            1 => record::insert(tx, next, State::Pending, &result).await?,
            _ => record::defer(tx, next, &result).await?,
        };
        // Somebody else has done so, and enqueued it: what was noted here is undone.
        if is_first { Ok(Some(result)) } else { Err(Error::Late.into()) }
    }

    /// Tells whoever wants to know that a command has ended, in the transaction that ends it.
    pub(super) fn tell(
        &self,
        tx: &Tx,
        issued: &Issued,
        result: &CommandResult,
    ) -> mainstay_store::Result<()> {
        let Some(retry) = &issued.retry else { return Ok(()) };
        let Some(function) = &retry.on_complete else { return Ok(()) };
        let ended = Ended {
            command_id: issued.command_id.clone(),
            tenant_id: issued.tenant_id.clone(),
            result: result.clone(),
            context: retry.context.clone(),
        };
        let item = NewWork::new(RETRY_POOL, function, &ended)?.caused_by(&issued.cause());
        // A command that was deferred ends whatever became of the function meanwhile.
        let item = if issued.attempt > 0 { item.owed() } else { item };
        self.work().enqueue_in(tx, [item])?;
        Ok(())
    }

    /// Decides a command again, unless it has moved on.
    async fn decide_again(self: &Arc<Self>, call: &Call, args: RetryArgs) -> Result<()> {
        let attempt = args.options.attempt;
        let Some(record) = self.find(args.tenant.as_deref(), &args.command_id).await? else { return Ok(()) };
        let is_own = record.is_retried_by(|work_id| call.is_of(work_id));
        if record.state != State::Pending || record.attempt != attempt || !is_own {
            return Ok(());
        }
        let mut issued = record.issued;
        if let Some(cause) = &call.trace {
            issued.trace = cause.child(&**self.log().store().random());
        }
        let span = span::span(&issued);
        let answer = self.decide(&Arc::new(issued)).instrument(span.clone()).await;
        span::record(&span, answer.as_ref());
        match answer {
            Ok(_) | Err(Error::Late) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// How often an item is run again whose node died, or that could not reach the database.
fn outlasting() -> RetryPolicy {
    RetryPolicy::new(OUTLASTED, 100, 2.0, 30_000).expect("constants that fit")
}

/// A boundary that fits a key.
fn cut(boundary: &str) -> &str {
    let mut end = boundary.len().min(MAX_BOUNDARY_BYTES);
    while !boundary.is_char_boundary(end) {
        end -= 1;
    }
    &boundary[..end]
}

/// The functions that decide commands again.
pub(super) fn functions(service: &ServiceRef<Shared>) -> Functions {
    let (again, told, pruning) = (service.clone(), service.clone(), service.clone());
    Functions::new()
        .platform_action(RETRY, move |call: Call, args: RetryArgs| {
            let shared = again.get();
            async move {
                let shared = shared.map_err(|error| Failure::retryable(error.to_string()))?;
                shared.decide_again(&call, args).await.map_err(|error| match &error {
                    Error::Store(_) if error.is_retryable() => Failure::retryable(error.to_string()),
                    // Another node has the handler: this one is older or newer.
                    Error::UnknownCommand(_) => Failure::retryable(error.to_string()),
                    _ => Failure::permanent(error.to_string()),
                })
            }
        })
        .platform_on_complete(RETRIED, move |tx: Tx, call: Call, ended: OnComplete<Attempt>| {
            let shared = told.get();
            async move {
                let Some(attempt) = ended.context else { return Ok(()) };
                let reason = match ended.result {
                    WorkResult::Success { .. } => return Ok(()),
                    WorkResult::Failed { error } => error,
                    WorkResult::Canceled => "the retry was cancelled".to_owned(),
                };
                let found = match &attempt.tenant {
                    Some(tenant) => record::find(&tx, tenant, &attempt.command_id).await?,
                    None => record::find_any(&tx, &attempt.command_id).await?,
                };
                let Some(record) = found else { return Ok(()) };
                if record.state != State::Pending || record.attempt != attempt.attempt {
                    return Ok(());
                }
                if !record.is_retried_by(|work_id| completion::is_of(&call, work_id)) {
                    return Err(completion::foreign(&call));
                }
                // Callers wait for this end, so another node must report it.
                let shared = shared?;
                let result = CommandResult::failed(reason, Vec::new());
                if record::end(&tx, &record.issued, State::Failed, &result).await? {
                    shared.tell(&tx, &record.issued, &result)?;
                }
                Ok(())
            }
        })
        .platform_mutation(PRUNE, move |tx: Tx, _: Call, _: ()| {
            let shared = pruning.get();
            async move {
                let pruned = record::prune(&tx, PRUNED_AT_ONCE).await?;
                let snapshots = snapshots::prune(&tx, PRUNED_AT_ONCE).await?;
                // There may be more, and nobody should wait an hour for it.
                if let Some(shared) = shared.ok().filter(|_| pruned.max(snapshots) == PRUNED_AT_ONCE) {
                    shared.work().enqueue_in(&tx, [NewWork::platform(RETRY_POOL, PRUNE, &())?])?;
                }
                Ok(pruned)
            }
        })
}

/// Declares the pool of deferred commands and the cron that prunes old command rows.
pub(super) async fn declare(work: &Work) -> Result<()> {
    work.ensure_pool(Pool::platform_pool(RETRY_POOL)).await?;
    let schedule = Schedule::interval(PRUNED_EVERY_MS, 0);
    let schedule = schedule.map_err(|error| Error::invalid("cron", error.to_string()))?;
    Ok(work.platform_cron(Cron::new(PRUNE, schedule, RETRY_POOL, PRUNE, &())?).await?)
}
