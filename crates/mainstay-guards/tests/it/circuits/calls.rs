//! Calls through a circuit.

use super::house::{House, busy, fail, open, probe, refused, succeed};
use mainstay_core::circuit::Gate;
use mainstay_core::failure::{Class, Failure};
use mainstay_core::trace::TraceContext;
use mainstay_guards::Error;
use mainstay_guards::circuits::{
    COMPONENT, Circuits, Ended, Force, MAX_CIRCUITS, Rate, RunEnded, Settings, Slow, Span, State,
};
use mainstay_store::{Options, Tx, params};
use mainstay_testkit::stores::for_each_store;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn b_132_a_call_tells_how_it_ended_and_passes_the_failure_on() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        let failed = circuit.call(None, async |_| Err::<(), _>(busy())).await;
        assert_eq!(failed.unwrap_err(), busy());
        house.circuits.flush().await.unwrap();
        assert_eq!(circuit.status().await.unwrap().failure_count, 1);
        assert_eq!(circuit.call(None, async |_| Ok(7)).await, Ok(7));
        house.circuits.flush().await.unwrap();
        assert_eq!(circuit.status().await.unwrap().failure_count, 0);
    });
}

#[test]
fn b_137_a_call_is_part_of_a_trace() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        let trace = TraceContext::root(&**house.store.random());
        let seen = circuit.call(Some(&trace), async |seen| Ok(seen)).await.unwrap();
        assert_eq!((seen.trace_id, seen.parent_span_id), (trace.trace_id, Some(trace.span_id)));
        let made = circuit.call(None, async |made| Ok(made)).await.unwrap();
        assert!(made.validate().is_ok());
    });
}

#[test]
fn only_a_closed_circuit_admits_at_once() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        let permit = circuit.admit_at_once().unwrap();
        circuit.record(permit, Ended::Success);
        open(&house.circuits, &circuit).await;
        assert_eq!(circuit.admit_at_once(), None);
        let rate = Settings::rate(Rate::default()).unwrap();
        let timed = house.circuits.circuit_with("timed", rate).unwrap();
        assert_eq!(timed.admit_at_once(), None, "how long it takes is to be measured");
    });
}

#[test]
fn a_failure_that_stays_is_an_answer_and_does_not_count() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        fail(&circuit).await;
        for class in Class::ALL.iter().filter(|class| !class.is_retryable()) {
            let permit = circuit.admit().await.unwrap();
            circuit.record(permit, Ended::Failed(&Failure::new(*class, "no")));
        }
        house.circuits.flush().await.unwrap();
        assert_eq!(circuit.status().await.unwrap().failure_count, 0);
    });
}

#[test]
fn a_call_that_is_given_up_says_nothing_and_a_probe_makes_room() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        let given_up = |circuit: &mainstay_guards::circuits::Circuit| {
            let circuit = circuit.clone();
            let (began, begun) = tokio::sync::oneshot::channel::<()>();
            let call = tokio::spawn(async move {
                circuit
                    .call(None, async |_| {
                        began.send(()).unwrap();
                        std::future::pending::<Result<(), Failure>>().await
                    })
                    .await
            });
            async move {
                begun.await.unwrap();
                call.abort();
                assert!(call.await.unwrap_err().is_cancelled());
            }
        };
        given_up(&circuit).await;
        house.circuits.flush().await.unwrap();
        assert_eq!(circuit.status().await.unwrap().updated_at, None);
        open(&house.circuits, &circuit).await;
        house.advance(30_000).await;
        given_up(&circuit).await;
        house.circuits.flush().await.unwrap();
        let status = circuit.status().await.unwrap();
        assert_eq!((status.state, status.probe_run_id), (State::HalfOpen, None));
        circuit.record(probe(&circuit).await, Ended::Success);
    });
}

#[test]
fn a_success_on_a_closed_circuit_writes_nothing_and_asks_nobody() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        let before = house.store.figures().committed.get();
        for _ in 0..10_000 {
            succeed(&circuit).await;
        }
        house.circuits.flush().await.unwrap();
        assert_eq!(house.store.figures().committed.get(), before);
        assert_eq!(house.circuits.figures().writes.get(), 0);
        let House { store, circuits: _circuits, .. } = house;
        store.close().await;
        (0..1_000).for_each(|_| {
            let admitted = futures_util::FutureExt::now_or_never(circuit.admit());
            circuit.record(admitted.expect("nobody is asked").unwrap(), Ended::Success);
        });
    });
}

#[test]
fn many_failures_are_written_together_and_none_is_lost() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let settings = Settings::consecutive(10_000, 1_000, 1).unwrap();
        let circuit = house.circuits.circuit_with("mail", settings).unwrap();
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let circuit = circuit.clone();
                tokio::spawn(async move {
                    for _ in 0..250 {
                        fail(&circuit).await;
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
        house.circuits.flush().await.unwrap();
        assert_eq!(circuit.status().await.unwrap().failure_count, 2_000);
        let figures = house.circuits.figures();
        assert_eq!(figures.reports.get(), 2_000);
        assert!(figures.writes.get() < 1_000, "{} transactions", figures.writes.get());
    });
}

#[test]
fn the_share_of_bad_calls_opens_it_too() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let rate = Rate { span: Span::Calls(10), minimum_calls: 4, ..Rate::default() };
        let circuit = house.circuits.circuit_with("mail", Settings::rate(rate).unwrap()).unwrap();
        for _ in 0..2 {
            succeed(&circuit).await;
            succeed(&circuit).await;
            fail(&circuit).await;
        }
        assert_eq!(circuit.gate(), Gate::Open, "two of six");
        fail(&circuit).await;
        assert_eq!(circuit.gate(), Gate::Open, "three of seven");
        fail(&circuit).await;
        assert_eq!(circuit.gate(), Gate::Shut, "four of eight");
        house.circuits.flush().await.unwrap();
        assert_eq!(circuit.status().await.unwrap().state, State::Open);
        house.advance(30_000).await;
        circuit.record(probe(&circuit).await, Ended::Success);
        house.circuits.flush().await.unwrap();
        for _ in 0..3 {
            fail(&circuit).await;
        }
        assert_eq!(circuit.gate(), Gate::Open, "the calls of before are forgotten");
    });
}

#[tokio::test]
async fn calls_that_take_too_long_open_it() {
    let store = Options::new("sqlite::memory:").component(COMPONENT).open().await.unwrap();
    let circuits = Circuits::open(&store).await.unwrap();
    let slow = Some(Slow { after_ms: 500, percent: 50.0 });
    let rate = Rate { span: Span::Time(60_000), minimum_calls: 2, failure_percent: None, slow };
    let circuit = circuits.circuit_with("mail", Settings::rate(rate).unwrap()).unwrap();
    tokio::time::pause();
    let take = async |ms: u64| {
        let call = circuit.call(None, async |_| {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok::<_, Failure>(())
        });
        call.await.unwrap();
    };
    for ms in [400, 400, 600] {
        take(ms).await;
    }
    assert_eq!(circuit.gate(), Gate::Open, "one of three");
    take(600).await;
    assert_eq!(circuit.gate(), Gate::Shut, "two of four");
}

#[test]
fn a_circuit_that_only_measures_lets_everything_through() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let settings = Settings { metrics_only: true, ..Settings::default() };
        let circuit = house.circuits.circuit_with("mail", settings).unwrap();
        for _ in 0..7 {
            fail(&circuit).await;
        }
        house.circuits.flush().await.unwrap();
        assert_eq!((circuit.status().await.unwrap().state, circuit.gate()), (State::Open, Gate::Open));
        assert_eq!(house.circuits.states(), [("mail".to_owned(), State::Open)]);
        house.advance(30_000).await;
        assert_eq!(circuit.status().await.unwrap().state, State::HalfOpen);
        succeed(&circuit).await;
        house.circuits.flush().await.unwrap();
        assert_eq!(circuit.status().await.unwrap().state, State::Closed);
        assert_eq!(house.circuits.figures().rejected.get(), 0);
    });
}

#[test]
fn what_is_told_in_a_transaction_is_undone_with_it() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuits = house.circuits.clone();
        let undone = house
            .store
            .transact(move |tx| {
                let circuits = circuits.clone();
                async move {
                    circuits.record_in(&tx, "mail", "run-1", RunEnded::Failed).await?;
                    Err::<(), _>(mainstay_store::Error::application("never mind"))
                }
            })
            .await;
        undone.unwrap_err();
        assert_eq!(house.circuits.status("mail").await.unwrap().updated_at, None);
    });
}

/// As many circuits as callers may name.
async fn fill(house: &House) {
    let fill = async |tx: Tx, most: i64| {
        let sql = "INSERT INTO mainstay_circuits (name, state, failure_count, success_count, settings, updated_at, version) \
             SELECT 'c' || i, 0, 0, 0, '{}', 0, 1 FROM (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
             WHERE i < CAST($1 AS BIGINT)) SELECT i FROM n) AS n";
        tx.execute(sql, params![most]).await
    };
    house.store.transact_with(MAX_CIRCUITS as i64, fill).await.unwrap();
}

#[test]
fn callers_name_no_more_circuits_than_there_may_be() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        fill(&house).await;
        let circuits = &house.circuits;
        // What a caller reports of a call elsewhere.
        let invented = circuits.circuit("one too many").unwrap();
        let status = invented.report(Ended::Failed(&busy()), 1, None).await.unwrap();
        assert_eq!((status.updated_at, invented.gate()), (None, Gate::Open));
        let force = || Force { is_open: true, actor: "ada".into(), reason: "why not".into(), for_ms: None };
        let refused = circuits.force("one too many", force()).await.unwrap_err();
        assert!(matches!(refused, Error::TooManyCircuits), "{refused}");
        let refused = circuits.define("one too many", Settings::default()).await.unwrap_err();
        assert!(matches!(refused, Error::TooManyCircuits), "{refused}");
        let known = circuits.circuit("c7").unwrap();
        // As often as opens a circuit by default.
        for _ in 0..5 {
            known.report(Ended::Failed(&busy()), 1, None).await.unwrap();
        }
        assert_eq!(known.status().await.unwrap().state, State::Open);
    });
}

#[test]
fn a_circuit_that_the_program_names_opens_however_many_names_callers_have_invented() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        fill(&house).await;
        let circuits = &house.circuits;
        // One that its own calls go through, one with settings of the program, one of the configuration.
        let used = circuits.circuit("used").unwrap();
        let set = circuits.circuit_with("set", Settings::default()).unwrap();
        circuits.declare("configured", Settings::default()).await.unwrap();
        let configured = circuits.circuit("configured").unwrap();
        for circuit in [used, set, configured] {
            open(circuits, &circuit).await;
            assert_eq!(circuit.status().await.unwrap().state, State::Open, "{}", circuit.name());
            circuits.look_around().await.unwrap();
            assert_eq!(circuit.gate(), Gate::Shut, "{}", circuit.name());
        }
        // A durable run that failed.
        let record = async |tx: Tx, circuits: Circuits| {
            circuits.record_in(&tx, "run", "run-1", RunEnded::Failed).await
        };
        house.store.transact_with(circuits.clone(), record).await.unwrap();
        assert_eq!(circuits.status("run").await.unwrap().failure_count, 1);
    });
}

#[test]
fn names_that_no_circuit_has_are_refused() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        for bad in ["", "a\nb", &"x".repeat(129)] {
            let refused = house.circuits.circuit(bad).unwrap_err();
            assert_eq!(refused.code(), "GUARD_INVALID", "{bad:?}");
            assert_eq!(house.circuits.status(bad).await.unwrap_err().code(), "GUARD_INVALID");
            assert_eq!(house.circuits.timer(bad, 0).await.unwrap_err().code(), "GUARD_INVALID");
        }
        house.circuits.circuit(&"ü".repeat(64)).unwrap();
    });
}

#[test]
fn a_circuit_is_told_to_whoever_holds_its_trait() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit: Arc<dyn mainstay_core::circuit::Circuit> =
            Arc::new(house.circuits.circuit("stripe-api").unwrap());
        for _ in 0..3 {
            let permit = circuit.admit().await.unwrap();
            circuit.record(permit, Ended::Failed(&busy()));
        }
        assert_eq!(circuit.gate(), Gate::Shut);
        refused(&house.circuits.circuit("stripe-api").unwrap()).await;
    });
}
