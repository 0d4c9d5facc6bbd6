//! Commands over HTTP.

use crate::client::{Request, get, post};
use crate::running::{Running, options};
use mainstay_events::NewEvent;
use mainstay_flows::commands::middleware::RateLimit;
use mainstay_flows::commands::{Commands, Decision, Handling, Rejection};
use mainstay_guards::limits::{Policy, RateLimitChecker, memory};
use mainstay_server::tokens::New;
use mainstay_server::{Builder, Role, Tokens, equipped};
use mainstay_testkit::stores::{Place, for_each_store};
use serde_json::{Value, json};
use std::sync::Arc;

fn event(name: &str, order: u32) -> mainstay_events::Result<NewEvent> {
    NewEvent::new(name, &order).map(|event| event.tag(format!("order:{order}")))
}

/// `Place` appends an event, `Refuse` does not, `Fail` appends another one, `Break` cannot be done; nine commands of a kind
/// are too much.
fn commands() -> Commands {
    let limiter = memory::limiter(Policy::bucket(9.0, 0.001).unwrap());
    Commands::new()
        .on("Place", async |_: Handling, order: u32| {
            Ok(Decision::success(json!({ "order": order }), [event("OrderPlaced", order)?]))
        })
        .on("Refuse", async |_: Handling, _: u32| -> mainstay_store::Result<Decision<NewEvent, ()>> {
            Err(Rejection::new("ORDER_NOT_FOUND", "there is none").with(json!({ "order": 7 })).into())
        })
        .on("Fail", async |_: Handling, order: u32| {
            Ok(Decision::<_, ()>::failed("out of stock", [event("OrderFailed", order)?]))
        })
        .on("Break", async |_: Handling, _: u32| -> mainstay_store::Result<Decision<NewEvent, ()>> {
            Err(mainstay_store::Error::application("a secret of the house"))
        })
        .with(RateLimit::new(RateLimitChecker::new(Arc::new(limiter))))
}

struct House {
    server: Running,
    admin: String,
}

impl House {
    async fn open(place: &Place) -> Self {
        let store = equipped(place.options()).open().await.unwrap();
        let services = Builder::on_store(store.clone()).commands(commands()).open().await.unwrap();
        let server = Running::start_with(options(), services).await;
        let admin = server.token(Role::Admin).await;
        Self { server, admin }
    }

    async fn ask(&self, request: Request) -> (u16, Value) {
        let answer = request.token(&self.admin).send(self.server.address).await;
        (answer.status, answer.json())
    }

    async fn send(&self, body: Value) -> (u16, Value) {
        self.ask(post("/v1/commands", &body.to_string())).await
    }
}

#[test]
fn a_command_is_decided_once_for_its_id() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let command =
            json!({"commandType": "Place", "payload": 7, "commandId": "cmd-1", "correlationId": "corr-1"});
        let (status, first) = house.send(command.clone()).await;
        assert_eq!(status, 200, "{first}");
        assert_eq!((&first["isDuplicate"], &first["correlationId"]), (&json!(false), &json!("corr-1")));
        assert_eq!(first["result"]["data"], json!({"order": 7}));
        assert_eq!(first["result"]["events"][0]["position"], 1);
        let (status, again) = house.send(command).await;
        assert_eq!((status, &again["isDuplicate"], &again["result"]), (200, &json!(true), &first["result"]));
        let (_, known) = house.ask(get("/v1/commands/cmd-1")).await;
        assert_eq!((&known["state"], &known["commandType"]), (&json!("executed"), &json!("Place")));
        let (_, events) = house.ask(get("/v1/events?correlationId=corr-1")).await;
        assert_eq!(events["events"][0]["causationId"], "cmd-1");
        let (status, failed) = house.send(json!({"commandType": "Fail", "payload": 7})).await;
        assert_eq!((status, &failed["result"]["status"]), (200, &json!("failed")));
    });
}

#[test]
fn what_is_not_decided_has_a_status_and_a_code() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let refusal = async |body: Value| {
            let (status, body) = house.send(body).await;
            (status, body["code"].as_str().unwrap_or_default().to_owned(), body)
        };
        let (status, code, body) = refusal(json!({"commandType": "Refuse", "payload": 7})).await;
        assert_eq!((status, &*code), (422, "ORDER_NOT_FOUND"));
        assert_eq!((&body["context"], &body["outcome"]), (&json!({"order": 7}), &json!("rejected")));
        for (body, expected, code) in [
            (json!({"commandType": "Dance", "payload": 7}), 422, "UNKNOWN_COMMAND"),
            (json!({"commandType": "Place", "payload": "seven"}), 422, "VALIDATION_ERROR"),
            (json!({"commandType": "Place", "payload": 7, "commandId": ""}), 400, "FLOW_INVALID"),
            (json!({"commandType": "Place", "payload": "x".repeat(70_000)}), 413, "COMMAND_TOO_LARGE"),
            (json!({"commandType": "Break", "payload": 7}), 500, "HANDLER_ERROR"),
        ] {
            let (status, found, _) = refusal(body).await;
            assert_eq!((status, &*found), (expected, code));
        }
        let (status, missing) = house.ask(get("/v1/commands/cmd-9")).await;
        assert_eq!((status, &missing["code"]), (404, &json!("COMMAND_NOT_FOUND")));
        let scope = json!({"key": "tenant:t1:stock:lamp", "expectedVersion": 3});
        let stale = json!({"commandType": "Place", "payload": 7, "scope": scope, "commandId": "stale"});
        let (status, code, body) = refusal(stale).await;
        assert_eq!((status, &*code, &body["currentVersion"]), (409, "VERSION_CONFLICT", &json!(0)));
        let later =
            json!({"commandType": "Place", "payload": 7, "scope": scope, "retry": {}, "commandId": "later"});
        let (status, deferred) = house.send(later).await;
        assert_eq!((status, &deferred["result"]["status"]), (202, &json!("deferred")));
        assert_eq!(deferred["result"]["deferred"]["retryKey"], "dcb:tenant:t1:stock:lamp");
    });
}

#[test]
fn too_many_commands_are_told_when_to_come_back() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let command = json!({"commandType": "Place", "payload": 7}).to_string();
        for _ in 0..9 {
            assert_eq!(house.ask(post("/v1/commands", &command)).await.0, 200);
        }
        let answer = post("/v1/commands", &command).token(&house.admin).send(house.server.address).await;
        assert_eq!((answer.status, &answer.json()["code"]), (429, &json!("RATE_LIMITED")));
        assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() > 100);
        assert!(answer.json()["context"]["retryAfterMs"].as_u64().is_some());
    });
}

#[test]
fn commands_belong_to_the_tenant_of_their_token() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let tokens = Tokens::new(house.server.store.clone());
        let made = async |tenant: &str| {
            let new = New::named(tenant, Role::Operator).unwrap().tenant(tenant).unwrap();
            tokens.create(new).await.unwrap().1.reveal().to_owned()
        };
        let (ours, theirs) = (made("t1").await, made("t2").await);
        let command = json!({"commandType": "Place", "payload": 7, "commandId": "cmd-1"}).to_string();
        let sent = post("/v1/commands", &command).token(&ours).send(house.server.address).await;
        assert_eq!(sent.status, 200);
        let look = async |token: &str, path: &str| get(path).token(token).send(house.server.address).await;
        assert_eq!(look(&ours, "/v1/commands/cmd-1").await.status, 200);
        assert_eq!(look(&theirs, "/v1/commands/cmd-1").await.status, 404);
        assert_eq!(look(&theirs, "/v1/events").await.json()["events"], json!([]));
        assert_eq!(look(&ours, "/v1/events").await.json()["events"][0]["tenantId"], "t1");
        let reader = house.server.token(Role::Reader).await;
        let refused = post("/v1/commands", &command).token(&reader).send(house.server.address).await;
        assert_eq!(refused.status, 403);
    });
}
