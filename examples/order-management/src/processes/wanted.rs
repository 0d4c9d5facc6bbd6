//! A command that an event calls for, on its way.

use super::POOL;
use mainstay::Handle;
use mainstay::core::failure::Failure;
use mainstay::events::Event;
use mainstay::flows::Error;
use mainstay::flows::commands::Command;
use mainstay::store::Tx;
use mainstay::work::{Call, Functions, NewWork};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

const DISPATCH: &str = "processes.dispatch";

/// A command, as work carries it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
    command_type: String,
    payload: Box<RawValue>,
    command_id: String,
    correlation_id: String,
    causation_id: String,
}

/// Lets a command be dispatched when the transaction in which a process takes `event` is committed. Of the same `key` one
/// follows the other.
pub(super) fn want(
    handle: &Handle,
    tx: &Tx,
    (process, event, key): (&str, &Event, &str),
    command: Command,
) -> mainstay::store::Result<()> {
    let wanted = Wanted {
        command_type: command.command_type,
        payload: command.payload,
        command_id: format!("{process}:{}:{key}", event.id()),
        correlation_id: event.correlation_id().to_owned(),
        causation_id: event.id().to_owned(),
    };
    let mut item = NewWork::new(POOL, DISPATCH, &wanted)?.key(key).correlated(event.correlation_id());
    if let Some(trace) = event.trace() {
        item = item.trace(trace);
    }
    Ok(handle.enqueue_in(tx, [item])?)
}

/// Adds the function that dispatches.
pub(super) fn functions(functions: Functions, handle: &Handle) -> Functions {
    let handle = handle.clone();
    functions.action(DISPATCH, move |call: Call, wanted: Wanted| {
        let handle = handle.clone();
        async move {
            let command = Command::raw(wanted.command_type, wanted.payload).id(wanted.command_id);
            let command = command.correlation(wanted.correlation_id).causation(wanted.causation_id);
            let command = Command { trace: call.trace, ..command };
            // A rejection is an answer, too: somebody else was first, and nothing is left to do.
            let dispatched = handle.dispatch(command).await.map_err(failed)?;
            Ok(dispatched.outcome.status())
        }
    })
}

/// What becomes of work whose command could not be decided.
pub(super) fn failed(error: Error) -> Failure {
    match error.is_retryable() {
        true => Failure::retryable(error.to_string()),
        false => Failure::permanent(error.to_string()),
    }
}
