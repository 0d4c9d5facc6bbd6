//! Who did what: every call of an admin route is written down, in its own transaction, and nobody can change that unseen.

mod applications;
mod outcomes;

use crate::client::{Answer, get, post, request};
use crate::running::{Running, options};
use mainstay_guards::limits::{Definition, Kind};
use mainstay_server::audit::{Audit, Break, Chain, Entry, Filter, Head, Outcome};
use mainstay_server::{Builder, Oversight, Role, equipped};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::{Functions, Pool, Work};
use serde_json::json;

async fn start(place: &Place) -> Running {
    let store = equipped(place.options()).open().await.unwrap();
    Running::start_on(options(), store).await
}

/// Every entry, the oldest first.
async fn entries(store: &Store) -> Vec<Entry> {
    Audit::new(store.clone()).list(Filter { after: Some(0), ..Filter::default() }, 1_000).await.unwrap()
}

async fn verify(store: &Store, kept: Option<Head>) -> Result<Head, Break> {
    let mut chain = Chain::begin(kept);
    entries(store).await.iter().try_for_each(|entry| chain.follow(entry))?;
    chain.end(&Audit::new(store.clone()).head().await.unwrap())
}

async fn make_token(server: &Running, token: &str) -> Answer {
    let body = json!({"name": "ci", "role": "reader"});
    post("/admin/tokens", &body.to_string()).token(token).send(server.address).await
}

#[tokio::test]
async fn b_222_b_234_one_area_has_every_admin_operation_and_one_way_leads_to_them() {
    let server = Running::start(options()).await;
    let below = |path: &str| server.table.iter().any(|route| route.path.starts_with(path));
    for part in ["projections", "replays", "dead-letters", "traces", "system", "runs", "work", "audit"] {
        assert!(below(&format!("/admin/{part}")), "{part}");
    }
    // Whoever is not let in is written down under the route, so each was reached through the wrapper. Strangers are
    // written down sixty times a minute by each server.
    let admin = server.table.iter().filter(|route| route.path.starts_with("/admin/"));
    let routes: Vec<String> = admin.map(|route| format!("{} {}", route.method, route.path)).collect();
    assert!(routes.len() > 80, "{routes:?}");
    for routes in routes.chunks(60) {
        let server = Running::start(options()).await;
        for route in routes {
            let (method, path) = route.split_once(' ').unwrap();
            request(method, path).send(server.address).await.problem(401, "UNAUTHENTICATED");
        }
        let all = entries(&server.store).await;
        let written: Vec<String> = all.into_iter().map(|entry| entry.action).collect();
        assert_eq!(written, routes);
    }
}

/// What applications do all day with a token of an operator: it is neither written down nor counted. Whatever else changes
/// something and needs such a token decides over others.
const OF_APPLICATIONS: [&str; 23] = [
    "DELETE /v1/leases/{lease}",
    "DELETE /v1/runs/{id}",
    "DELETE /v1/timers/{id}",
    "DELETE /v1/work/{id}",
    "POST /v1/circuits/{name}/ask",
    "POST /v1/circuits/{name}/report",
    "POST /v1/commands",
    "POST /v1/events",
    "POST /v1/intents",
    "POST /v1/intents/{intentKey}/complete",
    "POST /v1/leases/{lease}/extend",
    "POST /v1/limits",
    "POST /v1/limits/{name}/consume",
    "POST /v1/limits/{name}/penalize",
    "POST /v1/limits/{name}/refund",
    "POST /v1/limits/{name}/reserve",
    "POST /v1/pools/{pool}/claim",
    "POST /v1/pools/{pool}/work",
    "POST /v1/publications",
    "POST /v1/runs",
    "POST /v1/timers",
    "POST /v1/work/{id}/complete",
    "POST /v1/work/{id}/fail",
];

#[tokio::test]
async fn b_234_whatever_decides_over_others_is_watched_wherever_it_is() {
    let server = Running::start(options()).await;
    let changes = server.table.iter().filter(|route| {
        let is_ours = !route.path.contains("/test/");
        is_ours && route.method != "GET" && route.permission.role() > Some(Role::Reader)
    });
    let unwatched = changes.filter(|route| route.oversight == Oversight::Usual);
    let mut unwatched: Vec<String> =
        unwatched.map(|route| format!("{} {}", route.method, route.path)).collect();
    unwatched.sort_unstable();
    assert_eq!(unwatched, OF_APPLICATIONS);
}

#[test]
fn b_234_what_decides_over_others_is_written_down_outside_of_the_admin_area_too() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let operator = server.token(Role::Operator).await;
        let admin = server.token(Role::Admin).await;
        let mail = json!({"kind": "fixed window", "rate": 5, "period": "1h"});
        let cron =
            json!({"schedule": {"everyMs": 3_600_000}, "pool": "shop", "function": "report", "args": 1});
        let calls = [
            ("PUT", "/v1/pools/shop", "PUT /v1/pools/{pool}", json!({})),
            ("POST", "/v1/pools/shop/pause", "POST /v1/pools/{pool}/pause", json!({})),
            ("POST", "/v1/pools/shop/resume", "POST /v1/pools/{pool}/resume", json!({})),
            ("PUT", "/v1/crons/hourly", "PUT /v1/crons/{name}", cron),
            ("POST", "/v1/crons/hourly/pause", "POST /v1/crons/{name}/pause", json!({})),
            ("POST", "/v1/crons/hourly/resume", "POST /v1/crons/{name}/resume", json!({})),
            ("DELETE", "/v1/crons/hourly", "DELETE /v1/crons/{name}", json!({})),
            ("PUT", "/admin/limits/mail", "PUT /admin/limits/{name}", mail),
            (
                "POST",
                "/v1/limits/mail/block",
                "POST /v1/limits/{name}/block",
                json!({"key": "a", "forMs": 9}),
            ),
            ("POST", "/v1/limits/mail/reset", "POST /v1/limits/{name}/reset", json!({"key": "a"})),
        ];
        // A worker is there for what the cron enqueues.
        let work = Work::open(&server.store, Functions::new()).await.unwrap();
        work.pool(Pool::new("shop")).await.unwrap();
        let worker = post("/v1/pools/shop/claim", &json!({"functions": ["report"]}).to_string());
        assert_eq!(worker.token(&operator).send(server.address).await.status, 200);
        for (method, path, _, body) in &calls {
            let token = if path.starts_with("/admin") { &admin } else { &operator };
            let call = request(method, path).header("Content-Type", "application/json");
            // A key that tells repetitions apart comes between an action and its transaction nowhere.
            let call = call.header("Idempotency-Key", "once").body(&body.to_string()).token(token);
            let done = call.send(server.address).await;
            assert_eq!(done.status, 200, "{method} {path}: {done:?}");
        }
        let all = entries(&server.store).await;
        let written: Vec<_> = all.iter().map(|entry| (entry.action.as_str(), entry.outcome)).collect();
        let expected: Vec<_> = calls.iter().map(|(_, _, action, _)| (*action, Outcome::Done)).collect();
        assert_eq!(written, expected);
        post("/v1/pools/nowhere/pause", "{}").token(&operator).send(server.address).await;
        let last = entries(&server.store).await.pop().unwrap();
        assert_eq!((last.action.as_str(), last.outcome), ("POST /v1/pools/{pool}/pause", Outcome::Refused));
    });
}

/// A server on which each token may change something so often.
async fn strict(place: &Place, most: f64) -> Running {
    let store = equipped(place.options()).open().await.unwrap();
    let services = Builder::on_store(store.clone()).open().await.unwrap();
    let server = Running::start_with(options(), services.clone()).await;
    let definition = Definition::new(Kind::FixedWindow, most, 30 * 86_400_000).unwrap();
    services.limits.define("adminOperations", definition).await.unwrap();
    server
}

#[test]
fn b_233_nobody_gives_itself_more_and_nobody_shuts_another_out() {
    for_each_store(async |place| {
        let server = strict(&place, 2.0).await;
        let (operator, admin) = (server.token(Role::Operator).await, server.token(Role::Admin).await);
        let id_of = async |token: &str| {
            let who = get("/v1/test/who").token(token).send(server.address).await;
            who.json()["token"].as_str().unwrap().to_owned()
        };
        let (own, other) = (id_of(&operator).await, id_of(&admin).await);
        request("PUT", "/v1/pools/shop")
            .header("Content-Type", "application/json")
            .body("{}")
            .token(&operator)
            .send(server.address)
            .await;
        let pause =
            async || post("/v1/pools/shop/pause", "{}").token(&operator).send(server.address).await.status;
        assert_eq!([pause().await, pause().await, pause().await], [200, 200, 429]);
        let verbs = [
            ("reset", json!({})),
            ("refund", json!({"amount": 2})),
            ("block", json!({"forMs": 60_000})),
            ("penalize", json!({"amount": 2})),
            ("consume", json!({"cost": 2})),
            ("reserve", json!({"cost": 2})),
        ];
        for key in [&own, &other] {
            for (verb, body) in &verbs {
                let mut body = body.clone();
                body["key"] = json!(key);
                for token in [&operator, &admin] {
                    let path = format!("/v1/limits/adminOperations/{verb}");
                    let refused = post(&path, &body.to_string()).token(token).send(server.address).await;
                    refused.problem(403, "LIMIT_RESERVED");
                }
            }
            let many = json!({"limits": [{"name": "commandDispatch", "key": key}, {"name": "adminOperations", "key": key}]});
            let refused = post("/v1/limits", &many.to_string()).token(&operator).send(server.address).await;
            refused.problem(403, "LIMIT_RESERVED");
        }
        assert_eq!(pause().await, 429, "its budget is as it was");
        assert_eq!(make_token(&server, &admin).await.status, 201, "and so is the admin's");
        let standing = get(&format!("/v1/limits/adminOperations/value?key={other}"));
        assert_eq!(standing.token(&operator).send(server.address).await.json()["value"], 1, "it can be seen");
    });
}

#[test]
fn b_233_previews_and_what_raises_the_limit_do_not_count() {
    for_each_store(async |place| {
        let server = strict(&place, 1.0).await;
        let admin = server.token(Role::Admin).await;
        assert_eq!(make_token(&server, &admin).await.status, 201);
        make_token(&server, &admin).await.problem(429, "RATE_LIMITED");
        let preview = json!({"action": "ignore", "filter": {"kind": "work"}}).to_string();
        for _ in 0..3 {
            let looked =
                post("/admin/dead-letter-operations", &preview).token(&admin).send(server.address).await;
            assert!(looked.status < 300, "{looked:?}");
        }
        let more = json!({"kind": "fixed window", "rate": 100, "period": "1h"}).to_string();
        let raise =
            request("PUT", "/admin/limits/adminOperations").header("Content-Type", "application/json");
        let operator = server.token(Role::Operator).await;
        let refused = raise.clone().body(&more).token(&operator).send(server.address).await;
        refused.problem(403, "UNAUTHORIZED");
        let raised = raise.body(&more).token(&admin).send(server.address).await;
        assert_eq!(raised.status, 200, "{raised:?}");
        assert_eq!(make_token(&server, &admin).await.status, 201);
    });
}

#[tokio::test]
async fn one_who_reads_much_hides_no_refusal_and_what_is_left_out_is_told() {
    let server = Running::start(options()).await;
    let (reader, other) = (server.token(Role::Reader).await, server.token(Role::Reader).await);
    for number in 1..=310 {
        let path = format!("/admin/circuits?limit={number}");
        assert_eq!(get(&path).token(&reader).send(server.address).await.status, 200);
    }
    for token in [&reader, &other] {
        make_token(&server, token).await.problem(403, "UNAUTHORIZED");
    }
    for _ in 0..70 {
        make_token(&server, &other).await.problem(403, "UNAUTHORIZED");
    }
    get("/admin/circuits?limit=400").token(&other).send(server.address).await;
    let of = |all: &[Entry], token: &str, method: &str| -> Vec<Option<String>> {
        let mine = all.iter().filter(|entry| token.contains(&entry.user_id));
        let mine = mine.filter(|entry| entry.action.starts_with(method));
        mine.map(|entry| entry.code.clone()).collect()
    };
    // Reads are written beside the answer.
    let all = loop {
        let all = entries(&server.store).await;
        if of(&all, &reader, "GET").len() == 301 && of(&all, &other, "GET").len() == 1 {
            break all;
        }
        tokio::task::yield_now().await;
    };
    let cut = Some("AUDIT_CUT".to_owned());
    assert_eq!(of(&all, &reader, "GET").iter().filter(|code| **code == cut).count(), 1);
    assert_eq!(of(&all, &reader, "POST"), [Some("UNAUTHORIZED".to_owned())]);
    let refused = of(&all, &other, "POST");
    assert_eq!((refused.len(), refused.last().unwrap()), (61, &cut));
    let figures = get("/metrics").send(server.address).await.body;
    assert!(figures.contains("\nmainstay_server_unaudited_total 21\n"), "{figures}");
}

#[tokio::test]
async fn b_233_refusals_for_doing_too_much_are_bounded_too() {
    let place = Place::new(mainstay_testkit::stores::Kind::SqliteMemory);
    let server = strict(&place, 1.0).await;
    let admin = server.token(Role::Admin).await;
    assert_eq!(make_token(&server, &admin).await.status, 201);
    for _ in 0..70 {
        make_token(&server, &admin).await.problem(429, "RATE_LIMITED");
    }
    let all = entries(&server.store).await;
    assert_eq!((all.len(), all.last().unwrap().code.as_deref()), (62, Some("AUDIT_CUT")));
}

#[tokio::test]
async fn b_231_a_name_makes_nobody_an_admin() {
    let server = Running::start(options()).await;
    let new = mainstay_server::tokens::New::named("admin", Role::Reader).unwrap().tenant("admin").unwrap();
    let tokens = mainstay_server::Tokens::new(server.store.clone());
    let (_, secret) = tokens.create(new).await.unwrap();
    let refused = make_token(&server, secret.reveal()).await.problem(403, "UNAUTHORIZED");
    assert_eq!(refused["detail"], "Admin role required");
}

#[test]
fn b_229_b_230_who_is_not_let_in_is_told_why_and_written_down() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let reader = server.token(Role::Reader).await;
        get("/admin/tokens").send(server.address).await.problem(401, "UNAUTHENTICATED");
        let problem = make_token(&server, &reader).await.problem(403, "UNAUTHORIZED");
        assert_eq!(problem["detail"], "Admin role required");
        let last = entries(&server.store).await.pop().unwrap();
        assert!(
            reader.contains(&last.user_id) && last.role.as_deref() == Some("reader"),
            "who is known: {last:?}"
        );
        let told: Vec<_> = entries(&server.store)
            .await
            .into_iter()
            .map(|entry| (entry.action, entry.outcome, entry.code))
            .collect();
        let refused = |action: &str, code: &str| (action.to_owned(), Outcome::Refused, Some(code.to_owned()));
        assert_eq!(
            told,
            [refused("GET /admin/tokens", "UNAUTHENTICATED"), refused("POST /admin/tokens", "UNAUTHORIZED")]
        );
    });
}

#[test]
fn b_232_an_action_leaves_one_entry_without_secrets() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let admin = server.token(Role::Admin).await;
        let made = make_token(&server, &admin).await;
        assert_eq!(made.status, 201, "{made:?}");
        let all = entries(&server.store).await;
        let [entry] = &all[..] else { panic!("one action, {all:?}") };
        assert_eq!((entry.action.as_str(), entry.outcome), ("POST /admin/tokens", Outcome::Done));
        assert_eq!(entry.args, json!({"path": "/admin/tokens", "body": {"name": "ci", "role": "reader"}}));
        assert!(
            admin.contains(&entry.user_id) && entry.user_id != admin,
            "the id of the token, not its secret"
        );
        assert!(entry.timestamp > 0 && entry.role.as_deref() == Some("admin") && entry.trace_id.is_some());
        let secret = made.json()["secret"].as_str().unwrap().to_owned();
        assert!(!format!("{all:?}").contains(&secret));
        let listed = get("/admin/audit?outcome=done").token(&admin).send(server.address).await;
        assert_eq!(listed.json()["entries"][0]["userId"], entry.user_id, "{listed:?}");
    });
}

#[test]
fn reads_are_written_down_once_a_minute_and_do_not_count() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let admin = server.token(Role::Admin).await;
        for _ in 0..20 {
            assert_eq!(get("/admin/tokens").token(&admin).send(server.address).await.status, 200);
        }
        // They are written beside the answer.
        while entries(&server.store).await.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(make_token(&server, &admin).await.status, 201);
        let reads = entries(&server.store).await.into_iter().filter(|entry| entry.action.starts_with("GET"));
        assert_eq!(reads.count(), 1);
    });
}

#[test]
fn b_233_operations_are_limited_for_each_identity() {
    for_each_store(async |place| {
        let server = strict(&place, 10.0).await;
        let (one, other) = (server.token(Role::Admin).await, server.token(Role::Admin).await);
        for _ in 0..10 {
            assert_eq!(make_token(&server, &one).await.status, 201);
        }
        let refused = make_token(&server, &one).await;
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
        refused.problem(429, "RATE_LIMITED");
        assert_eq!(make_token(&server, &other).await.status, 201);
        assert_eq!(get("/admin/tokens").token(&one).send(server.address).await.status, 200, "reads go on");
        let last = entries(&server.store).await.into_iter().rfind(|entry| entry.outcome == Outcome::Refused);
        assert_eq!(last.unwrap().code.as_deref(), Some("RATE_LIMITED"));
    });
}

#[test]
fn whatever_is_done_to_the_rows_shows() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let admin = server.token(Role::Admin).await;
        for _ in 0..5 {
            make_token(&server, &admin).await;
        }
        let kept = verify(&server.store, None).await.unwrap();
        assert_eq!(kept.number, 5);
        let cases = [
            ("an edit", vec!["UPDATE mainstay_audit SET user_id = 'bob' WHERE number = 3"], 3),
            ("a deletion", vec!["DELETE FROM mainstay_audit WHERE number = 3"], 3),
            (
                "a reordering",
                vec![
                    "UPDATE mainstay_audit SET number = 99 WHERE number = 3",
                    "UPDATE mainstay_audit SET number = 3 WHERE number = 4",
                    "UPDATE mainstay_audit SET number = 4 WHERE number = 99",
                ],
                3,
            ),
            ("a truncation", vec!["DELETE FROM mainstay_audit WHERE number >= 4"], 4),
            (
                "a truncation with its head",
                vec![
                    "UPDATE mainstay_audit_head SET number = 3, hash = (SELECT hash FROM mainstay_audit WHERE number = 3)",
                    "DELETE FROM mainstay_audit WHERE number >= 4",
                ],
                4,
            ),
        ];
        for (what, statements, number) in cases {
            let tamper = async |tx: Tx, statements: Vec<&'static str>| {
                for sql in statements {
                    tx.execute(sql, &[]).await?;
                }
                Ok(())
            };
            let copy = async |tx: Tx| {
                for table in ["mainstay_audit", "mainstay_audit_head"] {
                    tx.execute(&format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}"), &[]).await?;
                }
                Ok(())
            };
            let restore = async |tx: Tx| {
                for table in ["mainstay_audit", "mainstay_audit_head"] {
                    tx.execute(&format!("DELETE FROM {table}"), &[]).await?;
                    tx.execute(&format!("INSERT INTO {table} SELECT * FROM kept_{table}"), &[]).await?;
                    tx.execute(&format!("DROP TABLE kept_{table}"), &[]).await?;
                }
                Ok(())
            };
            server.store.transact(copy).await.unwrap();
            server.store.transact_with(statements, tamper).await.unwrap();
            let found = verify(&server.store, Some(kept.clone())).await.unwrap_err();
            assert_eq!(found.number, number, "{what}: {found:?}");
            server.store.transact(restore).await.unwrap();
            verify(&server.store, Some(kept.clone())).await.unwrap();
        }
    });
}

#[test]
fn many_at_once_make_one_chain() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let admin = server.token(Role::Admin).await;
        let calls = (0..20).map(|_| make_token(&server, &admin));
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
        assert_eq!(verify(&server.store, None).await.unwrap().number, 20);
    });
}

#[test]
fn what_was_refused_or_one_tenant_did_is_found_without_reading_everything() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let names = async |tx: Tx, many_nodes: bool| {
            let sql = match many_nodes {
                true => "SELECT indexdef FROM pg_indexes WHERE tablename = 'mainstay_audit'",
                false => "SELECT COALESCE(sql, '') FROM sqlite_schema WHERE tbl_name = 'mainstay_audit'",
            };
            let rows = tx.query(sql, &[]).await?;
            rows.iter().map(|row| row.get::<String>(0)).collect::<mainstay_store::Result<Vec<_>>>()
        };
        let known = store.read_with(store.capabilities().many_nodes, names).await.unwrap();
        for columns in ["(user_id, number)", "(outcome, number)", "(tenant_id, number)"] {
            assert!(known.iter().any(|made| made.contains(columns)), "{columns}: {known:?}");
        }
    });
}
