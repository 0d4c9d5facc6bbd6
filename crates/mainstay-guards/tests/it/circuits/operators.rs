//! What operators decide, and what they are told.

use super::house::{House, busy, fail, open, probe, refused, succeed, until};
use mainstay_core::circuit::Gate;
use mainstay_core::measure::Measured;
use mainstay_guards::circuits::{Ended, Force, Rate, Settings, Slow, Span, State};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::START_MS;
use std::io::Write;
use std::sync::{Mutex, OnceLock};

fn force(is_open: bool, for_ms: Option<u64>) -> Force {
    Force { is_open, actor: "ada".into(), reason: "maintenance".into(), for_ms }
}

#[test]
fn a_circuit_that_is_forced_open_is_open_on_all_nodes_until_it_is_released() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let node = house.another().await;
        let (here, there) = (house.circuits.circuit("mail").unwrap(), node.circuit("mail").unwrap());
        let status = house.circuits.force("mail", force(true, None)).await.unwrap();
        let forced = status.forced.unwrap();
        assert_eq!(
            (status.state, forced.actor.as_str(), forced.reason.as_str()),
            (State::Open, "ada", "maintenance")
        );
        assert_eq!((forced.at_ms, forced.until_ms), (START_MS, None));
        refused(&here).await;
        until(&there, Gate::Shut).await;
        house.advance(3_600_000).await;
        refused(&here).await;
        house.circuits.release("mail", "bob", "done").await.unwrap();
        until(&there, Gate::OneProbe).await;
        there.record(probe(&there).await, Ended::Success);
        node.flush().await.unwrap();
        until(&here, Gate::Open).await;
    });
}

#[test]
fn a_circuit_that_is_forced_closed_lets_everything_through_until_its_time_is_over() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        let status = house.circuits.force("mail", force(false, Some(60_000))).await.unwrap();
        assert_eq!((status.state, status.forced.unwrap().until_ms), (State::Closed, Some(START_MS + 60_000)));
        for _ in 0..20 {
            fail(&circuit).await;
        }
        house.advance(50_000).await;
        fail(&circuit).await;
        house.advance(10_000).await;
        let status = circuit.status().await.unwrap();
        assert_eq!((status.state, status.failure_count, status.forced), (State::Closed, 0, None));
        open(&house.circuits, &circuit).await;
        refused(&circuit).await;
    });
}

#[test]
fn a_circuit_that_is_forced_open_for_a_while_is_probed_afterwards() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        house.circuits.force("mail", force(true, Some(60_000))).await.unwrap();
        house.advance(20_000).await;
        assert!((39_000..=40_000).contains(&refused(&circuit).await.retry_after_ms));
        house.advance(40_000).await;
        assert_eq!(circuit.status().await.unwrap().state, State::HalfOpen);
        circuit.record(probe(&circuit).await, Ended::Success);
        house.circuits.flush().await.unwrap();
        assert_eq!(circuit.status().await.unwrap().state, State::Closed);
    });
}

#[test]
fn a_circuit_that_is_reset_begins_anew() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        open(&house.circuits, &circuit).await;
        let status = house.circuits.reset("mail", "ada", "the service is mended").await.unwrap();
        assert_eq!((status.state, status.failure_count, status.opened_at), (State::Closed, 0, None));
        succeed(&circuit).await;
        let status = house.circuits.reset("unheard-of", "ada", "to be sure").await.unwrap();
        assert_eq!((status.state, status.updated_at), (State::Closed, None));
    });
}

#[test]
fn who_decides_says_who_and_why() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let nobody = Force { actor: String::new(), ..force(true, None) };
        let silent = Force { reason: "a\u{7}b".into(), ..force(true, None) };
        let chatty = Force { reason: "x".repeat(1_025), ..force(true, None) };
        let forever = force(true, Some(u64::MAX));
        for (bad, field) in [(nobody, "actor"), (silent, "reason"), (chatty, "reason"), (forever, "forMs")] {
            let refused = house.circuits.force("mail", bad).await.unwrap_err();
            assert!(refused.to_string().starts_with(field), "{refused}");
        }
        assert_eq!(house.circuits.release("mail", "", "why").await.unwrap_err().code(), "GUARD_INVALID");
        assert_eq!(house.circuits.status("mail").await.unwrap().updated_at, None, "nothing was changed");
    });
}

#[test]
fn circuits_are_listed_page_by_page() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        for name in ["c", "a", "b"] {
            fail(&house.circuits.circuit(name).unwrap()).await;
        }
        house.circuits.flush().await.unwrap();
        let names = async |after, limit| -> Vec<String> {
            let page = house.circuits.list(after, limit).await.unwrap();
            page.into_iter().map(|status| status.name).collect()
        };
        assert_eq!(names(None, 2).await, ["a", "b"]);
        assert_eq!(names(Some("b"), 2).await, ["c"]);
    });
}

/// Everything that was logged by this test binary.
fn log() -> &'static Mutex<Vec<u8>> {
    static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    static STARTED: OnceLock<()> = OnceLock::new();
    struct Lines;
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            LOG.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    STARTED.get_or_init(|| {
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Lines).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    &LOG
}

#[test]
fn b_136_every_change_is_logged_and_counted() {
    let log = log();
    for_each_store(async |place| {
        let house = House::open(place).await;
        log.lock().unwrap().clear();
        let circuit = house.circuits.circuit("logged").unwrap();
        open(&house.circuits, &circuit).await;
        house.advance(30_000).await;
        circuit.record(probe(&circuit).await, Ended::Success);
        house.circuits.flush().await.unwrap();
        house.circuits.force("logged", force(true, None)).await.unwrap();
        refused(&circuit).await;
        let text = String::from_utf8(log.lock().unwrap().clone()).unwrap();
        let mine: Vec<&str> = text.lines().filter(|line| line.contains("circuit=\"logged\"")).collect();
        for (line, part) in mine.iter().zip([
            "circuit opened",
            "circuit half open",
            "probe started",
            "circuit closed",
            "circuit forced",
        ]) {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert_eq!(mine.len(), 5, "{mine:?}");
        assert!(
            mine[0].contains("WARN") && mine[0].contains("from=closed to=open failure_count=5"),
            "{}",
            mine[0]
        );
        assert!(mine[4].contains("actor=\"ada\" reason=\"maintenance\""), "{}", mine[4]);
        let mut seen = Vec::new();
        house.circuits.figures().measure(&mut |name, _, reading| seen.push((name, reading)));
        let count = |wanted: &str| seen.iter().find(|(name, _)| *name == wanted).unwrap().1.clone();
        for (name, expected) in [
            ("circuits_opened", 1),
            ("circuits_half_opened", 1),
            ("circuits_closed", 1),
            ("circuits_probes", 1),
            ("circuits_forced", 1),
            ("circuits_rejected", 1),
        ] {
            assert_eq!(count(name), mainstay_core::measure::Reading::Counter(expected), "{name}");
        }
    });
}

#[test]
fn a_circuit_that_is_defined_is_set_so_on_all_nodes_unless_a_program_sets_it_itself() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let node = house.another().await;
        let there = node.circuit("mail").unwrap();
        let own = node.circuit_with("own", Settings::consecutive(7, 1_000, 1).unwrap()).unwrap();
        for name in ["mail", "own"] {
            let status =
                house.circuits.define(name, Settings::consecutive(2, 5_000, 1).unwrap()).await.unwrap();
            assert_eq!((status.state, status.config.reset_timeout_ms), (State::Closed, 5_000));
        }
        node.look_around().await.unwrap();
        assert_eq!(node.settings("mail").unwrap().reset_timeout_ms, 5_000);
        assert_eq!(node.settings("own").unwrap().reset_timeout_ms, 1_000);
        // What is counted goes on, and another definition counts from the next call on.
        fail(&there).await;
        node.flush().await.unwrap();
        let status =
            house.circuits.define("mail", Settings::consecutive(3, 5_000, 1).unwrap()).await.unwrap();
        assert_eq!(status.failure_count, 1);
        node.look_around().await.unwrap();
        fail(&there).await;
        assert_eq!(there.gate(), Gate::Open);
        fail(&there).await;
        refused(&there).await;
        assert_eq!(own.gate(), Gate::Open);
        let bad = Settings { reset_timeout_ms: 0, ..Settings::default() };
        assert_eq!(house.circuits.define("mail", bad).await.unwrap_err().code(), "GUARD_INVALID");
    });
}

#[test]
fn calls_that_were_made_elsewhere_are_reported() {
    for_each_store(async |place| {
        let house = House::open(place).await;
        let circuit = house.circuits.circuit("mail").unwrap();
        for count in 1..=5 {
            assert_eq!(circuit.ask_for().await.unwrap(), None);
            let status = circuit.report(Ended::Failed(&busy()), 10, None).await.unwrap();
            assert_eq!(status.failure_count, count);
        }
        assert_eq!(circuit.status().await.unwrap().state, State::Open);
        let refused = circuit.ask_for().await.unwrap_err();
        assert!((25_000..=30_000).contains(&refused.retry_after_ms), "{refused}");
        house.advance(30_000).await;
        let probe = circuit.ask_for().await.unwrap().expect("the first one is the probe");
        assert!(circuit.ask_for().await.is_err(), "one probe is out");
        let late = circuit.report(Ended::Success, 10, Some("another")).await.unwrap();
        assert_eq!(late.state, State::HalfOpen, "only the probe counts");
        let status = circuit.report(Ended::Success, 10, Some(&probe)).await.unwrap();
        assert_eq!(status.state, State::Closed);
        // Slow calls are judged by what they say about themselves.
        let slow = Settings::rate(Rate {
            span: Span::Calls(4),
            minimum_calls: 4,
            failure_percent: None,
            slow: Some(Slow { after_ms: 100, percent: 50.0 }),
        });
        let circuit = house.circuits.circuit_with("slow", slow.unwrap()).unwrap();
        for took_ms in [5, 200, 5] {
            circuit.report(Ended::Success, took_ms, None).await.unwrap();
        }
        assert_eq!(circuit.gate(), Gate::Open);
        circuit.report(Ended::Success, 200, None).await.unwrap();
        assert_eq!(circuit.gate(), Gate::Shut);
    });
}
