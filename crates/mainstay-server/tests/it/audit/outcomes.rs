//! What came of a call is written down as it came.

use super::{entries, make_token, start, verify};
use crate::client::{get, post, request};
use crate::running::{Running, options};
use mainstay_server::audit::Outcome;
use mainstay_server::{Role, equipped};
use mainstay_store::Tx;
use mainstay_testkit::stores::for_each_store;
use serde_json::json;
use std::time::Duration;

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
fn what_was_asked_in_vain_is_written_down_as_that_and_once() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let admin = server.token(Role::Admin).await;
        let unknown = "work_0190f3b8-7c1e-7abc-8def-0123456789ab";
        let asked = [
            ("DELETE", "/admin/tokens/nobody".to_owned(), "DELETE /admin/tokens/{id}", "TOKEN_NOT_FOUND"),
            (
                "POST",
                format!("/admin/work/{unknown}/cancel"),
                "POST /admin/work/{id}/cancel",
                "WORK_NOT_FOUND",
            ),
            (
                "POST",
                format!("/admin/work/{unknown}/run-now"),
                "POST /admin/work/{id}/run-now",
                "WORK_NOT_FOUND",
            ),
            ("DELETE", "/v1/crons/nobody".to_owned(), "DELETE /v1/crons/{name}", "UNKNOWN_CRON"),
        ];
        for (number, (method, path, action, code)) in asked.iter().enumerate() {
            request(method, path).token(&admin).send(server.address).await.problem(404, code);
            let all = entries(&server.store).await;
            assert_eq!(all.len(), number + 1, "{:?}", all.last());
            let last = all.last().unwrap();
            assert_eq!((last.outcome, last.code.as_deref()), (Outcome::Refused, Some(*code)));
            assert_eq!((last.action.as_str(), &last.args["path"]), (*action, &json!(path)));
        }
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

#[tokio::test]
async fn what_panics_is_written_down_as_failed() {
    let server = Running::start(options()).await;
    let admin = server.token(Role::Admin).await;
    let panicked = post("/admin/test/panics", "{}").token(&admin).send(server.address).await;
    panicked.problem(500, "INTERNAL_ERROR");
    let all = entries(&server.store).await;
    assert_eq!((all.len(), all[0].outcome), (1, Outcome::Failed));
    assert_eq!(all[0].code.as_deref(), Some("INTERNAL_ERROR"));
}

#[test]
fn no_number_breaks_the_chain() {
    for_each_store(async |place| {
        let server = start(&place).await;
        let admin = server.token(Role::Admin).await;
        // Read and printed again it is another one.
        for number in ["2.1688045621966405e-20", "123456789012345678901234567890", "-0.1"] {
            let body = format!(r#"{{"reason":{number}}}"#);
            let answer = post("/admin/intents/x/abandon", &body).token(&admin).send(server.address).await;
            assert_eq!(answer.status, 400, "{answer:?}");
        }
        assert_eq!(verify(&server.store, None).await.unwrap().number, 3);
    });
}

#[tokio::test]
async fn an_outcome_that_is_none_breaks_the_chain() {
    let server = Running::start(options()).await;
    let admin = server.token(Role::Admin).await;
    make_token(&server, &admin).await;
    let edit = async |tx: Tx| tx.execute("UPDATE mainstay_audit SET outcome = 'fine'", &[]).await;
    server.store.transact(edit).await.unwrap();
    assert_eq!(verify(&server.store, None).await.unwrap_err().number, 1);
}

#[tokio::test]
async fn a_token_that_is_put_into_a_path_by_mistake_is_not_written_down() {
    let server = Running::start(options()).await;
    let admin = server.token(Role::Admin).await;
    request("DELETE", &format!("/admin/tokens/{admin}"))
        .token(&admin)
        .send(server.address)
        .await
        .problem(404, "TOKEN_NOT_FOUND");
    let told = entries(&server.store).await[0].args["path"].clone();
    let (id, secret) = admin.rsplit_once('_').unwrap();
    assert_eq!(told, json!(format!("/admin/tokens/{id}_[hidden]")), "without {secret}");
}

#[tokio::test]
async fn refusals_that_do_not_count_are_bounded_too() {
    let server = Running::start(options()).await;
    let admin = server.token(Role::Admin).await;
    for _ in 0..70 {
        let refused = post("/admin/dead-letter-operations", "{}").token(&admin).send(server.address).await;
        refused.problem(400, "BODY_INVALID");
    }
    let all = entries(&server.store).await;
    assert_eq!((all.len(), all[60].code.as_deref()), (61, Some("AUDIT_CUT")));
}

#[tokio::test]
async fn a_text_that_no_database_keeps_is_refused() {
    let server = Running::start(options()).await;
    let admin = server.token(Role::Admin).await;
    let body = json!({"runId": "a\0b"}).to_string();
    let answer = post("/admin/projection-letters/complete", &body).token(&admin).send(server.address).await;
    answer.problem(400, "STORE_TEXT_INVALID");
}
