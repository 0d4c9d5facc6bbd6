//! One circuit over several nodes.

use super::house::{House, PATIENCE, busy, fail, open, probe, refused, succeed, until};
use mainstay_core::circuit::Gate;
use mainstay_guards::circuits::{Circuits, Ended, Permit, State};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::{Kind, for_each_kind, for_each_store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Barrier, Notify};

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

async fn storm(nodes: &[Circuits]) -> Vec<Permit> {
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

/// Whether two others wait for the row that this transaction holds.
const WAITERS: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted AND (transactionid = pg_current_xact_id()::xid \
     OR (locktype = 'tuple' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())))";

/// Lets two nodes ask while the circuit's row is held, and lets the row go when both wait for it. Both saw the circuit
/// before either had claimed the probe. None when one of them gave up before the other had come.
async fn ask_at_one_moment(store: &Store, nodes: &[Circuits; 2]) -> Option<Vec<Permit>> {
    let (held, ended) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let hold = async |tx: Tx, (held, ended): (Arc<Notify>, Arc<AtomicBool>)| {
        tx.query("SELECT 1 FROM mainstay_circuits WHERE name = 'mail' FOR UPDATE", &[]).await?;
        held.notify_one();
        loop {
            if tx.query_one(WAITERS, &[]).await?.get::<i64>(0)? == 2 {
                return Ok(true);
            }
            if ended.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
    };
    let holding = tokio::spawn({
        let (store, context) = (store.clone(), (held.clone(), ended.clone()));
        async move { store.transact_with(context, hold).await.unwrap() }
    });
    held.notified().await;
    let asking = nodes.clone().map(|node| {
        let ended = ended.clone();
        tokio::spawn(async move {
            let admitted = node.circuit("mail").unwrap().admit().await.ok();
            ended.store(true, Ordering::Relaxed);
            admitted
        })
    });
    let mut admitted = Vec::new();
    for one in asking {
        admitted.extend(one.await.unwrap());
    }
    if holding.await.unwrap() {
        return Some(admitted);
    }
    for permit in admitted {
        nodes[0].circuit("mail").unwrap().record(permit, Ended::GivenUp);
    }
    nodes[0].flush().await.unwrap();
    None
}

#[test]
fn b_129_of_two_nodes_that_ask_at_one_moment_one_has_the_probe() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let house = House::open(place).await;
        let nodes = [house.circuits.clone(), house.another().await];
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        house.time.advance(30_000).await.unwrap();
        for node in &nodes {
            node.look_around().await.unwrap();
        }
        let asking = async {
            loop {
                if let Some(admitted) = ask_at_one_moment(&house.store, &nodes).await {
                    return admitted;
                }
            }
        };
        let admitted = tokio::time::timeout(PATIENCE, asking).await.unwrap();
        assert_eq!(admitted.len(), 1, "{admitted:?}");
        assert_eq!(circuit.status().await.unwrap().probe_run_id.as_deref(), admitted[0].probe());
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

#[test]
fn a_deleted_circuit_is_forgotten_by_all_nodes_and_counts_anew() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let node = house.another().await;
        let there = node.circuit("mail").unwrap();
        fail(&there).await;
        node.flush().await.unwrap();
        house.circuits.look_around().await.unwrap();
        open(&node, &there).await;
        let kept = house.circuits.delete("mail").await.unwrap_err();
        assert_eq!(kept.code(), "GUARD_IN_USE", "it is open");
        house.circuits.reset("mail", "a", "r").await.unwrap();
        until(&there, Gate::Open).await;
        fail(&there).await;
        node.flush().await.unwrap();
        house.circuits.delete("mail").await.unwrap();
        assert_eq!(house.circuits.delete("mail").await.unwrap_err().code(), "UNKNOWN_CIRCUIT");
        assert!(house.circuits.list(None, 10).await.unwrap().is_empty());
        assert!(house.circuits.changes(Some("mail"), None, 10).await.unwrap().is_empty());
        for _ in 0..2 {
            node.look_around().await.unwrap();
        }
        assert!(node.states().is_empty(), "{:?}", node.states());
        // Nodes that knew the first one hear of the second.
        let here = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &here).await;
        until(&there, Gate::Shut).await;
        refused(&there).await;
    });
}

/// One that counts again before other nodes have looked.
#[test]
fn a_circuit_that_counts_again_at_once_is_heard_of() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let node = house.another().await;
        let there = node.circuit("mail").unwrap();
        for _ in 0..20 {
            fail(&there).await;
            node.flush().await.unwrap();
            node.reset("mail", "a", "r").await.unwrap();
        }
        house.time.advance(1_000).await.unwrap();
        house.circuits.delete("mail").await.unwrap();
        let here = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &here).await;
        node.look_around().await.unwrap();
        until(&there, Gate::Shut).await;
    });
}
