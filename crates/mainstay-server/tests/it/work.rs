//! The workshop over HTTP: pools, items, runs, timers, crons and letters.

use crate::client::{Request, get, post, request};
use crate::running::{Running, options};
use mainstay_server::tokens::New;
use mainstay_server::{Builder, Role, Tokens, equipped};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::{Call, Engine, Failure, Functions, Work};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// A server whose node can `echo` what it is given, `refuse` for good, and `wait` until it is cancelled.
pub(crate) struct Shop {
    pub(crate) server: Running,
    pub(crate) work: Work,
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
}

impl Shop {
    pub(crate) async fn open(place: &Place) -> Self {
        let store = equipped(place.options()).open().await.unwrap();
        let functions = Functions::new()
            .action("echo", async |_: Call, args: Value| Ok(args))
            .action("number", async |_: Call, number: u32| Ok(number))
            .action("refuse", async |_: Call, _: Value| Err::<(), _>(Failure::permanent("no")))
            .action("wait", async |_: Call, _: Value| std::future::pending::<Result<(), Failure>>().await);
        let services = Builder::on_store(store.clone()).functions(functions).open().await.unwrap();
        let work = services.work.clone();
        let engine = work.start().await.unwrap();
        let server = Running::start_with(options(), services).await;
        let address = server.address;
        let shop = Self { server, work, engine, address };
        shop.put("/v1/pools/shop", json!({"retry": {"maxAttempts": 2, "initialBackoffMs": 1}})).await;
        shop
    }

    pub(crate) async fn stop(self) {
        self.engine.stop(Duration::from_secs(5)).await.unwrap();
        self.server.stop().await;
    }

    /// What is answered with 200.
    async fn good(&self, request: Request) -> Value {
        let answer = request.send(self.address).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.good(get(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.good(post(path, &body.to_string())).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Value {
        self.good(put(path, &body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Value {
        self.good(request("DELETE", path)).await
    }

    /// Enqueues an item; its id.
    pub(crate) async fn enqueue(&self, item: Value) -> String {
        let answer = self.post("/v1/pools/shop/work", item).await;
        answer["work"][0]["workId"].as_str().unwrap().to_owned()
    }

    /// An item, once it stands where it is waited for.
    pub(crate) async fn until(&self, id: &str, native: &str) -> Value {
        let waiting = async {
            loop {
                let status = self.get(&format!("/v1/work/{id}")).await;
                if status["native"] == native {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(Duration::from_secs(20), waiting).await {
            Ok(status) => status,
            Err(_) => panic!(
                "never {native}: {} {}",
                self.get(&format!("/v1/work/{id}")).await,
                self.get("/v1/pools/shop").await
            ),
        }
    }
}

pub(crate) fn put(path: &str, body: &Value) -> Request {
    request("PUT", path).header("Content-Type", "application/json").body(&body.to_string())
}

#[test]
fn work_is_enqueued_done_and_told() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let item =
            json!({"function": "echo", "args": {"to": "ada"}, "key": "k", "context": [1], "priority": -3});
        let id = shop.enqueue(item).await;
        let done = shop.until(&id, "success").await;
        assert_eq!((&done["found"], &done["state"]), (&json!(true), &json!("completed")));
        assert_eq!(done["result"], json!({"kind": "success", "returnValue": {"to": "ada"}}));
        assert_eq!(
            (&done["context"], &done["key"], &done["attempts"]),
            (&json!([1]), &json!("k"), &json!(1))
        );

        let items: Vec<Value> =
            (0..1_000).map(|number| json!({"function": "number", "args": number})).collect();
        let many = shop.post("/v1/pools/shop/work", json!({ "items": items })).await;
        let last = many["work"][999]["workId"].as_str().unwrap();
        assert_eq!(shop.until(last, "success").await["result"]["returnValue"], 999);

        // Whoever wants to know how it ended need not ask again and again.
        let late = shop.enqueue(json!({"function": "echo", "args": 2, "runAfterMs": 50})).await;
        let ended = shop.get(&format!("/v1/work/{late}?waitMs=20000")).await;
        assert_eq!((&ended["native"], &ended["result"]["returnValue"]), (&json!("success"), &json!(2)));
        let never = shop.enqueue(json!({"function": "wait", "args": 2})).await;
        shop.until(&never, "running").await;
        assert_eq!(shop.get(&format!("/v1/work/{never}?waitMs=10")).await["state"], "running");
        assert_eq!(shop.get("/v1/work/work-123?waitMs=10").await, json!({"found": false}));
        for (query, field) in [("waitMs=60001", "waitMs"), ("wait=1", "wait")] {
            let answer = get(&format!("/v1/work/{never}?{query}")).send(shop.address).await;
            assert_eq!(answer.problem(400, "QUERY_INVALID")["field"], field);
        }
        shop.delete(&format!("/v1/work/{never}")).await;

        // Item 266.
        let unknown = shop.get("/v1/work/work-123").await;
        assert_eq!(unknown, json!({"found": false}));
        shop.stop().await;
    });
}

#[test]
fn an_item_has_all_that_it_was_given() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let whole = json!({
            "function": "echo", "args": null, "runAfterMs": 3_600_000, "onComplete": "echo", "deadlineMs": 7_200_000,
            "retry": {"maxAttempts": 3, "initialBackoffMs": 10, "base": 1.5, "maxBackoffMs": 20},
            "dedupe": {"key": "once", "windowMs": 60_000},
        });
        let first = shop.enqueue(whole.clone()).await;
        let again = shop.post("/v1/pools/shop/work", whole).await;
        assert_eq!(again["work"][0], json!({"workId": first, "isDuplicate": true}));
        let status = shop.get(&format!("/v1/work/{first}")).await;
        assert_eq!((&status["native"], &status["context"]), (&json!("delayed"), &json!(null)));
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let traced = post("/v1/pools/shop/work", r#"{"function":"echo","args":1,"runAtMs":253402300799999}"#);
        assert_eq!(traced.header("traceparent", traceparent).send(shop.address).await.status, 200);
        let listed = shop.get("/v1/pools/shop/work?limit=5").await;
        assert_eq!(listed["work"].as_array().unwrap().len(), 2);
        assert_eq!(listed["work"][1]["dueAt"], 253_402_300_799_999_i64);
        assert_eq!(shop.get("/v1/pools/shop/work?limit=1").await["work"].as_array().unwrap().len(), 1);
        let item = shop.work.pending("shop", 5).await.unwrap();
        assert_eq!(item[0].work_id, first);
        shop.stop().await;
    });
}

#[tokio::test]
async fn what_cannot_be_enqueued_is_named_and_nothing_is() {
    let place = Place::new(mainstay_testkit::stores::Kind::SqliteMemory);
    let shop = Shop::open(&place).await;
    let long = "x".repeat(70_000);
    let item = |tail: &str| format!(r#"{{"function":"echo","args":1{tail}}}"#);
    for (body, status, code, field) in [
        ("{}".to_owned(), 400, "BODY_INVALID", "function"),
        (r#"{"function":"echo"}"#.to_owned(), 400, "BODY_INVALID", "args"),
        (item(r#","colour":"red""#), 400, "BODY_INVALID", "colour"),
        (item(r#","items":[]"#), 400, "BODY_INVALID", "function"),
        (item(r#","runAfterMs":1,"runAtMs":1"#), 400, "BODY_INVALID", "runAtMs"),
        (item(r#","runAfterMs":-1"#), 400, "BODY_INVALID", "runAfterMs"),
        (item(r#","runAtMs":-1"#), 400, "WORK_INVALID", "runAtMs"),
        (item(r#","runAfterMs":18446744073709551615"#), 400, "WORK_INVALID", "runAfterMs"),
        (item(r#","priority":40000"#), 400, "BODY_INVALID", "priority"),
        (item(r#","retry":{"maxAttempts":0}"#), 400, "BODY_INVALID", "retry"),
        (item(r#","retry":{"maxAttempt":1}"#), 400, "BODY_INVALID", "retry.maxAttempt"),
        (item(r#","retry":{"base":0}"#), 400, "BODY_INVALID", "retry"),
        (item(r#","key":"""#), 400, "WORK_INVALID", "key"),
        (item(r#","key":"a\u0000b""#), 400, "WORK_INVALID", "key"),
        (item(r#","dedupe":{"key":"k"}"#), 400, "BODY_INVALID", "dedupe.windowMs"),
        (item(r#","dedupe":{"key":"","windowMs":1}"#), 400, "WORK_INVALID", "dedupe.key"),
        (item(r#","onComplete":"no spaces""#), 400, "WORK_INVALID", "onComplete"),
        (format!(r#"{{"function":"echo","args":"{long}"}}"#), 413, "WORK_TOO_LARGE", "args"),
        (r#"{"function":"number","args":"one"}"#.to_owned(), 422, "WORK_ARGS_INVALID", "args"),
        (r#"{"items":[]}"#.to_owned(), 400, "WORK_INVALID", "items"),
        (format!(r#"{{"items":[{}]}}"#, item(r#","key":"""#)), 400, "WORK_INVALID", "items[0].key"),
        (
            format!(r#"{{"items":[{},{}]}}"#, item(""), item(r#","key":"""#)),
            400,
            "WORK_INVALID",
            "items[1].key",
        ),
        (format!(r#"{{"items":[{}]}}"#, item(r#","items":[]"#)), 400, "BODY_INVALID", "items[0].items"),
        (format!(r#"{{"items":[{},{{"args":1}}]}}"#, item("")), 400, "BODY_INVALID", "items[1].function"),
        (format!(r#"{{"items":[{}]}}"#, vec![item(""); 1_001].join(",")), 400, "BODY_INVALID", "items"),
    ] {
        let answer = post("/v1/pools/shop/work", &body).send(shop.address).await;
        let shown = &body[..body.len().min(80)];
        assert_eq!(answer.status, status, "{shown}: {answer:?}");
        assert_eq!(answer.problem(status, code)["field"], field, "{shown}");
    }
    let unknown = post("/v1/pools/shop/work", r#"{"function":"nobody","args":1}"#).send(shop.address).await;
    assert_eq!(unknown.problem(422, "UNKNOWN_FUNCTION")["function"], "nobody");
    let told = post("/v1/pools/shop/work", &item(r#","onComplete":"nobody""#)).send(shop.address).await;
    assert_eq!(told.problem(422, "UNKNOWN_FUNCTION")["function"], "nobody");
    let nowhere = post("/v1/pools/nowhere/work", &item("")).send(shop.address).await;
    assert_eq!(nowhere.problem(404, "UNKNOWN_POOL")["pool"], "nowhere");
    let odd = post("/v1/pools/a%20b/work", &item("")).send(shop.address).await;
    assert_eq!(odd.problem(400, "WORK_INVALID")["field"], "pool");
    for (path, field) in [("?limit=0", "limit"), ("?limit=1001", "limit"), ("?offset=1", "offset")] {
        let answer = get(&format!("/v1/pools/shop/work{path}")).send(shop.address).await;
        assert_eq!(answer.problem(400, "QUERY_INVALID")["field"], field);
    }
    assert_eq!(shop.get("/v1/pools/shop").await["pending"], 0);
    shop.stop().await;
}

#[test]
fn pools_are_made_changed_paused_and_looked_at() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let settings = json!({"maxParallelism": 3, "ratePerSecond": 100, "logLevel": "INFO",
            "retry": {"maxAttempts": 7, "initialBackoffMs": 5, "base": 3.0, "maxBackoffMs": 50}});
        let made = shop.put("/v1/pools/a%2Fb", settings.clone()).await;
        assert_eq!((&made["name"], &made["settings"]), (&json!("a/b"), &settings));
        assert_eq!(shop.put("/v1/pools/a%2Fb", json!({})).await["settings"]["maxParallelism"], 10);
        let pools = shop.get("/v1/pools").await;
        let names: Vec<_> = pools["pools"].as_array().unwrap().iter().map(|pool| &pool["name"]).collect();
        assert_eq!(names, ["a/b", "deadLetterPool", "eventAppendPool", "retrier", "shop", "timers"]);
        let (mut paged, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = shop.get(&format!("/v1/pools?limit=4{cursor}")).await;
            paged.extend(page["pools"].as_array().unwrap().iter().map(|pool| pool["name"].clone()));
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert!(paged.iter().eq(names.iter().copied()), "{paged:?}");
        for refused in ["limit=0", "limit=1001", "page=2"] {
            let answer = get(&format!("/v1/pools?{refused}")).send(shop.address).await;
            assert_eq!(answer.status, 400, "{refused}");
        }

        assert_eq!(shop.post("/v1/pools/shop/pause", json!({})).await["isPaused"], true);
        let id = shop.enqueue(json!({"function": "echo", "args": 1})).await;
        let paused = shop.get("/v1/pools/shop").await;
        assert_eq!((&paused["pending"], &paused["running"]), (&json!(1), &json!(0)));
        assert!(paused["oldestAgeMs"].is_i64() && paused["endedPerSecond"].is_f64());
        assert_eq!(shop.get(&format!("/v1/work/{id}")).await["native"], "ready");
        // Pausing twice changes nothing, and needs no body.
        shop.good(request("POST", "/v1/pools/shop/pause")).await;
        assert_eq!(shop.post("/v1/pools/shop/resume", json!({})).await["isPaused"], false);
        shop.until(&id, "success").await;

        for (body, code, field) in [
            (json!({"maxParallelism": 0}), "WORK_INVALID", "maxParallelism"),
            (json!({"maxParallelism": 10_001}), "WORK_INVALID", "maxParallelism"),
            (json!({"ratePerSecond": 0}), "WORK_INVALID", "ratePerSecond"),
            (json!({"logLevel": "LOUD"}), "BODY_INVALID", "logLevel"),
            (json!({"name": "x"}), "BODY_INVALID", "name"),
            (json!({"retry": {"maxAttempts": 0}}), "BODY_INVALID", "retry"),
        ] {
            let problem = put("/v1/pools/shop", &body).send(shop.address).await.problem(400, code);
            assert_eq!(problem["field"], field, "{body}");
        }
        for path in ["/v1/pools/x", "/v1/pools/x/work"] {
            get(path).send(shop.address).await.problem(404, "UNKNOWN_POOL");
        }
        for path in ["/v1/pools/x/pause", "/v1/pools/x/resume"] {
            request("POST", path).send(shop.address).await.problem(404, "UNKNOWN_POOL");
        }
        put("/v1/pools/a%20b", &json!({})).send(shop.address).await.problem(400, "WORK_INVALID");
        shop.stop().await;
    });
}

#[test]
fn an_item_is_cancelled_before_and_while_it_runs() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let waits = shop.enqueue(json!({"function": "echo", "args": 1, "runAfterMs": 3_600_000})).await;
        let canceled = shop.delete(&format!("/v1/work/{waits}")).await;
        assert_eq!(canceled, json!({"workId": waits, "canceled": "atOnce"}));
        let runs = shop.enqueue(json!({"function": "wait", "args": 1})).await;
        shop.until(&runs, "running").await;
        assert_eq!(shop.delete(&format!("/v1/work/{runs}")).await["canceled"], "asked");
        let ended = shop.until(&runs, "canceled").await;
        assert_eq!(ended["result"], json!({"kind": "canceled"}));
        assert_eq!(shop.delete(&format!("/v1/work/{runs}")).await["canceled"], "tooLate");
        request("DELETE", "/v1/work/work-123").send(shop.address).await.problem(404, "WORK_NOT_FOUND");
        shop.stop().await;
    });
}

#[test]
fn b_265_runs_and_timers_are_started_found_and_cancelled() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let run = json!({"function": "echo", "args": 7, "maxFailures": 2, "initialBackoffMs": 1, "base": 1.0,
            "onComplete": "echo", "context": "c"});
        let run = shop.post("/v1/runs", run).await["runId"].as_str().unwrap().to_owned();
        shop.until(&run, "success").await;
        assert_eq!(shop.get(&format!("/v1/runs/{run}")).await["context"], "c");
        assert_eq!(shop.get(&format!("/v1/timers/{run}")).await, json!({"found": false}), "it is none");
        let waiting = shop.post("/v1/runs", json!({"function": "wait", "args": {}})).await;
        let waiting = waiting["runId"].as_str().unwrap();
        shop.until(waiting, "running").await;
        request("DELETE", &format!("/v1/timers/{waiting}"))
            .send(shop.address)
            .await
            .problem(404, "WORK_NOT_FOUND");
        assert_eq!(shop.delete(&format!("/v1/runs/{waiting}")).await["canceled"], "asked");
        shop.until(waiting, "canceled").await;

        let late =
            shop.post("/v1/timers", json!({"function": "echo", "args": 1, "afterMs": 3_600_000})).await;
        let late = late["timerId"].as_str().unwrap();
        assert_eq!(shop.get(&format!("/v1/timers/{late}")).await["native"], "delayed");
        assert_eq!(shop.delete(&format!("/v1/timers/{late}")).await["canceled"], "atOnce");
        let now = shop.post("/v1/timers", json!({"function": "echo", "args": 1, "atMs": 0})).await;
        shop.until(now["timerId"].as_str().unwrap(), "success").await;

        for (path, body, status, code, field) in [
            ("/v1/runs", json!({"function": "echo"}), 400, "BODY_INVALID", "args"),
            ("/v1/runs", json!({"function": "echo", "args": 1, "base": 0}), 400, "WORK_INVALID", "retry"),
            (
                "/v1/runs",
                json!({"function": "echo", "args": 1, "maxFailures": -1}),
                400,
                "BODY_INVALID",
                "maxFailures",
            ),
            ("/v1/runs", json!({"function": "number", "args": "x"}), 422, "WORK_ARGS_INVALID", "args"),
            ("/v1/timers", json!({"function": "echo", "args": 1}), 400, "BODY_INVALID", "atMs"),
            (
                "/v1/timers",
                json!({"function": "echo", "args": 1, "atMs": 1, "afterMs": 1}),
                400,
                "BODY_INVALID",
                "atMs",
            ),
            ("/v1/timers", json!({"function": "echo", "args": 1, "atMs": -1}), 400, "WORK_INVALID", "atMs"),
            (
                "/v1/timers",
                json!({"function": "echo", "args": 1, "afterMs": u64::MAX}),
                400,
                "WORK_INVALID",
                "afterMs",
            ),
        ] {
            let answer = post(path, &body.to_string()).send(shop.address).await;
            assert_eq!(answer.problem(status, code)["field"], field, "{path} {body}");
        }
        for path in ["/v1/runs", "/v1/timers"] {
            let body = r#"{"function":"nobody","args":1,"atMs":1}"#
                .replace(if path == "/v1/runs" { r#","atMs":1"# } else { "-" }, "");
            post(path, &body).send(shop.address).await.problem(422, "UNKNOWN_FUNCTION");
        }
        shop.stop().await;
    });
}

#[test]
fn crons_are_put_fired_paused_and_removed() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let nightly = json!({"schedule": {"cron": "30 2 * * *", "timeZone": "Europe/Berlin"}, "pool": "shop",
            "function": "echo", "args": {"report": 1}, "key": "nightly", "missed": "catchUp"});
        let put_as = shop.put("/v1/crons/nightly", nightly.clone()).await;
        for (field, value) in nightly.as_object().unwrap() {
            assert_eq!(&put_as[field], value, "{field}");
        }
        assert_eq!((&put_as["fired"], &put_as["lastAt"]), (&json!(0), &json!(null)));
        let again = shop.put("/v1/crons/nightly", nightly).await;
        assert_eq!(again["nextAt"], put_as["nextAt"]);

        let often = json!({"schedule": {"everyMs": 20}, "pool": "shop", "function": "echo", "args": 1});
        shop.put("/v1/crons/often", often).await;
        let fired = async {
            while shop.get("/v1/crons/often").await["fired"] == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), fired).await.unwrap();
        assert_eq!(shop.post("/v1/crons/often/pause", json!({})).await["isPaused"], true);
        assert_eq!(shop.post("/v1/crons/often/resume", json!({})).await["isPaused"], false);
        assert_eq!(shop.delete("/v1/crons/often").await, json!({"name": "often"}));
        let listed = shop.get("/v1/crons").await;
        assert_eq!(listed["crons"].as_array().unwrap().len(), 1);

        for path in ["/v1/crons/often", "/v1/crons/a%20b"] {
            request("DELETE", path).send(shop.address).await.problem(404, "UNKNOWN_CRON");
            get(path).send(shop.address).await.problem(404, "UNKNOWN_CRON");
        }
        request("POST", "/v1/crons/often/pause").send(shop.address).await.problem(404, "UNKNOWN_CRON");
        let with =
            |schedule: Value| json!({"schedule": schedule, "pool": "shop", "function": "echo", "args": 1});
        for (body, field) in [
            (with(json!({"cron": "99 * * * *"})), "schedule"),
            (with(json!({"cron": "0 0 30 2 *"})), "schedule"),
            (with(json!({"cron": "* * * * *", "timeZone": "Mars/Base"})), "schedule"),
            (with(json!({"everyMs": 0})), "schedule"),
            (with(json!({})), "schedule"),
            (with(json!({"every": 1})), "schedule.every"),
            (json!({"schedule": {"everyMs": 1}, "pool": "shop", "function": "echo"}), "args"),
            (
                json!({"schedule": {"everyMs": 1}, "pool": "shop", "function": "echo", "args": 1, "missed": "x"}),
                "missed",
            ),
            (
                json!({"schedule": {"everyMs": 1}, "pool": "shop", "function": "echo", "args": 1, "name": "x"}),
                "name",
            ),
        ] {
            let problem = put("/v1/crons/bad", &body).send(shop.address).await.problem(400, "BODY_INVALID");
            assert_eq!(problem["field"], field, "{body}");
        }
        let nowhere = json!({"schedule": {"everyMs": 1}, "pool": "x", "function": "echo", "args": 1});
        put("/v1/crons/bad", &nowhere).send(shop.address).await.problem(404, "UNKNOWN_POOL");
        let nobody = json!({"schedule": {"everyMs": 1}, "pool": "shop", "function": "x", "args": 1});
        put("/v1/crons/bad", &nobody).send(shop.address).await.problem(422, "UNKNOWN_FUNCTION");
        shop.stop().await;
    });
}

#[test]
fn letters_are_listed_retried_ignored_and_purged() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let mut ids = Vec::new();
        for number in 0..5 {
            let id =
                shop.enqueue(json!({"function": "refuse", "args": number, "context": {"n": number}})).await;
            shop.until(&id, "failed").await;
            ids.push(id);
        }
        let (admin, operator) =
            (shop.server.token(Role::Admin).await, shop.server.token(Role::Operator).await);
        let ask = async |request: Request| {
            let answer = request.token(&operator).send(shop.address).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.json()
        };
        let page = ask(get("/admin/dead-letters?limit=3&name=refuse&kind=work&status=pending")).await;
        let of = |page: &Value| -> Vec<String> {
            let letters = page["letters"].as_array().unwrap().iter();
            letters.map(|letter| letter["reference"].as_str().unwrap().to_owned()).collect()
        };
        let of_one =
            |page: &Value, number: usize| page["letters"][number]["letterId"].as_str().unwrap().to_owned();
        assert_eq!(of(&page), [&*ids[4], &*ids[3], &*ids[2]]);
        let next = page["next"].as_str().unwrap();
        let rest = ask(get(&format!("/admin/dead-letters?limit=3&cursor={next}"))).await;
        assert_eq!((of(&rest).len(), rest.get("next")), (2, None));
        assert_eq!(of(&ask(get("/admin/dead-letters?kind=work")).await).len(), 5);
        assert!(of(&ask(get("/admin/dead-letters?kind=append")).await).is_empty());
        let (first, second) = (of_one(&rest, 1), of_one(&rest, 0));

        let letter = ask(get(&format!("/admin/dead-letters/{first}"))).await;
        assert_eq!((&letter["status"], &letter["work"]["args"]), (&json!("pending"), &json!(0)));
        assert_eq!(letter["attempts"][0]["failure"]["class"], "permanentServiceError");
        let retried = ask(request("POST", &format!("/admin/work/{}/retry", ids[0]))).await;
        let letter = ask(get(&format!("/admin/dead-letters/{first}"))).await;
        assert_eq!(letter["retryCount"], 1);
        assert_ne!(retried["retriedAs"], json!(ids[0]));
        let gone = request("POST", &format!("/admin/work/{}/retry", ids[0])).token(&operator);
        let gone = gone.send(shop.address).await.problem(404, "DEAD_LETTER_NOT_FOUND");
        assert_eq!(gone["detail"], format!("Dead letter not found: {}", ids[0]));
        ask(request("POST", &format!("/admin/dead-letters/{second}/ignore"))).await;
        assert_eq!(of(&ask(get("/admin/dead-letters?status=ignored")).await), [&*ids[1]]);
        let again = format!("/v1/work/{}", retried["retriedAs"].as_str().unwrap());
        while ask(get(&again)).await["native"] != "failed" {}

        // The oldest first, and no more than asked for.
        let ended = async |body: Value, token: &str| {
            let previewed = post("/admin/dead-letter-operations", &body.to_string()).token(token);
            let previewed = previewed.send(shop.address).await.json();
            let operation =
                format!("/admin/dead-letter-operations/{}", previewed["operationId"].as_str().unwrap());
            assert_eq!(
                post(&format!("{operation}/run"), "{}").token(token).send(shop.address).await.status,
                200
            );
            loop {
                let told = ask(get(&operation)).await;
                if told["status"] != "running" {
                    return told;
                }
            }
        };
        let retry = json!({"action": "retry", "filter": {"kind": "work", "name": "refuse"}, "limit": 2});
        let many = ended(retry, &operator).await;
        assert_eq!((&many["total"], &many["done"]), (&json!(2), &json!(2)), "{many}");
        let newest = ask(get(&format!("/admin/dead-letters/{}", of_one(&page, 0)))).await;
        assert_eq!((&newest["status"], &newest["retryCount"]), (&json!("pending"), &json!(0)));
        let oldest = ask(get(&format!("/admin/dead-letters/{first}"))).await;
        assert_eq!(oldest["retryCount"], 2, "{oldest}");

        let ignored = json!({"action": "purge", "filter": {"status": "ignored"}});
        let refused = post("/admin/dead-letter-operations", &ignored.to_string()).token(&operator);
        let refused = refused.send(shop.address).await.problem(403, "UNAUTHORIZED");
        assert_eq!(refused["detail"], "Admin role required");
        assert_eq!(ended(ignored, &admin).await["done"], 1);

        for (path, field) in [
            ("?limit=0", "limit"),
            ("?cursor=7", "cursor"),
            ("?cursor=letter_-1", "cursor"),
            ("?status=dead", "status"),
            ("?colour=red", "colour"),
        ] {
            let answer = get(&format!("/admin/dead-letters{path}")).token(&operator).send(shop.address).await;
            assert_eq!(answer.problem(400, "QUERY_INVALID")["field"], field, "{path}");
        }
        for (body, field) in [
            (r#"{"action":"retry","limit":0}"#, "limit"),
            (r#"{"action":"retry","filter":{"status":"x"}}"#, "filter.status"),
            ("{}", "action"),
        ] {
            let bad = post("/admin/dead-letter-operations", body).token(&operator).send(shop.address).await;
            assert_eq!(bad.problem(400, "BODY_INVALID")["field"], field, "{body}");
        }
        for path in ["/admin/dead-letters/x", "/admin/dead-letters/x/retry", "/admin/dead-letters/x/ignore"] {
            let method = if path.ends_with('x') { "GET" } else { "POST" };
            let answer = request(method, path).token(&operator).send(shop.address).await;
            answer.problem(404, "DEAD_LETTER_NOT_FOUND");
        }
        shop.stop().await;
    });
}

/// Work has no tenants yet; a token that is confined to one is kept out of all of it.
#[tokio::test]
async fn a_token_with_a_tenant_reaches_no_work() {
    let place = Place::new(mainstay_testkit::stores::Kind::SqliteMemory);
    let shop = Shop::open(&place).await;
    let new = New::named("acme", Role::Admin).unwrap().tenant("acme").unwrap();
    let (_, secret) = Tokens::new(shop.server.store.clone()).create(new).await.unwrap();
    let is_of_work = |path: &str| {
        let paths = ["/v1/pools", "/v1/work", "/v1/leases", "/v1/runs", "/v1/timers", "/v1/crons"];
        let letters = ["/admin/dead-letters", "/admin/dead-letter-operations"];
        paths.iter().chain(&letters).any(|start| path.starts_with(start))
    };
    let routes: Vec<_> = shop.server.table.iter().filter(|route| is_of_work(&route.path)).collect();
    assert!(routes.len() > 30, "{routes:?}");
    for route in routes {
        let path = route.path.replace("{lease}", "1").replace(['{', '}'], "x");
        let answer = request(route.method.as_str(), &path).token(secret.reveal()).send(shop.address).await;
        let problem = answer.problem(403, "UNAUTHORIZED");
        assert!(problem["detail"].as_str().unwrap().contains("no tenant"), "{route}");
    }
    shop.stop().await;
}

#[tokio::test]
async fn figures_tell_how_pools_are_doing() {
    let place = Place::new(mainstay_testkit::stores::Kind::SqliteMemory);
    let shop = Shop::open(&place).await;
    let dead = shop.enqueue(json!({"function": "refuse", "args": 1})).await;
    shop.until(&dead, "failed").await;
    shop.post("/v1/pools/shop/pause", json!({})).await;
    shop.enqueue(json!({"function": "echo", "args": 1})).await;
    let figures = get("/metrics").send(shop.address).await.body;
    for line in [
        "# TYPE mainstay_work_pool_pending gauge",
        "mainstay_work_pool_pending{pool=\"shop\"} 1",
        "mainstay_work_pool_running{pool=\"shop\"} 0",
        "mainstay_work_pool_max_parallelism{pool=\"timers\"} 100",
        "mainstay_work_pool_paused{pool=\"shop\"} 1",
        "mainstay_dead_letters_pending{kind=\"work\"} 1",
        "mainstay_work_failed_total 1",
    ] {
        assert!(figures.lines().any(|written| written == line), "{line}\n{figures}");
    }
    shop.stop().await;
}
