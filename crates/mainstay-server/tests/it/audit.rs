//! Who did what: every call of an admin route is written down, in its own transaction, and nobody can change that unseen.

use crate::client::{Answer, get, post, request};
use crate::running::{Running, options};
use mainstay_guards::limits::{Definition, Kind};
use mainstay_server::audit::{Audit, Break, Chain, Entry, Filter, Head, Outcome};
use mainstay_server::{Role, Rooms, equipped};
use mainstay_store::{Store, Tx};
use mainstay_testkit::stores::{Place, for_each_store};
use serde_json::json;
use std::time::Duration;

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
    // written down sixty times a minute.
    let admin = server.table.iter().filter(|route| route.path.starts_with("/admin/"));
    let routes: Vec<String> =
        admin.map(|route| format!("{} {}", route.method, route.path)).take(60).collect();
    for route in &routes {
        let (method, path) = route.split_once(' ').unwrap();
        request(method, path).send(server.address).await.problem(401, "UNAUTHENTICATED");
    }
    let written: Vec<String> = entries(&server.store).await.into_iter().map(|entry| entry.action).collect();
    assert_eq!(written, routes);
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
fn an_action_and_its_entry_commit_together_or_not_at_all() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let admin = server.token(Role::Admin).await;
        // Nobody can write an entry now.
        let hide = async |tx: Tx| tx.execute("ALTER TABLE mainstay_audit RENAME TO hidden", &[]).await;
        server.store.transact(hide).await.unwrap();
        assert_eq!(make_token(&server, &admin).await.status, 500);
        let show = async |tx: Tx| tx.execute("ALTER TABLE hidden RENAME TO mainstay_audit", &[]).await;
        server.store.transact(show).await.unwrap();
        let listed = get("/admin/tokens").token(&admin).send(server.address).await;
        assert_eq!(
            listed.json()["tokens"].as_array().unwrap().len(),
            1,
            "only the one that asks: {listed:?}"
        );
    });
}

#[test]
fn what_was_asked_in_vain_is_written_down_as_that() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let admin = server.token(Role::Admin).await;
        request("DELETE", "/admin/tokens/nobody")
            .token(&admin)
            .send(server.address)
            .await
            .problem(404, "TOKEN_NOT_FOUND");
        let last = entries(&server.store).await.pop().unwrap();
        assert_eq!((last.outcome, last.code.as_deref()), (Outcome::Refused, Some("TOKEN_NOT_FOUND")));
        assert_eq!(last.action, "DELETE /admin/tokens/{id}");
        assert_eq!(last.args, json!({"path": "/admin/tokens/nobody"}));
    });
}

#[test]
fn what_takes_too_long_is_written_down_as_failed() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options().request_timeout(Duration::from_millis(1)), store).await;
        let admin = server.token(Role::Admin).await;
        let never = post("/admin/test/never", "{}").token(&admin).send(server.address).await;
        never.problem(503, "REQUEST_TIMEOUT");
        let last = entries(&server.store).await.pop().unwrap();
        assert_eq!((last.outcome, last.code.as_deref()), (Outcome::Failed, Some("REQUEST_TIMEOUT")));
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
        let store = equipped(place.options()).open().await.unwrap();
        let rooms = Rooms::open(&store).await.unwrap();
        let server = Running::start_with(options(), rooms.clone()).await;
        let usual = Definition::new(Kind::FixedWindow, 10.0, 3_600_000).unwrap();
        rooms.limits.define("adminOperations", usual).await.unwrap();
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
