//! Delivering, as work: one function for each target.

use super::ended::{self, ENDED};
use super::event::PublicEvent;
use super::publisher::Shared;
use super::record;
use super::target::{Delivery, DeliveryKey, Target, Transport, Way};
use crate::error::Error;
use crate::service::ServiceRef;
use mainstay_core::failpoints::Point;
use mainstay_core::failure::{Class, Failure};
use mainstay_core::retry::RetryPolicy;
use mainstay_core::trace::TraceContext;
use mainstay_store::{Cause, Tx};
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
    key: DeliveryKey,
    event: &PublicEvent,
) -> Result<NewWork, Error> {
    let item = NewWork::platform(target.pool(), target.function(), which)?.key(target.key(key));
    let item = item.retry(policy).tell_platform(ENDED).context(which)?.unlisted();
    Ok(item.caused_by(&Cause {
        correlation_id: event.correlation_id.clone(),
        causation_id: Some(which.event_id.clone()),
        tenant_id: event.tenant_id.clone(),
        trace: event.trace.clone(),
    }))
}

/// Adds the functions.
pub(super) fn functions(functions: Functions, targets: &[Target], service: &ServiceRef<Shared>) -> Functions {
    let functions = ended::functions(functions, service);
    targets.iter().fold(functions, |functions, target| {
        let (name, service) = (target.function(), service.clone());
        let functions = match target.way.clone() {
            Way::Out(transport) => {
                let timeout = transport.timeout() + MARGIN;
                let target = target.name.clone();
                functions.platform_action_within(timeout, &name, move |call: Call, which: Which| {
                    let (service, transport, target) = (service.clone(), transport.clone(), target.clone());
                    async move { out(&service, &*transport, &target, &call, which).await }
                })
            }
            Way::In(handler) => {
                let target = target.name.clone();
                functions.platform_mutation(&name, move |tx: Tx, call: Call, which: Which| {
                    let (service, handler, target) = (service.clone(), handler.clone(), target.clone());
                    async move {
                        let shared = service.get()?;
                        let found = record::find(&tx, &which.publication_id).await?;
                        let found = found
                            .ok_or_else(|| mainstay_store::Error::application(gone(&which.publication_id)))?;
                        match delivery(&shared, &target, &call, found)
                            .map_err(mainstay_store::Error::application)?
                        {
                            Some(delivery) => handler(tx, delivery).await,
                            None => Ok(()),
                        }
                    }
                })
            }
        };
        match &target.circuit {
            Some(circuit) => functions.platform_behind(&name, circuit.clone()),
            None => functions,
        }
    })
}

/// Brings a publication to its target, unless it came before.
async fn out(
    service: &ServiceRef<Shared>,
    transport: &dyn Transport,
    target: &str,
    call: &Call,
    which: Which,
) -> Result<(), Failure> {
    let unavailable = |error: mainstay_store::Error| Failure::retryable(error.to_string());
    let shared = service.get().map_err(unavailable)?;
    let found = shared.loader.find(which.publication_id.clone()).await?;
    let found = found.ok_or_else(|| gone(&which.publication_id))?;
    let Some(delivery) = delivery(&shared, target, call, found)? else { return Ok(()) };
    shared.pass(Point::PublicationsDelivering).map_err(unavailable)?;
    transport.deliver(delivery).await?;
    shared.pass(Point::PublicationsDelivered).map_err(unavailable)
}

/// Nothing was delivered: whoever removed the row decided that, and no retry brings it back.
fn gone(publication_id: &str) -> Failure {
    Failure::permanent(format!("publication {publication_id} is gone"))
}

/// The delivery for a transport; nothing for a publication that was delivered before. Only the item that the publication names delivers it, and only
/// to its own target.
fn delivery(
    shared: &Shared,
    target: &str,
    call: &Call,
    found: record::Found,
) -> Result<Option<Delivery>, Failure> {
    if found.status == "delivered" {
        return Ok(None);
    }
    if found.target != target || !found.work_id.as_deref().is_some_and(|work_id| call.is_of(work_id)) {
        let reason = format!("publication {} is not for this item to deliver", found.id);
        return Err(Failure::new(Class::ValidationError, reason));
    }
    let random = &**shared.store.random();
    Ok(Some(Delivery {
        idempotency_key: found.key.into_text(),
        event: found.event,
        source_context: found.source_context,
        target_context: found.target,
        attempt: call.attempt,
        // The target is told of the execution that delivers.
        trace: call.trace.clone().unwrap_or_else(|| TraceContext::root(random)),
        now_ms: shared.store.clock().now_ms(),
    }))
}
