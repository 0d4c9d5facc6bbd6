//! Read models over HTTP: how they are doing, replays, what they could not take, and what belongs together.

use crate::asking::Asking;
use crate::client::{Request, get, post, request};
use crate::running::{Running, options};
use mainstay_events::{Event, NewEvent};
use mainstay_flows::commands::{Command, Commands, Decision, Handling};
use mainstay_flows::projections::{Category, Model, Poison, Projecting, Projection, Registry};
use mainstay_server::audit::{Audit, Filter, Outcome};
use mainstay_server::{Builder, Role, Services, equipped};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::{Place, for_each_lasting_store, for_each_store};
use mainstay_work::Engine;
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// `orders` has a row for each event, `poisoned` puts every `OrderSpoiled` aside, `strict` makes a letter of it.
fn registry() -> Registry {
    let spoiled = async |_: Tx, _: Model, event: Event| match event.event_type() {
        "OrderSpoiled" => Err(mainstay_store::Error::application("spoiled")),
        _ => Ok(()),
    };
    let table = ["CREATE TABLE {table} (id TEXT NOT NULL)"];
    let orders = Projection::new("orders", Category::View).table("orders", &table).each(
        async |tx: Tx, model: Model, event: Event| {
            let sql = format!("INSERT INTO {} (id) VALUES ($1)", model.table("orders")?);
            tx.execute(&sql, params![event.id()]).await
        },
    );
    let once = mainstay_work::RetryPolicy::new(1, 1, 1.0, 1).unwrap();
    let poisoned = Projection::new("poisoned", Category::Logic).poison(Poison::new(1, false)).each(spoiled);
    let strict = Projection::new("strict", Category::Logic).retry(once).each(spoiled);
    Registry::new().with(orders).with(poisoned).with(strict)
}

fn commands() -> Commands {
    Commands::new().on("SubmitOrder", async |_: Handling, types: Vec<String>| {
        let events =
            types.iter().map(|event_type| NewEvent::new(event_type, &1)).collect::<Result<Vec<_>, _>>()?;
        Ok(Decision::success((), events))
    })
}

struct House {
    server: Running,
    services: Services,
    engine: Engine,
    projecting: Projecting,
    admin: Asking,
}

impl House {
    async fn open(place: &Place) -> Self {
        Self::open_with(place, registry()).await
    }

    async fn open_with(place: &Place, registry: Registry) -> Self {
        let store = equipped(place.options()).open().await.unwrap();
        let services =
            Builder::on_store(store.clone()).commands(commands()).projections(registry).open().await.unwrap();
        let (engine, projecting) = (services.work.start().await.unwrap(), services.projections.start());
        let server = Running::start_with(options(), services.clone()).await;
        let admin = Asking::new(&server, Role::Admin).await;
        Self { server, services, engine, projecting, admin }
    }

    /// Previews an operation on dead letters, runs it and waits for its end.
    async fn carry_out(&self, wanted: Value) -> Value {
        let previewed = self.admin.post("/admin/dead-letter-operations", wanted).await;
        let operation =
            format!("/admin/dead-letter-operations/{}", previewed["operationId"].as_str().unwrap());
        self.admin.post(&format!("{operation}/run"), json!({})).await;
        self.admin.until(&operation, |one| one["status"] == "done").await
    }

    /// A command whose events have all been looked at by all read models.
    async fn submit(&self, correlation_id: &str, types: &[&str]) -> u64 {
        let command = Command::new("SubmitOrder", types).unwrap().correlation(correlation_id);
        let dispatched = self.services.commands.dispatch(command).await.unwrap();
        let last = dispatched.outcome.events().last().unwrap().position;
        for projection in ["orders", "poisoned", "strict"] {
            self.services.projections.wait_for(projection, last, PATIENCE).await.unwrap();
        }
        last
    }

    async fn close(self) {
        self.projecting.stop(PATIENCE).await;
        self.engine.stop(PATIENCE).await.unwrap();
    }
}

fn put(path: &str, body: &Value) -> Request {
    request("PUT", path).header("content-type", "application/json").body(&body.to_string())
}

#[test]
fn read_models_are_looked_at_paused_and_moved() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.submit("corr-1", &["OrderSubmitted", "OrderConfirmed"]).await;
        let all = house.admin.get("/admin/projections").await;
        let names: Vec<_> =
            all["projections"].as_array().unwrap().iter().map(|one| one["projection"].clone()).collect();
        assert_eq!(names, ["orders", "poisoned", "strict"]);
        let orders = house.admin.get("/admin/projections/orders").await;
        assert_eq!(
            (&orders["status"], &orders["lag"], &orders["category"]),
            (&json!("active"), &json!(0), &json!("view"))
        );
        assert_eq!(house.admin.post("/admin/projections/orders/pause", json!({})).await["status"], "paused");
        let twice = house.admin.refusal(post("/admin/projections/orders/pause", "{}")).await;
        assert_eq!(twice, (409, "PROJECTION_STATUS_CONFLICT".to_owned()));
        let moved = house.admin.ask(put("/admin/checkpoints/orders/0", &json!({ "position": 1 }))).await;
        assert_eq!(moved.1["checkpoints"][0]["lastGlobalPosition"], 1, "{moved:?}");
        let beyond =
            house.admin.refusal(put("/admin/checkpoints/orders/0", &json!({ "position": 99 }))).await;
        assert_eq!(beyond, (422, "CHECKPOINT_BEYOND_HEAD".to_owned()));
        assert_eq!(house.admin.post("/admin/projections/orders/resume", json!({})).await["status"], "active");
        house.admin.until("/admin/projections/orders", |orders| orders["lag"] == 0).await;
        assert_eq!(house.admin.get("/admin/checkpoints").await["checkpoints"].as_array().unwrap().len(), 3);
        for path in ["/admin/projections/none", "/admin/projections/none/pause"] {
            let asked = if path.ends_with("pause") { post(path, "{}") } else { get(path) };
            assert_eq!(house.admin.refusal(asked).await, (404, "UNKNOWN_PROJECTION".to_owned()));
        }
        house.close().await;
    });
}

#[test]
fn b_204_b_208_b_212_read_models_are_filled_anew_by_operators_alone() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.submit("corr-1", &["OrderSubmitted"; 5]).await;
        let begun = house.admin.post("/admin/projections/orders/replays", json!({ "chunkSize": 2 })).await;
        assert_eq!(begun["totalEvents"], 5);
        let path = format!("/admin/replays/{}", begun["replayId"].as_str().unwrap());
        let done = house.admin.until(&path, |replay| replay["status"] == "completed").await;
        assert_eq!((&done["eventsProcessed"], &done["percentComplete"]), (&json!(5), &json!(100.0)));
        assert_eq!(house.admin.get("/admin/replays").await["replays"], json!([]));
        assert_eq!(house.admin.get("/admin/replays?ended=true&limit=1").await["replays"], json!([done]));
        let none = house.admin.refusal(get("/admin/replays?ended=true&limit=0")).await;
        assert_eq!(none, (400, "QUERY_INVALID".to_owned()));
        let cancelled = house.admin.refusal(post(&format!("{path}/cancel"), "{}")).await;
        assert_eq!(cancelled, (409, "REPLAY_NOT_RUNNING".to_owned()));
        let missing = house.admin.refusal(get("/admin/replays/replay_9")).await;
        assert_eq!(missing, (404, "REPLAY_NOT_FOUND".to_owned()));
        let empty =
            house.admin.refusal(post("/admin/projections/orders/replays", r#"{"chunkSize":0}"#)).await;
        assert_eq!(empty, (400, "FLOW_INVALID".to_owned()));
        let all = house.admin.post("/admin/replays", json!({})).await;
        let codes: Vec<_> =
            all["replays"].as_array().unwrap().iter().map(|one| one["code"].clone()).collect();
        assert_eq!(codes[1..], ["PROJECTION_NOT_REBUILDABLE", "PROJECTION_NOT_REBUILDABLE"], "{all}");
        let reader = house.server.token(Role::Reader).await;
        let refused = post("/admin/projections/orders/replays", "{}").token(&reader);
        assert_eq!(refused.send(house.server.address).await.status, 403);
        house.close().await;
    });
}

#[test]
fn b_224_b_232_a_rebuild_is_triggered_followed_and_cancelled_and_each_leaves_one_entry() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.submit("corr-1", &["OrderSubmitted", "OrderSpoiled"]).await;
        // Nothing of it is carried out meanwhile.
        house.admin.post("/admin/pools/eventReplayPool/pause", json!({})).await;
        let entries = async |action: &str| {
            let all = Filter { after: Some(0), ..Filter::default() };
            let all = Audit::new(house.server.store.clone()).list(all, 1_000).await.unwrap();
            all.into_iter().filter(|entry| entry.action == action).collect::<Vec<_>>()
        };
        let (trigger, path) = ("POST /admin/projections/{name}/replays", "/admin/projections/orders/replays");

        // An entry that cannot be written keeps the rebuild from being triggered.
        let hide = async |tx: Tx| tx.execute("ALTER TABLE mainstay_audit RENAME TO hidden", &[]).await;
        house.server.store.transact(hide).await.unwrap();
        assert_eq!(house.admin.ask(post(path, "{}")).await.0, 500);
        let show = async |tx: Tx| tx.execute("ALTER TABLE hidden RENAME TO mainstay_audit", &[]).await;
        house.server.store.transact(show).await.unwrap();
        assert_eq!(house.admin.get("/admin/replays").await["replays"], json!([]));
        assert!(entries(trigger).await.is_empty());

        let begun = house.admin.post(path, json!({ "chunkSize": 1 })).await;
        let id = begun["replayId"].as_str().unwrap();
        let written = entries(trigger).await;
        assert_eq!((written.len(), written[0].outcome), (1, Outcome::Done), "{written:?}");
        assert!(house.admin.token.contains(&written[0].user_id) && written[0].timestamp > 0);
        assert_eq!(written[0].args, json!({"path": path, "body": {"chunkSize": 1}}));
        let listed = house.admin.get("/admin/replays").await;
        assert_eq!(
            (listed["replays"].as_array().unwrap().len(), &listed["replays"][0]["replayId"]),
            (1, &json!(id))
        );
        let replay = format!("/admin/replays/{id}");
        let status = house.admin.get(&replay).await;
        assert_eq!((&status["status"], &status["totalEvents"]), (&json!("running"), &json!(2)), "{status}");
        house.admin.post(&format!("{replay}/cancel"), json!({})).await;
        assert_eq!(house.admin.get(&replay).await["status"], "cancelled");
        assert_eq!(house.admin.get("/admin/replays").await["replays"], json!([]));
        assert_eq!(entries("POST /admin/replays/{replayId}/cancel").await.len(), 1);

        let letters = house.admin.get("/admin/dead-letters?kind=projection&status=pending").await;
        let letter = format!("/admin/dead-letters/{}", letters["letters"][0]["letterId"].as_str().unwrap());
        house.admin.post(&format!("{letter}/ignore"), json!({})).await;
        assert_eq!(house.admin.get(&letter).await["status"], "ignored");
        let trace = house.admin.get("/admin/traces/corr-1").await;
        assert_eq!(trace["events"].as_array().unwrap().len(), 2, "{trace}");
        assert_eq!(house.admin.get("/admin/system").await["projections"]["activeRebuilds"], json!([]));
        assert_eq!(house.admin.get("/admin/runs/work_unknown").await, json!({ "found": false }));
        house.close().await;
    });
}

#[test]
fn what_read_models_could_not_take_is_listed_tried_again_and_left() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.submit("corr-1", &["OrderSpoiled", "OrderSpoiled", "OrderSubmitted"]).await;
        let poison = house.admin.get("/admin/poison-events?projection=poisoned&limit=1").await;
        assert_eq!(poison["poisonEvents"].as_array().unwrap().len(), 1);
        let next = format!("/admin/poison-events?limit=1&cursor={}", poison["next"].as_str().unwrap());
        let second = house.admin.get(&next).await;
        assert_eq!(second["poisonEvents"][0]["position"], 2);
        assert_eq!(
            house.admin.get("/admin/poison-events/stats").await["byProjection"],
            json!({ "poisoned": 2 })
        );
        let event_id = poison["poisonEvents"][0]["eventId"].as_str().unwrap();
        let again = house
            .admin
            .post(&format!("/admin/poison-events/poisoned/{event_id}/unquarantine"), json!({}))
            .await;
        assert!(again["workId"].is_string());
        house.admin.until("/admin/poison-events/stats", |stats| stats["total"] == 2).await;
        house.admin.post(&format!("/admin/poison-events/poisoned/{event_id}/ignore"), json!({})).await;
        assert_eq!(house.admin.get("/admin/poison-events/stats").await["total"], 1);

        let letters = house.admin.get("/admin/projection-letters?projection=strict&status=pending").await;
        assert_eq!(letters["letters"].as_array().unwrap().len(), 2);
        let stats = house.admin.get("/admin/projection-letters/stats").await;
        assert_eq!(stats["byProjectionAndStatus"], json!({ "strict:pending": 2 }));
        let letter = format!(
            "/admin/projection-letters/strict/{}",
            letters["letters"][0]["eventId"].as_str().unwrap()
        );
        assert!(house.admin.post(&format!("{letter}/retry"), json!({})).await["workId"].is_string());
        house.admin.until(&letter, |letter| letter["status"] == "pending" && letter["retryCount"] == 1).await;
        let many = house
            .carry_out(json!({ "action": "retry", "filter": { "kind": "projection" }, "limit": 1 }))
            .await;
        assert_eq!(many["done"], 1);
        house
            .admin
            .until("/admin/projection-letters/stats", |stats| {
                stats["byProjectionAndStatus"]["strict:pending"] == 2
            })
            .await;
        assert_eq!(house.admin.post(&format!("{letter}/ignore"), json!({})).await["count"], 1);
        let ignored = json!({ "kind": "projection", "name": "strict", "status": "ignored" });
        assert_eq!(house.carry_out(json!({ "action": "retry", "filter": ignored })).await["done"], 1);
        house.admin.until(&letter, |letter| letter["status"] == "pending").await;
        assert_eq!(house.admin.post(&format!("{letter}/ignore"), json!({})).await["count"], 1);
        let resolved =
            post("/admin/dead-letter-operations", r#"{"action":"retry","filter":{"status":"resolved"}}"#);
        assert_eq!(house.admin.refusal(resolved).await, (400, "WORK_INVALID".to_owned()));
        let left = json!({ "kind": "projection", "name": "strict" });
        assert_eq!(house.carry_out(json!({ "action": "ignore", "filter": left })).await["done"], 1);
        assert_eq!(house.carry_out(json!({ "action": "purge" })).await["done"], 0);
        let missing = house.admin.refusal(get("/admin/projection-letters/strict/evt_9")).await;
        assert_eq!(missing, (404, "PROJECTION_LETTER_NOT_FOUND".to_owned()));
        let bad = house.admin.refusal(get("/admin/projection-letters?cursor=x")).await;
        assert_eq!(bad.0, 400);
        house.close().await;
    });
}

#[test]
fn b_216_b_220_b_221_a_letter_is_looked_into_run_and_seen_to_by_hand() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.submit("corr-1", &["OrderSpoiled"]).await;
        let listed = house.admin.get("/admin/projection-letters").await;
        assert_eq!(listed["letters"][0]["payload"], 1, "{listed}");
        let event_id = listed["letters"][0]["eventId"].as_str().unwrap();
        let letter = format!("/admin/projection-letters/strict/{event_id}");
        assert_eq!(house.admin.get(&letter).await["payload"], 1);
        let taken = house.admin.post(&format!("{letter}/prepare"), json!({})).await;
        assert_eq!((&taken["status"], &taken["payload"]), (&json!("retrying"), &json!(1)));
        let twice = house.admin.refusal(post(&format!("{letter}/run"), "{}")).await;
        assert_eq!(twice, (409, "PROJECTION_LETTER_NOT_PENDING".to_owned()));
        let complete = |error: Option<&str>| json!({ "runId": taken["retryRunId"], "error": error });
        let empty = post("/admin/projection-letters/complete", &complete(Some("")).to_string());
        assert_eq!(house.admin.refusal(empty).await, (400, "FLOW_INVALID".to_owned()));
        let ended = house.admin.post("/admin/projection-letters/complete", complete(Some("not yet"))).await;
        assert_eq!(ended["count"], 1);
        assert_eq!(house.admin.get(&letter).await["lastError"], "not yet");
        let unknown = house.admin.post("/admin/projection-letters/complete", complete(None)).await;
        assert_eq!(unknown["count"], 0);
        let nobody = house.admin.refusal(post(&format!("{letter}/run"), r#"{"action":"nobody"}"#)).await;
        assert_eq!(nobody.0, 422, "{nobody:?}");
        let run = house.admin.post(&format!("{letter}/run"), json!({})).await;
        let running = house.admin.get(&letter).await;
        assert_eq!((&running["status"], &running["retryRunId"]), (&json!("retrying"), &run["runId"]));
        let reader = house.server.token(Role::Reader).await;
        for path in [format!("{letter}/prepare"), format!("{letter}/run")] {
            assert_eq!(post(&path, "{}").token(&reader).send(house.server.address).await.status, 403);
        }
        house.close().await;
    });
}

#[test]
fn b_225_b_226_b_227_what_belongs_together_is_followed_from_the_command_to_the_read_models() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.submit("corr-123", &["OrderSubmitted", "OrderConfirmed", "OrderSpoiled"]).await;
        house.submit("other", &["OrderSubmitted"]).await;
        let trace = house.admin.get("/admin/traces/corr-123").await;
        assert_eq!(trace["correlationId"], "corr-123");
        assert_eq!(
            (&trace["command"]["commandType"], &trace["command"]["status"]),
            (&json!("SubmitOrder"), &json!("executed"))
        );
        let types: Vec<_> =
            trace["events"].as_array().unwrap().iter().map(|event| event["eventType"].clone()).collect();
        assert_eq!(types, ["OrderSubmitted", "OrderConfirmed", "OrderSpoiled"]);
        let updates = |name: &str| {
            let updates = trace["projectionUpdates"].as_array().unwrap().iter();
            updates.filter(|update| update["projectionName"] == name).count()
        };
        assert_eq!((updates("orders"), updates("poisoned"), updates("strict")), (3, 2, 2));
        let mut letters: Vec<_> = trace["deadLetters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|letter| {
                format!(
                    "{} {}",
                    letter["projectionName"].as_str().unwrap(),
                    letter["status"].as_str().unwrap()
                )
            })
            .collect();
        letters.sort();
        assert_eq!(letters, ["poisoned quarantined", "strict pending"]);
        assert!(trace["deadLetters"][0]["error"].as_str().unwrap().contains("spoiled"));
        assert_eq!(trace["sagas"], json!([]));
        let nothing = house.admin.get("/admin/traces/unknown").await;
        assert_eq!((&nothing["command"], &nothing["events"]), (&Value::Null, &json!([])));
        house.close().await;
    });
}

/// How many periods are looked at, until one is quiet.
const PERIODS: usize = 3;

/// Longer than twice what anybody who follows the log waits before they look again by themselves.
const IDLE: Duration = Duration::from_secs(12);

#[test]
fn an_idle_server_asks_its_database_nearly_nothing_however_many_read_models_it_has() {
    for_each_lasting_store(async |place| {
        let more = (0..30).map(|number| {
            let nothing = async |_: Tx, _: Model, _: Event| Ok(());
            Projection::new(format!("more-{number}"), Category::View).each(nothing)
        });
        let house = House::open_with(&place, more.fold(registry(), Registry::with)).await;
        let last = house.submit("corr-1", &["OrderSubmitted", "OrderSpoiled"]).await;
        for number in 0..30 {
            house.services.projections.wait_for(&format!("more-{number}"), last, PATIENCE).await.unwrap();
        }
        // Transactions of both kinds; those that write count twice on PostgreSQL, as they have more than one statement.
        let figures = house.server.store.figures();
        let asked = || figures.committed.get() + figures.wait_time.snapshot().count;
        // Whatever came of that has ended.
        let settling = async {
            loop {
                let before = asked();
                tokio::time::sleep(Duration::from_millis(500)).await;
                if asked() - before <= 1 {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, settling).await.expect("it comes to rest");
        // On a machine under load something that began before may end in the first period, but not in each of them.
        let mut counts = Vec::new();
        while counts.len() < PERIODS && counts.last().is_none_or(|count| *count >= 2 * IDLE.as_secs()) {
            let before = asked();
            tokio::time::sleep(IDLE).await;
            counts.push(asked() - before);
        }
        println!("{}: asked {counts:?} times in {IDLE:?}", place.kind());
        assert!(
            counts.last().is_some_and(|count| *count < 2 * IDLE.as_secs()),
            "{counts:?} times in {IDLE:?}"
        );
        house.close().await;
    });
}
