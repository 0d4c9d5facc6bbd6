//! What is done about publications by itself (item 174): letters are tried again and ignored, old rows forgotten.

use super::letters::{LetterFilter, LetterStatus};
use super::publisher::{Publisher, Shared};
use super::targets::{Retry, Targets};
use super::{MAX_PAGE, POOL};
use crate::error::{Error, Result};
use crate::service::ServiceRef;
use mainstay_core::failure::Failure;
use mainstay_store::{Tx, params};
use mainstay_work::{Call, Cron, Functions, Pool, Schedule, Work};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

const UPKEEP: &str = "mainstay.publication.upkeep";
/// Waits between retries of a letter grow no longer than this.
const LONGEST_WAIT_MS: f64 = 7.0 * 86_400_000.0;

/// What is done by itself, and how often it is looked.
#[derive(Debug, Clone, PartialEq)]
pub struct Upkeep {
    /// How often it is looked.
    pub every: Duration,
    /// Pending letters are tried again: so often, the first time after so long, and each time after so many times longer.
    pub retry: Option<Retry>,
    /// Pending letters of this age are ignored.
    pub ignore_after: Option<Duration>,
    /// Publications that were delivered so long ago are forgotten. One that is published again is then delivered again.
    pub forget_after: Option<Duration>,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tended {
    /// Letters that were tried again.
    pub retried: u64,
    /// Letters that were ignored.
    pub ignored: u64,
    /// Publications that were forgotten.
    pub forgotten: u64,
}

/// Looks at the oldest only: ids are in the order of time, so that whatever is old enough comes to be among them.
const FORGET: &str = "DELETE FROM mainstay_publications WHERE id IN (SELECT id FROM (SELECT id, delivered_at \
     FROM mainstay_publications WHERE status = 'delivered' ORDER BY id LIMIT 1000) AS oldest \
     WHERE delivered_at < mainstay_now() - $1)";

/// Whether a letter that failed at a moment, and was tried again so often, is due.
fn is_due(retry: &Retry, retry_count: u32, failed_at: i64, now_ms: i64) -> bool {
    let exponent = i32::try_from(retry_count).unwrap_or(i32::MAX);
    let wait_ms = (retry.initial_backoff_ms as f64 * retry.base.powi(exponent)).min(LONGEST_WAIT_MS);
    retry_count < retry.max_retries && now_ms.saturating_sub(failed_at) >= wait_ms as i64
}

impl Publisher {
    /// Does now what [`Targets::upkeep`] lets be done by itself.
    pub async fn tend(&self, upkeep: &Upkeep) -> Result<Tended> {
        let mut tended = Tended::default();
        let now_ms = self.shared.store.read(async |tx: Tx| tx.now_ms().await).await?;
        let status = Some(LetterStatus::Pending);
        let mut filter = LetterFilter { status, ..LetterFilter::default() };
        loop {
            let page = self.letters(filter.clone(), MAX_PAGE).await?;
            filter.after = page.last().map(|letter| letter.publication_id.clone());
            let (mut old, mut due) = (Vec::new(), Vec::new());
            for letter in &page {
                let age_ms = u128::try_from(now_ms - letter.failed_at).unwrap_or(0);
                if upkeep.ignore_after.is_some_and(|most| age_ms >= most.as_millis()) {
                    old.push(letter.publication_id.clone());
                } else if upkeep
                    .retry
                    .is_some_and(|retry| is_due(&retry, letter.retry_count, letter.failed_at, now_ms))
                {
                    due.push(letter.publication_id.clone());
                }
            }
            tended.ignored += self.ignore_all(old).await? as u64;
            tended.retried += self.retry_all(due).await? as u64;
            if page.len() < MAX_PAGE {
                break;
            }
        }
        if let Some(age) = upkeep.forget_after {
            tended.forgotten = self.forget_delivered(age).await?;
        }
        Ok(tended)
    }

    /// Removes publications that were delivered so long ago; how many.
    pub async fn forget_delivered(&self, age: Duration) -> Result<u64> {
        let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let mut forgotten = 0;
        loop {
            let forget = async |tx: Tx, age_ms: i64| tx.execute(FORGET, params![age_ms]).await;
            match self.shared.store.transact_with(age_ms, forget).await? {
                0 => return Ok(forgotten),
                count => forgotten += count,
            }
        }
    }
}

/// Adds the function.
pub(super) fn functions(functions: Functions, service: &ServiceRef<Shared>) -> Functions {
    let service = service.clone();
    functions.platform_action(UPKEEP, move |_: Call, _: Value| {
        let service = service.clone();
        async move {
            let failed = |error: Error| Failure::retryable(error.to_string());
            let shared = service.get().map_err(|error| failed(error.into()))?;
            let Some(upkeep) = shared.upkeep.clone() else { return Ok(Tended::default()) };
            Publisher { shared, tenant: None }.tend(&upkeep).await.map_err(failed)
        }
    })
}

/// Lets it be done again and again, once for all nodes.
pub(super) async fn schedule(work: &Work, targets: &Targets) -> Result<()> {
    let Some(upkeep) = &targets.upkeep else { return Ok(()) };
    if targets.targets.is_empty() {
        return Ok(());
    }
    if let Some(retry) = upkeep.retry {
        retry.policy()?;
    }
    // Targets with pools of their own do not declare this one.
    work.ensure_pool(Pool::platform_pool(POOL)).await?;
    let every_ms = u64::try_from(upkeep.every.as_millis()).unwrap_or(u64::MAX);
    let every =
        Schedule::interval(every_ms, 0).map_err(|error| Error::invalid("every", error.to_string()))?;
    let cron = Cron::new(UPKEEP, every, POOL, UPKEEP, &Value::Null)?.key(UPKEEP);
    Ok(work.platform_cron(cron).await?)
}
