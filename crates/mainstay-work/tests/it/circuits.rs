//! Work behind circuits.

use mainstay_core::circuit::{Circuit as _, Gate};
use mainstay_core::trace::TraceContext;
use mainstay_guards::circuits::{self, Circuit, Circuits, Force, Settings, State};
use mainstay_store::Store;
use mainstay_testkit::stores::{Kind, Place, for_each_kind, for_each_store};
use mainstay_testkit::time::VirtualTime;
use mainstay_work::egress::Egress;
use mainstay_work::http::{HttpConfig, HttpFunction};
use mainstay_work::{
    COMPONENT, Call, Engine, Error, Failure, Functions, LetterFilter, Native, NewWork, Pool, RetryPolicy,
    Work,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

const PATIENCE: Duration = Duration::from_secs(30);
const POOL: &str = "payments";

/// A service that is well or not, and whose calls end when the test lets them.
#[derive(Clone)]
struct Service {
    is_well: Arc<AtomicBool>,
    /// One permit for each call that may end.
    ends: Arc<Semaphore>,
    begun: Arc<AtomicUsize>,
    began: Arc<Notify>,
    traces: Arc<Mutex<Vec<TraceContext>>>,
}

impl Service {
    fn new(is_well: bool) -> Self {
        Self {
            is_well: Arc::new(is_well.into()),
            ends: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            begun: Arc::default(),
            began: Arc::default(),
            traces: Arc::default(),
        }
    }

    fn functions(&self) -> Functions {
        let service = self.clone();
        Functions::new().action("charge", move |call: Call, _: u32| {
            let service = service.clone();
            async move {
                service.begun.fetch_add(1, Ordering::SeqCst);
                service.traces.lock().unwrap().extend(call.trace);
                service.began.notify_one();
                service.ends.acquire().await.unwrap().forget();
                match service.is_well.load(Ordering::SeqCst) {
                    true => Ok(()),
                    false => Err(Failure::retryable("not well")),
                }
            }
        })
    }

    /// Lets calls end no more unless somebody says so.
    fn hold(&self) {
        self.ends.forget_permits(Semaphore::MAX_PERMITS);
    }

    fn calls(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    async fn until_calls(&self, count: usize) {
        let waiting = async {
            while self.calls() < count {
                self.began.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("there were {} calls", self.calls()));
    }
}

async fn open(place: &Place) -> (Store, VirtualTime, Circuits) {
    let options = place.options().component(COMPONENT).component(circuits::COMPONENT);
    let (store, time) = VirtualTime::open_with(place, options).await.unwrap();
    let circuits = Circuits::open(&store).await.unwrap();
    (store, time, circuits)
}

async fn start(store: &Store, functions: Functions, at_once: u32) -> (Work, Engine) {
    // The clock is moved by minutes, which no lease is to notice.
    let work = Work::open_with_lease(store, functions, Duration::from_secs(86_400)).await.unwrap();
    let retry = RetryPolicy::new(2, 1, 1.0, 1).unwrap();
    work.pool(Pool::new(POOL).max_parallelism(at_once).retry(retry)).await.unwrap();
    let engine = work.start().await.unwrap();
    (work, engine)
}

async fn enqueue(work: &Work, count: u32) -> Vec<String> {
    let items = (0..count).map(|number| NewWork::new(POOL, "charge", &number).unwrap());
    let enqueued = work.enqueue_all(items.collect()).await.unwrap();
    enqueued.into_iter().map(|one| one.work_id).collect()
}

async fn until(circuit: &Circuit, gate: Gate) {
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
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("it never is {gate:?}"));
}

async fn until_state(circuit: &Circuit, state: State) {
    let waiting = async {
        while circuit.status().await.unwrap().state != state {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("it never is {state}"));
}

#[test]
fn c_043_work_waits_for_an_open_circuit_and_the_next_item_is_the_probe() {
    for_each_store(async |place| {
        let (store, time, circuits) = open(&place).await;
        let settings = Settings::consecutive(3, 30_000, 1).unwrap();
        let circuit = circuits.circuit_with("provider", settings).unwrap();
        let service = Service::new(false);
        let functions = service.functions().behind("charge", Arc::new(circuit.clone()));
        let (work, engine) = start(&store, functions, 4).await;
        let ids = enqueue(&work, 40).await;
        until(&circuit, Gate::Shut).await;
        circuits.flush().await.unwrap();
        // Three that failed, and those that ran beside them.
        let calls = service.calls();
        assert!((3..=7).contains(&calls), "{calls} calls");

        // Its time comes: one item is taken, and the others wait for it.
        service.hold();
        time.advance(30_000).await.unwrap();
        circuits.look_around().await.unwrap();
        engine.look_around();
        // Whoever could not be answered in time asks again in a second, on a clock that stands still.
        let mut postponed = work.figures().postponed.get();
        let asked = async {
            while tokio::time::timeout(Duration::from_secs(1), service.until_calls(calls + 1)).await.is_err()
            {
                let now_postponed = work.figures().postponed.get();
                if std::mem::replace(&mut postponed, now_postponed) != now_postponed {
                    time.advance(1_000).await.unwrap();
                    engine.look_around();
                }
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("an item is taken");
        assert!(circuit.status().await.unwrap().probe_run_id.is_some());
        circuits.look_around().await.unwrap();
        engine.look_around();
        work.depth(POOL).await.unwrap();
        assert_eq!(service.calls(), calls + 1);
        service.ends.add_permits(1);
        until_state(&circuit, State::Open).await;
        // It failed, so nobody else was let through; and the next time it succeeds.
        assert_eq!(service.calls(), calls + 1);
        service.is_well.store(true, Ordering::SeqCst);
        service.ends.add_permits(1_000);
        time.advance(30_000).await.unwrap();
        circuits.look_around().await.unwrap();
        engine.look_around();
        until(&circuit, Gate::Open).await;
        let all = async {
            for id in &ids {
                loop {
                    let status = work.status(id).await.unwrap().unwrap();
                    if status.native == Native::Success {
                        assert!(status.attempts <= 2);
                        break;
                    }
                    assert_ne!(status.native, Native::Failed, "{status:?}");
                    // What failed or was postponed waits for its time, on a clock that stands still.
                    time.advance(1_000).await.unwrap();
                    engine.look_around();
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::time::timeout(PATIENCE, all).await.unwrap();
        let postponed = work.figures().postponed.get();
        assert!(
            postponed <= 8,
            "{postponed}: only what was taken when it opened; the others were left where they were"
        );
        assert_eq!(
            service.calls(),
            40 + calls + 1,
            "every item once when the service was well, and what failed before"
        );
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn c_043_an_http_function_behind_an_open_circuit_is_not_called_and_spends_no_attempts() {
    for_each_store(async |place| {
        let (store, _time, circuits) = open(&place).await;
        let circuit = circuits.circuit("provider").unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = HttpConfig::new(format!("http://{}/charge", listener.local_addr().unwrap()));
        config.circuit = Some(Arc::new(circuit.clone()));
        let egress = Arc::new(Egress::new(&["127.0.0.1".to_owned()]).unwrap());
        let function = HttpFunction::new(config, egress).unwrap();
        let force = |is_open| Force { is_open, actor: "ada".into(), reason: "test".into(), for_ms: None };
        circuits.force("provider", force(true)).await.unwrap();
        let (work, engine) = start(&store, Functions::new().http("charge", function, &store), 4).await;
        let ids = enqueue(&work, 3).await;
        engine.look_around();
        circuits.look_around().await.unwrap();
        for id in &ids {
            let status = work.status(id).await.unwrap().unwrap();
            assert_eq!((status.native, status.attempts), (Native::Ready, 0));
        }
        assert!(futures_util::FutureExt::now_or_never(listener.accept()).is_none(), "nobody calls");
        circuits.force("provider", force(false)).await.unwrap();
        let called = tokio::time::timeout(PATIENCE, listener.accept()).await;
        called.expect("work goes on by itself").unwrap();
        drop(listener);
        engine.stop(Duration::ZERO).await.unwrap();
    });
}

#[test]
fn an_item_that_was_taken_before_its_circuit_opened_is_postponed_and_spends_no_attempt() {
    for_each_store(async |place| {
        let (store, time, circuits) = open(&place).await;
        let circuit = Arc::new(Late::new(circuits.circuit("provider").unwrap()));
        let service = Service::new(true);
        let (work, engine) = start(&store, service.functions().behind("charge", circuit.clone()), 4).await;
        circuit.is_shut.store(true, Ordering::SeqCst);
        let ids = enqueue(&work, 1).await;
        let postponed = async {
            while work.figures().postponed.get() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, postponed).await.unwrap();
        let status = work.status(&ids[0]).await.unwrap().unwrap();
        assert_eq!((status.attempts, service.calls()), (0, 0));
        circuit.is_shut.store(false, Ordering::SeqCst);
        time.advance(5_000).await.unwrap();
        engine.look_around();
        let ended = work.wait_for(&ids[0], PATIENCE).await.unwrap();
        assert_eq!((ended.native, ended.attempts), (Native::Success, 1));
        engine.stop(PATIENCE).await.unwrap();
    });
}

/// Places are given out before they are committed, so an item may come to be behind what was taken already.
#[test]
fn an_item_that_came_late_is_the_probe_when_it_is_the_only_one() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let (store, time, circuits) = open(&place).await;
        let circuit =
            circuits.circuit_with("provider", Settings::consecutive(1, 30_000, 1).unwrap()).unwrap();
        let service = Service::new(true);
        let functions = service.functions().behind("charge", Arc::new(circuit.clone()));
        let (work, engine) = start(&store, functions, 4).await;
        // Its lane is there from then on, and nobody waits for whoever makes it.
        let usual = enqueue(&work, 1).await;
        work.wait_for(&usual[0], PATIENCE).await.unwrap();
        service.is_well.store(false, Ordering::SeqCst);
        let (mut client, line) = tokio_postgres::connect(place.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(line);
        let transaction = client.transaction().await.unwrap();
        let late = NewWork::new(POOL, "charge", &1_u32).unwrap();
        let enqueue_late = async |tx| Ok(work.enqueue_in(&tx, [late])?.work_ids().to_vec());
        let lent = store.lend(&transaction, enqueue_late).await.unwrap();
        let once =
            NewWork::new(POOL, "charge", &2_u32).unwrap().retry(RetryPolicy::new(1, 1, 1.0, 1).unwrap());
        let first = work.enqueue(once).await.unwrap();
        work.wait_for(&first.work_id, PATIENCE).await.unwrap();
        until(&circuit, Gate::Shut).await;
        circuits.flush().await.unwrap();
        transaction.commit().await.unwrap();
        let ids = lent.committed();
        service.is_well.store(true, Ordering::SeqCst);
        time.advance(30_000).await.unwrap();
        circuits.look_around().await.unwrap();
        engine.look_around();
        let ended = work.wait_for(&ids[0], PATIENCE).await.unwrap();
        assert_eq!((ended.native, service.calls()), (Native::Success, 3));
        until(&circuit, Gate::Open).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_call_that_does_not_return_in_time_is_a_failure_of_the_service() {
    for_each_store(async |place| {
        let (store, _time, circuits) = open(&place).await;
        let circuit =
            circuits.circuit_with("provider", Settings::consecutive(2, 30_000, 1).unwrap()).unwrap();
        let functions = Functions::new()
            .action_within(Duration::from_millis(20), "charge", |_: Call, _: u32| {
                std::future::pending::<Result<(), Failure>>()
            })
            .behind("charge", Arc::new(circuit.clone()));
        let (work, engine) = start(&store, functions, 4).await;
        let ids = enqueue(&work, 2).await;
        until(&circuit, Gate::Shut).await;
        // It turns here first; the database is told a moment later.
        until_state(&circuit, State::Open).await;
        let status = circuit.status().await.unwrap();
        assert_eq!((status.state, status.failure_count), (State::Open, 2));
        for id in &ids {
            assert!(work.status(id).await.unwrap().unwrap().attempts <= 1);
        }
        engine.stop(Duration::ZERO).await.unwrap();
    });
}

/// A circuit that shows that it lets calls through, and then does not.
struct Late {
    circuit: Circuit,
    is_shut: AtomicBool,
}

impl Late {
    fn new(circuit: Circuit) -> Self {
        Self { circuit, is_shut: AtomicBool::default() }
    }
}

impl mainstay_core::circuit::Circuit for Late {
    fn gate(&self) -> Gate {
        Gate::Open
    }

    fn admit(&self) -> mainstay_core::circuit::Admission<'_> {
        match self.is_shut.load(Ordering::SeqCst) {
            true => mainstay_core::circuit::Admission::now(Err(mainstay_core::circuit::Rejected {
                name: "late".into(),
                retry_after_ms: 5_000,
            })),
            false => self.circuit.admit(),
        }
    }

    fn record(&self, permit: mainstay_core::circuit::Permit, ended: mainstay_core::circuit::Ended<'_>) {
        self.circuit.record(permit, ended);
    }

    fn on_change(&self, hook: mainstay_core::circuit::Hook) {
        self.circuit.on_change(hook);
    }
}

#[test]
fn a_circuit_stands_before_an_action_of_the_node() {
    for_each_store(async |place| {
        let (store, _time, circuits) = open(&place).await;
        let circuit = Arc::new(circuits.circuit("provider").unwrap());
        let refused = Work::open(&store, Functions::new().behind("charge", circuit)).await.err().unwrap();
        assert_eq!(refused.to_string(), "circuit: \"charge\" is no action of this node");
    });
}

#[test]
fn b_133_an_exhausted_run_is_one_failure_and_b_129_a_half_open_circuit_runs_one_probe() {
    for_each_store(async |place| {
        let (store, time, circuits) = open(&place).await;
        let settings = Settings {
            max_retries: 1,
            initial_backoff_ms: 1,
            ..Settings::consecutive(2, 30_000, 1).unwrap()
        };
        let circuit = circuits.circuit_with("provider", settings).unwrap();
        let service = Service::new(false);
        let (work, engine) = start(&store, service.functions().tell_circuits(&circuits), 4).await;
        let run = async || work.run_behind(&circuits, "provider", "charge", &7, None).await;
        let ended = async |run_id: &str| {
            let ending = async {
                loop {
                    let status = work.status(run_id).await.unwrap().unwrap();
                    if matches!(status.native, Native::Success | Native::Failed) {
                        return status;
                    }
                    time.advance(5).await.unwrap();
                    engine.look_around();
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, ending).await.unwrap()
        };
        for failures in 1..=2 {
            let started = run().await.unwrap();
            assert!(!started.probe_mode);
            let status = ended(&started.run_id).await;
            assert_eq!((status.native, status.attempts), (Native::Failed, 2), "tried again once");
            assert_eq!(circuit.status().await.unwrap().failure_count, failures, "one failure for the run");
        }
        assert_eq!(circuit.status().await.unwrap().state, State::Open);
        let calls = service.calls();
        let Err(Error::CircuitOpen(rejected)) = run().await else { panic!("it is open") };
        assert_eq!(rejected.to_string(), "CIRCUIT_OPEN:provider");
        assert!((1..=30_000).contains(&rejected.retry_after_ms));

        for (is_well, native, state) in
            [(false, Native::Failed, State::Open), (true, Native::Success, State::Closed)]
        {
            service.is_well.store(is_well, Ordering::SeqCst);
            service.hold();
            time.advance(30_000).await.unwrap();
            let probe = run().await.unwrap();
            assert!(probe.probe_mode);
            let refused = run().await.unwrap_err();
            assert_eq!((refused.code(), refused.is_retryable()), ("CIRCUIT_OPEN", true), "one at a time");
            service.ends.add_permits(1);
            let status = ended(&probe.run_id).await;
            assert_eq!((status.native, status.attempts), (native, 1), "a probe is tried once");
            let after = circuit.status().await.unwrap();
            assert_eq!((after.state, after.probe_run_id), (state, None));
        }
        assert_eq!(service.calls(), calls + 2);
        assert_eq!(service.traces.lock().unwrap().len(), calls + 2, "b_137: every run is part of a trace");
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_130_a_probe_that_is_cancelled_makes_room_for_another() {
    for_each_store(async |place| {
        let (store, time, circuits) = open(&place).await;
        let settings = Settings { max_retries: 0, ..Settings::consecutive(1, 30_000, 1).unwrap() };
        let circuit = circuits.circuit_with("provider", settings).unwrap();
        let service = Service::new(false);
        let (work, engine) = start(&store, service.functions().tell_circuits(&circuits), 4).await;
        let run = async || work.run_behind(&circuits, "provider", "charge", &7, None).await;
        let first = run().await.unwrap();
        work.wait_for(&first.run_id, PATIENCE).await.unwrap();
        time.advance(30_000).await.unwrap();
        service.hold();
        let probe = run().await.unwrap();
        service.until_calls(2).await;
        work.cancel(&probe.run_id).await.unwrap();
        let status = work.wait_for(&probe.run_id, PATIENCE).await.unwrap();
        assert_eq!(status.native, Native::Canceled);
        let after = circuit.status().await.unwrap();
        assert_eq!((after.state, after.probe_run_id), (State::HalfOpen, None));
        assert!(run().await.unwrap().probe_mode);
        engine.stop(Duration::ZERO).await.unwrap();
    });
}

#[test]
fn a_run_behind_a_circuit_needs_somebody_who_tells_it() {
    for_each_store(async |place| {
        let (store, _time, circuits) = open(&place).await;
        let work = Work::open(&store, Service::new(true).functions()).await.unwrap();
        let refused = work.run_behind(&circuits, "provider", "charge", &7, None).await.unwrap_err();
        assert_eq!(refused.code(), "WORK_INVALID");
        let functions = Service::new(true).functions().tell_circuits(&circuits);
        let work = Work::open(&store, functions).await.unwrap();
        let refused = work.run_behind(&circuits, "", "charge", &7, None).await.unwrap_err();
        assert_eq!(refused.code(), "WORK_INVALID");
        let refused = work.run_behind(&circuits, "provider", "unheard-of", &7, None).await.unwrap_err();
        assert_eq!(refused.code(), "UNKNOWN_FUNCTION");
    });
}

/// The ends of items that no run behind the circuit is: a caller of an earlier version could name the function that is told,
/// and any context.
#[test]
fn only_the_end_of_a_run_behind_a_circuit_counts_for_it() {
    for_each_store(async |place| {
        let (store, _time, circuits) = open(&place).await;
        let service = Service::new(false);
        let functions = service.functions().tell_circuits(&circuits);
        let (work, engine) = start(&store, functions, 10).await;
        let settings = Settings { max_retries: 0, ..Settings::default() };
        circuits.define("provider", settings).await.unwrap();
        let failures = async || circuits.status("provider").await.unwrap().failure_count;
        let own = work.run_behind(&circuits, "provider", "charge", &7, None).await.unwrap().run_id;
        work.wait_for(&own, PATIENCE).await.unwrap();
        assert_eq!(failures().await, 1);

        let other = work.new_id();
        let contexts = [
            serde_json::json!("provider"),
            serde_json::json!({ "circuit": "provider", "runId": own }),
            serde_json::json!({ "circuit": "provider", "runId": other }),
            serde_json::json!({ "circuit": "provider" }),
        ];
        for context in contexts {
            let forged =
                NewWork::new("retrier", "charge", &7).unwrap().retry(RetryPolicy::new(1, 1, 1.0, 1).unwrap());
            let forged = forged.tell_platform("mainstay.circuit-ended").context(&context).unwrap();
            let id = work.enqueue(forged).await.unwrap().work_id;
            assert_eq!(work.wait_for(&id, PATIENCE).await.unwrap().native, Native::Failed);
        }
        // All but the first, which is that of an earlier version, are refused for good.
        let refused = async || {
            let kind = Some("onComplete".into());
            work.letters(LetterFilter { kind, ..LetterFilter::default() }, 10).await.unwrap().len()
        };
        let told = async {
            while refused().await < 3 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, told).await.unwrap();
        assert_eq!(failures().await, 1);

        // An operator retries the run, and what that retry leaves: both are the run.
        let mut last = own;
        for count in 2..4 {
            last = work.retry_letter(&last).await.unwrap();
            work.wait_for(&last, PATIENCE).await.unwrap();
            assert_eq!(failures().await, count);
        }
        engine.stop(PATIENCE).await.unwrap();
    });
}
