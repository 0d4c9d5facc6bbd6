//! `mainstay limits`, `mainstay circuits`, and a server whose functions stand behind circuits.

use crate::endpoint::Endpoint;
use crate::program::{Answer, Folder};
use crate::serving::Serving;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CONFIG: &str = "[limits.mail]\nrate = 3\nperiod = \"1h\"\nmaxReserved = 1\n\
    [circuits.sendgrid]\nfailureThreshold = 2\nresetTimeoutMs = 60000\n";

/// Runs a test body on a file that a server with the configuration has left behind, and through such a server.
fn alike(body: impl Fn(&dyn Fn(&str) -> Answer)) {
    let folder = Folder::new();
    folder.write("mainstay.toml", CONFIG);
    Serving::start(&folder).stop("-TERM");
    body(&|arguments| folder.run(arguments));

    let folder = Folder::new();
    folder.write("mainstay.toml", CONFIG);
    let token = folder.run("token create --name test --role admin").stdout;
    let server = Serving::start(&folder);
    let with = [("MAINSTAY_TOKEN", token.trim())];
    body(&|arguments| folder.run_with(&with, &format!("{arguments} --server {}", server.url())));
    server.stop("-TERM");
}

fn said(answer: &Answer) -> &str {
    assert_eq!(answer.code, 0, "{answer:?}");
    &answer.stdout
}

#[test]
fn limits_are_listed_asked_and_changed() {
    alike(|run| {
        insta::allow_duplicates! {
            insta::assert_snapshot!(said(&run("limits list")), @"
                LIMIT            KIND          RATE   PERIOD  CAPACITY  SHARDS
                adminOperations  fixed window  10.0   1h      10.0      1
                commandDispatch  token bucket  100.0  1m      150.0     50
                mail             token bucket  3.0    1h      3.0       1
                ");
        }
        assert_eq!(run("limits list --limit 1 --json").json()["next"], "adminOperations");
        assert_eq!(said(&run("limits consume mail user:alice")), "allowed; 2 left\n");
        assert_eq!(said(&run("limits check mail user:alice --cost 2")), "allowed; 2 left\n");
        let denied = run("limits consume mail user:alice --cost 3");
        assert!(said(&denied).starts_with("denied; 2 left, ask again in "), "{denied:?}");
        let denied = run("limits consume mail user:alice --cost 3 --json").json();
        assert!((900_000..=1_200_000).contains(&denied["retryAfterMs"].as_u64().unwrap()), "{denied}");
        assert!(said(&run("limits consume mail user:alice --cost 4")).starts_with("denied for ever"));
        assert_eq!(said(&run("limits value mail user:alice")), "2 of 3\n");
        assert_eq!(said(&run("limits reserve mail user:alice --cost 2")), "reserved; wait for 0 ms\n");
        assert!(said(&run("limits reserve mail user:alice")).starts_with("reserved; wait for "));
        assert!(said(&run("limits reserve mail user:alice")).starts_with("denied; ask again in "));
        assert!(said(&run("limits reset mail user:alice")).starts_with("allowed; 3 left"));
        run("limits block mail user:bob --for 10m");
        assert!(said(&run("limits consume mail user:bob")).contains(" min"));
        let blocked = run("limits consume mail user:bob --json").json();
        assert!((300_000..=600_000).contains(&blocked["retryAfterMs"].as_u64().unwrap()), "{blocked}");
        let changed = run("limits set mail --rate 5 --period 1m --capacity 7 --json").json();
        assert_eq!((&changed["rate"], &changed["capacity"]), (&json!(5.0), &json!(7.0)));
        assert_eq!(run("limits show mail --json").json(), changed);
        run("limits consume nobody k").assert_failed(1, "UNKNOWN_LIMIT");
        run("limits consume mail k --cost 0").assert_failed(1, "LIMIT_COST_INVALID");
        run("limits set mail --rate 5 --period soon").assert_failed(2, "CLI_USAGE_INVALID");
    });
}

#[test]
fn circuits_are_listed_forced_released_and_reset() {
    alike(|run| {
        let listed = run("circuits list --json").json();
        assert_eq!(listed["circuits"][0]["config"]["failureThreshold"], 2);
        let forced = run("circuits open sendgrid --reason maintenance --for 30m");
        assert!(said(&forced).contains("open, forced"), "{forced:?}");
        assert!(said(&forced).contains(": maintenance, until 20"), "{forced:?}");
        let shown = run("circuits show sendgrid --json").json();
        assert_eq!((&shown["state"], &shown["forced"]["isOpen"]), (&json!("open"), &json!(true)));
        let closed = run("circuits close sendgrid --reason trust-me --json").json();
        assert_eq!((&closed["state"], &closed["forced"]["untilMs"]), (&json!("closed"), &Value::Null));
        assert_eq!(run("circuits release sendgrid --reason done --json").json()["forced"], Value::Null);
        assert_eq!(run("circuits reset sendgrid --reason anew --json").json()["state"], "closed");
        run("circuits open sendgrid --reason why --for 400d").assert_failed(1, "GUARD_INVALID");
        assert_eq!(run("circuits open sendgrid").code, 2, "nobody decides without saying why");
    });
}

#[test]
fn a_verb_that_looks_defines_nothing_of_the_configuration() {
    let folder = Folder::new();
    folder.write("mainstay.toml", CONFIG);
    folder.run("token list");
    folder.run("limits show mail").assert_failed(1, "UNKNOWN_LIMIT");
    assert_eq!(folder.run("circuits list --json").json()["circuits"], json!([]));
    folder.run("limits set mail --rate 7 --period 1m");
    assert_eq!(folder.run("limits show mail --json").json()["rate"], 7.0);
}

#[test]
fn whom_a_limit_denies_is_known_at_the_server() {
    let folder = Folder::new();
    folder.write("mainstay.toml", CONFIG);
    let token = folder.run("token create --name test --role admin").stdout;
    folder.run("limits denied mail").assert_failed(2, "CLI_USAGE_INVALID");
    let server = Serving::start(&folder);
    let with = [("MAINSTAY_TOKEN", token.trim())];
    let run = |arguments: &str| folder.run_with(&with, &format!("{arguments} --server {}", server.url()));
    for _ in 0..5 {
        run("limits consume mail greedy");
    }
    insta::assert_snapshot!(said(&run("limits denied mail")), @"
        KEY     DENIED
        greedy  2
        ");
    server.stop("-TERM");
}

#[test]
fn a_server_limits_how_many_requests_an_address_makes() {
    let folder = Folder::new();
    folder.write(
        "mainstay.toml",
        "[server]\nrequestsPerSecond = 1\nrequestBurst = 3\nproxies = [\"10.0.0.0/8\"]\n",
    );
    let server = Serving::start(&folder);
    let forged = [("x-forwarded-for", "203.0.113.5")];
    let statuses: Vec<u16> = (0..20).map(|_| server.send("GET", "/v1/limits", &forged, "").0).collect();
    // It comes from no proxy of ours, so what it says about itself is not believed.
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(server.send("GET", "/livez", &[], "").0, 200);
    server.stop("-TERM");
    folder.write("mainstay.toml", "[server]\nproxyHeader = \"X Forwarded\"\nproxies = [\"nowhere\"]\n");
    let refused = folder.run("config check");
    assert!(refused.stderr.contains("server.proxyHeader must be the name of a header"), "{refused:?}");
    assert!(refused.stderr.contains("server.proxies"), "{refused:?}");
}

/// C43: the service is down, so two items fail and the others wait without spending attempts; it is back, and all of them
/// are carried out, the first one alone.
#[test]
fn items_of_a_function_wait_while_its_circuit_is_open() {
    let is_well = Arc::new(AtomicBool::new(false));
    let endpoint = {
        let is_well = is_well.clone();
        Endpoint::start(move |_| match is_well.load(Ordering::SeqCst) {
            true => (200, "1".to_owned()),
            false => (500, r#"{"error":"down"}"#.to_owned()),
        })
    };
    let folder = Folder::new();
    folder.write(
        "mainstay.toml",
        &format!(
            "[pools.shop]\nmaxParallelism = 1\nretry = {{ maxAttempts = 2, initialBackoffMs = 1, maxBackoffMs = 1 }}\n\
             [egress]\nallow = [\"127.0.0.0/8\"]\n[functions.send]\nurl = \"http://{}/send\"\ncircuit = \"service\"\n\
             [circuits.service]\nfailureThreshold = 2\nresetTimeoutMs = 3600000\n",
            endpoint.address
        ),
    );
    let token = said(&folder.run("token create --name test --role admin")).trim().to_owned();
    let server = Serving::start(&folder);
    let ask = |method: &str, path: &str, body: &Value| {
        let header = format!("Bearer {token}");
        let (status, text) = server.send(method, path, &[("authorization", &header)], &body.to_string());
        assert_eq!(status, 200, "{method} {path}: {text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let items: Vec<Value> = (0..5).map(|number| json!({"function": "send", "args": number})).collect();
    let enqueued = ask("POST", "/v1/pools/shop/work", &json!({"items": items}));
    let state = || ask("GET", "/v1/circuits/service", &Value::Null)["state"].clone();
    wait_until(|| state() == "open");
    let calls = endpoint.rest().len();
    assert_eq!(calls, 2, "nothing is called while it is open");
    is_well.store(true, Ordering::SeqCst);
    // Its time is long, and an operator knows better.
    let with = [("MAINSTAY_TOKEN", token.as_str())];
    let reset =
        folder.run_with(&with, &format!("circuits reset service --reason well --server {}", server.url()));
    assert_eq!(reset.code, 0, "{reset:?}");
    let path = |index: usize| format!("/v1/work/{}", enqueued["work"][index]["workId"].as_str().unwrap());
    let mut succeeded = 0;
    for index in 0..5 {
        let status = || ask("GET", &path(index), &Value::Null);
        wait_until(|| !status()["endedAt"].is_null());
        let ended = status();
        succeeded += u32::from(ended["result"]["kind"] == "success");
        assert!(ended["attempts"].as_u64().unwrap() <= 2, "{ended}");
    }
    assert!(succeeded >= 4, "at most the one that was called twice has failed");
    server.stop("-TERM");
}

fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..4_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it does not come to that");
}
