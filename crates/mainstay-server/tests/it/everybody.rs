//! Who reaches what: every operation that the API describes, for every kind of caller.
//!
//! What there is belongs to the tenant `globex`, or to nobody, and says so. A token of the tenant `acme` must neither do
//! anything to it nor be told of it, by whatever id it asks.

use crate::client::{Request, get, post, request};
use crate::running::{Running, options};
use mainstay_core::failure::Failure;
use mainstay_events::{Append, NewEvent};
use mainstay_flows::commands::{Commands, Decision, Handling};
use mainstay_flows::delivery::intents::{NewIntent, OnTimeout};
use mainstay_flows::delivery::publications::{Delivery, Retry, Target, Targets};
use mainstay_flows::projections::Registry;
use mainstay_guards::circuits::Force;
use mainstay_server::tokens::New;
use mainstay_server::{Role, Rooms, Tokens, equipped};
use mainstay_testkit::stores::{Kind, Place};
use mainstay_work::{Call, Engine, Functions, NewWork, Pool, RetryPolicy};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// What stands in everything that is somebody else's.
const CANARY: &str = "globex-canary";

/// Operations that a token of a tenant may be answered with yes: they are about what is its own, or about nobody's.
const OWN: [&str; 13] = [
    "health",
    "listAudit",
    "listIntents",
    "listOrphanedIntents",
    "listTokens",
    "live",
    "livez",
    "metrics",
    "openapi",
    "readEvents",
    "readStream",
    "ready",
    "readyz",
];

/// An operation as it is described.
struct Operation {
    id: String,
    method: String,
    path: String,
    permission: String,
}

async fn operations(server: &Running) -> Vec<Operation> {
    let description = get("/openapi.json").send(server.address).await.json();
    let mut all = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let text = |member: &str| operation[member].as_str().unwrap().to_owned();
            let (id, permission) = (text("operationId"), text("x-permission"));
            all.push(Operation { id, method: method.to_uppercase(), path: path.clone(), permission });
        }
    }
    // What streams until the server stops is tested where it streams; the routes of the tests themselves are open.
    let streams = |path: &str| path.ends_with("/subscribe") || path.contains("/test/");
    all.retain(|operation| !streams(&operation.path));
    assert!(all.len() > 140, "{} operations", all.len());
    all
}

struct House {
    server: Running,
    rooms: Rooms,
    _engine: Engine,
    _place: Place,
    ids: BTreeMap<&'static str, String>,
}

impl House {
    async fn open() -> Self {
        let place = Place::new(Kind::SqliteMemory);
        let store = equipped(place.options()).open().await.unwrap();
        let targets = Targets::new(Retry { max_retries: 1, initial_backoff_ms: 1, base: 1.0 })
            .with(Target::subscriber("inventory", async |_: Delivery| Err(Failure::permanent(CANARY))));
        let functions = Functions::new()
            .action("refuse", async |_: Call, _: Value| Err::<(), _>(Failure::permanent(CANARY)));
        let commands = Commands::new().on("Place", async |_: Handling, order: String| {
            Ok(Decision::success(order, [] as [NewEvent; 0]))
        });
        let registry = Registry::new();
        let rooms = Rooms::open_publishing(&store, commands, registry, targets, |_| functions).await.unwrap();
        rooms.work.pool(Pool::new("shop").retry(RetryPolicy::new(1, 1, 1.0, 1).unwrap())).await.unwrap();
        let engine = rooms.work.start().await.unwrap();
        let server =
            Running::start_with(options().configuration(json!({"canary": CANARY})), rooms.clone()).await;
        let mut house = Self { server, rooms, _engine: engine, _place: place, ids: BTreeMap::new() };
        house.furnish().await;
        house
    }

    /// Something of every kind, all of it another tenant's or nobody's.
    async fn furnish(&mut self) {
        let rooms = &self.rooms;
        let event =
            NewEvent::new("OrderSubmitted", &CANARY).unwrap().tenant("globex").stream("order", CANARY);
        let event = event.tag(CANARY).correlation(CANARY);
        let event = rooms.log.append(Append::from(event)).await.unwrap().events[0].event_id.clone();
        rooms.publications.publish(&event, "orders", ["inventory"]).await.unwrap();
        let delivery = rooms.publications.status(&event).await.unwrap()[0].work_id.clone().unwrap();
        rooms.work.wait_for(&delivery, PATIENCE).await.unwrap();
        let intent = NewIntent::new("Submission", ("Order", CANARY), "orders", PATIENCE, OnTimeout::alert());
        let intent = rooms.intents.record(intent.tenant("globex")).await.unwrap().intent_key;
        let failed = NewWork::new("shop", "refuse", CANARY).unwrap().key(CANARY).correlated(CANARY);
        let failed = rooms.work.enqueue(failed).await.unwrap().work_id;
        rooms.work.wait_for(&failed, PATIENCE).await.unwrap();
        let later = NewWork::new("shop", "refuse", CANARY).unwrap().key(CANARY).run_after(PATIENCE);
        let later = rooms.work.enqueue(later).await.unwrap().work_id;
        let force = Force { is_open: true, actor: CANARY.into(), reason: CANARY.into(), for_ms: None };
        rooms.circuits.force("mail", force).await.unwrap();
        let letters = rooms.dead_letters.list(Default::default(), None, 10).await.unwrap();
        let letter = mainstay_flows::dead_letters::Listed::id(letters[0].number);
        let globex = self.token(Role::Operator, Some("globex")).await;
        let command = json!({"commandType": "Place", "payload": CANARY, "commandId": CANARY});
        let placed =
            post("/v1/commands", &command.to_string()).token(&globex).send(self.server.address).await;
        assert_eq!(placed.status, 200, "{placed:?}");
        let spare = New::named(CANARY, Role::Reader).unwrap().tenant("globex").unwrap();
        let (spare, _) = Tokens::new(self.server.store.clone()).create(spare).await.unwrap();
        self.ids = BTreeMap::from([
            ("eventId", event),
            ("intentKey", intent),
            ("failed", failed),
            ("waiting", later),
            ("letter", letter),
            ("token", spare.id.to_string()),
        ]);
    }

    async fn token(&self, role: Role, tenant: Option<&str>) -> String {
        let new = New::named("test", role).unwrap();
        let new = tenant.into_iter().fold(new, |new, tenant| new.tenant(tenant).unwrap());
        let (_, secret) = Tokens::new(self.server.store.clone()).create(new).await.unwrap();
        secret.reveal().to_owned()
    }

    /// A request that names what is there.
    fn request(&self, operation: &Operation) -> Request {
        let id = match operation.path.as_str() {
            path if path.starts_with("/admin/tokens/") => "token",
            path if path.starts_with("/admin/dead-letters/") => "letter",
            path if path.starts_with("/admin/letters/") || path.ends_with("/retry") => "failed",
            _ => "waiting",
        };
        let values = [
            ("{id}", if operation.path.starts_with("/v1/streams/") { CANARY } else { &self.ids[id] }),
            ("{eventId}", &self.ids["eventId"]),
            ("{intentKey}", &self.ids["intentKey"]),
            ("{type}", "order"),
            ("{pool}", "shop"),
            ("{name}", "mail"),
            ("{target}", "inventory"),
            ("{projection}", CANARY),
            ("{partition}", "0"),
            ("{replayId}", CANARY),
            ("{correlationId}", CANARY),
            ("{lease}", "1"),
            ("{commandId}", CANARY),
        ];
        let path =
            values.iter().fold(operation.path.clone(), |path, (name, value)| path.replace(name, value));
        assert!(!path.contains('{'), "{path}: a value for its parameter is missing in this test");
        let event = &self.ids["eventId"];
        let body = match operation.id.as_str() {
            "appendEvents" => json!({"events": [{"type": "E", "data": 1, "tenantId": "globex"}]}),
            "publishEvent" => {
                json!({"eventId": event, "sourceContext": "orders", "targetContexts": ["inventory"]})
            }
            "completeIntent" => json!({"status": "completed"}),
            "abandonIntent" | "releaseCircuit" | "resetCircuit" => json!({"reason": "mine"}),
            "forceCircuit" => json!({"state": "closed", "reason": "mine"}),
            "enqueueWork" => json!({"function": "refuse", "args": 1}),
            "createToken" => json!({"name": "mine", "role": "admin", "tenant": "globex"}),
            _ => json!({}),
        };
        match operation.method.as_str() {
            "GET" => get(&path),
            "POST" => post(&path, &body.to_string()),
            method => {
                request(method, &path).header("Content-Type", "application/json").body(&body.to_string())
            }
        }
    }
}

fn role(permission: &str) -> Option<Role> {
    match permission {
        "public" | "local" => None,
        name => Some(name.parse().unwrap()),
    }
}

#[test]
fn b_229_b_230_no_operation_lets_in_whom_it_should_not() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let house = House::open().await;
        let acme = house.token(Role::Admin, Some("acme")).await;
        let mut unconfined = Vec::new();
        for role in Role::ALL {
            unconfined.push((role, house.token(role, None).await));
        }
        // That there are tokens is known here within a second.
        while get("/v1/events").send(house.server.address).await.status != 401 {}
        let operations = operations(&house.server).await;
        let before = house.rooms.log.head().await.unwrap();
        let (mut answered, mut wrong) = (Vec::new(), Vec::new());
        for operation in &operations {
            let request = house.request(operation);
            if role(&operation.permission).is_some() {
                request.send(house.server.address).await.problem(401, "UNAUTHENTICATED");
            }
            let answer = request.token(&acme).send(house.server.address).await;
            let shown = format!("{} {} for a stranger: {answer:?}", operation.method, operation.path);
            // A problem repeats the id that was asked for; nobody learns anything by that.
            let is_told = answer.body.contains(CANARY) && answer.status < 300;
            if is_told || answer.status >= 500 {
                wrong.push(shown);
            }
            if answer.status < 300 {
                answered.push(operation.id.as_str());
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        answered.sort_unstable();
        assert_eq!(answered, OWN, "what a token of another tenant is answered by");
        assert!(
            house.rooms.log.head().await.unwrap() <= before + 1,
            "it may have begun an intent of its own"
        );
        let later = house.rooms.work.status(&house.ids["waiting"]).await.unwrap().unwrap();
        assert_eq!(later.state, mainstay_work::State::Pending, "nobody has touched it");

        for operation in &operations {
            let Some(needed) = role(&operation.permission) else { continue };
            for (role, token) in &unconfined {
                let answer = house.request(operation).token(token).send(house.server.address).await;
                let shown = format!("{} {} for {role}: {answer:?}", operation.method, operation.path);
                if *role < needed {
                    let problem = answer.problem(403, "UNAUTHORIZED");
                    assert_eq!(problem["detail"], format!("{needed} role required"), "{shown}");
                } else {
                    let is_let_in = ![401, 403].contains(&answer.status) && answer.status < 500;
                    wrong.extend((!is_let_in).then_some(shown));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}
