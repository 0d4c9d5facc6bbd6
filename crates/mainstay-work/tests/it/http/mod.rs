//! HTTP functions against real servers on this machine: what is sent, what a reply means, where calls may go.

mod circuits;
mod pooling;
mod reach;
mod replies;
mod sent;
mod server;
mod tls;

use mainstay_core::trace::TraceContext;
use mainstay_work::egress::Egress;
use mainstay_work::http::{Client, Failure, HttpConfig, HttpFunction, Request};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The time that every call is told.
const NOW_MS: i64 = 1_700_000_000_000;

/// Rules that let calls reach this machine.
fn loopback() -> Arc<Egress> {
    Arc::new(Egress::new(&["127.0.0.1".to_owned(), "::1".to_owned()]).unwrap())
}

fn function(url: &str) -> HttpFunction {
    function_with(HttpConfig::new(url))
}

fn function_with(config: HttpConfig) -> HttpFunction {
    HttpFunction::new(config, loopback()).unwrap()
}

/// Calls a function with arguments that say nothing.
async fn call(function: &HttpFunction) -> Result<Box<RawValue>, Failure> {
    let trace = TraceContext {
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
        span_id: "00f067aa0ba902b7".into(),
        parent_span_id: None,
    };
    let request = Request {
        work_id: "w1",
        function: "sendEmail",
        attempt: 1,
        args: &RawValue::NULL.to_owned(),
        context: None,
        trace: &trace,
        idempotency_key: "w1",
        now_ms: NOW_MS,
    };
    function.call(&request).await
}

/// A client with a resolver of the test's own, that trusts nobody.
fn client(egress: Arc<Egress>, resolver: Arc<dyn mainstay_work::http::Resolver>) -> Client {
    Client::with(egress, resolver, rustls::RootCertStore::empty())
}
