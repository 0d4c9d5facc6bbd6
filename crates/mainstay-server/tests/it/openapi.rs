//! The description of the API, and that every route in it is guarded.

use crate::client::{get, request};
use crate::running::{Running, options};
use mainstay_server::{Permission, Role, Server, equipped};
use mainstay_testkit::stores::{Kind, Place};
use serde_json::Value;

#[tokio::test]
async fn the_description_is_what_was_agreed() {
    let place = Place::new(Kind::SqliteMemory);
    let store = equipped(place.options()).open().await.unwrap();
    let server = Server::bind(options(), store).await.unwrap();
    let (address, handle) = (server.address(), server.handle());
    let running = tokio::spawn(server.run(std::future::pending()));
    let answer = get("/openapi.json").send(address).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    // Extensions of an operation have no order of their own.
    let ordered = ["worker", "publisher"].iter().fold(answer.body, |body, role| {
        let (scope, permission) = (format!("\"x-scope\": \"{role}\""), "\"x-permission\": \"operator\"");
        let gap = ",\n        ";
        body.replace(&format!("{scope}{gap}{permission}"), &format!("{permission}{gap}{scope}"))
    });
    insta::assert_snapshot!(ordered);
    handle.stop();
    running.await.unwrap();
}

#[tokio::test]
async fn the_table_and_the_description_list_the_same_routes() {
    let server = Running::start(options()).await;
    let description = get("/openapi.json").send(server.address).await.json();
    let mut described: Vec<String> = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let permission = operation["x-permission"].as_str().unwrap();
            let or = operation["x-scope"].as_str().map(|scoped| format!(" or {scoped}")).unwrap_or_default();
            described.push(format!("{} {path}: {permission}{or}", method.to_uppercase()));
            let is_secured = operation["security"][0]["token"].is_array();
            assert_eq!(is_secured, permission != "public", "{path}");
            assert_eq!(operation["responses"]["default"]["$ref"], "#/components/responses/Problem");
        }
    }
    let mut table: Vec<String> = server.table.iter().map(ToString::to_string).collect();
    described.sort();
    table.sort();
    assert_eq!(table, described);
    let operation_ids: Vec<&Value> = description["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|item| item.as_object().unwrap().values().map(|operation| &operation["operationId"]))
        .collect();
    let mut distinct: Vec<String> = operation_ids.iter().map(ToString::to_string).collect();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), operation_ids.len());
}

#[tokio::test]
async fn every_response_is_described() {
    let server = Running::start(options()).await;
    let description = get("/openapi.json").send(server.address).await.json();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                let says = response["description"].as_str().is_some_and(|text| !text.is_empty());
                assert!(says || response["$ref"].is_string(), "{method} {path} {status}");
            }
        }
    }
}

/// Every reference in a description, as the path of what it means.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let reference = members.get("$ref").and_then(Value::as_str);
            found.extend(reference.map(|reference| reference.trim_start_matches('#').to_owned()));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn whatever_the_description_refers_to_is_in_it() {
    let server = Running::start(options()).await;
    let description = get("/openapi.json").send(server.address).await.json();
    let mut found = Vec::new();
    references(&description, &mut found);
    assert!(found.len() > 100, "{found:?}");
    found.retain(|reference| description.pointer(reference).is_none());
    assert!(found.is_empty(), "{found:?}");
}

/// Without, with a weaker and with a sufficient token, for every route there is.
#[tokio::test]
async fn every_route_keeps_out_whom_it_should() {
    // A route that lets in would wait for a gate; giving up is as good an answer as any.
    let server = Running::start(options().request_timeout(std::time::Duration::from_secs(1))).await;
    let mut tokens = Vec::new();
    for role in Role::ALL {
        tokens.push((role, server.token(role).await));
    }
    let streams =
        |path: &str| path.contains("/stream/") || path.ends_with("/subscribe") || path.ends_with("/large");
    for route in server.table.iter().filter(|route| !streams(&route.path)) {
        let ask = request(
            route.method.as_str(),
            &route.path.replace("{code}", "STORE_BUSY").replace(['{', '}'], "x"),
        );
        let Some(needed) = route.permission.role() else {
            let answer = ask.send(server.address).await;
            assert!(answer.status < 400, "{route}: {answer:?}");
            continue;
        };
        let answer = ask.send(server.address).await;
        if route.permission == Permission::Local {
            assert_eq!(answer.status, 200, "{route}");
            let answer = ask.clone().header("Host", "evil.example").send(server.address).await;
            answer.problem(403, "ORIGIN_REFUSED");
        } else {
            answer.problem(401, "UNAUTHENTICATED");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{route}");
        }
        for (role, token) in &tokens {
            let answer = ask.clone().token(token).send(server.address).await;
            if *role < needed {
                let problem = answer.problem(403, "UNAUTHORIZED");
                assert_eq!(problem["detail"], format!("{needed} role required"), "{route}");
            } else {
                assert!(![401, 403].contains(&answer.status), "{route} with {role}: {answer:?}");
            }
        }
        let wrong = format!("mst_{}_{}", "0".repeat(16), "0".repeat(64));
        ask.clone().token(&wrong).send(server.address).await.problem(401, "UNAUTHENTICATED");
        ask.header("Authorization", "Basic YTpi").send(server.address).await.problem(401, "UNAUTHENTICATED");
    }
    assert!(server.table.iter().any(|route| streams(&route.path)), "or the exception is none any more");
    get("/v1/test/stream/x").send(server.address).await.problem(401, "UNAUTHENTICATED");
}
