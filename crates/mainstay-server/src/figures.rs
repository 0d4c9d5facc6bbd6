//! What the server measures about itself.

use mainstay_core::measure::{Counter, Gauge, Histogram, Measured, Reading};

/// The server's own figures.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Connections open now.
    pub(crate) connections: Gauge,
    /// Connections and requests refused because too many connections were open.
    pub(crate) connections_refused: Counter,
    /// Requests under way, until the head of their answer.
    pub(crate) in_flight: Gauge,
    /// Requests answered.
    pub(crate) answered: Counter,
    /// Answers that say the client made a mistake.
    pub(crate) client_errors: Counter,
    /// Answers that say the server could not.
    pub(crate) server_errors: Counter,
    /// Requests that were not let in.
    pub(crate) refused: Counter,
    /// Calls that were refused, and reads, of which there were too many to write them down.
    pub(crate) unaudited: Counter,
    /// Handlers that panicked.
    pub(crate) panics: Counter,
    /// Time from the head of a request to the head of its answer.
    pub(crate) time: Histogram,
}

impl Measured for Figures {
    fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading)) {
        let counter = |counter: &Counter| Reading::Counter(counter.get());
        let gauge = |gauge: &Gauge| Reading::Gauge(gauge.get());
        visit("server_connections", "Connections open.", gauge(&self.connections));
        let refused = counter(&self.connections_refused);
        visit("server_connections_refused", "Connections refused because too many were open.", refused);
        visit("server_in_flight", "Requests under way.", gauge(&self.in_flight));
        visit("server_requests", "Requests answered.", counter(&self.answered));
        visit("server_client_errors", "Answers with a status of 4xx.", counter(&self.client_errors));
        visit("server_server_errors", "Answers with a status of 5xx.", counter(&self.server_errors));
        visit("server_refused", "Requests that were not let in.", counter(&self.refused));
        visit("server_unaudited", "Refusals and reads too many to be audited.", counter(&self.unaudited));
        visit("server_panics", "Handlers that panicked.", counter(&self.panics));
        let time = Reading::Microseconds(self.time.snapshot());
        visit("server_request_time", "Time until the head of the answer.", time);
    }
}
