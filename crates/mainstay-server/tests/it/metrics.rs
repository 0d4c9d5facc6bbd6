//! Figures of the whole system (items 250 to 256).

use crate::client::get;
use crate::exposition::Exposition;
use crate::logged;
use crate::running::{Running, options};
use mainstay_core::failure::Failure;
use mainstay_events::{Append, Log, NewEvent};
use mainstay_flows::commands::{Command, Commands, Decision, Handling, Rejection};
use mainstay_flows::delivery::intents::{Completion, NewIntent, OnTimeout};
use mainstay_flows::projections::replay::Rebuild;
use mainstay_flows::projections::{Category, Projection, Registry};
use mainstay_guards::circuits::Force;
use mainstay_server::tokens::New;
use mainstay_server::{Builder, EMIT_JOB, REPORT_TARGET, Role, Routes, Server, Services, Tokens, equipped};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use mainstay_testkit::time::{START_MS, VirtualTime};
use mainstay_work::{Call, Functions, Pool, RunOptions, State};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// `Place` appends an event of a stream, `Refuse` does nothing. `orderSummary` is never carried out unless it is told to;
/// `call` fails when its argument says so.
async fn services(store: &Store) -> Services {
    let commands = Commands::new()
        .on("Place", async |_: Handling, order: u32| {
            let event = NewEvent::new("OrderPlaced", &order)?.stream("Order", order.to_string());
            Ok(Decision::success((), [event]))
        })
        .on("Refuse", async |_: Handling, (): ()| -> mainstay_store::Result<Decision<NewEvent, ()>> {
            Err(Rejection::new("NO", "no").into())
        });
    let summary = Projection::new("orderSummary", Category::View)
        .on(["OrderPlaced"])
        .each(async |_, _, _| Ok(()))
        .reset(async |_| Ok(()));
    let functions =
        Functions::new().action(
            "call",
            async |_: Call, fails: bool| {
                if fails { Err(Failure::permanent("no")) } else { Ok(()) }
            },
        );
    Builder::on_store(store.clone())
        .commands(commands)
        .projections(Registry::new().with(summary))
        .functions(functions)
        .open()
        .await
        .unwrap()
}

struct House {
    server: Running,
    services: Services,
    reader: String,
}

impl House {
    async fn open(place: &Place) -> Self {
        let store = equipped(place.options()).open().await.unwrap();
        let services = services(&store).await;
        let server = Running::start_with(options(), services.clone()).await;
        let reader = server.token(Role::Reader).await;
        Self { server, services, reader }
    }

    async fn figures(&self) -> Exposition {
        let answer = get("/metrics").send(self.server.address).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        Exposition::read(&answer.body)
    }

    /// Figures, once one of them has this value: what was read a moment ago may be told again.
    async fn figures_when(&self, name: &str, labels: &[(&str, &str)], value: f64) -> Exposition {
        let began = Instant::now();
        loop {
            let figures = self.figures().await;
            if figures.value(name, labels) == Some(value) {
                return figures;
            }
            assert!(began.elapsed() < PATIENCE, "{name}{labels:?} is {:?}", figures.value(name, labels));
        }
    }

    async fn report(&self) -> Value {
        let answer = get("/admin/metrics").token(&self.reader).send(self.server.address).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    async fn place(&self, orders: std::ops::Range<u32>) {
        for order in orders {
            let event = NewEvent::new("OrderPlaced", &order).unwrap().stream("Order", "1");
            self.services.log.append(Append::new([event])).await.unwrap();
        }
    }
}

#[test]
fn b_250_everything_is_measured_under_its_name() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let Services { commands, work, circuits, projections, .. } = &house.services;
        let engine = work.start().await.unwrap();
        for order in 0..3_u32 {
            commands.dispatch(Command::new("Place", &order).unwrap()).await.unwrap();
        }
        commands.dispatch(Command::new("Refuse", &()).unwrap()).await.unwrap();
        commands.dispatch(Command::new("Unheard", &()).unwrap()).await.unwrap_err();
        house.services.log.append(Append::new([NewEvent::new("Noted", &1).unwrap()])).await.unwrap();
        for fails in [false, true] {
            let options = RunOptions { max_failures: 0, ..RunOptions::default() };
            let run = work.run("call", &fails, options).await.unwrap();
            let ended = work.wait_for(&run, PATIENCE).await.unwrap();
            assert_eq!(ended.state, if fails { State::Failed } else { State::Completed });
        }
        let (actor, reason) = ("somebody".to_owned(), "maintenance".to_owned());
        circuits.force("mail", Force { is_open: true, actor, reason, for_ms: None }).await.unwrap();

        // A node counts an attempt after its commit, by which the caller of `wait_for` may already know of it.
        let failed = [("operation", "call"), ("status", "failed")];
        house.figures_when("mainstay_retrier_attempts_total", &failed, 1.0).await;
        let figures = house.figures_when("mainstay_dead_letters_pending", &[("kind", "work")], 1.0).await;
        let of = |name: &str, labels: &[(&str, &str)]| figures.value(name, labels);
        for (name, labels, value) in [
            ("mainstay_projection_lag_events", &[("projection", "orderSummary")][..], 4.0),
            ("mainstay_projection_events_processed_total", &[("projection", "orderSummary")], 0.0),
            ("mainstay_events_appended_total", &[("stream_type", "Order")], 3.0),
            ("mainstay_events_appended_total", &[("stream_type", "none")], 1.0),
            (
                "mainstay_command_duration_seconds_count",
                &[("command_type", "Place"), ("status", "success")],
                3.0,
            ),
            (
                "mainstay_command_duration_seconds_count",
                &[("command_type", "Refuse"), ("status", "rejected")],
                1.0,
            ),
            ("mainstay_dead_letters_pending", &[("kind", "projection")], 0.0),
            ("mainstay_dead_letters_pending", &[("kind", "quarantinedEvent")], 0.0),
            ("mainstay_circuits_state", &[("circuit", "mail")], 1.0),
            ("mainstay_retrier_attempts_total", &[("operation", "call"), ("status", "success")], 1.0),
            ("mainstay_retrier_attempts_total", &[("operation", "call"), ("status", "failed")], 1.0),
            ("mainstay_work_pool_pending", &[("pool", "projectionPool")], 0.0),
            ("mainstay_replays_active", &[("status", "running")], 0.0),
            ("mainstay_database_up", &[], 1.0),
        ] {
            assert_eq!(of(name, labels), Some(value), "{name}{labels:?}");
        }
        let strange = figures.samples.iter().filter(|sample| format!("{sample:?}").contains("Unheard"));
        assert_eq!(strange.count(), 0, "whoever makes up names of commands makes no figures");

        let report = house.report().await;
        assert_eq!(report["projectionLags"]["orderSummary"], 4);
        assert_eq!(report["dlqSizes"]["orderSummary"], 0);
        assert_eq!(report["deadLettersByKind"]["work"], 1);
        assert_eq!(report["workpoolDepths"]["retrier"], 0);
        assert_eq!(report["eventThroughput"], json!({"Order": 3, "none": 1}));
        let mut latencies = report["commandLatencies"].as_array().unwrap().iter();
        let placed = latencies.find(|one| one["commandType"] == "Place").unwrap();
        assert_eq!((&placed["status"], &placed["count"]), (&json!("success"), &json!(3)));
        assert!(
            placed["meanMs"].as_f64().unwrap() > 0.0 && placed["p50Ms"].as_f64() <= placed["p99Ms"].as_f64()
        );
        assert_eq!(report["circuitBreakerStates"]["mail"], "open");
        assert_eq!(report["retrierAttempts"]["call"]["failed"], 1);

        let labels = [("projection", "orderSummary")];
        let projecting = projections.start();
        let done = house.figures_when("mainstay_projection_lag_events", &labels, 0.0).await;
        assert_eq!(done.value("mainstay_projection_events_processed_total", &labels), Some(3.0));
        projecting.stop(PATIENCE).await;
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn b_251_b_255_an_empty_system_has_a_row_for_every_projection_and_pool_and_nothing_in_them() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let report = house.report().await;
        assert!(report["timestamp"].as_i64().unwrap() > 0);
        for (figure, nothing) in [
            ("eventThroughput", json!({})),
            ("commandLatencies", json!([])),
            ("circuitBreakerStates", json!({})),
            ("retrierAttempts", json!({})),
        ] {
            assert_eq!(report[figure], nothing, "{figure}");
        }
        let pools: Vec<_> =
            house.services.work.pools().await.unwrap().into_iter().map(|pool| pool.name).collect();
        assert!(pools.len() >= 4, "{pools:?}");
        let depths = pools.into_iter().map(|pool| (pool, json!(0))).collect::<serde_json::Map<_, _>>();
        assert_eq!(report["workpoolDepths"], Value::Object(depths));
        assert_eq!(report["projectionLags"], json!({"orderSummary": 0}));
        assert_eq!(report["dlqSizes"], json!({"orderSummary": 0}));
        assert!(report.get("error").is_none(), "{report}");
        house.figures().await;
    });
    // A system without projections, commands and functions of its own.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Running::start(options()).await;
        let token = server.token(Role::Reader).await;
        let report = get("/admin/metrics").token(&token).send(server.address).await.json();
        assert_eq!(report["projectionLags"], json!({}));
        Exposition::read(&get("/metrics").send(server.address).await.body);
    });
}

#[test]
fn b_252_lag_is_the_distance_to_the_head_and_all_of_it_without_a_checkpoint() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.place(0..150).await;
        house.services.projections.set_checkpoint("orderSummary", 0, 100).await.unwrap();
        let lag = async || {
            let report = house.report().await;
            report["projectionLags"]["orderSummary"].clone()
        };
        assert_eq!(lag().await, 50);
        house.figures_when("mainstay_projection_lag_events", &[("projection", "orderSummary")], 50.0).await;
        let lose = async |tx: Tx| tx.execute("DELETE FROM mainstay_projection_lanes", &[]).await;
        house.services.log.store().transact(lose).await.unwrap();
        assert_eq!(lag().await, 150);
    });
}

#[test]
fn replays_are_told_with_how_far_they_are() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.place(0..10).await;
        let projecting = house.services.projections.start();
        let labels = [("projection", "orderSummary")];
        house.figures_when("mainstay_projection_lag_events", &labels, 0.0).await;
        // Nobody works, so it stays where it begins.
        house.services.projections.trigger_rebuild(Rebuild::of("orderSummary")).await.unwrap();
        let figures = house.figures_when("mainstay_replays_active", &[("status", "running")], 1.0).await;
        assert_eq!(figures.value("mainstay_replay_progress_ratio", &labels), Some(0.0));
        projecting.stop(PATIENCE).await;
    });
}

/// The reports of one server, once there are so many.
async fn reports(node: SocketAddr, count: usize) -> Vec<Value> {
    let (began, before) = (Instant::now(), format!("INFO {REPORT_TARGET}: "));
    loop {
        let text = logged::text();
        let lines = text.lines().filter_map(|line| Some(line.split_once(&before)?.1));
        let reports = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let reports: Vec<Value> = reports.filter(|report| report["node"] == node.to_string()).collect();
        if reports.len() >= count {
            return reports;
        }
        assert!(began.elapsed() < PATIENCE, "{reports:?}");
        tokio::task::yield_now().await;
    }
}

#[test]
fn b_253_b_254_a_report_is_a_line_of_json_every_minute() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, equipped(place.options())).await.unwrap();
        let services = services(&store).await;
        let server = Server::bind_with(options(), services.clone(), Routes::default()).await.unwrap();
        let (handle, node) = (server.handle(), server.address());
        logged::start();
        let running = tokio::spawn(server.run(std::future::pending()));
        // The job looks at the clock once it runs; before that, no minute has begun for it.
        until_alive(node).await;
        services.log.append(Append::new([NewEvent::new("Noted", &1).unwrap()])).await.unwrap();
        time.advance(59_999).await.unwrap();
        assert_eq!(reports(node, 0).await, Vec::<Value>::new());
        time.advance(1).await.unwrap();
        let first = reports(node, 1).await.remove(0);
        assert_eq!(
            (&first["type"], &first["level"], &first["job"]),
            (&json!("METRICS"), &json!("REPORT"), &json!(EMIT_JOB))
        );
        assert_eq!(first["timestamp"], START_MS + 60_000);
        assert_eq!(first["projectionLags"]["orderSummary"], 1);
        assert_eq!(first["eventThroughput"]["none"], 1);

        time.advance(60_000).await.unwrap();
        let second = reports(node, 2).await.remove(1);
        assert_eq!(second["eventThroughput"]["none"], 0, "that minute is over");
        let lose = async |tx: Tx| tx.execute("DELETE FROM mainstay_projection_lanes", &[]).await;
        store.transact(lose).await.unwrap();
        time.advance(60_000).await.unwrap();
        let third = reports(node, 3).await.remove(2);
        assert_eq!(third["projectionLags"]["orderSummary"], 1);
        assert!(
            logged::text().contains("WARN mainstay_server::health::look: no checkpoint for orderSummary")
        );

        handle.stop();
        running.await.unwrap();
        assert_eq!(reports(node, 3).await.len(), 3);
    });
}

async fn until_alive(address: SocketAddr) {
    while get("/health/live").send(address).await.status != 200 {}
}

#[test]
fn a_report_is_made_without_a_store_and_says_so() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let place = Place::new(Kind::SqliteMemory);
        let (store, time) = VirtualTime::open_with(&place, equipped(place.options())).await.unwrap();
        let server = Server::bind(options(), store.clone()).await.unwrap();
        let node = server.address();
        logged::start();
        tokio::spawn(server.run(std::future::pending()));
        until_alive(node).await;
        store.close().await;
        time.advance(60_000).await.unwrap();
        assert_eq!(reports(node, 1).await[0]["error"], "STORE_CLOSED");
        let figures = Exposition::read(&get("/metrics").send(node).await.body);
        assert_eq!(figures.value("mainstay_database_up", &[]), Some(0.0));
        assert!(figures.names().contains("mainstay_work_pool_pending"), "names stay");
    });
}

#[test]
fn figures_are_told_while_the_writer_is_busy() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.figures().await;
        let ((started, has_started), (go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
        let (store, may_go) = (house.server.store.clone(), Arc::new(Mutex::new(may_go)));
        // A thread of its own, which may stand still.
        let busy = std::thread::spawn(move || {
            let hold = async |tx: Tx, (started, go): (mpsc::Sender<()>, Arc<Mutex<mpsc::Receiver<()>>>)| {
                tx.execute("UPDATE mainstay_log SET indexed = indexed", &[]).await?;
                started.send(()).unwrap();
                let _ = go.lock().unwrap().recv();
                Ok(())
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(store.transact_with((started, may_go), hold)).unwrap();
        });
        tokio::task::spawn_blocking(move || has_started.recv().unwrap()).await.unwrap();
        for _ in 0..3 {
            let figures = house.figures().await;
            assert_eq!(figures.value("mainstay_database_up", &[]), Some(1.0));
            assert_eq!(figures.value("mainstay_work_pool_paused", &[("pool", "timers")]), Some(0.0));
        }
        go.send(()).unwrap();
        tokio::task::spawn_blocking(move || busy.join().unwrap()).await.unwrap();
    });
}

#[test]
fn what_callers_name_is_bounded_and_escaped() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        for chunk in 0..5 {
            let events = (0..100).map(|number| {
                let stream =
                    if number == 0 { "a \"b\" \\ c".to_owned() } else { format!("s{chunk}-{number}") };
                NewEvent::new("Noted", &1).unwrap().stream(stream, "1")
            });
            house.services.log.append(Append::new(events)).await.unwrap();
        }
        for number in 0..20 {
            house.services.work.pool(Pool::new(format!("pool{number}"))).await.unwrap();
        }
        let figures = house.figures_when("mainstay_work_pool_paused", &[("pool", "pool19")], 0.0).await;
        let appended = figures.samples.iter().filter(|one| one.name == "mainstay_events_appended_total");
        assert_eq!(appended.clone().count(), 101);
        assert_eq!(appended.map(|one| one.value).sum::<f64>(), 500.0, "none is lost");
        let strange = [("stream_type", "a \"b\" \\ c")];
        assert_eq!(figures.value("mainstay_events_appended_total", &strange), Some(5.0));
    });
}

#[test]
fn an_append_that_is_taken_back_is_not_counted() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let log = house.services.log.clone();
        let append = async |tx: Tx, (log, fails): (Log, bool)| {
            let event = NewEvent::new("Noted", &1)?.stream("Order", "1");
            log.append_in(&tx, Append::new([event]))?;
            // What fails at the end fails after the append was decided.
            if fails {
                log.append_in(
                    &tx,
                    Append::new([NewEvent::new("Noted", &1)?.stream("Order", "2").expecting(7)]),
                )?;
            }
            Ok(())
        };
        let store = log.store().clone();
        store.transact_with((log.clone(), true), append).await.unwrap_err();
        store.transact_with((log, false), append).await.unwrap();
        let figures = house.figures().await;
        assert_eq!(figures.value("mainstay_events_appended_total", &[("stream_type", "Order")]), Some(1.0));
        assert_eq!(figures.value("mainstay_log_events_appended_total", &[]), Some(1.0));
        assert_eq!(figures.value("mainstay_log_append_conflicts_total", &[]), Some(1.0));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_is_for_readers_of_the_whole_system() {
    let server = Running::start(options()).await;
    get("/admin/metrics").send(server.address).await.problem(401, "UNAUTHENTICATED");
    let new = New::named("one", Role::Admin).unwrap().tenant("acme").unwrap();
    let (_, confined) = Tokens::new(server.store.clone()).create(new).await.unwrap();
    let refused = get("/admin/metrics").token(confined.reveal()).send(server.address).await;
    refused.problem(403, "UNAUTHORIZED");
    let token = server.token(Role::Reader).await;
    server.store.close().await;
    let gone = get("/admin/metrics").token(&token).send(server.address).await;
    assert_eq!(gone.status, 503, "{gone:?}");
}

/// The names of figures in a file of `deploy`.
fn used(file: &str) -> Vec<String> {
    let path = format!("{}/../../deploy/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let mut names: Vec<String> =
        words.filter(|word| word.starts_with("mainstay_")).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn every_figure_of_the_dashboard_and_of_the_rules_exists() {
    let server = Running::start(options()).await;
    let names = Exposition::read(&get("/metrics").send(server.address).await.body).names();
    for (file, least) in [("grafana/mainstay.json", 20), ("prometheus/rules.yml", 8)] {
        let used = used(file);
        assert!(used.len() >= least, "{file}: {used:?}");
        for name in used {
            assert!(names.contains(&name), "{file} asks for {name}, of which /metrics says nothing");
        }
    }
}

#[test]
fn the_dashboard_asks_the_data_source_that_is_chosen_and_no_panel_covers_another() {
    let path = format!("{}/../../deploy/grafana/mainstay.json", env!("CARGO_MANIFEST_DIR"));
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = std::collections::BTreeSet::new();
    for panel in panels {
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for (x, y) in (0..place("w")).flat_map(|x| (0..place("h")).map(move |y| (x, y))) {
            assert!(taken.insert((place("x") + x, place("y") + y)), "{} covers another", panel["title"]);
        }
        assert!(place("x") + place("w") <= 24, "{}", panel["title"]);
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            assert!(target["expr"].as_str().is_some_and(|expr| !expr.is_empty()), "{}", panel["title"]);
        }
    }
    assert_eq!(dashboard["templating"]["list"][0]["name"], "datasource");
}

#[test]
fn intents_that_nobody_has_ended_are_counted() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let engine = house.services.work.start().await.unwrap();
        let begin = async |order: &str, within: Duration| {
            let intent = NewIntent::new("Payment", ("Order", order), "orders", within, OnTimeout::alert());
            house.services.intents.record(intent).await.unwrap().intent_key
        };
        let (hour, soon) = (Duration::from_secs(3_600), Duration::from_millis(1));
        begin("1", hour).await;
        begin("2", soon).await;
        let late = begin("3", soon).await;
        let figures = house.figures_when("mainstay_intents_overdue", &[], 2.0).await;
        assert_eq!(figures.value("mainstay_intents_pending", &[]), Some(3.0));
        house.services.intents.complete(Completion::success(&late)).await.unwrap();
        let figures = house.figures_when("mainstay_intents_overdue", &[], 1.0).await;
        assert_eq!(figures.value("mainstay_intents_pending", &[]), Some(2.0));
        engine.stop(PATIENCE).await.unwrap();
    });
}
