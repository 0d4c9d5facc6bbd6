//! Rate limits and circuits over HTTP.

use crate::client::{Request, get, post, request};
use crate::running::{Running, options};
use mainstay_guards::http::{Key, ProxyHeader, TrustedProxies};
use mainstay_guards::limits::{Policy, RateLimitLayer, Rule, memory};
use mainstay_server::tokens::New;
use mainstay_server::{Role, Tokens, equipped};
use mainstay_testkit::stores::{Place, for_each_store};
use serde_json::{Value, json};

struct House {
    server: Running,
    admin: String,
}

impl House {
    async fn open(place: &Place) -> Self {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store).await;
        let admin = server.token(Role::Admin).await;
        Self { server, admin }
    }

    async fn answer(&self, request: Request) -> (u16, Value) {
        let answer = request.token(&self.admin).send(self.server.address).await;
        (answer.status, answer.json())
    }

    async fn good(&self, request: Request) -> Value {
        let (status, body) = self.answer(request).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// The status, the code and the field of a refusal.
    async fn bad(&self, request: Request) -> (u16, String, String) {
        let (status, body) = self.answer(request).await;
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        (status, text("code"), text("field"))
    }

    async fn get(&self, path: &str) -> Value {
        self.good(get(path)).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.good(post(path, &body.to_string())).await
    }

    async fn put(&self, path: &str, body: Value) -> Value {
        self.good(put(path, &body)).await
    }
}

fn put(path: &str, body: &Value) -> Request {
    request("PUT", path).header("content-type", "application/json").body(&body.to_string())
}

fn bucket(rate: u64) -> Value {
    json!({"kind": "token bucket", "rate": rate, "period": "1h"})
}

#[test]
fn b_001_b_016_limits_are_defined_once_and_answer_for_everybody() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let names = house.get("/v1/limits").await;
        let names: Vec<_> =
            names["limits"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        assert_eq!(names, ["adminOperations", "commandDispatch"]);
        let made = house.put("/admin/limits/mail", bucket(3)).await;
        assert_eq!(
            (&made["name"], &made["kind"], &made["rate"]),
            (&json!("mail"), &json!("token bucket"), &json!(3.0))
        );
        let ask = |cost: u64| json!({"key": "user:alice", "cost": cost});
        let decision = house.post("/v1/limits/mail/consume", json!({"key": "user:alice"})).await;
        assert_eq!(decision, json!({"allowed": true, "remaining": 2}));
        assert_eq!(house.post("/v1/limits/mail/check", ask(2)).await["allowed"], true);
        let denied = house.post("/v1/limits/mail/consume", ask(3)).await;
        assert_eq!((&denied["allowed"], &denied["remaining"]), (&json!(false), &json!(2)));
        assert!(denied["retryAfterMs"].as_u64().unwrap() > 1_000_000, "{denied}");
        let told = post("/v1/limits/mail/check", &ask(1).to_string()).token(&house.admin);
        let told = told.send(house.server.address).await;
        assert_eq!(told.header("ratelimit-policy"), Some("\"mail\";q=3;w=3600"));
        assert!(told.header("ratelimit").unwrap().starts_with("\"mail\";r=2;t="), "{told:?}");
        let never = house.post("/v1/limits/mail/consume", ask(4)).await;
        assert_eq!(never, json!({"allowed": false, "remaining": 2, "retryAfterMs": null}));
        let value = house.get("/v1/limits/mail/value?key=user%3Aalice").await;
        assert_eq!((&value["value"], &value["capacity"]), (&json!(2), &json!(3)));
        assert_eq!(
            house.post("/v1/limits/mail/refund", json!({"key": "user:alice", "amount": 9})).await["remaining"],
            3
        );
        house.post("/v1/limits/mail/penalize", json!({"key": "user:alice", "amount": 3})).await;
        assert_eq!(house.post("/v1/limits/mail/check", ask(1)).await["allowed"], false);
        house.post("/v1/limits/mail/reset", json!({"key": "user:alice"})).await;
        assert_eq!(house.post("/v1/limits/mail/check", ask(3)).await["allowed"], true);
        house.post("/v1/limits/mail/block", json!({"key": "user:bob", "forMs": 60_000})).await;
        let bob = house.post("/v1/limits/mail/consume", json!({"key": "user:bob"})).await;
        assert!((50_000..=60_000).contains(&bob["retryAfterMs"].as_u64().unwrap()), "{bob}");
        let most = house.get("/admin/limits/mail/denied").await;
        assert_eq!(most["denied"][0], json!({"key": "user:alice", "atMost": 2, "atLeast": 2}));
    });
}

#[test]
fn several_limits_are_taken_from_together_or_not_at_all() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.put("/admin/limits/each", bucket(2)).await;
        house.put("/admin/limits/all", bucket(3)).await;
        let both = |key: &str| json!({"limits": [{"name": "each", "key": key}, {"name": "all", "key": "-", "cost": 2}]});
        let first = house.post("/v1/limits", both("alice")).await;
        assert_eq!((&first["allowed"], &first["decisions"][1]["remaining"]), (&json!(true), &json!(1)));
        let second = house.post("/v1/limits", both("alice")).await;
        assert_eq!((&second["allowed"], &second["decisions"][1]["allowed"]), (&json!(false), &json!(false)));
        assert_eq!(house.get("/v1/limits/each/value?key=alice").await["value"], 1, "nothing was taken");
        // A window that is hardly ever over in the midst of this.
        house
            .put(
                "/admin/limits/waiting",
                json!({"kind": "fixed window", "rate": 1, "period": "30d", "maxReserved": 1}),
            )
            .await;
        let reserve = async || house.post("/v1/limits/waiting/reserve", json!({"key": "k"})).await;
        assert_eq!(reserve().await, json!({"ok": true, "retryAfterMs": 0}));
        let ahead = reserve().await;
        assert!(ahead["ok"] == true && ahead["retryAfterMs"].as_u64().unwrap() <= 30 * 86_400_000, "{ahead}");
        assert_eq!(reserve().await["ok"], false);
    });
}

#[test]
fn a_limit_refuses_what_makes_no_sense_and_says_which() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let consume =
            |name: &str, body: Value| post(&format!("/v1/limits/{name}/consume"), &body.to_string());
        let long = "k".repeat(513);
        for (request, expected) in [
            (consume("nobody", json!({"key": "k"})), (404, "UNKNOWN_LIMIT", "")),
            (consume("commandDispatch", json!({"key": "k", "cost": 0})), (400, "LIMIT_COST_INVALID", "cost")),
            (consume("commandDispatch", json!({"key": "k", "cost": -1})), (400, "BODY_INVALID", "cost")),
            (consume("commandDispatch", json!({"key": "k", "cost": 1.5})), (400, "BODY_INVALID", "cost")),
            (consume("commandDispatch", json!({"key": ""})), (400, "GUARD_INVALID", "key")),
            (consume("commandDispatch", json!({"key": long})), (400, "GUARD_INVALID", "key")),
            (consume("commandDispatch", json!({"key": "a\nb"})), (400, "GUARD_INVALID", "key")),
            (
                put("/admin/limits/mail", &json!({"kind": "leaky", "rate": 1, "period": "1s"})),
                (400, "BODY_INVALID", ""),
            ),
            (
                put("/admin/limits/mail", &json!({"kind": "token bucket", "rate": 0, "period": "1s"})),
                (400, "BODY_INVALID", ""),
            ),
            (post("/v1/limits", &json!({"limits": []}).to_string()), (400, "GUARD_INVALID", "limits")),
            (get("/v1/limits/nobody/value?key=k"), (404, "UNKNOWN_LIMIT", "")),
            (get("/admin/limits/nobody/denied"), (404, "UNKNOWN_LIMIT", "")),
            (get("/v1/limits?limit=0"), (400, "QUERY_INVALID", "limit")),
        ] {
            let shown = format!("{request:?}");
            let (status, code, field) = house.bad(request).await;
            assert_eq!((status, code.as_str(), field.as_str()), expected, "{shown}");
        }
        assert_eq!(house.get("/v1/limits").await["limits"].as_array().unwrap().len(), 2, "nothing was made");
    });
}

#[test]
fn b_137_circuits_are_asked_told_and_seen_over_http() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let settings = json!({"failureThreshold": 2, "resetTimeoutMs": 1, "probeTimeoutMs": 60_000});
        let set = house.put("/admin/circuits/mail", settings).await;
        assert_eq!((&set["state"], &set["config"]["failureThreshold"]), (&json!("closed"), &json!(2)));
        assert_eq!(house.post("/v1/circuits/mail/ask", json!({})).await, json!({"admitted": true}));
        let failed = json!({"outcome": "failure", "tookMs": 5});
        assert_eq!(house.post("/v1/circuits/mail/report", failed.clone()).await["failureCount"], 1);
        house.post("/v1/circuits/mail/report", json!({"outcome": "success"})).await;
        for _ in 0..2 {
            house.post("/v1/circuits/mail/report", failed.clone()).await;
        }
        assert_ne!(house.get("/v1/circuits/mail").await["state"], "closed");
        // Its time is over at once, so the next call is the probe, and it is the only one.
        let probe = loop {
            let asked = house.post("/v1/circuits/mail/ask", json!({})).await;
            if let Some(probe) = asked["probeRunId"].as_str() {
                break probe.to_owned();
            }
        };
        let another = house.post("/v1/circuits/mail/ask", json!({})).await;
        assert_eq!(another["admitted"], false);
        assert!(another["retryAfterMs"].as_u64().unwrap() > 0, "{another}");
        let told = json!({"outcome": "success", "probeRunId": probe});
        assert_eq!(house.post("/v1/circuits/mail/report", told).await["state"], "closed");
        let all = house.get("/v1/circuits?limit=1").await;
        assert_eq!((&all["circuits"][0]["name"], &all["next"]), (&json!("mail"), &json!("mail")));
        assert_eq!(house.get("/v1/circuits?cursor=mail").await, json!({"circuits": []}));
        assert_eq!(house.get("/v1/circuits/unheard-of").await["state"], "closed");
        assert_eq!(house.get("/admin/circuits").await["circuits"][0]["name"], "mail");
        let history = house.get("/admin/circuits/mail/history").await;
        let changes: Vec<_> = history["changes"].as_array().unwrap().iter().map(|one| &one["to"]).collect();
        assert_eq!(changes, ["closed", "half_open", "open"], "{history}");
        let newest = house.get("/admin/circuit-changes?limit=1").await;
        assert_eq!(
            (&newest["changes"][0]["name"], &newest["changes"][0]["from"]),
            (&json!("mail"), &json!("half_open"))
        );
        let next = newest["next"].as_str().unwrap();
        let rest = house.get(&format!("/admin/circuit-changes?cursor={next}")).await;
        assert_eq!(rest["changes"].as_array().unwrap().len(), 2);
        assert_eq!(house.bad(get("/admin/circuit-changes?cursor=x")).await.1, "QUERY_INVALID");
    });
}

#[test]
fn operators_decide_over_circuits_and_it_is_known_who() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let force = json!({"state": "open", "reason": "maintenance", "forMs": 3_600_000});
        let forced = house.post("/admin/circuits/mail/force", force).await;
        assert_eq!((&forced["state"], &forced["forced"]["reason"]), (&json!("open"), &json!("maintenance")));
        let actor = forced["forced"]["actor"].as_str().unwrap();
        assert!(actor.len() >= 16 && house.admin.contains(actor), "{actor} is the id of the token");
        assert_eq!(house.post("/v1/circuits/mail/ask", json!({})).await["admitted"], false);
        let figures = get("/metrics").token(&house.admin).send(house.server.address).await.body;
        assert!(figures.contains("\nmainstay_circuits_state{circuit=\"mail\"} 1\n"), "{figures}");
        assert!(figures.contains("\nmainstay_circuits_forced_total 1\n"), "{figures}");
        house.post("/admin/circuits/mail/release", json!({"reason": "done"})).await;
        house.post("/admin/circuits/mail/reset", json!({"reason": "it is well"})).await;
        assert_eq!(house.post("/v1/circuits/mail/ask", json!({})).await, json!({"admitted": true}));
        let bad = |path: &str, body: Value| post(&format!("/admin/circuits/mail/{path}"), &body.to_string());
        for (request, expected) in [
            (bad("force", json!({"state": "ajar", "reason": "r"})), (400, "BODY_INVALID", "state")),
            (bad("force", json!({"state": "open", "reason": ""})), (400, "GUARD_INVALID", "reason")),
            (
                bad("force", json!({"state": "open", "reason": "r", "forMs": 0})),
                (400, "GUARD_INVALID", "forMs"),
            ),
            (bad("reset", json!({})), (400, "BODY_INVALID", "reason")),
            (put("/admin/circuits/mail", &json!({"failureThreshold": 0})), (400, "BODY_INVALID", "")),
        ] {
            let shown = format!("{request:?}");
            let (status, code, field) = house.bad(request).await;
            assert_eq!((status, code.as_str(), field.as_str()), expected, "{shown}");
        }
    });
}

#[test]
fn guards_belong_to_no_tenant() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let new = New::named("confined", Role::Admin).unwrap().tenant("acme").unwrap();
        let (_, secret) = Tokens::new(house.server.store.clone()).create(new).await.unwrap();
        for path in ["/v1/limits", "/v1/circuits"] {
            let answer = get(path).token(secret.reveal()).send(house.server.address).await;
            assert_eq!((answer.status, answer.json()["code"].clone()), (403, json!("UNAUTHORIZED")));
        }
    });
}

#[tokio::test]
async fn requests_pass_rate_limits_before_anything_is_done_for_them() {
    let rule = |proxies| {
        let limiter = memory::limiter(Policy::bucket(3.0, 0.001).unwrap());
        Rule::new("requests", limiter, Key::address(proxies)).unwrap()
    };
    let proxies = TrustedProxies::within(ProxyHeader::x_forwarded_for(), ["127.0.0.1"]).unwrap();
    let limits = RateLimitLayer::http().rule(rule(proxies)).unwrap();
    let server = Running::start(options().rate_limits(limits)).await;
    let ask = async |path: &str, client: &str| {
        get(path).header("x-forwarded-for", client).token("made up").send(server.address).await
    };
    for left in [2, 1, 0] {
        let answer = ask("/v1/limits", "203.0.113.5").await;
        assert_eq!(
            (answer.status, answer.header("ratelimit-policy")),
            (401, Some("\"requests\";q=3;w=3000"))
        );
        assert!(answer.header("ratelimit").unwrap().starts_with(&format!("\"requests\";r={left}")));
    }
    // Also for what is not there, and whatever else the client says about itself.
    for path in ["/v1/limits", "/nowhere"] {
        let denied = ask(path, "198.51.100.1, 203.0.113.5").await;
        assert_eq!(denied.problem(429, "RATE_LIMITED")["code"], "RATE_LIMITED");
        assert!(denied.header("retry-after").unwrap().parse::<u64>().unwrap() > 0);
    }
    assert_eq!(ask("/v1/limits", "203.0.113.6").await.status, 401, "others have budgets of their own");
    for path in ["/livez", "/health/live", "/metrics"] {
        assert_ne!(ask(path, "203.0.113.5").await.status, 429, "{path}");
    }
    server.stop().await;
}

#[test]
fn a_request_that_is_repeated_with_its_key_is_carried_out_once() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.put("/admin/limits/mail", bucket(3)).await;
        let consume = |cost: u64| {
            let body = json!({"key": "user:alice", "cost": cost}).to_string();
            post("/v1/limits/mail/consume", &body)
                .header("idempotency-key", "\"8e03978e\"")
                .token(&house.admin)
        };
        let first = consume(1).send(house.server.address).await;
        assert_eq!((first.status, first.header("idempotency-replayed")), (200, None));
        let again = consume(1).send(house.server.address).await;
        assert_eq!((again.status, again.header("idempotency-replayed")), (200, Some("true")));
        assert_eq!((again.json(), again.json()["remaining"].clone()), (first.json(), json!(2)));
        consume(2).send(house.server.address).await.problem(422, "IDEMPOTENCY_KEY_REUSED");
        assert_eq!(house.get("/v1/limits/mail/value?key=user:alice").await["value"], 2);
        // Another caller's key is another one.
        let other = house.server.token(Role::Operator).await;
        let body = json!({"key": "user:alice"}).to_string();
        let asked =
            post("/v1/limits/mail/consume", &body).header("idempotency-key", "8e03978e").token(&other);
        assert_eq!(asked.send(house.server.address).await.json()["remaining"], 1);
    });
}
