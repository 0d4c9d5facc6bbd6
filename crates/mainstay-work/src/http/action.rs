//! HTTP functions as actions of a node.

use super::function::{HttpFunction, Request};
use crate::functions::{ActionAnswer, Call, Functions};
use mainstay_core::trace::TraceContext;
use mainstay_store::Store;
use std::time::Duration;

/// A call gives up by itself, and knows better why; the engine does only if it does not.
const MARGIN: Duration = Duration::from_secs(5);

impl Functions {
    /// Adds an action that is carried out by an endpoint, behind the function's circuit if it has one. Clock and
    /// randomness are those of the store.
    pub fn http(self, name: impl Into<String>, function: HttpFunction, store: &Store) -> Self {
        let name = name.into();
        let (function, circuit) = function.without_circuit();
        let functions = match circuit {
            Some(circuit) => self.behind(&name, circuit),
            None => self,
        };
        let (clock, random) = (store.clock().clone(), store.random().clone());
        functions.raw_action(function.timeout() + MARGIN, name, move |call: Call| {
            let (function, now_ms) = (function.clone(), clock.now_ms());
            // The endpoint is told of the execution that calls it.
            let trace = call.trace.clone().unwrap_or_else(|| TraceContext::root(&*random));
            async move { carry_out(&function, &call, &trace, now_ms).await }
        })
    }
}

async fn carry_out(function: &HttpFunction, call: &Call, trace: &TraceContext, now_ms: i64) -> ActionAnswer {
    let request = Request {
        work_id: &call.work_id,
        function: &call.function,
        attempt: call.attempt,
        args: &call.args,
        context: call.context.as_deref(),
        trace,
        idempotency_key: call.idempotency_key(),
        now_ms,
    };
    function.call(&request).await
}
