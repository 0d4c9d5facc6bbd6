//! Delivering, as work: one function for each target.

use super::ended::{self, ENDED};
use super::event::PublicEvent;
use super::publisher::Shared;
use super::record;
use super::target::{Delivery, Target, Transport, Way, idempotency_key};
use super::targets::{Slot, opened};
use crate::error::Error;
use mainstay_core::failure::Failure;
use mainstay_core::retry::RetryPolicy;
use mainstay_core::trace::TraceContext;
use mainstay_store::Tx;
use mainstay_work::{Call, Functions, NewWork};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A transport gives up by itself, and knows better why; the engine does only if it does not.
const MARGIN: Duration = Duration::from_secs(5);

/// Which publication is delivered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Which {
    pub(super) publication_id: String,
    pub(super) event_id: String,
    pub(super) target: String,
}

/// The item that delivers a publication.
pub(super) fn item(
    target: &Target,
    policy: RetryPolicy,
    which: &Which,
    event: &PublicEvent,
) -> Result<NewWork, Error> {
    let item = NewWork::new(target.pool(), target.function(), which)?.key(target.key(&which.event_id));
    let item = item.retry(policy).on_complete(ENDED, which)?.unlisted();
    let item = event.correlation_id.iter().fold(item, |item, id| item.or_correlated(id));
    Ok(match &event.trace {
        Some(trace) => item.trace(trace.clone()),
        None => item,
    })
}

/// Adds the functions.
pub(super) fn functions(functions: Functions, targets: &[Target], slot: &Slot) -> Functions {
    let functions = ended::functions(functions, slot);
    targets.iter().fold(functions, |functions, target| {
        let (name, slot) = (target.function(), slot.clone());
        let functions = match target.way.clone() {
            Way::Out(transport) => {
                let timeout = transport.timeout() + MARGIN;
                functions.action_within(timeout, &name, move |call: Call, which: Which| {
                    let (slot, transport) = (slot.clone(), transport.clone());
                    async move { out(&slot, &*transport, &call, which).await }
                })
            }
            Way::In(handler) => functions.mutation(&name, move |tx: Tx, call: Call, which: Which| {
                let (slot, handler) = (slot.clone(), handler.clone());
                async move {
                    let shared = opened(&slot)?;
                    let found = record::find(&tx, &which.publication_id).await?;
                    let found = found
                        .ok_or_else(|| mainstay_store::Error::application(gone(&which.publication_id)))?;
                    match delivery(&shared, &call, found) {
                        Some(delivery) => handler(tx, delivery).await,
                        None => Ok(()),
                    }
                }
            }),
        };
        match &target.circuit {
            Some(circuit) => functions.behind(&name, circuit.clone()),
            None => functions,
        }
    })
}

/// Brings a publication to its target, unless it came before.
async fn out(slot: &Slot, transport: &dyn Transport, call: &Call, which: Which) -> Result<(), Failure> {
    let unavailable = |error: mainstay_store::Error| Failure::retryable(error.to_string());
    let shared = opened(slot).map_err(unavailable)?;
    let found = shared.loader.find(which.publication_id.clone()).await?;
    let found = found.ok_or_else(|| gone(&which.publication_id))?;
    let Some(delivery) = delivery(&shared, call, found) else { return Ok(()) };
    shared.pass("publications.delivering").map_err(unavailable)?;
    transport.deliver(delivery).await?;
    shared.pass("publications.delivered").map_err(unavailable)
}

/// Nothing was delivered: whoever removed the row decided that, and no retry brings it back.
fn gone(publication_id: &str) -> Failure {
    Failure::permanent(format!("publication {publication_id} is gone"))
}

/// What a transport is given; nothing when it came before.
fn delivery(shared: &Shared, call: &Call, found: record::Found) -> Option<Delivery> {
    if found.status == "delivered" {
        return None;
    }
    let random = &**shared.store.random();
    Some(Delivery {
        idempotency_key: idempotency_key(&found.event_id, &found.target),
        event: found.event,
        source_context: found.source_context,
        target_context: found.target,
        attempt: call.attempt,
        // The target is told of the execution that delivers.
        trace: call.trace.clone().unwrap_or_else(|| TraceContext::root(random)),
        now_ms: shared.store.clock().now_ms(),
    })
}
