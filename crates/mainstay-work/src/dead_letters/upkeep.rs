//! What is done about letters by itself: they are tried again with growing waits, and ignored when they are old. Neither is
//! done unless somebody asks for it.

use super::POOL;
use super::acts::{Action, act};
use super::opened::{DeadLetters, Shared};
use super::operations::{Operation, OperationStatus, row};
use crate::error::{Error, Result};
use crate::inbox::{self, Filter, Kind, Status};
use crate::service::ServiceRef;
use crate::{Call, Cron, Functions, Schedule, Work};
use mainstay_core::failpoints::Point;
use mainstay_core::failure::Failure;
use mainstay_store::Tx;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const UPKEEP: &str = "mainstay.letters.upkeep";
/// Who has done what is done by itself.
const ASKED_BY: &str = "upkeep";
/// Most times that a letter is tried again by itself.
const MAX_RETRIES: u32 = 100;

/// How letters of a kind are tried again by themselves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Again {
    /// How often at the most, what operators have tried again included.
    pub max_retries: u32,
    /// How long after its failure a letter is tried again for the first time.
    pub initial_backoff_ms: u64,
    /// What each further wait is multiplied with.
    pub base: f64,
    /// The longest wait.
    pub max_backoff_ms: u64,
}

impl Again {
    /// How long a letter waits that was tried again so often.
    fn wait_ms(&self, retries: u32) -> i64 {
        let exponent = i32::try_from(retries).unwrap_or(i32::MAX);
        (self.initial_backoff_ms as f64 * self.base.powi(exponent)).min(self.max_backoff_ms as f64) as i64
    }
}

/// What is done by itself, and how often it is looked.
#[derive(Debug, Clone, PartialEq)]
pub struct Upkeep {
    /// How often it is looked.
    pub every: Duration,
    /// Pending letters of these kinds are tried again.
    pub retry: BTreeMap<Kind, Again>,
    /// Pending letters of this age are ignored.
    pub ignore_after: Option<Duration>,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tended {
    /// Letters that were tried again.
    pub retried: u64,
    /// Letters that were ignored.
    pub ignored: u64,
}

impl Upkeep {
    /// Nothing is done by itself.
    pub fn none() -> Self {
        Self { every: Duration::from_secs(60), retry: BTreeMap::new(), ignore_after: None }
    }

    pub(super) fn check(&self) -> Result<()> {
        for (kind, again) in &self.retry {
            let Again { max_retries, base, .. } = *again;
            if !(1..=MAX_RETRIES).contains(&max_retries) || !base.is_finite() || base < 1.0 {
                let reason = format!("must be 1 to {MAX_RETRIES} retries, and waits that do not shrink");
                return Err(Error::invalid(format!("retry.{kind}"), reason));
            }
        }
        if self.ignore_after.is_some_and(|age| age.is_zero()) {
            return Err(Error::invalid("ignoreAfter", "must be more than nothing"));
        }
        Ok(())
    }

    fn is_none(&self) -> bool {
        self.retry.is_empty() && self.ignore_after.is_none()
    }
}

impl DeadLetters {
    /// Does now what is done by itself.
    pub async fn tend(&self, upkeep: &Upkeep) -> Result<Tended> {
        upkeep.check()?;
        let mut tended = Tended::default();
        let now_ms = self.shared.store.read(async |tx: Tx| tx.now_ms().await).await?;
        if let Some(age) = upkeep.ignore_after {
            let failed_before =
                now_ms.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)).max(0);
            let old = Filter { failed_before: Some(failed_before + 1), ..pending() };
            tended.ignored = self.all(Action::Ignore, old, None).await?;
        }
        for (kind, again) in &upkeep.retry {
            for retries in 0..again.max_retries {
                let failed_before = now_ms.saturating_sub(again.wait_ms(retries)).max(0) + 1;
                let due =
                    Filter { kind: Some(kind.clone()), failed_before: Some(failed_before), ..pending() };
                tended.retried += self.all(Action::Retry, due, Some(retries)).await?;
            }
        }
        Ok(tended)
    }

    /// Does it about all letters that there are now, a chunk in a transaction each, and keeps a record of it.
    async fn all(&self, action: Action, filter: Filter, retries: Option<u32>) -> Result<u64> {
        type Dealing = (Arc<Shared>, Operation, Option<u32>, Vec<i64>, Option<i64>);
        let deal_with = async |tx: Tx, (shared, mut operation, retries, numbers, reached): Dealing| {
            let mut letters = inbox::still(&tx, &operation.filter, &numbers).await?;
            letters.retain(|letter| retries.is_none_or(|retries| letter.retry_count == retries));
            shared.pass(Point::LettersTending)?;
            let is_last = reached.is_none();
            operation.reached = reached.unwrap_or(operation.highest);
            operation.total += letters.len() as u64;
            operation.count(act(&shared, &tx, operation.action, &letters, true).await?);
            operation = operation.ended(OperationStatus::Done, tx.now_ms().await?);
            // One record for each run that did something, from its first chunk on.
            match operation.step {
                0 if operation.total == 0 => {}
                0 => {
                    row::insert(&tx, &operation).await?;
                    operation.step = 1;
                }
                _ => row::update(&tx, &operation).await?,
            }
            Ok((operation, is_last))
        };
        let begin = async |tx: Tx| Ok((inbox::highest(&tx).await?, tx.now_ms().await?));
        let (highest, now_ms) = self.shared.store.read(begin).await?;
        let new = Operation::new(&self.shared, action, filter, ASKED_BY.to_owned(), now_ms);
        let mut operation = Operation { highest, ..new };
        loop {
            let between = (operation.reached, operation.highest);
            let chunk = self.shared.next_letters(&operation.filter, retries, between).await?;
            let numbers = chunk.letters.iter().map(|letter| letter.number).collect();
            let context = (self.shared.clone(), operation, retries, numbers, chunk.reached);
            let (next, is_last) = self.shared.store.transact_with(context, deal_with).await?;
            if is_last {
                return Ok(next.done);
            }
            operation = next;
        }
    }
}

fn pending() -> Filter {
    Filter { status: Some(Status::Pending), ..Filter::default() }
}

/// Adds the function.
pub(super) fn functions(functions: Functions, service: &ServiceRef<Shared>) -> Functions {
    let service = service.clone();
    functions.platform_action(UPKEEP, move |_: Call, _: Value| {
        let service = service.clone();
        async move {
            let failed = |error: Error| Failure::retryable(error.to_string());
            let shared = service.get().map_err(|error| failed(error.into()))?;
            let upkeep = shared.upkeep.clone();
            DeadLetters { shared }.tend(&upkeep).await.map_err(failed)
        }
    })
}

/// Lets it be done again and again, once for all nodes.
pub(super) async fn schedule(work: &Work, upkeep: &Upkeep) -> Result<()> {
    if upkeep.is_none() {
        return Ok(());
    }
    let every_ms = u64::try_from(upkeep.every.as_millis()).unwrap_or(u64::MAX);
    let every =
        Schedule::interval(every_ms, 0).map_err(|error| Error::invalid("every", error.to_string()))?;
    work.platform_cron(Cron::new(UPKEEP, every, POOL, UPKEEP, &Value::Null)?.key(UPKEEP)).await
}
