//! Dead letters over HTTP: looked at, grouped, dealt with one by one and by operations.

use crate::asking::Asking;
use crate::client::{Request, get, post};
use crate::exposition::Exposition;
use crate::logged;
use crate::running::{Running, options};
use mainstay_events::{Append, IdempotencyKey, Log, NewEvent};
use mainstay_flows::delivery::Retries;
use mainstay_flows::delivery::outbox::Outbox;
use mainstay_flows::projections::{Category, Projection, Registry};
use mainstay_server::{Builder, Role, Services, equipped};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::{Call, Engine, Failure, Functions, NewWork, Pool, RetryPolicy};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

const PENDING: &str = "mainstay_dead_letters_pending";
/// An outbox that is given up after two tries.
const CAUGHT: &str = "chargeCaught";

struct House {
    server: Running,
    services: Services,
    _engine: Engine,
    admin: Asking,
    is_well: Arc<AtomicBool>,
}

impl House {
    /// `charge` fails until it is well, and so does the read model `strict`; `note` does nothing, and its end cannot be appended.
    async fn open(place: &Place) -> Self {
        let is_well = Arc::new(AtomicBool::new(false));
        let well = is_well.clone();
        let functions = Functions::new().action("charge", move |_: Call, order: String| {
            let is_well = well.load(Ordering::SeqCst);
            async move {
                if is_well { Ok(()) } else { Err(Failure::permanent(format!("order {order} has no stock"))) }
            }
        });
        let functions = functions.action("note", async |_: Call, _: String| Ok(()));
        let well = is_well.clone();
        let strict = Projection::new("strict", Category::View).each(move |_, _, _| {
            let is_well = well.load(Ordering::SeqCst);
            async move {
                let failure = || mainstay_store::Error::application(Failure::permanent("it does not fit"));
                if is_well { Ok(()) } else { Err(failure()) }
            }
        });
        let outbox = Outbox::new(
            CAUGHT,
            ["note"],
            "orders",
            Retries::new(1, 1, 1.0).unwrap(),
            |order: &String| IdempotencyKey::action("note", order),
            |_, order: &String| Ok(NewEvent::new("Noted", order)?.stream("Order", order).expecting(7)),
        );
        let functions = functions
            .action("send", async |_: Call, _: Value| Err::<(), _>(Failure::permanent("nobody is there")));
        let store = equipped(place.options()).open().await.unwrap();
        let functions = outbox.unwrap().functions(functions, &Log::open(&store).await.unwrap());
        let once = RetryPolicy::new(1, 1, 1.0, 1).unwrap();
        let models = Registry::new().with(strict.retry(once));
        let services =
            Builder::on_store(store.clone()).projections(models).functions(functions).open().await.unwrap();
        services.work.pool(Pool::new("shop").retry(once)).await.unwrap();
        let engine = services.work.start().await.unwrap();
        let server = Running::start_with(options(), services.clone()).await;
        let admin = Asking::new(&server, Role::Admin).await;
        Self { server, services, _engine: engine, admin, is_well }
    }

    /// Letters of so many charges.
    async fn charge(&self, count: usize) {
        let items = (0..count).map(|number| {
            NewWork::new("shop", "charge", &number.to_string()).unwrap().correlated(format!("corr-{number}"))
        });
        for enqueued in self.services.work.enqueue_all(items.collect()).await.unwrap() {
            self.services.work.wait_for(&enqueued.work_id, PATIENCE).await.unwrap();
        }
    }
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[test]
fn letters_are_listed_counted_grouped_and_looked_at() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.charge(3).await;
        let page = house.admin.get("/admin/dead-letters?limit=2&status=pending&kind=work&name=charge").await;
        assert_eq!(page["letters"].as_array().unwrap().len(), 2);
        let next = page["next"].as_str().unwrap();
        let rest = house.admin.get(&format!("/admin/dead-letters?limit=2&cursor={next}")).await;
        assert_eq!((rest["letters"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null));
        let found = house.admin.get("/admin/dead-letters?correlationId=corr-1&error=NO%20STOCK").await;
        assert_eq!(found["letters"].as_array().unwrap().len(), 1);
        let letter = found["letters"][0].clone();
        assert_eq!(
            (&letter["kind"], &letter["status"], &letter["retryCount"]),
            (&json!("work"), &json!("pending"), &json!(0))
        );
        let stats = house.admin.get("/admin/dead-letters/stats").await;
        assert_eq!(
            (&stats["total"], &stats["pending"], &stats["counts"][0]["name"]),
            (&json!(3), &json!(3), &json!("charge"))
        );
        let groups = house.admin.get("/admin/dead-letters/groups").await;
        assert_eq!(
            (groups["groups"].as_array().unwrap().len(), &groups["groups"][0]["count"]),
            (1, &json!(3))
        );
        let group = groups["groups"][0]["group"].as_str().unwrap();
        let grouped = house
            .admin
            .get(&format!("/admin/dead-letters?group={group}&failedSince=1&failedBefore=9999999999999"))
            .await;
        assert_eq!(grouped["letters"].as_array().unwrap().len(), 3);
        for (pool, expected) in [("shop", 3), ("other", 0)] {
            let of_pool = house.admin.get(&format!("/admin/dead-letters?pool={pool}")).await;
            assert_eq!(of_pool["letters"].as_array().unwrap().len(), expected);
            let counted = house.admin.get(&format!("/admin/dead-letters/stats?pool={pool}")).await;
            assert_eq!(counted["total"], expected);
            let grouped = house.admin.get(&format!("/admin/dead-letters/groups?pool={pool}")).await;
            assert_eq!(grouped["groups"].as_array().unwrap().len(), expected.min(1));
            let wanted = json!({ "action": "retry", "filter": { "pool": pool } });
            assert_eq!(house.admin.post("/admin/dead-letter-operations", wanted).await["total"], expected);
        }
        let detail =
            house.admin.get(&format!("/admin/dead-letters/{}", letter["letterId"].as_str().unwrap())).await;
        assert_eq!((&detail["work"]["args"], &detail["attempts"][0]["attempt"]), (&json!("1"), &json!(1)));
        assert_eq!(detail["attempts"][0]["failure"]["message"], "order 1 has no stock");
    });
}

#[test]
fn one_letter_is_retried_or_ignored_and_that_is_on_record() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.charge(2).await;
        let letters = house.admin.get("/admin/dead-letters").await;
        let place = |index: usize| {
            format!("/admin/dead-letters/{}", letters["letters"][index]["letterId"].as_str().unwrap())
        };
        house.is_well.store(true, Ordering::SeqCst);
        let retried = house.admin.post(&format!("{}/retry", place(0)), json!({})).await;
        assert_eq!(
            (&retried["action"], &retried["status"], &retried["done"]),
            (&json!("retry"), &json!("done"), &json!(1))
        );
        house.admin.until(&place(0), |letter| letter["status"] == "resolved").await;
        house.admin.post(&format!("{}/ignore", place(1)), json!({})).await;
        let again = house.admin.refusal(post(&format!("{}/ignore", place(1)), "{}")).await;
        assert_eq!(again, refused(409, "DEAD_LETTER_NOT_PENDING"));
        let record = house.admin.get("/admin/dead-letter-operations").await;
        let actions: Vec<&Value> =
            record["operations"].as_array().unwrap().iter().map(|one| &one["action"]).collect();
        assert_eq!(actions, ["ignore", "retry"]);
        assert!(record["operations"][0]["askedBy"].as_str().unwrap().len() > 3, "{record}");
    });
}

#[test]
fn many_letters_are_previewed_run_and_cancelled() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.charge(5).await;
        let wanted = json!({ "action": "retry", "filter": { "kind": "work", "name": "charge" } });
        let previewed = house.admin.post("/admin/dead-letter-operations", wanted.clone()).await;
        assert_eq!((&previewed["status"], &previewed["total"]), (&json!("previewed"), &json!(5)));
        let operation =
            format!("/admin/dead-letter-operations/{}", previewed["operationId"].as_str().unwrap());
        house.is_well.store(true, Ordering::SeqCst);
        let operator = house.server.token(Role::Operator).await;
        let run = post(&format!("{operation}/run"), "{}").token(&operator);
        assert_eq!(run.send(house.server.address).await.status, 200);
        let done = house.admin.until(&operation, |one| one["status"] == "done").await;
        assert!(done["runBy"].is_string() && done["runBy"] != done["askedBy"], "{done}");
        assert_eq!(done["cancelledBy"], Value::Null);
        assert_eq!((&done["done"], &done["skipped"], &done["failed"]), (&json!(5), &json!(0), &json!(0)));
        house.admin.until("/admin/dead-letters/stats?status=resolved", |stats| stats["total"] == 5).await;
        for what in ["run", "cancel"] {
            let late = house.admin.refusal(post(&format!("{operation}/{what}"), "{}")).await;
            assert_eq!(late, refused(409, "LETTER_OPERATION_STATUS_CONFLICT"));
        }
        let other = house.admin.post("/admin/dead-letter-operations", wanted).await;
        let other = format!("/admin/dead-letter-operations/{}", other["operationId"].as_str().unwrap());
        let cancelled = house.admin.post(&format!("{other}/cancel"), json!({})).await;
        assert_eq!((&cancelled["status"], &cancelled["runBy"]), (&json!("cancelled"), &Value::Null));
        assert_eq!(cancelled["cancelledBy"], cancelled["askedBy"]);
        let first = house.admin.get("/admin/dead-letter-operations?limit=1").await;
        let next = first["next"].as_str().unwrap();
        let second = house
            .admin
            .get(&format!("/admin/dead-letter-operations?limit=1&status=done&cursor={next}"))
            .await;
        assert_eq!(second["operations"][0]["operationId"], done["operationId"]);
    });
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let long = "x".repeat(300);
        for (path, code) in [
            ("/admin/dead-letters?status=dead".to_owned(), "QUERY_INVALID"),
            ("/admin/dead-letters?cursor=l5".to_owned(), "QUERY_INVALID"),
            ("/admin/dead-letters?limit=1001".to_owned(), "QUERY_INVALID"),
            ("/admin/dead-letters?colour=red".to_owned(), "QUERY_INVALID"),
            ("/admin/dead-letters/stats?cursor=letter_5".to_owned(), "QUERY_INVALID"),
            ("/admin/dead-letter-operations?cursor=x".to_owned(), "QUERY_INVALID"),
            ("/admin/dead-letters?group=xyz".to_owned(), "WORK_INVALID"),
            ("/admin/dead-letters?kind=no%20kind".to_owned(), "WORK_INVALID"),
            (format!("/admin/dead-letters?error={long}"), "WORK_INVALID"),
            (format!("/admin/dead-letters/groups?name={long}"), "WORK_INVALID"),
            ("/admin/dead-letters?failedSince=-1".to_owned(), "WORK_INVALID"),
        ] {
            assert_eq!(house.admin.refusal(get(&path)).await, refused(400, code), "{path}");
        }
        for (body, code) in [
            (json!({ "action": "burn" }), "BODY_INVALID"),
            (json!({ "action": "retry", "filter": { "status": "dead" } }), "BODY_INVALID"),
            (json!({ "action": "retry", "filter": { "colour": "red" } }), "BODY_INVALID"),
            (json!({ "action": "retry", "filter": { "group": "1" } }), "BODY_INVALID"),
            (json!({ "action": "retry", "filter": { "status": "resolved" } }), "WORK_INVALID"),
            (json!({ "action": "ignore", "filter": { "error": "" } }), "WORK_INVALID"),
        ] {
            let refusal = house.admin.refusal(post("/admin/dead-letter-operations", &body.to_string())).await;
            assert_eq!(refusal, refused(400, code), "{body}");
        }
        for path in ["/admin/dead-letters/letter_9", "/admin/dead-letters/9"] {
            assert_eq!(house.admin.refusal(get(path)).await, refused(404, "DEAD_LETTER_NOT_FOUND"));
        }
        let unknown = house.admin.refusal(get("/admin/dead-letter-operations/operation_9")).await;
        assert_eq!(unknown, refused(404, "LETTER_OPERATION_NOT_FOUND"));
    });
}

#[test]
fn readers_look_operators_act_and_only_admins_purge() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.charge(1).await;
        let (reader, operator) =
            (house.server.token(Role::Reader).await, house.server.token(Role::Operator).await);
        let ask = async |request: Request, token: &str| {
            request.token(token).send(house.server.address).await.status
        };
        assert_eq!(ask(get("/admin/dead-letters"), &reader).await, 200);
        let retry = json!({ "action": "retry" }).to_string();
        let purge = json!({ "action": "purge" }).to_string();
        let path = "/admin/dead-letter-operations";
        assert_eq!(ask(post(path, &retry), &reader).await, 403);
        assert_eq!(ask(post(path, &retry), &operator).await, 200);
        assert_eq!(ask(post(path, &purge), &operator).await, 403);
        let previewed = house.admin.post(path, json!({ "action": "purge" })).await;
        let run = format!("{path}/{}/run", previewed["operationId"].as_str().unwrap());
        assert_eq!(ask(post(&run, "{}"), &operator).await, 403);
        assert_eq!(ask(post(&run, "{}"), &house.admin.token).await, 200);
    });
}

#[test]
fn b_223_a_renamed_admin_route_still_answers_and_says_so() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        logged::start();
        let server = Running::start_on(options(), store).await;
        let token = server.token(Role::Reader).await;
        let old = get("/admin/test/renamed").token(&token).send(server.address).await;
        assert_eq!((old.status, old.header("deprecation")), (200, Some("true")), "{old:?}");
        assert_eq!(old.header("link"), Some("</v1/test/who>; rel=\"successor-version\""));
        let text = logged::text();
        let warned = |line: &str| {
            line.contains(" WARN ")
                && line.contains("going away")
                && line.contains("action=\"GET /admin/test/renamed\"")
        };
        assert!(text.lines().any(warned), "nobody was warned");
        let new = get("/v1/test/who").token(&token).send(server.address).await;
        assert_eq!((new.status, new.header("deprecation")), (200, None), "{new:?}");
        let described = get("/openapi.json").send(server.address).await.json();
        assert_eq!(described["paths"]["/admin/test/renamed"]["get"]["deprecated"], true);
    });
}

#[test]
fn b_246_b_247_health_and_figures_tell_of_the_inbox_and_of_nothing_else() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let events = (0..10).map(|number| NewEvent::new("Ordered", &number).unwrap());
        house.services.log.append(Append::new(events)).await.unwrap();
        let projecting = house.services.projections.start();
        let pending = async |count: u64, is_degraded: bool| {
            let status = if is_degraded { "degraded" } else { "healthy" };
            house
                .admin
                .until("/health", |health| {
                    let parts = health["components"].as_array().unwrap();
                    let letters = parts.iter().find(|part| part["name"] == "deadLetters").unwrap();
                    (&letters["details"]["pending"], &letters["status"]) == (&json!(count), &json!(status))
                })
                .await;
            // What was read a moment ago may be told again.
            let reading = async {
                loop {
                    let figures = Exposition::read(&get("/metrics").send(house.server.address).await.body);
                    if figures.value(PENDING, &[("kind", "projection")]) == Some(count as f64) {
                        return figures;
                    }
                }
            };
            let figures = tokio::time::timeout(PATIENCE, reading).await.expect("they are counted");
            for kind in ["work", "onComplete", "append", "publication", "quarantinedEvent"] {
                assert_eq!(figures.value(PENDING, &[("kind", kind)]), Some(0.0), "{kind}");
            }
        };
        let retry = async || {
            let previewed =
                house.admin.post("/admin/dead-letter-operations", json!({ "action": "retry" })).await;
            let operation =
                format!("/admin/dead-letter-operations/{}", previewed["operationId"].as_str().unwrap());
            house.admin.post(&format!("{operation}/run"), json!({})).await;
            house.admin.until(&operation, |one| one["status"] == "done").await;
            house.admin.until("/admin/dead-letters/stats?status=retrying", |stats| stats["total"] == 0).await;
        };
        pending(10, true).await;
        retry().await;
        pending(10, true).await;
        house.is_well.store(true, Ordering::SeqCst);
        retry().await;
        pending(0, false).await;
        projecting.stop(PATIENCE).await;
    });
}

#[test]
fn b_155_an_end_that_is_given_up_is_said_in_the_log_with_where_it_is() {
    logged::start();
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let item = NewWork::new("shop", "note", "ord-155").unwrap().on_complete(CAUGHT, "ord-155").unwrap();
        let action = house.services.work.enqueue(item.correlated("corr-155")).await.unwrap().work_id;
        let is_there = |stats: &Value| stats["total"] == 1;
        house.admin.until("/admin/dead-letters/stats?kind=onComplete", is_there).await;
        let letter = house.admin.get("/admin/dead-letters?kind=onComplete").await["letters"][0].clone();
        let saying = async {
            loop {
                let text = logged::text();
                if let Some(line) =
                    text.lines().find(|line| line.contains("given up") && line.contains(&action))
                {
                    return line.to_owned();
                }
                tokio::task::yield_now().await;
            }
        };
        let line = tokio::time::timeout(PATIENCE, saying).await.expect("a line of the log");
        let reference = letter["reference"].as_str().unwrap();
        for part in [" WARN ", CAUGHT, reference, "corr-155", "attempts=2", "is at version 0, not 7"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    });
}

#[test]
fn b_228_letters_that_are_dealt_with_and_circuits_that_are_closed_are_not_counted() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.charge(3).await;
        let letters = house.admin.get("/admin/dead-letters").await;
        let id = letters["letters"][0]["letterId"].as_str().unwrap();
        house.admin.post(&format!("/admin/dead-letters/{id}/ignore"), json!({})).await;
        for (circuit, state) in [("mail", "open"), ("payments", "closed")] {
            let force = json!({"state": state, "reason": "test"});
            house.admin.post(&format!("/admin/circuits/{circuit}/force"), force).await;
        }
        let told = house.admin.get("/admin/system").await;
        let summary = &told["summary"];
        assert_eq!((&summary["pendingDeadLetters"], &told["deadLetters"]["total"]), (&json!(2), &json!(3)));
        assert_eq!(told["deadLetters"]["byProjectionAndStatus"], json!({}), "none is a projection's");
        assert_eq!(summary["openCircuits"], 1);
        assert_eq!(told["circuitBreakers"], json!({"mail": "open", "payments": "closed"}));
        let critical = json!(["the circuit mail is open", "2 dead letters wait for somebody"]);
        assert_eq!(summary["critical"], critical);
    });
}

#[test]
fn what_is_secret_by_its_name_is_hidden_where_letters_are_looked_at() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let args = json!({"order": 5, "apiKey": "canary-args"});
        let send = NewWork::new("shop", "send", &args).unwrap();
        let send = send.context(&json!({"clientSecret": "canary-context"})).unwrap();
        let id = house.services.work.enqueue(send).await.unwrap().work_id;
        house.services.work.wait_for(&id, PATIENCE).await.unwrap();
        let list = house.admin.get("/admin/dead-letters").await;
        let letter = format!("/admin/dead-letters/{}", list["letters"][0]["letterId"].as_str().unwrap());
        let detail = house.admin.get(&letter).await;
        assert_eq!(detail["work"]["args"], json!({"order": 5, "apiKey": "[hidden]"}), "{detail}");
        assert_eq!(detail["work"]["context"], json!({"clientSecret": "[hidden]"}));
        let lists = ["/admin/work?state=failed", "/admin/dead-letters"];
        let single = [format!("/admin/work/{id}"), format!("/admin/runs/{id}")];
        for path in lists.into_iter().chain(single.iter().map(String::as_str)) {
            let told = house.admin.get(path).await.to_string();
            assert!(!told.contains("canary-"), "{path}: {told}");
        }
        let event = NewEvent::new("Signed", &json!({"order": 5, "passphrase": "canary-data"})).unwrap();
        house.services.log.append(Append::new([event])).await.unwrap();
        let _projecting = house.services.projections.start();
        let is_there = |page: &Value| page["letters"].as_array().is_some_and(|letters| !letters.is_empty());
        let letters = house.admin.until("/admin/projection-letters", is_there).await;
        assert_eq!(
            letters["letters"][0]["payload"],
            json!({"order": 5, "passphrase": "[hidden]"}),
            "{letters}"
        );
        let event_id = letters["letters"][0]["eventId"].as_str().unwrap();
        let letter = house.admin.get(&format!("/admin/projection-letters/strict/{event_id}")).await;
        assert_eq!(letter["payload"]["passphrase"], "[hidden]", "{letter}");
        // What is tried again is what was given.
        let kept = house.services.work.letter(&id).await.unwrap();
        assert!(kept.args.get().contains("canary-args"));
    });
}
