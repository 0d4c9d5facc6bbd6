//! What becomes of an item when an execution ends. Pure.
//!
//! | outcome | action | mutation |
//! |---|---|---|
//! | success | ends, counted | ends, counted |
//! | failed, retryable, executions left | waits, counted | waits, counted |
//! | failed otherwise | ends failed, counted | ends failed, counted |
//! | canceled | ends | ends |
//! | lost: the lease ran out | as failed, retryable: it may have done something | again at once, not counted: it did nothing |
//! | unstarted: given back | again at once, not counted | again at once, not counted |
//! | postponed: its circuit is open | waits, not counted | waits, not counted |

use crate::functions::FunctionKind;
use crate::item::{Item, WorkResult};
use mainstay_core::failure::{Class, Failure};
use mainstay_core::random::Random;
use mainstay_core::retry::RetryPolicy;
use serde_json::value::RawValue;
use std::sync::Arc;

/// How an execution ended.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Success(Box<RawValue>),
    Failed(Failure),
    Canceled,
    /// Nobody knows: the lease ran out.
    Lost,
    /// It never began.
    Unstarted,
    /// It may not begin yet.
    Postponed {
        after_ms: u64,
    },
}

/// What becomes of the item.
#[derive(Debug, Clone)]
pub(crate) enum Next {
    End(WorkResult),
    /// It waits for so long.
    Retry {
        after_ms: i64,
    },
    /// It may be taken at once.
    Again,
}

/// Decides, and notes in the item what is to be remembered of a failure.
pub(crate) fn next(
    item: &mut Arc<Item>,
    outcome: Outcome,
    kind: FunctionKind,
    pool: &RetryPolicy,
    now_ms: i64,
    random: &dyn Random,
) -> Next {
    let failure = match (outcome, kind) {
        (Outcome::Success(return_value), _) => return Next::End(WorkResult::Success { return_value }),
        (Outcome::Postponed { after_ms }, _) => {
            return Next::Retry { after_ms: i64::try_from(after_ms).unwrap_or(i64::MAX) };
        }
        (Outcome::Canceled, _) => return Next::End(WorkResult::Canceled),
        (Outcome::Unstarted, _) | (Outcome::Lost, FunctionKind::Mutation) => return Next::Again,
        (Outcome::Lost, FunctionKind::Action) => Failure::new(Class::NetworkTimeout, "lease expired"),
        (Outcome::Failed(failure), _) => failure,
    };
    let item = Arc::make_mut(item);
    item.attempts += 1;
    item.note(now_ms, &failure);
    let policy = item.retry.as_ref().unwrap_or(pool);
    match policy.next(item.attempts, &failure, random) {
        Some(after_ms) => Next::Retry { after_ms: i64::try_from(after_ms).unwrap_or(i64::MAX) },
        None => Next::End(WorkResult::Failed { error: failure.to_string() }),
    }
}
