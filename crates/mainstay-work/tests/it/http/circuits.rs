//! A function behind a circuit.

use super::server::{Server, Then, reply};
use super::{call, function_with};
use futures_util::FutureExt;
use mainstay_core::circuit::{Circuit, Rejected};
use mainstay_core::failure::{Class, Failure};
use mainstay_work::http::{HttpConfig, HttpFunction};
use std::sync::{Arc, Mutex};

/// A circuit that is open or not, and writes down what it hears.
#[derive(Default)]
struct Fixed {
    open_for_ms: Option<u64>,
    heard: Mutex<Vec<Option<Class>>>,
}

impl Circuit for Fixed {
    fn admit(&self) -> Result<(), Rejected> {
        self.open_for_ms.map_or(Ok(()), |retry_after_ms| Err(Rejected { retry_after_ms }))
    }

    fn record(&self, ended: Result<(), &Failure>) {
        self.heard.lock().unwrap().push(ended.err().map(Failure::class));
    }
}

fn behind(circuit: &Arc<Fixed>, server: &Server) -> HttpFunction {
    let circuit = Some(Arc::clone(circuit) as Arc<dyn Circuit>);
    function_with(HttpConfig { circuit, ..HttpConfig::new(server.url()) })
}

#[tokio::test]
async fn b_091_an_open_circuit_says_when_and_no_call_is_made() {
    let server = Server::new(reply("200 OK", "", "1")).await;
    let circuit = Arc::new(Fixed { open_for_ms: Some(30_000), ..Fixed::default() });
    let failure = call(&behind(&circuit, &server)).await.unwrap_err();
    assert!(failure.is_retryable());
    assert_eq!(failure.retry_after_ms(), Some(30_000));
    assert_eq!(server.connections(), 0);
    assert!(circuit.heard.lock().unwrap().is_empty(), "what was not let through did not end");
}

#[tokio::test]
async fn a_circuit_hears_how_every_call_ended() {
    let circuit = Arc::new(Fixed::default());
    for (then, ended) in [
        (reply("200 OK", "", "1"), None),
        (reply("500 Oh", "", ""), Some(Class::TemporaryServiceUnavailable)),
        (reply("404 No", "", ""), Some(Class::PermanentServiceError)),
        (reply("200 OK", "", "<"), Some(Class::PermanentServiceError)),
        (Then::Reset, Some(Class::TemporaryServiceUnavailable)),
    ] {
        let server = Server::new(then).await;
        let _ = call(&behind(&circuit, &server)).await;
        assert_eq!(circuit.heard.lock().unwrap().drain(..).collect::<Vec<_>>(), [ended]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_circuit_hears_of_a_call_that_took_too_long() {
    let (server, circuit) = (Server::new(Then::Hang).await, Arc::new(Fixed::default()));
    let _ = call(&behind(&circuit, &server)).await;
    assert_eq!(*circuit.heard.lock().unwrap(), [Some(Class::NetworkTimeout)]);
}

#[tokio::test]
async fn a_circuit_hears_of_a_call_that_was_given_up() {
    let server = Server::new(Then::Hang).await;
    let circuit = Arc::new(Fixed::default());
    let function = behind(&circuit, &server);
    let begun = call(&function).now_or_never();
    assert!(begun.is_none(), "it waits for the server, and is then dropped");
    assert_eq!(*circuit.heard.lock().unwrap(), [Some(Class::TemporaryServiceUnavailable)]);
}
