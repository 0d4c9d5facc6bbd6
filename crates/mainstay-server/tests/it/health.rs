//! Health and figures.

use crate::client::get;
use crate::running::{Running, options};
use mainstay_server::equipped;
use mainstay_testkit::stores::for_each_store;
use serde_json::json;

#[test]
fn a_server_whose_store_answers_is_ready_and_one_whose_store_is_gone_is_not() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options(), store.clone()).await;
        for path in ["/health/live", "/livez"] {
            let answer = get(path).send(server.address).await;
            assert_eq!((answer.status, answer.json()), (200, json!({ "status": "up" })));
        }
        for path in ["/health/ready", "/readyz?verbose", "/readyz?verbose=true"] {
            let answer = get(path).send(server.address).await;
            assert_eq!(answer.status, 200);
            let (status, store) = (&answer.json()["status"], &answer.json()["components"]["store"]);
            assert_eq!((status, &store["status"]), (&json!("up"), &json!("up")));
            assert!(store["latencyMs"].is_u64() && store.get("code").is_none(), "{store}");
        }
        assert_eq!(get("/readyz").send(server.address).await.json(), json!({ "status": "up" }));
        let problem = get("/readyz?verbos").send(server.address).await.problem(400, "QUERY_INVALID");
        assert_eq!(problem["field"], "verbos");

        store.close().await;
        let answer = get("/readyz?verbose").send(server.address).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.json()["components"]["store"]["code"], "STORE_CLOSED");
        assert_eq!(get("/livez").send(server.address).await.status, 200);
    });
}

#[tokio::test]
async fn figures_are_those_of_the_store_and_of_the_server() {
    let server = Running::start(options()).await;
    get("/nowhere").send(server.address).await;
    let answer = get("/metrics").send(server.address).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; version=0.0.4")));
    for line in [
        "# TYPE mainstay_store_transactions_committed_total counter",
        "# TYPE mainstay_store_commit_time_seconds histogram",
        "# TYPE mainstay_work_taken_total counter",
        "mainstay_server_client_errors_total 1",
        "mainstay_server_in_flight 1",
        "mainstay_server_request_time_seconds_count 1",
    ] {
        assert!(answer.body.lines().any(|written| written == line), "{line}\n{}", answer.body);
    }
}
