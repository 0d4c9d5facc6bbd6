//! Who reaches what: every operation that the API describes, for every kind of caller.
//!
//! What there is belongs to the tenant `globex`, or to nobody, and says so. A token of another tenant must neither do
//! anything to it nor be told of it, by whatever id it asks.

use crate::client::{Request, get, post, request};
use crate::running::{Running, options};
use mainstay_core::failure::Failure;
use mainstay_events::{Append, Event, NewEvent};
use mainstay_flows::commands::{Commands, Decision, Handling};
use mainstay_flows::delivery::intents::{NewIntent, OnTimeout};
use mainstay_flows::delivery::publications::{Delivery, Retry, Target, Targets};
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_flows::projections::{Category, Model, Poison, Projecting, Projection, Registry};
use mainstay_guards::circuits::Force;
use mainstay_server::tokens::New;
use mainstay_server::{Builder, Role, Services, Tokens, equipped};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use mainstay_work::{Call, Engine, FunctionKind, Functions, NewWork, Pool, Pull, RetryPolicy};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// After everything here has ended, however slow the machine is.
const LATER: Duration = Duration::from_secs(3_600);
/// What stands in everything that is somebody else's.
pub(crate) const CANARY: &str = "globex-canary";
/// The key of a scope of events of the same tenant.
pub(crate) const SCOPE_KEY: &str = "tenant:globex:order:globex-canary";
/// Read models: one that is rebuilt, one that puts events aside, and one that makes letters of them.
const READ_MODEL: &str = "orderSummary";
const POISONED: &str = "productCatalog";
const STRICT: &str = "orderWithInventory";

/// Operations that a token of a tenant may be answered with yes: they are about what is its own, or about nobody's.
const OWN: [&str; 16] = [
    "explainErrorCode",
    "health",
    "listAudit",
    "listErrorCodes",
    "listIntents",
    "listOrphanedIntents",
    "listTokens",
    "live",
    "livez",
    "openapi",
    "readEvents",
    "readStream",
    "ready",
    "readyz",
    "signOutEverywhere",
    "subscribeEvents",
];

/// Those that answer 503 when something is wrong, as here it is.
const PROBES: [&str; 3] = ["health", "ready", "readyz"];

/// An operation as it is described.
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) permission: String,
}

pub(crate) async fn operations(server: &Running) -> Vec<Operation> {
    let description = get("/openapi.json").send(server.address).await.json();
    let mut all = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let text = |member: &str| operation[member].as_str().unwrap().to_owned();
            let (id, permission) = (text("operationId"), text("x-permission"));
            all.push(Operation { id, method: method.to_uppercase(), path: path.clone(), permission });
        }
    }
    // The routes of the tests themselves are open.
    all.retain(|operation| !operation.path.contains("/test/"));
    assert!(all.len() > 140, "{} operations", all.len());
    all
}

pub(crate) struct House {
    pub(crate) server: Running,
    services: Services,
    engine: Option<Engine>,
    projecting: Option<Projecting>,
    ids: BTreeMap<&'static str, String>,
}

impl House {
    pub(crate) async fn open(place: &Place) -> Self {
        let store = equipped(place.options()).open().await.unwrap();
        let targets = Targets::new(Retry { max_retries: 1, initial_backoff_ms: 1, base: 1.0 })
            .with(Target::subscriber("inventory", async |_: Delivery| Err(Failure::permanent(CANARY))));
        let functions = Functions::new()
            .action("refuse", async |_: Call, _: Value| Err::<(), _>(Failure::permanent(CANARY)));
        let commands = Commands::new().on("Place", async |_: Handling, order: String| {
            Ok(Decision::success(order, [] as [NewEvent; 0]))
        });
        let spoiled =
            async |_: Tx, _: Model, _: Event| Err::<(), _>(mainstay_store::Error::application(CANARY));
        let once = RetryPolicy::new(1, 1, 1.0, 1).unwrap();
        let poisoned = Projection::new(POISONED, Category::Logic).poison(Poison::new(1, false)).each(spoiled);
        let strict = Projection::new(STRICT, Category::Logic).retry(once).each(spoiled);
        let orders = Projection::new(READ_MODEL, Category::View)
            .table("orders", &["CREATE TABLE {table} (id TEXT NOT NULL)"])
            .each(async |_: Tx, _: Model, _: Event| Ok(()));
        let registry = Registry::new().with(orders).with(poisoned).with(strict);
        let services = Builder::on_store(store.clone())
            .commands(commands)
            .projections(registry)
            .targets(targets)
            .functions(functions)
            .open()
            .await
            .unwrap();
        services.work.pool(Pool::new("shop").retry(RetryPolicy::new(1, 1, 1.0, 1).unwrap())).await.unwrap();
        let (engine, projecting) = (services.work.start().await.unwrap(), services.projections.start());
        let server =
            Running::start_with(options().configuration(json!({"canary": CANARY})), services.clone()).await;
        let (engine, projecting) = (Some(engine), Some(projecting));
        let mut house = Self { server, services, engine, projecting, ids: BTreeMap::new() };
        house.furnish().await;
        house
    }

    /// Something of every kind, all of it another tenant's or nobody's.
    async fn furnish(&mut self) {
        let services = &self.services;
        let event =
            NewEvent::new("OrderSubmitted", &CANARY).unwrap().tenant("globex").stream("order", CANARY);
        let event = event.tag(CANARY).correlation(CANARY);
        let appended = services.log.append(Append::from(event)).await.unwrap();
        let (event, position) = (appended.events[0].event_id.clone(), appended.events[0].position);
        for projection in [READ_MODEL, POISONED, STRICT] {
            services.projections.wait_for(projection, position, PATIENCE).await.unwrap();
        }
        // The replay stays where it is.
        services.work.pause("eventReplayPool").await.unwrap();
        let replay = services.projections.trigger_rebuild(Rebuild::of(READ_MODEL)).await.unwrap().replay_id;
        services.publications.publish(&event, "orders", ["inventory"]).await.unwrap();
        let delivery = services.publications.status(&event).await.unwrap()[0].work_id.clone().unwrap();
        services.work.wait_for(&delivery, PATIENCE).await.unwrap();
        let intent = NewIntent::new("Submission", ("Order", CANARY), "orders", PATIENCE, OnTimeout::alert());
        let intent = services.intents.record(intent.tenant("globex")).await.unwrap().intent_key;
        let failed = NewWork::new("shop", "refuse", CANARY).unwrap().key(CANARY).correlated(CANARY);
        let failed = services.work.enqueue(failed).await.unwrap().work_id;
        services.work.wait_for(&failed, PATIENCE).await.unwrap();
        let later = NewWork::new("shop", "refuse", CANARY).unwrap().key(CANARY).run_after(LATER);
        let later = services.work.enqueue(later).await.unwrap().work_id;
        services.work.declare("remote", FunctionKind::Action).await.unwrap();
        services.work.enqueue(NewWork::new("shop", "remote", CANARY).unwrap().key("remote")).await.unwrap();
        let pull = Pull {
            pool: "shop".to_owned(),
            functions: vec!["remote".to_owned()],
            must_be_known: Vec::new(),
            most: 1,
            lease: LATER,
            wait: PATIENCE,
            worker: "globex".to_owned(),
        };
        let pulled = services.work.pull(pull).await.unwrap();
        let force = Force { is_open: true, actor: CANARY.into(), reason: CANARY.into(), for_ms: None };
        services.circuits.force("mail", force).await.unwrap();
        let letters = services.dead_letters.list(Default::default(), None, 10).await.unwrap();
        let letter = mainstay_flows::dead_letters::Listed::id(letters.letters[0].number);
        let globex = self.token(Role::Operator, Some("globex")).await;
        let scope = json!({"key": SCOPE_KEY, "expectedVersion": 0});
        let scoped = json!({"type": "Noted", "data": CANARY, "scope": scope, "idempotencyKey": CANARY});
        let scoped = json!({"events": [scoped]}).to_string();
        let scoped = post("/v1/events", &scoped).token(&globex).send(self.server.address).await;
        assert_eq!(scoped.status, 200, "{scoped:?}");
        let command = json!({"commandType": "Place", "payload": CANARY, "commandId": CANARY});
        let placed =
            post("/v1/commands", &command.to_string()).token(&globex).send(self.server.address).await;
        assert_eq!(placed.status, 200, "{placed:?}");
        let spare = New::named(CANARY, Role::Reader).unwrap().tenant("globex").unwrap();
        let (spare, _) = Tokens::new(self.server.store.clone()).create(spare).await.unwrap();
        self.ids = BTreeMap::from([
            ("eventId", event),
            ("replay", replay),
            ("intentKey", intent),
            ("failed", failed),
            ("waiting", later),
            ("letter", letter),
            ("token", spare.id.to_string()),
            ("pulled", pulled.items[0].work_id.clone()),
            ("lease", pulled.lease.unwrap()),
        ]);
    }

    /// A projection that cannot go on, with what it says about somebody else's data, as whoever may see all is told.
    async fn break_down(&self, reader: &str) {
        let fail = async |tx: Tx| {
            let sql = "UPDATE mainstay_projections SET status = 'error', error_message = $2 WHERE name = $1";
            tx.execute(sql, params![STRICT, CANARY]).await.map(drop)
        };
        self.server.store.transact(fail).await.unwrap();
        while !get("/health").token(reader).send(self.server.address).await.body.contains(CANARY) {}
        // Whoever is on this machine may look at everything, and everybody whether the server is ready.
        let address = self.server.address;
        assert!(get("/health").send(address).await.body.contains(CANARY));
        for probe in ["/health/ready", "/readyz?verbose", "/readyz", "/livez"] {
            let answer = get(probe).send(address).await;
            assert!(!answer.body.contains(CANARY), "{probe} for everybody: {answer:?}");
        }
    }

    pub(crate) async fn token(&self, role: Role, tenant: Option<&str>) -> String {
        let new = New::named("test", role).unwrap();
        let new = tenant.into_iter().fold(new, |new, tenant| new.tenant(tenant).unwrap());
        let (_, secret) = Tokens::new(self.server.store.clone()).create(new).await.unwrap();
        secret.reveal().to_owned()
    }

    /// Stops everything that works beside the server: from here on, rows change by requests only.
    pub(crate) async fn quiet(&mut self) {
        if let Some(projecting) = self.projecting.take() {
            projecting.stop(PATIENCE).await;
        }
        if let Some(engine) = self.engine.take() {
            engine.stop(PATIENCE).await.unwrap();
        }
    }

    /// The id of what is there of a kind.
    pub(crate) fn id(&self, kind: &str) -> &str {
        &self.ids[kind]
    }

    /// For each parameter in the path of an operation, a value that names what is there.
    pub(crate) fn path_values<'a>(&'a self, operation: &Operation) -> Vec<(&'static str, &'a str)> {
        let id = match operation.path.as_str() {
            path if path.starts_with("/admin/tokens/") => "token",
            path if path.starts_with("/admin/dead-letters/") => "letter",
            path if path.ends_with("/retry") => "failed",
            path if path.ends_with("/complete") || path.ends_with("/fail") => "pulled",
            _ => "waiting",
        };
        let name = match operation.path.as_str() {
            path if path.starts_with("/admin/projections/") => READ_MODEL,
            _ => "mail",
        };
        let projection = match operation.path.as_str() {
            path if path.starts_with("/admin/poison-events/") => POISONED,
            path if path.starts_with("/admin/projection-letters/") => STRICT,
            _ => READ_MODEL,
        };
        let values = vec![
            ("{id}", if operation.path.starts_with("/v1/streams/") { CANARY } else { &self.ids[id] }),
            ("{eventId}", &self.ids["eventId"]),
            ("{intentKey}", &self.ids["intentKey"]),
            ("{code}", "STORE_BUSY"),
            ("{type}", "order"),
            ("{pool}", "shop"),
            ("{name}", name),
            ("{target}", "inventory"),
            ("{projection}", projection),
            ("{partition}", "0"),
            ("{replayId}", &self.ids["replay"]),
            ("{correlationId}", CANARY),
            ("{lease}", &self.ids["lease"]),
            ("{function}", "mail"),
            ("{commandId}", CANARY),
        ];
        values.into_iter().filter(|(name, _)| operation.path.contains(name)).collect()
    }

    /// A request that names what is there.
    fn request(&self, operation: &Operation) -> Request {
        let values = self.path_values(operation);
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

/// What a token of another tenant was answered by, with whatever role it has.
async fn as_a_stranger(house: &House, operations: &[Operation], asks: Role) {
    // A tenant of its own: what it asked itself is in its audit.
    let acme = house.token(asks, Some(&format!("acme {asks}"))).await;
    let (mut answered, mut wrong) = (Vec::new(), Vec::new());
    for operation in operations {
        let answer = house.request(operation).token(&acme).begin(house.server.address).await;
        let shown = format!("{} {} for a stranger: {answer:?}", operation.method, operation.path);
        let is_probe = PROBES.contains(&operation.id.as_str());
        // A problem repeats the id that was asked for; nobody learns anything by that.
        let is_told = answer.body.contains(CANARY) && (answer.status < 300 || is_probe);
        if is_told || answer.status >= 500 && !is_probe {
            wrong.push(shown);
        }
        if answer.status < 300 || is_probe {
            answered.push(operation.id.as_str());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    answered.sort_unstable();
    let may = |id: &&str| {
        let operation = operations.iter().find(|operation| operation.id == *id).unwrap();
        role(&operation.permission).is_none_or(|needed| needed <= asks)
    };
    let own: Vec<&str> = OWN.into_iter().filter(may).collect();
    assert_eq!(answered, own, "what {asks} of another tenant is answered by");
}

/// Views of the console that show what is somebody else's, if to anybody.
fn views(house: &House) -> Vec<String> {
    let lists = [
        "",
        "/events",
        "/work",
        "/work/pools/shop",
        "/projections",
        "/projections/orderSummary",
        "/dead-letters",
        "/dead-letters/operations",
        "/publications",
        "/intents",
        "/circuits",
        "/circuits/mail",
        "/limits",
        "/audit",
        "/configuration",
        "/live",
        "/live/events",
    ];
    let singles = [
        format!("/events/{}", house.ids["eventId"]),
        format!("/work/{}", house.ids["failed"]),
        format!("/dead-letters/{}", house.ids["letter"]),
    ];
    let all = lists.into_iter().map(str::to_owned).chain(singles);
    all.map(|view| format!("/console{view}")).collect()
}

async fn console_keeps_it_to_itself(house: &House) {
    let token = house.token(Role::Admin, Some("initech")).await;
    let form = "application/x-www-form-urlencoded";
    let login =
        request("POST", "/console/login").header("Content-Type", form).body(&format!("token={token}"));
    let came = login.send(house.server.address).await;
    let cookie = came.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    for view in views(house) {
        for request in [get(&view), get(&view).header("Cookie", "mainstay_console=made-up")] {
            let answer = request.send(house.server.address).await;
            let to = answer.header("location").unwrap_or_default();
            assert!(answer.status == 303 && to.starts_with("/console/login?to="), "{view}: {answer:?}");
            assert!(!answer.body.contains(CANARY), "{view}: {answer:?}");
        }
        let part = get(&view).header("HX-Request", "true").send(house.server.address).await;
        part.problem(401, "UNAUTHENTICATED");
        // What streams does not end by itself.
        if !view.starts_with("/console/live") {
            let shown = get(&view).header("Cookie", &cookie).send(house.server.address).await;
            assert!(!shown.body.contains(CANARY), "{view} for a stranger: {shown:?}");
        }
    }
    for path in ["/console/act", "/console/logout"] {
        let form = request("POST", path).header("Content-Type", form).body("call=POST+/admin/replays");
        form.send(house.server.address).await.problem(401, "UNAUTHENTICATED");
    }
}

#[test]
fn b_229_b_230_no_operation_lets_in_whom_it_should_not() {
    // Who may do what is decided before the store is asked; the long form asks every kind of it all the same.
    if std::env::var_os("MAINSTAY_LONG").is_some() {
        return for_each_store(nobody_reaches_what_it_should_not);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(nobody_reaches_what_it_should_not(Place::new(Kind::SqliteMemory)));
}

async fn nobody_reaches_what_it_should_not(place: Place) {
    let house = House::open(&place).await;
    let mut unconfined = Vec::new();
    for role in Role::ALL {
        unconfined.push((role, house.token(role, None).await));
    }
    // That there are tokens is known here within a second.
    while get("/v1/events").send(house.server.address).await.status != 401 {}
    let operations = operations(&house.server).await;
    house.break_down(&unconfined[0].1).await;
    let before = house.services.log.head().await.unwrap();
    for operation in operations.iter().filter(|operation| role(&operation.permission).is_some()) {
        let answer = house.request(operation).send(house.server.address).await;
        answer.problem(401, "UNAUTHENTICATED");
    }
    for role in Role::ALL {
        as_a_stranger(&house, &operations, role).await;
    }
    console_keeps_it_to_itself(&house).await;
    assert!(
        house.services.log.head().await.unwrap() <= before + 2,
        "each that may begin an intent may have begun one of its own"
    );
    let later = house.services.work.status(&house.ids["waiting"]).await.unwrap().unwrap();
    assert_eq!(later.state, mainstay_work::State::Pending, "nobody has touched it");
    let replay = house.services.projections.rebuild_status(&house.ids["replay"]).await.unwrap();
    assert_eq!(replay.status, ReplayStatus::Running, "nor that");

    let mut wrong = Vec::new();
    for operation in &operations {
        let Some(needed) = role(&operation.permission) else { continue };
        for (role, token) in &unconfined {
            let answer = house.request(operation).token(token).begin(house.server.address).await;
            let shown = format!("{} {} for {role}: {answer:?}", operation.method, operation.path);
            if *role < needed {
                let problem = answer.problem(403, "UNAUTHORIZED");
                assert_eq!(problem["detail"], format!("{needed} role required"), "{shown}");
            } else {
                let is_let_in = ![401, 403].contains(&answer.status) && answer.status < 500;
                wrong.extend((!is_let_in && !PROBES.contains(&operation.id.as_str())).then_some(shown));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
