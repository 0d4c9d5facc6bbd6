//! What the tests of circuits stand on.

use mainstay_core::circuit::{Circuit as _, Gate};
use mainstay_core::failure::Failure;
use mainstay_guards::circuits::{COMPONENT, Circuit, Circuits, Ended, Permit, Rejected};
use mainstay_store::Store;
use mainstay_testkit::stores::{Kind, Place};
use mainstay_testkit::time::VirtualTime;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Longer than anything here takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A store whose time is in the test's hands, and its circuits.
pub(super) struct House {
    pub(super) place: Place,
    pub(super) store: Store,
    pub(super) time: VirtualTime,
    pub(super) circuits: Circuits,
}

impl House {
    pub(super) async fn open(place: Place) -> Self {
        let (store, time) =
            VirtualTime::open_with(&place, place.options().component(COMPONENT)).await.unwrap();
        let circuits = Circuits::open(&store).await.unwrap();
        Self { place, store, time, circuits }
    }

    /// Another node: on PostgreSQL with a store of its own.
    pub(super) async fn another(&self) -> Circuits {
        match self.place.kind() {
            Kind::Postgres => {
                let store = self.place.options().component(COMPONENT).open().await.unwrap();
                Circuits::open(&store).await.unwrap()
            }
            Kind::SqliteFile | Kind::SqliteMemory => Circuits::open(&self.store).await.unwrap(),
        }
    }

    /// Moves the clock, and lets everybody here notice.
    pub(super) async fn advance(&self, by_ms: i64) {
        self.time.advance(by_ms).await.unwrap();
        self.circuits.look_around().await.unwrap();
    }
}

pub(super) fn busy() -> Failure {
    Failure::retryable("busy")
}

/// A call that fails.
pub(super) async fn fail(circuit: &Circuit) {
    let permit = circuit.admit().await.unwrap();
    circuit.record(permit, Ended::Failed(&busy()));
}

/// A call that succeeds.
pub(super) async fn succeed(circuit: &Circuit) {
    let permit = circuit.admit().await.unwrap();
    circuit.record(permit, Ended::Success);
}

/// Lets calls fail until the circuit opens, and the database knows it.
pub(super) async fn open(circuits: &Circuits, circuit: &Circuit) {
    while circuit.gate() == Gate::Open {
        fail(circuit).await;
    }
    circuits.flush().await.unwrap();
}

/// The call that is the probe.
pub(super) async fn probe(circuit: &Circuit) -> Permit {
    let permit = circuit.admit().await.unwrap();
    assert!(permit.probe().is_some(), "it is not the probe");
    permit
}

pub(super) async fn refused(circuit: &Circuit) -> Rejected {
    match circuit.admit().await {
        Err(rejected) => rejected,
        Ok(permit) => panic!("{} lets {permit:?} through", circuit.name()),
    }
}

/// Waits until a circuit lets through what it should, without anybody looking.
pub(super) async fn until(circuit: &Circuit, gate: Gate) {
    let turned = Arc::new(Notify::new());
    let hook = turned.clone();
    circuit.on_change(Arc::new(move || {
        hook.notify_one();
        true
    }));
    let waiting = async {
        while circuit.gate() != gate {
            turned.notified().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("{} never is {gate:?}", circuit.name()));
}
