//! A database that cannot be reached.

use super::house::{House, PATIENCE, fail, open, refused, succeed, until};
use mainstay_core::circuit::Gate;
use mainstay_core::failpoints::{Action, Failpoints, Point};
use mainstay_guards::circuits::{COMPONENT, Circuits, Ended, State};
use mainstay_store::Options;
use mainstay_testkit::postgres::Doorman;
use mainstay_testkit::proxy::Proxy;
use mainstay_testkit::stores::{Kind, for_each_kind, open_at_last};
use std::time::{Duration, Instant};

async fn behind(url: &str) -> Circuits {
    let options =
        Options::new(url).connections(4).busy_timeout(Duration::from_millis(250)).component(COMPONENT);
    Circuits::open(&open_at_last(options).await).await.unwrap()
}

#[test]
fn without_the_database_what_was_known_counts_and_own_calls_do() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let house = House::open(place.clone()).await;
        let (proxy, url) = Proxy::before(&place).unwrap();
        let circuits = behind(&url).await;
        let [mail, shut] = ["mail", "shut"].map(|name| circuits.circuit(name).unwrap());
        open(&circuits, &shut).await;
        proxy.cut().await;
        succeed(&mail).await;
        for count in 1..=5 {
            assert_eq!(mail.gate(), Gate::Open, "after {count} failures");
            fail(&mail).await;
        }
        // At once, by the calls of this node alone.
        assert_eq!(mail.gate(), Gate::Shut);
        refused(&mail).await;
        let elsewhere = house.circuits.circuit("mail").unwrap();
        assert_eq!(elsewhere.gate(), Gate::Open);
        circuits.flush().await.unwrap_err();
        assert_eq!(elsewhere.status().await.unwrap().updated_at, None);

        proxy.heal().await;
        until(&elsewhere, Gate::Shut).await;
        assert_eq!(elsewhere.status().await.unwrap().state, State::Open);
        assert_eq!(elsewhere.status().await.unwrap().failure_count, 5, "each was counted once");
    });
}

#[test]
fn without_the_database_nobody_makes_a_probe_and_nobody_waits_long() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let house = House::open(place.clone()).await;
        let (proxy, url) = Proxy::before(&place).unwrap();
        let circuits = behind(&url).await;
        let circuit = circuits.circuit("mail").unwrap();
        open(&circuits, &circuit).await;
        house.time.advance(30_000).await.unwrap();
        circuits.look_around().await.unwrap();
        assert_eq!(circuit.gate(), Gate::OneProbe);
        for is_silent in [true, false] {
            if is_silent {
                proxy.half_open();
            } else {
                proxy.cut().await;
            }
            let asked = Instant::now();
            assert_eq!(refused(&circuit).await.retry_after_ms, 1_000);
            assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
        }
        proxy.heal().await;
        // Whoever asks again is the probe, as soon as the database answers.
        let probing = async {
            loop {
                if let Ok(permit) = circuit.admit().await {
                    return permit;
                }
                tokio::task::yield_now().await;
            }
        };
        let permit = tokio::time::timeout(PATIENCE, probing).await.unwrap();
        assert!(permit.probe().is_some());
        circuit.record(permit, Ended::Success);
        until(&circuit, Gate::Open).await;
    });
}

#[tokio::test]
async fn a_write_that_fails_is_made_again() {
    let points = Failpoints::default();
    let options = Options::new("sqlite::memory:").component(COMPONENT).failpoints(points.clone());
    let store = options.open().await.unwrap();
    let circuits = Circuits::open(&store).await.unwrap();
    let circuit = circuits.circuit("mail").unwrap();
    points.arm(Point::StoreCommit, Action::Error, 0, 1);
    for _ in 0..3 {
        fail(&circuit).await;
    }
    // The keeper may have met the failure before.
    while circuits.flush().await.is_err() {}
    assert_eq!(circuit.status().await.unwrap().failure_count, 3);
}

const DOOR: i64 = 6;

/// The line is cut while the database carries a commit out, or the database gives up on it.
#[test]
fn what_was_told_in_a_commit_that_nobody_heard_of_counts_once() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let house = House::open(place.clone()).await;
        let (proxy, url) = Proxy::before(&place).unwrap();
        let doorman = Doorman::new(&place).await;
        doorman.guard_commits("mainstay_circuits", DOOR).await;
        for is_carried_out in [true, false] {
            let name = format!("carried out: {is_carried_out}");
            // One that never wrote before, so that nothing of it is there to wait for.
            let circuits = behind(&url).await;
            let circuit = circuits.circuit(&name).unwrap();
            doorman.shut(DOOR).await;
            for _ in 0..3 {
                fail(&circuit).await;
            }
            doorman.until_at_door().await;
            if is_carried_out {
                proxy.cut_connections().await;
                // It looks whether it was, and waits for that.
                doorman.until_waiting(2).await;
            } else {
                doorman.turn_away().await;
            }
            // Another node counts too meanwhile.
            let elsewhere = house.circuits.circuit(&name).unwrap();
            fail(&elsewhere).await;
            doorman.open(DOOR).await;
            house.circuits.flush().await.unwrap();
            let flushing = async { while circuits.flush().await.is_err() {} };
            tokio::time::timeout(PATIENCE, flushing).await.unwrap();
            assert_eq!(elsewhere.status().await.unwrap().failure_count, 4, "{name}");
        }
    });
}
