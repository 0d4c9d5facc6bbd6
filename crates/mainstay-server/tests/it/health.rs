//! Health and figures.

use crate::client::{Answer, Request, get, post, request, soon};
use crate::logged;
use crate::running::{Running, options};
use mainstay_events::{Append, NewEvent};
use mainstay_flows::projections::{Category, Projection, Registry};
use mainstay_server::{Builder, HealthRules, Role, Services, equipped};
use mainstay_store::Tx;
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::{Call, Functions, NewWork};
use serde_json::json;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

#[test]
fn b_235_b_237_b_239_a_server_whose_store_answers_is_ready_and_one_whose_store_is_gone_is_not() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store.clone()).await;
        for path in ["/health/ready", "/readyz?verbose", "/readyz?verbose=true"] {
            let answer = get(path).send(server.address).await;
            assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("healthy")), "{answer:?}");
            let components = &answer.json()["components"];
            for part in ["eventStore", "projections", "workpool"] {
                assert_eq!(components[part], "healthy", "{components}");
            }
        }
        assert!(get("/readyz").send(server.address).await.json().get("components").is_none());
        let problem = get("/readyz?verbos").send(server.address).await.problem(400, "QUERY_INVALID");
        assert_eq!(problem["field"], "verbos");
        let whole = get("/health").send(server.address).await;
        assert_eq!((whole.status, &whole.json()["summary"]["healthy"]), (200, &json!(4)), "{whole:?}");

        store.close().await;
        let answer = until(503, "/readyz?verbose", &server).await;
        assert_eq!(answer.json()["status"], "unhealthy");
        assert_eq!(answer.json()["components"], json!({"eventStore": "unhealthy"}));
        assert_eq!(answer.json()["error"], "STORE_CLOSED");
        assert_eq!(get("/health").send(server.address).await.status, 503);
    });
}

#[test]
fn b_236_a_server_that_answers_is_alive_whatever_its_store_does() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store.clone()).await;
        store.close().await;
        for path in ["/health/live", "/livez"] {
            let answer = get(path).send(server.address).await;
            assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("alive")));
            assert!(answer.json()["timestamp"].is_i64(), "{answer:?}");
        }
    });
}

/// Asks until the answer has this status: what was seen a moment ago may be told again.
async fn until(status: u16, path: &str, server: &Running) -> Answer {
    loop {
        let answer = get(path).send(server.address).await;
        if answer.status == status {
            return answer;
        }
        tokio::task::yield_now().await;
    }
}

/// What a probe is told once it was seen that the projection is so far behind. It may be looked while events are appended.
async fn until_behind(lag: u64, server: &Running) -> Answer {
    loop {
        let answer = get("/health/ready").send(server.address).await;
        if answer.json()["details"]["orderSummary"]["lag"] == lag {
            return answer;
        }
        tokio::task::yield_now().await;
    }
}

/// A server with a projection that takes events only when it is told to.
async fn held_up(place: &Place, rules: HealthRules) -> (Running, Services) {
    let store = equipped(place.options()).open().await.unwrap();
    let slow =
        Projection::new("orderSummary", Category::View).on(["OrderSubmitted"]).each(async |_, _, _| Ok(()));
    let other = Projection::new("newProjection", Category::View).on(["Nothing"]).each(async |_, _, _| Ok(()));
    let registry = Registry::new().with(slow).with(other);
    let services = Builder::on_store(store.clone())
        .projections(registry)
        .functions(Functions::new().action("nobodyDoesThis", async |_: Call, (): ()| Ok(())))
        .open()
        .await
        .unwrap();
    let server = Running::start_with(options().health(rules), services.clone()).await;
    (server, services)
}

async fn submit(services: &Services, count: u32) {
    for _ in 0..count.div_ceil(100) {
        let orders = (0..count.min(100)).map(|number| NewEvent::new("OrderSubmitted", &number).unwrap());
        services.log.append(Append::new(orders)).await.unwrap();
    }
}

#[test]
fn b_238_b_248_b_249_a_projection_that_is_behind_closes_the_gate_and_is_graded() {
    for_each_store(async |place| {
        let (server, services) = held_up(&place, HealthRules::default()).await;
        submit(&services, 500).await;
        let answer = until_behind(500, &server).await;
        assert_eq!((answer.status, &answer.json()["status"]), (503, &json!("unhealthy")));
        assert_eq!(answer.json()["components"]["projections"], "degraded");
        let whole = get("/health").send(server.address).await;
        assert_eq!((whole.status, &whole.json()["status"]), (200, &json!("degraded")), "{whole:?}");
        assert!(whole.json()["warning"].as_str().unwrap().contains("projections"), "{whole:?}");
    });
}

#[test]
fn details_of_readiness_are_for_readers_and_for_this_machine_while_no_token_exists() {
    for_each_store(async |place| {
        let (server, services) = held_up(&place, HealthRules::default()).await;
        submit(&services, 500).await;
        until_behind(500, &server).await;
        let (reader, tenant) = (server.token(Role::Reader).await, server.token_of("acme", Role::Admin).await);
        let told = async |request: Request| request.send(server.address).await.json();
        loop {
            let told = told(get("/health/ready").token(&reader)).await;
            assert_eq!(told["components"]["projections"], "degraded");
            if told["details"]["orderSummary"] == json!({"lag": 500, "band": "degraded", "status": "active"})
            {
                break;
            }
        }
        // Another node made the tokens; this one knows within a second.
        soon(async { while told(get("/health/ready")).await.get("details").is_some() {} }).await;
        for asked in [
            get("/health/ready"),
            get("/health/ready").token("mst_wrong"),
            get("/health/ready").token(&tenant),
            get("/readyz?verbose"),
            get("/readyz").token(&reader),
        ] {
            let told = told(asked.clone()).await;
            assert_eq!((&told["status"], told.get("details")), (&json!("unhealthy"), None), "{asked:?}");
            assert!(!told.to_string().contains("orderSummary"), "{asked:?}: {told}");
        }
    });
}

#[test]
fn b_228_the_state_of_the_system_is_told_on_one_page() {
    for_each_store(async |place| {
        let (server, services) = held_up(&place, HealthRules::default()).await;
        submit(&services, 500).await;
        until_behind(500, &server).await;
        let (token, admin) = (server.token(Role::Reader).await, server.token(Role::Admin).await);
        // The other one is a hundred events behind, which does not count yet.
        let pause = post("/admin/projections/newProjection/pause", "{}").token(&admin);
        assert_eq!(pause.send(server.address).await.status, 200);
        let moved =
            request("PUT", "/admin/checkpoints/newProjection/0").header("Content-Type", "application/json");
        let moved =
            moved.body(&json!({"position": 400}).to_string()).token(&admin).send(server.address).await;
        assert_eq!(moved.status, 200, "{moved:?}");
        let answer = get("/admin/system").token(&token).send(server.address).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let told = answer.json();
        assert_eq!(told["projections"]["lags"], json!({"newProjection": 100, "orderSummary": 500}));
        assert_eq!(told["projections"]["activeRebuilds"], json!([]));
        let summary = &told["summary"];
        assert_eq!(
            (&summary["status"], &summary["projectionsWithLag"]),
            (&json!("degraded"), &json!(1)),
            "{summary}"
        );
        assert_eq!((&summary["pendingDeadLetters"], &summary["openCircuits"]), (&json!(0), &json!(0)));
        assert_eq!(summary["critical"], json!(["orderSummary is 500 events behind"]));
        assert!(
            told["timestamp"].is_i64()
                && told["circuitBreakers"].is_object()
                && told["deadLetters"].is_object()
        );
    });
}

#[test]
fn b_243_b_273_a_projection_without_a_checkpoint_is_behind_by_everything_and_warned_of() {
    for_each_store(async |place| {
        logged::start();
        let (server, services) = held_up(&place, HealthRules::default()).await;
        let lose = async |tx: Tx| {
            let sql = "DELETE FROM mainstay_projection_lanes WHERE projection = 'newProjection'";
            tx.execute(sql, &[]).await
        };
        server.store.transact(lose).await.unwrap();
        submit(&services, 10).await;
        loop {
            let answer = get("/health/ready").send(server.address).await;
            if answer.json()["details"]["newProjection"]["lag"] == 10 {
                break;
            }
            tokio::task::yield_now().await;
        }
        let warning = "WARN mainstay_server::health::look: no checkpoint for newProjection";
        assert!(logged::text().contains(warning));
        submit(&services, 100).await;
        let token = server.token(Role::Reader).await;
        let told = get("/admin/system").token(&token).send(server.address).await.json();
        assert_eq!(told["projections"]["lags"], json!({"newProjection": 110, "orderSummary": 110}));
        assert_eq!(told["summary"]["projectionsWithLag"], 2, "{told}");
        let critical = told["summary"]["critical"].as_array().unwrap();
        assert!(critical.contains(&json!("newProjection is 110 events behind")), "{told}");
    });
}

#[test]
fn b_240_a_pool_that_is_behind_closes_the_gate_and_says_what_helps() {
    for_each_store(async |place| {
        let (server, services) = held_up(&place, HealthRules::default()).await;
        let item = || NewWork::new("projectionPool", "nobodyDoesThis", &()).unwrap();
        for _ in 0..25 {
            let later = item().run_after(Duration::from_secs(3_600));
            for item in [item(), later] {
                services.work.enqueue(item).await.unwrap();
            }
        }
        assert_eq!(
            services.work.due("projectionPool", 1_000).await.unwrap(),
            25,
            "what waits for its time does not count"
        );
        let answer = until(503, "/health/ready", &server).await;
        assert_eq!(answer.json()["components"]["workpool_backlog"], "degraded");
        let action = async || {
            let answer = get("/health/ready").send(server.address).await.json();
            answer["details"]["projectionPool"]["suggestedAction"] == "reduce traffic or scale"
        };
        // Details are left out of an answer when the tokens are not known in time.
        while !action().await {}
    });
}

#[test]
fn a_probe_is_answered_in_time_while_the_writer_is_busy() {
    for_each_store(async |place| {
        let (server, services) = held_up(&place, HealthRules::default()).await;
        until(200, "/health/ready", &server).await;
        let ((started, has_started), (go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
        let (store, may_go) = (server.store.clone(), Arc::new(Mutex::new(may_go)));
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
        let asked = Instant::now();
        assert_eq!(get("/health/ready").send(server.address).await.status, 200);
        assert!(asked.elapsed() < Duration::from_secs(5), "it waited for the writer: {:?}", asked.elapsed());
        go.send(()).unwrap();
        tokio::task::spawn_blocking(move || busy.join().unwrap()).await.unwrap();
        drop(services);
    });
}

#[tokio::test]
async fn figures_are_those_of_the_store_and_of_the_server() {
    let server = Running::start(options()).await;
    get("/nowhere").send(server.address).await;
    let answer = get("/metrics").send(server.address).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; version=0.0.4")));
    for line in [
        "# TYPE mainstay_store_transactions_committed_total counter",
        "# TYPE mainstay_store_commit_time_seconds histogram",
        "# TYPE mainstay_work_taken_total counter",
        "mainstay_server_client_errors_total 1",
        "mainstay_server_in_flight 1",
        "mainstay_server_request_time_seconds_count 1",
    ] {
        assert!(answer.body.lines().any(|written| written == line), "{line}\n{}", answer.body);
    }
}
