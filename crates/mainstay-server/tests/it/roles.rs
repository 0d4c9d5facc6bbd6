//! Every route with the least role that it takes, written down once more by hand.
//!
//! In the server's own table a role can be lowered by mistake. A route that is added, removed or given another role must be
//! changed here too.

use crate::client::{Answer, get, request};
use crate::running::{Running, options};
use mainstay_server::tokens::New;
use mainstay_server::{Role, Scope, Tokens, equipped};
use mainstay_testkit::stores::for_each_store;
use std::collections::BTreeMap;
use std::time::Duration;

/// Routes that anyone may ask.
const PUBLIC: [&str; 7] = [
    "GET /docs/errors",
    "GET /docs/errors/{code}",
    "GET /health/live",
    "GET /health/ready",
    "GET /livez",
    "GET /openapi.json",
    "GET /readyz",
];

/// Routes for callers on this machine, and for a token of any role of the ladder.
const LOCAL: [&str; 2] = ["GET /health", "GET /metrics"];

/// Routes that look.
const READER: [&str; 57] = [
    "GET /admin/checkpoints",
    "GET /admin/circuit-changes",
    "GET /admin/circuits",
    "GET /admin/circuits/{name}/history",
    "GET /admin/dead-letter-operations",
    "GET /admin/dead-letter-operations/{id}",
    "GET /admin/dead-letters",
    "GET /admin/dead-letters/groups",
    "GET /admin/dead-letters/stats",
    "GET /admin/dead-letters/{id}",
    "GET /admin/intents",
    "GET /admin/intents/{intentKey}",
    "GET /admin/limits/{name}/denied",
    "GET /admin/metrics",
    "GET /admin/poison-events",
    "GET /admin/poison-events/stats",
    "GET /admin/pools",
    "GET /admin/pools/{pool}",
    "GET /admin/pools/{pool}/keys",
    "GET /admin/pools/{pool}/work",
    "GET /admin/projection-letters",
    "GET /admin/projection-letters/stats",
    "GET /admin/projection-letters/{projection}/{eventId}",
    "GET /admin/projections",
    "GET /admin/projections/{name}",
    "GET /admin/publications",
    "GET /admin/publications/letters",
    "GET /admin/publications/letters/stats",
    "GET /admin/publications/letters/{target}/{eventId}",
    "GET /admin/replays",
    "GET /admin/replays/{replayId}",
    "GET /admin/runs/{id}",
    "GET /admin/system",
    "GET /admin/traces/{correlationId}",
    "GET /admin/work",
    "GET /admin/work/{id}",
    "GET /v1/circuits",
    "GET /v1/circuits/{name}",
    "GET /v1/commands/{commandId}",
    "GET /v1/crons",
    "GET /v1/crons/{name}",
    "GET /v1/events",
    "GET /v1/events/subscribe",
    "GET /v1/events/{eventId}",
    "GET /v1/intents/orphans",
    "GET /v1/limits",
    "GET /v1/limits/{name}",
    "POST /v1/limits/{name}/check",
    "GET /v1/limits/{name}/value",
    "GET /v1/pools",
    "GET /v1/pools/{pool}",
    "GET /v1/pools/{pool}/work",
    "GET /v1/publications/{eventId}",
    "GET /v1/runs/{id}",
    "GET /v1/streams/{type}/{id}",
    "GET /v1/timers/{id}",
    "GET /v1/work/{id}",
];

/// Routes of pull workers; an operator may use them too.
const WORKER: [&str; 5] = [
    "DELETE /v1/leases/{lease}",
    "POST /v1/leases/{lease}/extend",
    "POST /v1/pools/{pool}/claim",
    "POST /v1/work/{id}/complete",
    "POST /v1/work/{id}/fail",
];

/// Routes of publishers; an operator may use them too.
const PUBLISHER: [&str; 3] = ["POST /v1/events", "POST /v1/pools/{pool}/work", "POST /v1/publications"];

/// Routes that change what an application keeps.
const OPERATOR: [&str; 55] = [
    "POST /admin/circuits/{name}/force",
    "POST /admin/circuits/{name}/release",
    "POST /admin/circuits/{name}/reset",
    "POST /admin/dead-letter-operations",
    "POST /admin/dead-letter-operations/{id}/cancel",
    "POST /admin/dead-letter-operations/{id}/run",
    "POST /admin/dead-letters/{id}/ignore",
    "POST /admin/dead-letters/{id}/retry",
    "POST /admin/intents/{intentKey}/abandon",
    "POST /admin/poison-events/{projection}/{eventId}/ignore",
    "POST /admin/poison-events/{projection}/{eventId}/unquarantine",
    "POST /admin/pools/{pool}/pause",
    "POST /admin/pools/{pool}/resume",
    "POST /admin/projection-letters/complete",
    "POST /admin/projection-letters/{projection}/{eventId}/ignore",
    "POST /admin/projection-letters/{projection}/{eventId}/prepare",
    "POST /admin/projection-letters/{projection}/{eventId}/retry",
    "POST /admin/projection-letters/{projection}/{eventId}/run",
    "POST /admin/projections/{name}/pause",
    "POST /admin/projections/{name}/recover",
    "POST /admin/projections/{name}/replays",
    "POST /admin/projections/{name}/resume",
    "POST /admin/publications/letters/{target}/{eventId}/ignore",
    "POST /admin/publications/letters/{target}/{eventId}/retry",
    "POST /admin/replays",
    "POST /admin/replays/{replayId}/cancel",
    "POST /admin/replays/{replayId}/pause",
    "POST /admin/replays/{replayId}/resume",
    "POST /admin/work/{id}/cancel",
    "POST /admin/work/{id}/retry",
    "POST /admin/work/{id}/run-now",
    "POST /v1/circuits/{name}/ask",
    "POST /v1/circuits/{name}/report",
    "POST /v1/commands",
    "DELETE /v1/crons/{name}",
    "PUT /v1/crons/{name}",
    "POST /v1/crons/{name}/pause",
    "POST /v1/crons/{name}/resume",
    "POST /v1/intents",
    "POST /v1/intents/{intentKey}/complete",
    "POST /v1/limits",
    "POST /v1/limits/{name}/block",
    "POST /v1/limits/{name}/consume",
    "POST /v1/limits/{name}/penalize",
    "POST /v1/limits/{name}/refund",
    "POST /v1/limits/{name}/reserve",
    "POST /v1/limits/{name}/reset",
    "PUT /v1/pools/{pool}",
    "POST /v1/pools/{pool}/pause",
    "POST /v1/pools/{pool}/resume",
    "POST /v1/runs",
    "DELETE /v1/runs/{id}",
    "POST /v1/timers",
    "DELETE /v1/timers/{id}",
    "DELETE /v1/work/{id}",
];

/// Routes that change access, and routes with an effect that cannot be undone.
const ADMIN: [&str; 16] = [
    "DELETE /admin/circuits/{name}",
    "DELETE /admin/functions/{function}",
    "DELETE /admin/limits/{name}",
    "DELETE /admin/pools/{pool}",
    "GET /admin/audit",
    "GET /admin/audit/head",
    "PUT /admin/checkpoints/{projection}/{partition}",
    "PUT /admin/circuits/{name}",
    "GET /admin/config",
    "PUT /admin/limits/{name}",
    "DELETE /admin/sessions",
    "GET /admin/tokens",
    "POST /admin/tokens",
    "DELETE /admin/tokens/{id}",
    "POST /admin/tokens/{id}/rotate",
    "POST /admin/tokens/{id}/sign-out",
];

/// Each route with its least role of the ladder and its scoped role, as the description names them.
fn by_hand() -> BTreeMap<&'static str, (&'static str, Option<&'static str>)> {
    let lists: [(&[&'static str], &'static str, Option<&'static str>); 7] = [
        (&PUBLIC, "public", None),
        (&LOCAL, "local", None),
        (&READER, "reader", None),
        (&WORKER, "operator", Some("worker")),
        (&PUBLISHER, "operator", Some("publisher")),
        (&OPERATOR, "operator", None),
        (&ADMIN, "admin", None),
    ];
    let rows = lists
        .into_iter()
        .flat_map(|(routes, role, scoped)| routes.iter().map(move |route| (*route, (role, scoped))));
    rows.collect()
}

#[tokio::test]
async fn every_route_has_the_role_that_was_thought_about() {
    let server = Running::start(options()).await;
    let description = get("/openapi.json").send(server.address).await.json();
    let mut described = BTreeMap::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let text = |member: &str| operation[member].as_str().map(str::to_owned);
            let roles = (text("x-permission").unwrap(), text("x-scope"));
            described.insert(format!("{} {path}", method.to_uppercase()), roles);
        }
    }
    described.retain(|route, _| !route.contains("/test/"));
    let owned = |(role, scoped): (&str, Option<&str>)| (role.to_owned(), scoped.map(str::to_owned));
    let by_hand: BTreeMap<String, _> =
        by_hand().into_iter().map(|(route, roles)| (route.to_owned(), owned(roles))).collect();
    for (route, roles) in &by_hand {
        assert_eq!(described.get(route), Some(roles), "{route}");
    }
    for route in described.keys() {
        assert!(by_hand.contains_key(route), "{route} is not in the table of this test");
    }
}

/// Rows of the table of scopes in the documents: a scope and a route.
fn documented(text: &str) -> Vec<(&str, &str)> {
    let section = text.split_once("\n## Scopes\n").unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.split('|').map(|cell| cell.trim().trim_matches('`')).skip(1);
        (cells.next().unwrap(), cells.next().unwrap())
    })
    .collect()
}

#[test]
fn the_documents_name_the_routes_of_each_scope() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations/security.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut found = documented(&page);
    let mut expected: Vec<_> = WORKER.iter().map(|route| ("worker", *route)).collect();
    expected.extend(PUBLISHER.iter().map(|route| ("publisher", *route)));
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// Tokens of every role, those of workers and publishers with a scope that names everything.
async fn tokens(server: &Running) -> BTreeMap<Role, String> {
    let all = || vec!["*".to_owned()];
    let work = Scope { pools: all(), functions: all(), ..Scope::default() };
    let everything = Scope { stream_types: all(), event_types: all(), targets: all(), ..work.clone() };
    let mut tokens = BTreeMap::new();
    for (role, scope) in [(Role::Worker, work), (Role::Publisher, everything)] {
        let new = New::named("test", role).unwrap().scope(scope).unwrap();
        let (_, secret) = Tokens::new(server.store.clone()).create(new).await.unwrap();
        tokens.insert(role, secret.reveal().to_owned());
    }
    for role in Role::ALL {
        tokens.insert(role, server.token(role).await);
    }
    tokens
}

/// Asks every route with a token of every role, and compares the answers with the table. A route with a role that was lowered
/// lets in a token that stands just below.
#[test]
fn every_route_refuses_the_tokens_just_below_it() {
    for_each_store(async |place| {
        let store = equipped(place.options()).open().await.unwrap();
        let server = Running::start_on(options().request_timeout(Duration::from_secs(5)), store).await;
        let tokens = tokens(&server).await;
        for (route, (role, scoped)) in by_hand() {
            let (method, path) = route.split_once(' ').unwrap();
            // It never ends by itself, and is asked by those that must be refused only.
            let is_endless = path.ends_with("/subscribe");
            let needed: Role = match role {
                "public" => continue,
                "local" => Role::Reader,
                role => role.parse().unwrap(),
            };
            let ask = request(method, &path.replace(['{', '}'], "x"));
            for (role, token) in &tokens {
                let is_let_in = *role >= needed || scoped == Some(role.name());
                if is_let_in && is_endless {
                    continue;
                }
                let answer: Answer = ask.clone().token(token).send(server.address).await;
                if is_let_in {
                    assert!(![401, 403].contains(&answer.status), "{route} for {role}: {answer:?}");
                } else {
                    let problem = answer.problem(403, "UNAUTHORIZED");
                    assert_eq!(problem["detail"], format!("{needed} role required"), "{route} for {role}");
                }
            }
        }
    });
}
