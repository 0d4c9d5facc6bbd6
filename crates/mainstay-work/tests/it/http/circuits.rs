//! A function behind a circuit.

use super::server::{Server, Then, reply};
use super::{call, function_with};
use futures_util::FutureExt;
use mainstay_core::circuit::{Admission, Circuit, Ended, Gate, Hook, Permit, Rejected};
use mainstay_core::failure::Class;
use mainstay_work::http::{HttpConfig, HttpFunction};
use std::sync::{Arc, Mutex};

/// A circuit that is open or not, and writes down what it hears.
#[derive(Default)]
struct Fixed {
    open_for_ms: Option<u64>,
    heard: Mutex<Vec<Heard>>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Success,
    Failed(Class),
    GivenUp,
}

impl Circuit for Fixed {
    fn gate(&self) -> Gate {
        if self.open_for_ms.is_some() { Gate::Shut } else { Gate::Open }
    }

    fn admit(&self) -> Admission<'_> {
        let rejected = |retry_after_ms| Err(Rejected { name: "fixed".into(), retry_after_ms });
        Admission::now(self.open_for_ms.map_or(Ok(Permit::default()), rejected))
    }

    fn record(&self, permit: Permit, ended: Ended<'_>) {
        assert_eq!(permit, Permit::default());
        self.heard.lock().unwrap().push(match ended {
            Ended::Success => Heard::Success,
            Ended::Failed(failure) => Heard::Failed(failure.class()),
            Ended::GivenUp => Heard::GivenUp,
        });
    }

    fn on_change(&self, _hook: Hook) {}
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
    assert_eq!(failure.message(), "CIRCUIT_OPEN:fixed");
    assert_eq!(server.connections(), 0);
    assert!(circuit.heard.lock().unwrap().is_empty(), "what was not let through did not end");
}

#[tokio::test]
async fn a_circuit_hears_how_every_call_ended() {
    let circuit = Arc::new(Fixed::default());
    for (then, ended) in [
        (reply("200 OK", "", "1"), Heard::Success),
        (reply("500 Oh", "", ""), Heard::Failed(Class::TemporaryServiceUnavailable)),
        (reply("404 No", "", ""), Heard::Failed(Class::PermanentServiceError)),
        (reply("200 OK", "", "<"), Heard::Failed(Class::PermanentServiceError)),
        (Then::Reset, Heard::Failed(Class::TemporaryServiceUnavailable)),
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
    assert_eq!(*circuit.heard.lock().unwrap(), [Heard::Failed(Class::NetworkTimeout)]);
}

#[tokio::test]
async fn a_circuit_hears_of_a_call_that_was_given_up() {
    let server = Server::new(Then::Hang).await;
    let circuit = Arc::new(Fixed::default());
    let function = behind(&circuit, &server);
    let begun = call(&function).now_or_never();
    assert!(begun.is_none(), "it waits for the server, and is then dropped");
    assert_eq!(*circuit.heard.lock().unwrap(), [Heard::GivenUp]);
}
