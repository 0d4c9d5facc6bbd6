//! From closed to open, half open and closed again.

use super::house::{House, busy, fail, open, probe, refused, succeed};
use mainstay_core::circuit::Gate;
use mainstay_core::clock::ManualClock;
use mainstay_guards::circuits::{COMPONENT, Circuits, Ended, Settings, State, Timer, Trip};
use mainstay_testkit::stores::{for_each_lasting_store, for_each_store};
use mainstay_testkit::time::START_MS;
use std::sync::Arc;

#[test]
fn b_124_a_circuit_that_nobody_heard_of_is_closed_and_nothing_is_written() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("unheard-of").unwrap();
        assert_eq!(circuit.gate(), Gate::Open);
        let status = circuit.status().await.unwrap();
        assert_eq!((status.state, status.failure_count, status.updated_at), (State::Closed, 0, None));
        assert_eq!(status.config, Settings::default());
        succeed(&circuit).await;
        house.circuits.look_around().await.unwrap();
        assert!(house.circuits.list(None, 10).await.unwrap().is_empty());
    });
}

#[test]
fn b_113_a_circuit_is_kept_with_all_that_is_known_of_it() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        let kept = serde_json::to_value(circuit.status().await.unwrap()).unwrap();
        assert_eq!(
            (&kept["name"], &kept["state"], &kept["failureCount"]),
            (&"mail".into(), &"open".into(), &5.into())
        );
        for moment in ["lastFailureAt", "openedAt", "updatedAt"] {
            assert_eq!(kept[moment], START_MS, "{moment}");
        }
        assert_eq!(kept["probeScheduledAt"], START_MS + 30_000);
        assert_eq!(kept["config"]["failureThreshold"], 5);
        assert!(kept.get("probeRunId").is_none());
        house.advance(30_000).await;
        let permit = probe(&circuit).await;
        let kept = serde_json::to_value(circuit.status().await.unwrap()).unwrap();
        assert_eq!((&kept["state"], kept["probeRunId"].as_str()), (&"half_open".into(), permit.probe()));
        circuit.record(permit, Ended::Success);
        house.circuits.flush().await.unwrap();
        assert_eq!(house.circuits.list(None, 10).await.unwrap().len(), 1, "there is one of a name");
    });
}

#[test]
fn b_117_failures_are_counted_and_b_116_a_success_forgets_them() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        for _ in 0..3 {
            fail(&circuit).await;
        }
        house.circuits.flush().await.unwrap();
        let status = circuit.status().await.unwrap();
        assert_eq!(
            (status.state, status.failure_count, status.last_failure_at),
            (State::Closed, 3, Some(START_MS))
        );
        succeed(&circuit).await;
        house.circuits.flush().await.unwrap();
        let status = circuit.status().await.unwrap();
        assert_eq!((status.state, status.failure_count), (State::Closed, 0));
    });
}

#[test]
fn b_128_an_open_circuit_refuses_at_once_and_says_when_to_come_back() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        house.advance(10_000).await;
        let rejected = refused(&circuit).await;
        assert_eq!(rejected.to_string(), "CIRCUIT_OPEN:mail");
        assert!((19_000..=20_000).contains(&rejected.retry_after_ms), "{rejected:?}");
        let never = circuit.call(None, async |_| -> Result<(), _> { panic!("it is not called") }).await;
        assert!(never.unwrap_err().retry_after_ms().is_some());
        assert_eq!(circuit.status().await.unwrap().retry_after_ms, Some(20_000));
    });
}

#[test]
fn b_127_its_time_half_opens_it_and_b_131_a_probe_closes_it() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        house.advance(20_000).await;
        assert_eq!(circuit.gate(), Gate::Shut);
        house.advance(10_000).await;
        let status = circuit.status().await.unwrap();
        assert_eq!(
            (status.state, status.failure_count, status.probe_scheduled_at),
            (State::HalfOpen, 5, None)
        );
        let permit = probe(&circuit).await;
        let status = circuit.status().await.unwrap();
        assert_eq!(status.probe_run_id.as_deref(), permit.probe());
        circuit.record(permit, Ended::Success);
        house.circuits.flush().await.unwrap();
        let status = circuit.status().await.unwrap();
        assert_eq!((status.state, status.failure_count, status.probe_run_id), (State::Closed, 0, None));
        succeed(&circuit).await;
    });
}

#[test]
fn b_131_a_probe_that_fails_opens_it_for_as_long_again() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        house.advance(31_000).await;
        let permit = probe(&circuit).await;
        house.time.advance(500).await.unwrap();
        circuit.record(permit, Ended::Failed(&busy()));
        house.circuits.look_around().await.unwrap();
        let status = circuit.status().await.unwrap();
        assert_eq!((status.state, status.failure_count), (State::Open, 5));
        assert_eq!(status.opened_at, Some(START_MS + 31_500));
        house.advance(20_000).await;
        assert_eq!(circuit.gate(), Gate::Shut);
        house.advance(10_000).await;
        assert_eq!(circuit.gate(), Gate::OneProbe);
    });
}

#[test]
fn c_011_as_many_probes_succeed_as_are_needed() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("webhook-delivery").unwrap();
        open(&house.circuits, &circuit).await;
        house.advance(15_000).await;
        for successes in [1, 0] {
            let permit = probe(&circuit).await;
            assert!((1..=1_000).contains(&refused(&circuit).await.retry_after_ms), "one at a time");
            circuit.record(permit, Ended::Success);
            house.circuits.flush().await.unwrap();
            let status = circuit.status().await.unwrap();
            assert_eq!(status.success_count, successes);
        }
        assert_eq!(circuit.status().await.unwrap().state, State::Closed);
    });
}

#[test]
fn b_126_a_timer_of_an_earlier_opening_changes_nothing() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        let first = circuit.status().await.unwrap().opened_at.unwrap();
        assert_eq!(
            house.circuits.timer("mail", first).await.unwrap(),
            Timer::Skipped { reason: "not due yet" }
        );
        house.advance(30_000).await;
        circuit.record(probe(&circuit).await, Ended::Success);
        house.circuits.flush().await.unwrap();
        open(&house.circuits, &circuit).await;
        let before = circuit.status().await.unwrap();
        house.time.advance(1_000).await.unwrap();
        let skipped = Timer::Skipped { reason: "circuit state changed" };
        assert_eq!(house.circuits.timer("mail", first).await.unwrap(), skipped);
        assert_eq!(house.circuits.timer("unheard-of", first).await.unwrap(), skipped);
        let after = circuit.status().await.unwrap();
        assert_eq!((after.state, after.updated_at), (before.state, before.updated_at));
        house.time.advance(29_000).await.unwrap();
        // Its own timer, unless the keeper was first.
        house.circuits.timer("mail", before.opened_at.unwrap()).await.unwrap();
        assert_eq!(circuit.status().await.unwrap().state, State::HalfOpen);
    });
}

#[test]
fn b_136_an_open_circuit_survives_a_restart_with_its_count_and_b_127_its_timer() {
    for_each_lasting_store(async |place| {
        let House { place, store, time, circuits } = House::open(place).await;
        let circuit = circuits.circuit("stripe-api").unwrap();
        open(&circuits, &circuit).await;
        let now_ms = time.clock().now_ms();
        drop((circuit, circuits, time));
        store.close().await;

        let options = place.options().component(COMPONENT);
        let clock = Arc::new(ManualClock::at(now_ms));
        let store = options.clock(clock.clone()).open().await.unwrap();
        let circuits = Circuits::open(&store).await.unwrap();
        let circuit = circuits.circuit("stripe-api").unwrap();
        assert_eq!(circuit.gate(), Gate::Shut);
        let status = circuit.status().await.unwrap();
        assert_eq!((status.state, status.failure_count), (State::Open, 3));
        // The database's clock goes on, in the file's owner or in the server.
        clock.advance(60_000);
        let set = "UPDATE mainstay_test_clock SET now_ms = now_ms + 60000";
        if store.capabilities().many_nodes {
            store.transact(async |tx| tx.execute(set, &[]).await).await.unwrap();
        }
        circuits.look_around().await.unwrap();
        assert_eq!(circuit.status().await.unwrap().state, State::HalfOpen);
    });
}

#[test]
fn b_135_services_open_by_their_own_settings_and_by_themselves() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let [stripe, sendgrid] = ["stripe-api", "sendgrid"].map(|name| house.circuits.circuit(name).unwrap());
        for _ in 0..3 {
            fail(&stripe).await;
        }
        for _ in 0..5 {
            fail(&sendgrid).await;
        }
        house.circuits.flush().await.unwrap();
        assert_eq!(stripe.status().await.unwrap().state, State::Open);
        let status = sendgrid.status().await.unwrap();
        assert_eq!((status.state, status.failure_count), (State::Closed, 5));
        succeed(&sendgrid).await;
        refused(&stripe).await;
        house.advance(60_000).await;
        stripe.record(probe(&stripe).await, Ended::Success);
        open(&house.circuits, &sendgrid).await;
        succeed(&stripe).await;
        refused(&sendgrid).await;
        let five = house.circuits.circuit("five").unwrap();
        for count in 1..=5 {
            assert_eq!(five.gate(), Gate::Open, "after {count} failures");
            fail(&five).await;
        }
        assert_eq!(five.gate(), Gate::Shut);
    });
}

#[test]
fn settings_are_the_programs_or_the_databases() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let three = Settings::consecutive(3, 5_000, 1).unwrap();
        let circuit = house.circuits.circuit_with("mail", three).unwrap();
        open(&house.circuits, &circuit).await;
        assert_eq!(circuit.status().await.unwrap().failure_count, 3);
        let node = house.another().await;
        assert_eq!(node.status("mail").await.unwrap().config, three);
        house.advance(5_000).await;
        node.look_around().await.unwrap();
        circuit.record(probe(&circuit).await, Ended::Success);
        house.circuits.flush().await.unwrap();
        node.look_around().await.unwrap();
        let elsewhere = node.circuit("mail").unwrap();
        open(&node, &elsewhere).await;
        assert_eq!(
            elsewhere.status().await.unwrap().failure_count,
            3,
            "the other node was told nothing else"
        );
        let none = Settings { trip: Trip::Consecutive { failure_threshold: 0 }, ..three };
        let refused = house.circuits.circuit_with("mail", none).unwrap_err();
        assert_eq!(refused.to_string(), "settings: failureThreshold must be 1 to 10000");
    });
}
