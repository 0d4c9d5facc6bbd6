//! Tokens of workers and publishers: what their scope names is done, and everything else is refused.

use crate::client::{Answer, Request, get, post, request};
use crate::running::{Running, options};
use mainstay_core::failure::Failure;
use mainstay_flows::delivery::publications::{Delivery, Retry, Target, Targets};
use mainstay_server::tokens::{COMPONENT, New};
use mainstay_server::{Builder, Role, Scope, Services, Tokens, components, equipped};
use mainstay_store::migrations::Component;
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::{Place, for_each_lasting_store, for_each_store};
use mainstay_work::Pool;
use serde_json::{Value, json};

struct Shop {
    server: Running,
    services: Services,
    operator: String,
}

impl Shop {
    async fn open(place: &Place) -> Self {
        let store = equipped(place.options()).open().await.unwrap();
        let target = |name| Target::subscriber(name, async |_: Delivery| Ok::<_, Failure>(()));
        let targets = Targets::new(Retry { max_retries: 1, initial_backoff_ms: 1, base: 1.0 })
            .with(target("inventory"))
            .with(target("billing"));
        let services = Builder::on_store(store.clone()).targets(targets).open();
        let services = services.await.unwrap();
        for pool in ["mail", "mail.bulk", "pay"] {
            services.work.pool(Pool::new(pool)).await.unwrap();
        }
        let server = Running::start_with(options(), services.clone()).await;
        let operator = server.token(Role::Operator).await;
        // That there are tokens is known here within a second.
        while get("/v1/events").send(server.address).await.status != 401 {}
        Self { server, services, operator }
    }

    async fn token(&self, role: Role, scope: Value) -> String {
        let scope: Scope = serde_json::from_value(scope).unwrap();
        let new = New::named("test", role).unwrap().scope(scope).unwrap();
        let (_, secret) = Tokens::new(self.server.store.clone()).create(new).await.unwrap();
        secret.reveal().to_owned()
    }

    async fn ask(&self, token: &str, request: Request) -> Answer {
        request.token(token).send(self.server.address).await
    }

    async fn send(&self, token: &str, path: &str, body: Value) -> Answer {
        self.ask(token, post(path, &body.to_string())).await
    }

    /// The answer that an operator gets.
    async fn done(&self, path: &str, body: Value) -> Value {
        let answer = self.send(&self.operator, path, body).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }
}

/// A lease as it stands in a path.
fn lease(claimed: &Value) -> String {
    claimed["lease"].to_string().trim_matches('"').to_owned()
}

fn refused(answer: &Answer, field: &str, list: &str, name: &str) {
    let problem = answer.problem(403, "NOT_IN_SCOPE");
    assert_eq!((&problem["field"], &problem["scope"]), (&json!(field), &json!(list)), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains(&format!("{name:?}")), "{problem}");
}

#[test]
fn a_worker_claims_and_ends_work_of_its_pools_and_functions_only() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let worker = shop
            .token(Role::Worker, json!({"pools": ["mail", "mail.*"], "functions": ["send", "mail.*"]}))
            .await;
        let claim = |functions: Value| json!({"functions": functions, "maxItems": 10});
        for (pool, functions, field, list, name) in [
            ("pay", json!(["send"]), "pool", "pools", "pay"),
            ("mailing", json!(["send"]), "pool", "pools", "mailing"),
            ("mail", json!(["charge"]), "functions[0]", "functions", "charge"),
            ("mail", json!(["send", "sender"]), "functions[1]", "functions", "sender"),
            ("mail", json!(["mainstay.replay.tidy"]), "functions[0]", "functions", "mainstay.replay.tidy"),
        ] {
            let answer = shop.send(&worker, &format!("/v1/pools/{pool}/claim"), claim(functions)).await;
            refused(&answer, field, list, name);
        }
        let declared = async |tx: Tx| {
            let sql = "SELECT count(*) FROM mainstay_functions WHERE name IN ('charge', 'send', 'sender')";
            tx.query_one(sql, &[]).await?.get::<i64>(0)
        };
        assert_eq!(shop.server.store.read(declared).await.unwrap(), 0, "a refused claim declares nothing");

        // A pattern of its scope names any number of functions, of which the worker declares none.
        for (pool, functions, unknown) in [
            ("mail", json!(["mail.render"]), "mail.render"),
            ("mail.bulk", json!(["send", "mail.x1"]), "mail.x1"),
            ("mail", json!(["mail.*"]), ""),
        ] {
            let answer = shop.send(&worker, &format!("/v1/pools/{pool}/claim"), claim(functions)).await;
            match unknown {
                "" => drop(answer.problem(400, "WORK_INVALID")),
                unknown => assert_eq!(answer.problem(422, "UNKNOWN_FUNCTION")["function"], unknown),
            }
        }
        let declared = async |tx: Tx| {
            let sql = "SELECT count(*) FROM mainstay_functions WHERE name = 'send' OR name LIKE 'mail.%'";
            tx.query_one(sql, &[]).await?.get::<i64>(0)
        };
        assert_eq!(shop.server.store.read(declared).await.unwrap(), 0, "nor with one that it may declare");
        assert_eq!(shop.send(&worker, "/v1/pools/mail/claim", claim(json!(["send"]))).await.status, 200);
        assert_eq!(shop.server.store.read(declared).await.unwrap(), 1, "a full name of its scope");
        shop.done("/v1/pools/mail/claim", claim(json!(["mail.render"]))).await;

        // Its own work.
        for pool in ["mail", "mail.bulk"] {
            let path = format!("/v1/pools/{pool}/claim");
            assert_eq!(shop.send(&worker, &path, claim(json!(["send", "mail.render"]))).await.status, 200);
            let items =
                json!({"items": [{"function": "send", "args": 1}, {"function": "mail.render", "args": 2}]});
            shop.done(&format!("/v1/pools/{pool}/work"), items).await;
            let claimed = shop.send(&worker, &path, claim(json!(["send", "mail.render"]))).await.json();
            let id = |number: usize| claimed["items"][number]["workId"].as_str().unwrap().to_owned();
            let extend = format!("/v1/leases/{}/extend", lease(&claimed));
            assert_eq!(shop.send(&worker, &extend, json!({})).await.status, 200);
            let done = shop
                .send(&worker, &format!("/v1/work/{}/complete", id(0)), json!({"lease": claimed["lease"]}))
                .await;
            assert_eq!(done.status, 200, "{done:?}");
            let failed = json!({"lease": claimed["lease"], "error": "no", "class": "validationError"});
            let failed = shop.send(&worker, &format!("/v1/work/{}/fail", id(1)), failed).await;
            assert_eq!(failed.status, 200, "{failed:?}");
        }

        // Work of others, although the worker knows the lease.
        shop.done("/v1/pools/pay/claim", claim(json!(["charge"]))).await;
        shop.done("/v1/pools/pay/work", json!({"function": "charge", "args": 1})).await;
        let others = shop.done("/v1/pools/pay/claim", claim(json!(["charge"]))).await;
        let id = others["items"][0]["workId"].as_str().unwrap().to_owned();
        let end = json!({"lease": others["lease"], "error": "mine"});
        for path in [format!("/v1/work/{id}/complete"), format!("/v1/work/{id}/fail")] {
            let body = if path.ends_with("fail") { end.clone() } else { json!({"lease": others["lease"]}) };
            shop.send(&worker, &path, body).await.problem(409, "LEASE_LOST");
        }
        let path = format!("/v1/leases/{}", lease(&others));
        shop.send(&worker, &format!("{path}/extend"), json!({})).await.problem(409, "LEASE_LOST");
        shop.ask(&worker, request("DELETE", &path)).await.problem(409, "LEASE_LOST");
        let status = shop.services.work.status(&id).await.unwrap().unwrap();
        assert_eq!(status.state, mainstay_work::State::Running, "it is as it was");
        shop.done(&format!("/v1/work/{id}/complete"), json!({"lease": others["lease"]})).await;
    });
}

/// All workers of a deployment share one set of functions.
#[test]
fn a_worker_for_all_functions_fills_no_set_of_names() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let worker = shop.token(Role::Worker, json!({"pools": ["*"], "functions": ["*"]})).await;
        let count = async || {
            let count = async |tx: Tx| {
                tx.query_one("SELECT count(*) FROM mainstay_functions", &[]).await?.get::<i64>(0)
            };
            shop.server.store.read(count).await.unwrap()
        };
        let before = count().await;
        for page in 0..3 {
            let names: Vec<String> = (0..100).map(|number| format!("made-up-{page}-{number}")).collect();
            let answer = shop.send(&worker, "/v1/pools/mail/claim", json!({"functions": names})).await;
            answer.problem(422, "UNKNOWN_FUNCTION");
        }
        assert_eq!(count().await, before);
        shop.done("/v1/pools/mail/claim", json!({"functions": ["send"]})).await;
        shop.done("/v1/pools/mail/work", json!({"function": "send", "args": 1})).await;
        let claimed = shop.send(&worker, "/v1/pools/mail/claim", json!({"functions": ["send"]})).await.json();
        assert_eq!(claimed["items"][0]["function"], "send", "{claimed}");
    });
}

#[test]
fn a_publisher_appends_named_types_only_and_all_or_nothing() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let scope = json!({"eventTypes": ["Order*"], "streamTypes": ["order"]});
        let publisher = shop.token(Role::Publisher, scope).await;
        let append =
            async |events: Value| shop.send(&publisher, "/v1/events", json!({"events": events})).await;
        let stream = |name: &str| json!({"type": name, "id": "1"});
        let good = json!({"type": "OrderPlaced", "data": 1, "stream": stream("order")});
        assert_eq!(append(json!([good])).await.status, 200);
        assert_eq!(append(json!([{"type": "OrderNoted", "data": 1}])).await.status, 200);
        let head = shop.services.log.head().await.unwrap();
        for (event, field, list, name) in [
            (json!({"type": "PaymentFailed", "data": 1}), "events[1].type", "eventTypes", "PaymentFailed"),
            (
                json!({"type": "OrderPlaced", "data": 1, "stream": stream("payment")}),
                "events[1].stream.type",
                "streamTypes",
                "payment",
            ),
        ] {
            refused(&append(json!([good, event])).await, field, list, name);
        }
        let scoped = json!({"type": "OrderPlaced", "data": 1,
            "scope": {"key": "tenant:acme:course:c1", "expectedVersion": 0}});
        let problem = append(json!([scoped])).await.problem(403, "NOT_IN_SCOPE");
        assert_eq!(problem["field"], "events[0].scope");
        assert_eq!(shop.services.log.head().await.unwrap(), head, "nothing of a refused append is there");
    });
}

#[test]
fn a_publisher_learns_nothing_of_events_that_are_in_its_way() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let publisher = shop.token(Role::Publisher, json!({"eventTypes": ["OrderPlaced"]})).await;
        let secret = json!({"type": "PaymentFailed", "data": 1, "tags": ["card:1"], "eventId": "evt-secret"});
        let placed = json!({"type": "OrderPlaced", "data": 1, "tags": ["card:1"], "eventId": "evt-placed",
            "idempotencyKey": "key-1"});
        for event in [secret, placed] {
            shop.done("/v1/events", json!({"events": [event]})).await;
        }
        let head = shop.services.log.head().await.unwrap();
        let unless = |item: Value| {
            let event = json!({"type": "OrderPlaced", "data": 2});
            json!({"events": [event], "condition": {"failIfEventsMatch": [item]}})
        };
        let ask = async |body: Value| shop.send(&publisher, "/v1/events", body).await;
        // Of types that it may not append, it is not even told whether they are there.
        for item in
            [json!({"tags": ["card:1"]}), json!({"types": ["OrderPlaced", "PaymentFailed"]}), json!({})]
        {
            let problem = ask(unless(item)).await.problem(403, "NOT_IN_SCOPE");
            assert_eq!(problem["field"], "condition.failIfEventsMatch[0].types");
        }
        let conflicts = [
            (unless(json!({"types": ["OrderPlaced"]})), "APPEND_CONDITION_FAILED"),
            (
                json!({"events": [{"type": "OrderPlaced", "data": 3, "eventId": "evt-secret"}]}),
                "EVENT_ID_TAKEN",
            ),
            (
                json!({"events": [{"type": "OrderPlaced", "data": 3, "idempotencyKey": "key-1"}]}),
                "IDEMPOTENCY_CONFLICT",
            ),
        ];
        for (body, code) in conflicts {
            let answer = ask(body.clone()).await;
            let problem = answer.json();
            assert_eq!((answer.status, &problem["code"]), (409, &json!(code)), "{problem}");
            for (name, value) in problem.as_object().unwrap() {
                let is_plain = ["type", "title", "status", "detail", "code"].contains(&name.as_str());
                assert!(is_plain && !value.to_string().contains("evt-placed"), "{name}: {problem}");
            }
            // An operator may read events, and is told which event it was.
            assert!(
                shop.send(&shop.operator, "/v1/events", body).await.json().as_object().unwrap().len() > 5
            );
        }
        assert_eq!(shop.services.log.head().await.unwrap(), head);
    });
}

#[test]
fn a_publisher_enqueues_named_functions_into_named_pools_only() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        shop.done("/v1/pools/mail/claim", json!({"functions": ["send", "charge", "report"]})).await;
        let publisher = shop.token(Role::Publisher, json!({"pools": ["mail"], "functions": ["send"]})).await;
        let enqueue = async |pool: &str, body: Value| {
            shop.send(&publisher, &format!("/v1/pools/{pool}/work"), body).await
        };
        let send = json!({"function": "send", "args": 1});
        assert_eq!(enqueue("mail", send.clone()).await.status, 200);
        let told = |function: &str| json!({"function": "send", "args": 1, "onComplete": function});
        for (pool, body, field, list, name) in [
            ("pay", send.clone(), "pool", "pools", "pay"),
            ("mail", json!({"function": "charge", "args": 1}), "function", "functions", "charge"),
            ("mail", told("report"), "onComplete", "functions", "report"),
            (
                "mail",
                told("mainstay.publication.ended"),
                "onComplete",
                "functions",
                "mainstay.publication.ended",
            ),
            ("mail", json!({"items": [send, told("report")]}), "items[1].onComplete", "functions", "report"),
        ] {
            refused(&enqueue(pool, body).await, field, list, name);
        }
        for (pool, count) in [("mail", 1), ("pay", 0)] {
            assert_eq!(shop.services.work.pending(pool, 10).await.unwrap().len(), count, "{pool}");
        }
    });
}

#[test]
fn a_publisher_publishes_named_events_to_named_targets_only() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        let event = |name: &str, stream: &str| json!({"events": [{"type": name, "data": 1, "stream": {"type": stream, "id": "1"}}]});
        let append = async |name: &str, stream: &str| {
            let appended = shop.done("/v1/events", event(name, stream)).await;
            appended["events"][0]["eventId"].as_str().unwrap().to_owned()
        };
        let scope =
            json!({"eventTypes": ["OrderPlaced"], "streamTypes": ["order"], "targets": ["inventory"]});
        let publisher = shop.token(Role::Publisher, scope).await;
        let publish = async |event_id: &str, targets: Value| {
            let body = json!({"eventId": event_id, "sourceContext": "orders", "targetContexts": targets});
            shop.send(&publisher, "/v1/publications", body).await
        };
        let placed = append("OrderPlaced", "order").await;
        refused(
            &publish(&placed, json!(["inventory", "billing"])).await,
            "targetContexts[1]",
            "targets",
            "billing",
        );
        // One that it may not publish is answered as one that is not there.
        let others = [append("PaymentFailed", "order").await, append("OrderPlaced", "payment").await];
        for event_id in others.iter().map(String::as_str).chain(["evt-none"]) {
            publish(event_id, json!(["inventory"])).await.problem(404, "EVENT_NOT_FOUND");
            assert!(shop.services.publications.status(event_id).await.unwrap().is_empty());
        }
        assert_eq!(publish(&placed, json!(["inventory"])).await.status, 200);
        assert_eq!(shop.services.publications.status(&placed).await.unwrap().len(), 1);
    });
}

#[test]
fn a_scope_is_checked_when_a_token_is_made_and_told_when_it_is_listed() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store).await;
        let admin = server.token(Role::Admin).await;
        let make = async |body: Value| {
            post("/admin/tokens", &body.to_string()).token(&admin).send(server.address).await
        };
        let many: Vec<String> = (0..65).map(|number| format!("p{number}")).collect();
        let of = |role: &str, scope: Value| json!({"name": "a", "role": role, "scope": scope});
        let pools = |pools: Value| of("worker", json!({"pools": pools, "functions": ["*"]}));
        for (body, field) in [
            (json!({"name": "a", "role": "worker"}), "scope.pools"),
            (json!({"name": "a", "role": "publisher"}), "scope"),
            (of("worker", json!({})), "scope.pools"),
            (of("worker", json!({"pools": ["a"]})), "scope.functions"),
            (of("reader", json!({"pools": ["a"], "functions": ["*"]})), "scope"),
            (of("worker", json!({"pools": ["a"], "functions": ["*"], "eventTypes": ["A"]})), "scope"),
            (of("publisher", json!({"targets": ["a"]})), "scope"),
            (of("publisher", json!({"pool": ["a"]})), "scope.pool"),
            (of("worker", json!({"pools": "a", "functions": ["*"]})), "scope.pools"),
            (pools(json!([""])), "scope.pools"),
            (pools(json!(["a\u{0}"])), "scope.pools"),
            (pools(json!(["a\nb"])), "scope.pools"),
            (pools(json!(["*a"])), "scope.pools"),
            (pools(json!(["mainstay.x"])), "scope.pools"),
            (pools(json!([" MAINSTAY.*"])), "scope.pools"),
            (pools(json!(["x".repeat(513)])), "scope.pools"),
            (pools(json!(many)), "scope.pools"),
            (
                json!({"name": "a", "role": "worker", "tenant": "acme", "scope": {"pools": ["a"], "functions": ["b"]}}),
                "scope.pools",
            ),
        ] {
            let answer = make(body.clone()).await;
            let problem = answer.json();
            assert_eq!(answer.status, 400, "{body}: {problem}");
            let found = problem["field"].as_str().unwrap_or_default();
            assert!(found == field || found.starts_with(&format!("{field}[")), "{body}: {problem}");
        }
        let scope = json!({"pools": ["mail"], "functions": ["send", "render.*"]});
        let made = make(of("worker", scope.clone())).await;
        assert_eq!((made.status, &made.json()["token"]["scope"]), (201, &scope), "{made:?}");
        let list = get("/admin/tokens").token(&admin).send(server.address).await.json();
        let listed: Vec<&Value> =
            list["tokens"].as_array().unwrap().iter().map(|token| &token["scope"]).collect();
        assert!(listed.len() == 2 && listed.contains(&&scope) && listed.contains(&&Value::Null), "{list}");
    });
}

/// The steps of a program of before, which knows neither scopes nor rotation.
static BEFORE: Component = Component { name: COMPONENT.name, steps: COMPONENT.steps.split_at(3).0 };

#[test]
fn tokens_of_before_work_on_and_an_unreadable_scope_opens_nothing() {
    for_each_lasting_store(async |place| {
        let others = components().filter(|component| component.name != COMPONENT.name);
        let old = others.fold(place.options().component(BEFORE), mainstay_store::Options::component);
        let store = old.open().await.unwrap();
        store.close().await;

        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store.clone()).await;
        let admin = server.token(Role::Admin).await;
        // As a program of before writes a row.
        let forget = async |tx: Tx, id: String| {
            let sql = "UPDATE mainstay_tokens SET scope = NULL, rotated_to = NULL WHERE id = $1";
            tx.execute(sql, params![id]).await.map(drop)
        };
        store.transact_with(admin[4..20].to_owned(), forget).await.unwrap();
        let list = get("/admin/tokens").token(&admin).send(server.address).await;
        assert_eq!((list.status, list.json()["tokens"][0]["role"].as_str()), (200, Some("admin")));

        let scope = Scope { pools: vec!["mail".into()], functions: vec!["*".into()], ..Scope::default() };
        let tokens = Tokens::new(store.clone());
        for broken in ["NULL", "'{'", "'[]'", "'{\"pools\":\"mail\"}'"] {
            let new = New::named("w", Role::Worker).unwrap().scope(scope.clone()).unwrap();
            let (token, secret) = tokens.create(new).await.unwrap();
            let sql = format!("UPDATE mainstay_tokens SET scope = {broken} WHERE id = '{}'", token.id);
            store.transact_with(sql, async |tx, sql| tx.execute(&sql, &[]).await.map(drop)).await.unwrap();
            let claim = post("/v1/pools/mail/claim", r#"{"functions":["send"]}"#).token(secret.reveal());
            let answer = claim.send(server.address).await;
            assert!([403, 500].contains(&answer.status), "{broken}: {answer:?}");
        }
    });
}

#[tokio::test]
async fn a_token_of_a_program_does_not_log_in_to_the_console() {
    let place = Place::new(mainstay_testkit::stores::Kind::SqliteMemory);
    let shop = Shop::open(&place).await;
    let worker = shop.token(Role::Worker, json!({"pools": ["mail"], "functions": ["*"]})).await;
    let form = "application/x-www-form-urlencoded";
    let login =
        request("POST", "/console/login").header("Content-Type", form).body(&format!("token={worker}"));
    let answer = login.send(shop.server.address).await;
    assert!(answer.status == 403 && answer.header("set-cookie").is_none(), "{answer:?}");
}
