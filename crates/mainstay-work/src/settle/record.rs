//! What is kept of an item that ended.

use crate::item::{Item, WorkResult};
use mainstay_core::failure::Failure;
use mainstay_store::Result;
use serde::Serialize;
use serde_json::value::RawValue;

/// What is kept of an item that ended.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    function: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a RawValue>,
    attempts: u32,
    enqueued_at: i64,
    result: &'a WorkResult,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_of: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation: Option<&'a str>,
}

/// How many executions of an item that ended count.
pub(super) fn counted(item: &Item, result: &WorkResult) -> u32 {
    item.attempts + u32::from(matches!(result, WorkResult::Success { .. }))
}

/// The text of what is kept of an item that ended.
pub(super) fn record(item: &Item, result: &WorkResult) -> Result<String> {
    let record = Record {
        function: &item.function,
        key: item.key.as_deref(),
        context: item.context.as_deref(),
        attempts: counted(item, result),
        enqueued_at: item.enqueued_at,
        result,
        last_error: item.errors.last().map(|last| &last.failure),
        retry_of: item.retry_of.as_deref(),
        correlation: item.correlation.as_deref(),
    };
    serde_json::to_string(&record).map_err(mainstay_store::Error::application)
}

/// The number of a kind of end, as it is kept.
pub(super) fn state_of(result: &WorkResult) -> i64 {
    match result {
        WorkResult::Success { .. } => 0,
        WorkResult::Failed { .. } => 1,
        WorkResult::Canceled => 2,
    }
}
