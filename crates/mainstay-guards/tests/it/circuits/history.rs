//! What circuits have been through.

use super::house::{House, fail, open, probe};
use State::{Closed, HalfOpen, Open};
use mainstay_guards::circuits::{Change, Circuits, Ended, Force, MAX_CHANGES, State};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::START_MS;

async fn told(circuits: &Circuits, name: &str) -> Vec<(State, State, String, Option<String>)> {
    let mut changes = circuits.changes(Some(name), None, 1_000).await.unwrap();
    changes.reverse();
    changes.into_iter().map(|one| (one.from, one.to, one.reason, one.actor)).collect()
}

fn plain(from: State, to: State, reason: &str) -> (State, State, String, Option<String>) {
    (from, to, reason.to_owned(), None)
}

#[test]
fn every_change_of_a_circuit_is_kept_with_its_reason() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        house.advance(30_000).await;
        circuit.record(probe(&circuit).await, Ended::Success);
        house.circuits.flush().await.unwrap();
        let expected = [
            plain(Closed, Open, "too many calls failed in a row"),
            plain(Open, HalfOpen, "its time to be open is over"),
            plain(HalfOpen, Closed, "a probe succeeded"),
        ];
        assert_eq!(told(&house.circuits, "mail").await, expected);
        let changes = house.circuits.changes(Some("mail"), None, 10).await.unwrap();
        let times: Vec<i64> = changes.iter().map(|one| one.at - START_MS).collect();
        assert_eq!(times, [30_000, 30_000, 0], "the newest first");

        // A call that changes nothing is no change.
        fail(&circuit).await;
        house.circuits.flush().await.unwrap();
        assert_eq!(told(&house.circuits, "mail").await.len(), 3);
        assert!(told(&house.circuits, "unheard of").await.is_empty());
        assert_eq!(house.circuits.changes(Some(""), None, 1).await.unwrap_err().code(), "GUARD_INVALID");
    });
}

#[test]
fn what_operators_decide_is_kept_with_who_and_why() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let force =
            |is_open, for_ms| Force { is_open, actor: "ada".into(), reason: "maintenance".into(), for_ms };
        house.circuits.force("mail", force(true, Some(60_000))).await.unwrap();
        house.advance(60_000).await;
        house.circuits.force("mail", force(true, None)).await.unwrap();
        house.circuits.release("mail", "bob", "all is well").await.unwrap();
        house.circuits.reset("mail", "eve", "begin anew").await.unwrap();
        let by = |from, to, reason: &str, actor: &str| (from, to, reason.to_owned(), Some(actor.to_owned()));
        let mut changes = told(&house.circuits, "mail").await;
        assert_eq!(changes.remove(0), by(Closed, Open, "maintenance", "ada"));
        let over = changes.remove(0);
        assert_eq!((over.0, over.2.as_str()), (Open, "the time that it was forced for is over"));
        assert_eq!(changes.remove(0), by(over.1, Open, "maintenance", "ada"));
        assert_eq!(
            (changes[0].0, changes[0].2.as_str(), changes[0].3.as_deref()),
            (Open, "all is well", Some("bob"))
        );
    });
}

#[test]
fn so_many_changes_of_each_circuit_are_kept_and_read_in_pages() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        for number in 0..MAX_CHANGES + 10 {
            let is_open = number % 2 == 0;
            let force = Force { is_open, actor: "ada".into(), reason: format!("{number}"), for_ms: None };
            house.circuits.force("mail", force).await.unwrap();
        }
        let other = Force { is_open: true, actor: "ada".into(), reason: "other".into(), for_ms: None };
        house.circuits.force("other", other).await.unwrap();
        let (mut all, mut before): (Vec<Change>, _) = (Vec::new(), None);
        loop {
            let page = house.circuits.changes(None, before, 37).await.unwrap();
            let Some(last) = page.last() else { break };
            before = Some(last.number);
            all.extend(page);
        }
        assert_eq!((all.len(), all[0].name.as_str()), (MAX_CHANGES + 1, "other"));
        let reasons: Vec<String> = all[1..].iter().map(|one| one.reason.clone()).collect();
        let expected: Vec<String> = (10..MAX_CHANGES + 10).rev().map(|number| number.to_string()).collect();
        assert_eq!(reasons, expected, "the oldest are gone");
    });
}
