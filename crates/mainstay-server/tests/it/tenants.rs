//! Who reaches intents and publications: every route, for every kind of caller.

use crate::client::{Request, get, post};
use crate::running::{Running, options};
use mainstay_events::{Append, NewEvent};
use mainstay_flows::commands::{Commands, Decision, Handling};
use mainstay_flows::delivery::intents::{NewIntent, OnTimeout};
use mainstay_flows::delivery::publications::{Delivery, Retry, Target, Targets};
use mainstay_flows::projections::Registry;
use mainstay_server::tokens::New;
use mainstay_server::{Builder, Permission, Role, Services, Tokens, equipped};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::{Engine, Failure, FunctionKind};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Each route, and how it treats a token that is confined to a tenant.
const ROUTES: [(&str, Confined); 14] = [
    ("POST /v1/intents", Confined::Own),
    ("POST /v1/intents/{intentKey}/complete", Confined::Hidden("INTENT_NOT_FOUND")),
    ("GET /v1/intents/orphans", Confined::Own),
    ("GET /admin/intents", Confined::Own),
    ("GET /admin/intents/{intentKey}", Confined::Hidden("INTENT_NOT_FOUND")),
    ("POST /admin/intents/{intentKey}/abandon", Confined::Hidden("INTENT_NOT_FOUND")),
    ("POST /v1/publications", Confined::Hidden("EVENT_NOT_FOUND")),
    ("GET /v1/publications/{eventId}", Confined::Hidden("PUBLICATION_NOT_FOUND")),
    ("GET /admin/publications", Confined::Refused),
    ("GET /admin/publications/letters", Confined::Refused),
    ("GET /admin/publications/letters/stats", Confined::Refused),
    ("GET /admin/publications/letters/{target}/{eventId}", Confined::Refused),
    ("POST /admin/publications/letters/{target}/{eventId}/retry", Confined::Refused),
    ("POST /admin/publications/letters/{target}/{eventId}/ignore", Confined::Refused),
];

#[derive(Clone, Copy, PartialEq)]
enum Confined {
    /// It sees its own, and nothing of others.
    Own,
    /// What is another tenant's is not there.
    Hidden(&'static str),
    /// It belongs to no tenant.
    Refused,
}

struct House {
    server: Running,
    services: Services,
    _engine: Engine,
}

impl House {
    /// `inventory` takes everything, `analytics` nothing.
    async fn open(place: &Place) -> Self {
        let targets = Targets::new(Retry { max_retries: 5, initial_backoff_ms: 1, base: 1.0 })
            .with(Target::subscriber("inventory", async |_: Delivery| Ok(())))
            .with(Target::subscriber("analytics", async |_: Delivery| Err(Failure::permanent("no"))));
        let store = equipped(place.options()).open().await.unwrap();
        let commands = Commands::new().on("Note", async |_: Handling, text: String| {
            let event = NewEvent::new("Noted", &text)?;
            Ok(Decision::success(text, [event]))
        });
        let registry = Registry::new();
        let services = Builder::on_store(store.clone())
            .commands(commands)
            .projections(registry)
            .targets(targets)
            .open()
            .await;
        let services = services.unwrap();
        let engine = services.work.start().await.unwrap();
        let server = Running::start_with(options(), services.clone()).await;
        Self { server, services, _engine: engine }
    }

    async fn token(&self, role: Role, tenant: Option<&str>) -> String {
        let new = New::named("test", role).unwrap();
        let new = tenant.into_iter().fold(new, |new, tenant| new.tenant(tenant).unwrap());
        let (_, secret) = Tokens::new(self.server.store.clone()).create(new).await.unwrap();
        secret.reveal().to_owned()
    }

    /// An event of a tenant, or of nobody in particular.
    async fn event(&self, tenant: Option<&str>) -> String {
        let event = NewEvent::new("OrderSubmitted", &1).unwrap();
        let event = tenant.into_iter().fold(event, NewEvent::tenant);
        self.services.log.append(Append::from(event)).await.unwrap().events[0].event_id.clone()
    }

    /// An event that was published to a target.
    async fn published(&self, tenant: Option<&str>, target: &str) -> String {
        let id = self.event(tenant).await;
        self.services.publications.publish(&id, "orders", [target]).await.unwrap();
        let work_id = self.services.publications.status(&id).await.unwrap()[0].work_id.clone().unwrap();
        self.services.work.wait_for(&work_id, PATIENCE).await.unwrap();
        id
    }

    async fn intent(&self, tenant: Option<&str>) -> String {
        let new = NewIntent::new("Submission", ("Order", "1"), "orders", PATIENCE, OnTimeout::alert());
        let new = tenant.into_iter().fold(new, NewIntent::tenant);
        self.services.intents.record(new).await.unwrap().intent_key
    }

    /// A request to a route about something new, which is a tenant's or nobody's in particular.
    async fn request(&self, route: &str, tenant: Option<&str>) -> Request {
        let (method, mut path) =
            route.split_once(' ').map(|(method, path)| (method, path.to_owned())).unwrap();
        if path.contains("{intentKey}") {
            path = path.replace("{intentKey}", &self.intent(tenant).await);
        }
        if path.contains("{eventId}") {
            let target = if path.contains("{target}") { "analytics" } else { "inventory" };
            path =
                path.replace("{eventId}", &self.published(tenant, target).await).replace("{target}", target);
        }
        let body = match route {
            "POST /v1/intents" => submission(),
            "POST /v1/intents/{intentKey}/complete" => json!({ "status": "success" }),
            "POST /v1/publications" => {
                let id = self.event(tenant).await;
                json!({ "eventId": id, "sourceContext": "orders", "targetContexts": ["inventory"] })
            }
            _ => json!({}),
        };
        if method == "GET" { get(&path) } else { post(&path, &body.to_string()) }
    }

    /// What somebody is told.
    async fn told(&self, request: Request, token: &str) -> (u16, Value) {
        let answer = request.token(token).send(self.server.address).await;
        (answer.status, answer.json())
    }
}

fn submission() -> Value {
    json!({
        "operationType": "Submission", "streamType": "Order", "streamId": "1", "boundedContext": "orders",
        "timeoutMs": 300_000, "onTimeout": "alert",
    })
}

#[test]
fn every_route_lets_in_whom_it_must_and_nobody_else() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let is_delivery = |path: &str| path.contains("/intents") || path.contains("/publications");
        let served = house.server.table.iter().filter(|route| is_delivery(&route.path));
        let served: BTreeSet<String> = served.map(|one| format!("{} {}", one.method, one.path)).collect();
        assert_eq!(served, ROUTES.iter().map(|(route, _)| (*route).to_owned()).collect());

        let roles = [Role::Reader, Role::Operator, Role::Admin];
        let mut open = Vec::new();
        for role in roles {
            open.push((role, house.token(role, None).await, house.token(role, Some("acme")).await));
        }
        // That there are tokens is known here within a second.
        while get("/admin/intents").send(house.server.address).await.status != 401 {}
        for (route, confined) in ROUTES {
            let nobody = house.request(route, Some("acme")).await.send(house.server.address).await;
            nobody.problem(401, "UNAUTHENTICATED");
            let (_, path) = route.split_once(' ').unwrap();
            let rule = house
                .server
                .table
                .iter()
                .find(|one| route.starts_with(one.method.as_str()) && one.path == path);
            let needs_operator = rule.unwrap().permission != Permission::Reader;
            assert_eq!(needs_operator, route.starts_with("POST"), "{route}");
            for (role, everybodys, acmes) in &open {
                let is_enough = *role != Role::Reader || !needs_operator;
                let (status, body) = house.told(house.request(route, Some("acme")).await, everybodys).await;
                let expected = if is_enough { 200 } else { 403 };
                assert_eq!(status, expected, "{route} for {role:?}: {body}");
                let (status, body) = house.told(house.request(route, Some("acme")).await, acmes).await;
                let expected = if is_enough && confined != Confined::Refused { 200 } else { 403 };
                assert_eq!(status, expected, "{route} for acme's {role:?}: {body}");
                if status == 403 {
                    assert_eq!(body["code"], "UNAUTHORIZED", "{route}");
                }
            }
        }
    });
}

#[test]
fn what_is_another_tenants_or_nobodys_is_not_there_for_a_tenant() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let acme = house.token(Role::Admin, Some("acme")).await;
        for owner in [Some("globex"), None] {
            for (route, confined) in ROUTES {
                let request = house.request(route, owner).await;
                let before = house.services.log.head().await.unwrap();
                let (status, body) = house.told(request, &acme).await;
                match confined {
                    Confined::Hidden(code) => {
                        assert_eq!((status, &body["code"]), (404, &json!(code)), "{route} of {owner:?}");
                        assert_eq!(
                            house.services.log.head().await.unwrap(),
                            before,
                            "{route} changed something"
                        );
                    }
                    Confined::Refused => {
                        assert_eq!((status, &body["code"]), (403, &json!("UNAUTHORIZED")), "{route}");
                    }
                    Confined::Own => assert_eq!(status, 200, "{route}: {body}"),
                }
            }
        }
        // All that it sees is what it began itself.
        for list in ["/v1/intents/orphans", "/admin/intents", "/admin/intents?operationType=Submission"] {
            let (_, page) = house.told(get(list), &acme).await;
            let owners: Vec<&Value> =
                page["intents"].as_array().unwrap().iter().map(|one| &one["tenantId"]).collect();
            assert_eq!(owners, ["acme", "acme"], "{list}");
        }
        let (_, events) = house.told(get("/v1/events"), &acme).await;
        assert_eq!(events["events"][0]["tenantId"], "acme", "the event of an intent is its tenant's");
    });
}

#[test]
fn a_tenant_lets_no_work_be_started_by_an_intent() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.services.work.declare("resubmit", FunctionKind::Action).await.unwrap();
        let mut asked = submission();
        asked["handler"] = json!("resubmit");
        let request = || post("/v1/intents", &asked.to_string());
        let acme = house.token(Role::Admin, Some("acme")).await;
        let (status, problem) = house.told(request(), &acme).await;
        assert_eq!((status, &problem["code"]), (403, &json!("UNAUTHORIZED")), "{problem}");
        assert_eq!(house.services.log.head().await.unwrap(), 0);
        let operator = house.token(Role::Operator, None).await;
        assert_eq!(house.told(request(), &operator).await.0, 200);
    });
}

/// The document of an answer, without what names the request.
fn told_of(mut document: Value, id: &str) -> String {
    if let Some(members) = document.as_object_mut() {
        for name in ["instance", "requestId", "traceId", "correlationId"] {
            members.remove(name);
        }
    }
    document.to_string().replace(id, "ID")
}

#[test]
fn ids_of_other_tenants_are_free_for_a_tenant_and_tell_nothing() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let initech = house.token(Role::Admin, Some("initech")).await;
        let event =
            json!({ "events": [{ "type": "OrderSubmitted", "data": 1, "eventId": "evt-1" }] }).to_string();
        let command = json!({ "commandType": "Note", "payload": "x", "commandId": "cmd-1" }).to_string();
        let mut intent = submission();
        intent["startedAt"] = json!(1_700_000_000_000_i64);
        let (intent, key) = (intent.to_string(), "Submission:Order:1:1700000000000");
        let publication =
            json!({ "eventId": "evt-1", "sourceContext": "orders", "targetContexts": ["inventory"] })
                .to_string();
        for tenant in ["acme", "globex"] {
            let token = house.token(Role::Operator, Some(tenant)).await;
            let (status, body) = house.told(post("/v1/events", &event), &token).await;
            assert_eq!((status, &body["status"]), (200, &json!("appended")), "{tenant}: {body}");
            let (status, body) = house.told(post("/v1/events", &event), &token).await;
            assert_eq!((status, &body["code"]), (409, &json!("EVENT_ID_TAKEN")), "{tenant}");
            for (path, asked) in [("/v1/commands", &command), ("/v1/intents", &intent)] {
                for is_duplicate in [false, true] {
                    let (status, body) = house.told(post(path, asked), &token).await;
                    let expected = (200, &json!(is_duplicate));
                    assert_eq!((status, &body["isDuplicate"]), expected, "{path} of {tenant}: {body}");
                }
            }
            for is_duplicate in [false, true] {
                let (status, body) = house.told(post("/v1/publications", &publication), &token).await;
                let published = &body["publications"][0]["isDuplicate"];
                assert_eq!((status, published), (200, &json!(is_duplicate)), "{tenant}: {body}");
            }
        }
        let acme = house.token(Role::Admin, Some("acme")).await;
        let done = json!({ "status": "success" }).to_string();
        let (status, _) = house.told(post(&format!("/v1/intents/{key}/complete"), &done), &acme).await;
        assert_eq!(status, 200);
        let globex = house.token(Role::Admin, Some("globex")).await;
        let (_, other) = house.told(get(&format!("/admin/intents/{key}")), &globex).await;
        assert_eq!((&other["status"], &other["tenantId"]), (&json!("pending"), &json!("globex")));
        // The answers about another tenant's id and about an unknown one do not differ.
        for (prefix, id) in [
            ("/v1/events/", "evt-1"),
            ("/v1/commands/", "cmd-1"),
            ("/v1/publications/", "evt-1"),
            ("/admin/intents/", key),
        ] {
            let (status, known) = house.told(get(&format!("{prefix}{id}")), &initech).await;
            let (_, unknown) = house.told(get(&format!("{prefix}none")), &initech).await;
            assert_eq!(status, 404, "{prefix}");
            assert_eq!(told_of(known, id), told_of(unknown, "none"), "{prefix}");
            let (status, own) = house.told(get(&format!("{prefix}{id}")), &acme).await;
            let shown = if prefix.contains("publications") { &own["publications"][0] } else { &own };
            assert_eq!((status, &shown["tenantId"]), (200, &json!("acme")), "{prefix}: {own}");
        }
    });
}

#[test]
fn whoever_sees_all_tenants_names_the_one_that_is_meant() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let admin = house.token(Role::Admin, None).await;
        for tenant in ["acme", "globex"] {
            let event = NewEvent::new("OrderSubmitted", &1).unwrap().id("evt-1").tenant(tenant);
            house.services.log.append(Append::from(event)).await.unwrap();
            let publisher = house.services.publications.for_tenant(tenant);
            publisher.publish("evt-1", "orders", ["analytics"]).await.unwrap();
            let work_id = publisher.status("evt-1").await.unwrap()[0].work_id.clone().unwrap();
            house.services.work.wait_for(&work_id, PATIENCE).await.unwrap();
        }
        let letter = "/admin/publications/letters/analytics/evt-1";
        for path in ["/v1/events/evt-1", "/v1/publications/evt-1", letter] {
            let (status, body) = house.told(get(path), &admin).await;
            assert_eq!((status, &body["code"]), (409, &json!("TENANT_REQUIRED")), "{path}: {body}");
            let (status, body) = house.told(get(&format!("{path}?tenant=globex")), &admin).await;
            let shown = if path.starts_with("/v1/publications") { &body["publications"][0] } else { &body };
            assert_eq!((status, &shown["tenantId"]), (200, &json!("globex")), "{path}: {body}");
        }
        let (status, _) = house.told(post(&format!("{letter}/ignore"), "{}"), &admin).await;
        assert_eq!(status, 409, "nothing is done by guessing");
        let (status, _) = house.told(post(&format!("{letter}/ignore?tenant=acme"), "{}"), &admin).await;
        assert_eq!(status, 200);
        let (_, letters) = house.told(get("/admin/publications/letters"), &admin).await;
        let states: BTreeSet<(&str, &str)> = letters["letters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["tenantId"].as_str().unwrap(), one["status"].as_str().unwrap()))
            .collect();
        assert_eq!(states, BTreeSet::from([("acme", "ignored"), ("globex", "pending")]));
        let acme = house.token(Role::Reader, Some("acme")).await;
        let (status, body) = house.told(get("/v1/events/evt-1?tenant=globex"), &acme).await;
        assert_eq!((status, &body["code"]), (403, &json!("TENANT_MISMATCH")));
        assert_eq!(house.told(get("/v1/events/evt-1?tenant=acme"), &acme).await.0, 200);
    });
}

#[test]
fn an_idempotency_key_of_a_request_is_its_callers_own() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        for tenant in ["acme", "globex"] {
            let token = house.token(Role::Operator, Some(tenant)).await;
            let event = json!({ "events": [{ "type": "Taken", "data": tenant }] }).to_string();
            for is_replay in [false, true] {
                let request = post("/v1/events", &event).header("Idempotency-Key", "key-1").token(&token);
                let answer = request.send(house.server.address).await;
                let replayed = answer.header("idempotency-replayed").is_some();
                assert_eq!((answer.status, replayed), (200, is_replay), "{tenant}: {answer:?}");
            }
        }
        assert_eq!(house.services.log.head().await.unwrap(), 2);
    });
}
