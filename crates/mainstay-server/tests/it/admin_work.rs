//! The workshop as operators see it over HTTP.

use crate::client::{Request, get, post};
use crate::running::{Running, options};
use mainstay_server::{Builder, Role, equipped};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::{Call, Failure, Functions, NewWork, Pool, RetryPolicy, RunOptions, Work};
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

struct House {
    server: Running,
    work: Work,
    operator: String,
}

impl House {
    /// `note` succeeds, `refuse` never does. Nobody works until somebody is told to.
    async fn open(place: &Place) -> Self {
        let functions = Functions::new()
            .action("note", async |_: Call, what: String| Ok::<_, Failure>(what))
            .action("refuse", async |_: Call, _: Value| Err::<(), _>(Failure::permanent("never")));
        let store = equipped(place.options()).open().await.unwrap();
        let services = Builder::on_store(store.clone()).functions(functions).open().await.unwrap();
        let work = services.work.clone();
        work.pool(Pool::new("shop").retry(RetryPolicy::new(1, 1, 1.0, 1).unwrap())).await.unwrap();
        let server = Running::start_with(options(), services).await;
        let operator = server.token(Role::Operator).await;
        Self { server, work, operator }
    }

    async fn ask(&self, request: Request) -> (u16, Value) {
        let answer = request.token(&self.operator).send(self.server.address).await;
        (answer.status, answer.json())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(get(path)).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn post(&self, path: &str) -> Value {
        let (status, body) = self.ask(post(path, "")).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn refused(&self, request: Request, status: u16, code: &str) {
        request.token(&self.operator).send(self.server.address).await.problem(status, code);
    }

    async fn enqueue(&self, item: NewWork) -> String {
        self.work.enqueue(item).await.unwrap().work_id
    }
}

fn item(function: &str, args: &str) -> NewWork {
    NewWork::new("shop", function, args).unwrap()
}

fn ids(page: &Value) -> Vec<&str> {
    page["work"].as_array().unwrap().iter().map(|item| item["workId"].as_str().unwrap()).collect()
}

#[test]
fn b_266_b_268_work_is_listed_found_hastened_and_cancelled() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let first = house.enqueue(item("note", "a").key("k").correlated("corr-1")).await;
        let behind = house.enqueue(item("note", "b").key("k")).await;
        let later = house.enqueue(item("note", "c").run_after(Duration::from_secs(60))).await;

        let page = house.get("/admin/work").await;
        assert_eq!(ids(&page), [&later, &behind, &first]);
        assert_eq!(page["next"], Value::Null);
        assert_eq!(
            (&page["work"][2]["args"], &page["work"][2]["correlationId"]),
            (&json!("a"), &json!("corr-1"))
        );
        let page = house.get("/admin/work?order=oldest&limit=2").await;
        assert_eq!(ids(&page), [&first, &behind]);
        let next = page["next"].as_str().unwrap();
        assert_eq!(ids(&house.get(&format!("/admin/work?order=oldest&cursor={next}")).await), [&later]);
        for (query, expected) in [
            ("pool=shop&state=pending", 3),
            ("state=delayed", 1),
            ("state=behind&key=k", 1),
            ("key=k", 2),
            ("function=refuse", 0),
            ("correlationId=corr-1", 1),
            ("state=running", 0),
        ] {
            assert_eq!(ids(&house.get(&format!("/admin/work?{query}")).await).len(), expected, "{query}");
        }
        for bad in ["state=nonsense", "cursor=x", "cursor=w1234", "limit=0", "order=sideways", "wrong=1"] {
            let answer =
                get(&format!("/admin/work?{bad}")).token(&house.operator).send(house.server.address).await;
            assert_eq!(answer.status, 400, "{bad}: {answer:?}");
        }
        house.refused(get("/admin/work?pool=nowhere"), 404, "UNKNOWN_POOL").await;

        let found = house.get(&format!("/admin/work/{first}")).await;
        assert_eq!(
            (&found["found"], &found["state"], &found["previousAttempts"]),
            (&json!(true), &json!("pending"), &json!(0))
        );
        assert_eq!(house.get("/admin/work/work-123").await, json!({"found": false}));

        let waiting = house.get("/admin/pools/shop/work?limit=50").await;
        assert_eq!(ids(&waiting), [&first, &later, &behind]);
        let keys = house.get("/admin/pools/shop/keys").await;
        assert_eq!((&keys["keys"][0]["key"], &keys["keys"][0]["depth"]), (&json!("k"), &json!(2)));
        assert_eq!(
            (&keys["keys"][0]["isRunning"], &keys["keys"][0]["front"]["workId"]),
            (&json!(false), &json!(first))
        );
        house.refused(get("/admin/pools/shop/keys?limit=201"), 400, "QUERY_INVALID").await;

        let now = house.post(&format!("/admin/work/{later}/run-now")).await;
        assert_eq!(now, json!({"workId": later, "starts": "now"}));
        let canceled = house.post(&format!("/admin/work/{behind}/cancel")).await;
        assert_eq!(canceled["canceled"], "atOnce");
        house.refused(post(&format!("/admin/work/{behind}/run-now"), ""), 409, "WORK_NOT_WAITING").await;
        house.refused(post("/admin/work/work-123/run-now", ""), 404, "WORK_NOT_FOUND").await;
        house.refused(post("/admin/work/work-123/cancel", ""), 404, "WORK_NOT_FOUND").await;
        house.refused(post(&format!("/admin/work/{first}/retry"), ""), 404, "DEAD_LETTER_NOT_FOUND").await;
    });
}

#[test]
fn b_224_pools_are_looked_at_paused_and_resumed() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.enqueue(item("note", "a")).await;
        let pools = house.get("/admin/pools").await;
        let shop =
            pools["pools"].as_array().unwrap().iter().find(|pool| pool["name"] == "shop").unwrap().clone();
        assert_eq!(
            (&shop["pending"], &shop["running"], &shop["isPaused"]),
            (&json!(1), &json!(0), &json!(false))
        );
        assert!(shop["oldestAgeMs"].is_i64() && shop["settings"]["maxParallelism"] == 10);
        assert_eq!(house.post("/admin/pools/shop/pause").await["isPaused"], true);
        assert_eq!(house.get("/admin/pools/shop").await["isPaused"], true);
        assert_eq!(house.post("/admin/pools/shop/resume").await["isPaused"], false);
        house.refused(post("/admin/pools/nowhere/pause", ""), 404, "UNKNOWN_POOL").await;
        let admin = house.server.token(Role::Admin).await;
        let audit = get("/admin/audit").token(&admin).send(house.server.address).await.json();
        assert!(audit.to_string().contains("/admin/pools/{pool}/pause"), "{audit}");
    });
}

#[test]
fn b_269_a_run_is_found_and_an_item_that_failed_is_tried_again() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let context = json!({"eventId": "e1", "projectionName": "orderSummary"});
        let options = RunOptions {
            max_failures: 1,
            initial_backoff_ms: 1,
            context: Some(serde_json::value::to_raw_value(&context).unwrap()),
            ..RunOptions::default()
        };
        let run = house.work.run("refuse", &json!({"order": 1}), options).await.unwrap();
        let pending = house.get(&format!("/admin/runs/{run}")).await;
        assert_eq!((&pending["state"], &pending["attemptCount"]), (&json!("pending"), &json!(0)));
        let engine = house.work.start().await.unwrap();
        house.work.wait_for(&run, PATIENCE).await.unwrap();
        let failed = house.get(&format!("/admin/runs/{run}")).await;
        assert_eq!(
            (&failed["found"], &failed["runId"], &failed["state"]),
            (&json!(true), &json!(run), &json!("failed"))
        );
        assert_eq!((&failed["attemptCount"], &failed["context"]), (&json!(1), &context));
        assert!(failed["lastError"].as_str().unwrap().contains("never"), "{failed}");
        assert_eq!(house.get("/admin/runs/run-abc123").await, json!({"found": false}));

        let details = house.get(&format!("/admin/work/{run}")).await;
        assert_eq!((&details["isDeadLetter"], &details["args"]), (&json!(true), &json!({"order": 1})));
        let retried = house.post(&format!("/admin/work/{run}/retry")).await;
        let again = retried["retriedAs"].as_str().unwrap();
        house.work.wait_for(again, PATIENCE).await.unwrap();
        assert_eq!(house.get(&format!("/admin/work/{again}")).await["retryOf"], json!(run));
        let details = house.get(&format!("/admin/work/{run}")).await;
        assert_eq!((&details["isDeadLetter"], &details["retriedAs"]), (&json!(false), &json!(again)));
        house.refused(post(&format!("/admin/work/{run}/retry"), ""), 404, "DEAD_LETTER_NOT_FOUND").await;
        engine.stop(PATIENCE).await.unwrap();
    });
}
