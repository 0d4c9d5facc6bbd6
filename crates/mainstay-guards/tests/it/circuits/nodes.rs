//! One circuit over several nodes.

use super::house::{House, busy, fail, open, probe, refused, succeed, until};
use mainstay_core::circuit::Gate;
use mainstay_guards::circuits::{Circuits, Ended, State};
use mainstay_testkit::stores::for_each_store;
use std::sync::Arc;
use tokio::sync::Barrier;

#[test]
fn b_123_failures_of_several_nodes_are_all_counted() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let node = house.another().await;
        let (here, there) = (house.circuits.circuit("mail").unwrap(), node.circuit("mail").unwrap());
        fail(&here).await;
        fail(&there).await;
        let (one, other) = tokio::join!(house.circuits.flush(), node.flush());
        one.and(other).unwrap();
        assert_eq!(here.status().await.unwrap().failure_count, 2);
        house.circuits.look_around().await.unwrap();
        for _ in 0..3 {
            fail(&here).await;
        }
        house.circuits.flush().await.unwrap();
        assert_eq!(here.status().await.unwrap().state, State::Open, "five of all nodes");
    });
}

#[test]
fn another_nodes_change_is_heard_of_without_asking() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let node = house.another().await;
        let (here, there) = (house.circuits.circuit("mail").unwrap(), node.circuit("mail").unwrap());
        open(&house.circuits, &here).await;
        until(&there, Gate::Shut).await;
        refused(&there).await;
    });
}

#[test]
fn another_nodes_failures_are_forgotten_by_a_success_here() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let node = house.another().await;
        let (here, there) = (house.circuits.circuit("mail").unwrap(), node.circuit("mail").unwrap());
        fail(&there).await;
        node.flush().await.unwrap();
        house.circuits.look_around().await.unwrap();
        succeed(&here).await;
        house.circuits.flush().await.unwrap();
        assert_eq!(here.status().await.unwrap().failure_count, 0);
    });
}

async fn storm(nodes: &[Circuits]) -> Vec<mainstay_guards::circuits::Permit> {
    let gathered = Arc::new(Barrier::new(50));
    let callers: Vec<_> = (0..50)
        .map(|number| {
            let circuit = nodes[number % nodes.len()].circuit("mail").unwrap();
            let gathered = gathered.clone();
            tokio::spawn(async move {
                gathered.wait().await;
                circuit.admit().await.ok()
            })
        })
        .collect();
    let mut admitted = Vec::new();
    for caller in callers {
        admitted.extend(caller.await.unwrap());
    }
    admitted
}

#[test]
fn b_129_of_fifty_calls_on_three_nodes_one_is_the_probe() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let nodes = [house.circuits.clone(), house.another().await, house.another().await];
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        house.time.advance(30_000).await.unwrap();
        for node in &nodes {
            node.look_around().await.unwrap();
        }
        let admitted = storm(&nodes).await;
        assert_eq!(admitted.len(), 1, "{admitted:?}");
        assert!(storm(&nodes).await.is_empty(), "while it is out");
        let permit = admitted.into_iter().next().unwrap();
        assert_eq!(circuit.status().await.unwrap().probe_run_id.as_deref(), permit.probe());
        circuit.record(permit, Ended::Success);
        house.circuits.flush().await.unwrap();
        for node in &nodes {
            until(&node.circuit("mail").unwrap(), Gate::Open).await;
        }
        assert_eq!(storm(&nodes).await.len(), 50);
    });
}

#[test]
fn a_probe_whose_process_died_makes_room_when_its_lease_is_over() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let node = house.another().await;
        let (here, there) = (house.circuits.circuit("mail").unwrap(), node.circuit("mail").unwrap());
        open(&house.circuits, &here).await;
        house.advance(30_000).await;
        node.look_around().await.unwrap();
        // Nobody ever says how it ended.
        std::mem::forget(probe(&there).await);
        house.advance(50_000).await;
        refused(&here).await;
        house.advance(10_000).await;
        let second = probe(&here).await;
        here.record(second, Ended::Success);
        house.circuits.flush().await.unwrap();
        assert_eq!(here.status().await.unwrap().state, State::Closed);
    });
}

#[test]
fn b_130_a_probe_that_nobody_waits_for_any_more_changes_nothing() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        house.advance(30_000).await;
        let late = probe(&circuit).await;
        house.advance(60_000).await;
        let second = probe(&circuit).await;
        circuit.record(late, Ended::Failed(&busy()));
        house.circuits.flush().await.unwrap();
        let status = circuit.status().await.unwrap();
        assert_eq!((status.state, status.probe_run_id.as_deref()), (State::HalfOpen, second.probe()));
        circuit.record(second, Ended::Success);
        house.circuits.flush().await.unwrap();
        assert_eq!(circuit.status().await.unwrap().state, State::Closed);
    });
}
