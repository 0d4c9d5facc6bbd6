//! `mainstay serve` and `mainstay token`: a server that runs, and the verbs that ask it.

use crate::program::Folder;
use crate::serving::Serving;
use serde_json::{Value, json};

#[test]
fn serves_tells_where_and_stops_when_told() {
    for signal in ["-TERM", "-INT"] {
        let folder = Folder::new();
        let server = Serving::start(&folder);
        assert_eq!(server.listening["store"], "sqlite:mainstay.db");
        assert!(server.listening["durability"].as_str().unwrap().contains("synchronous=FULL"));
        assert!(server.ask("GET /health/ready").starts_with("HTTP/1.1 200 "));
        let url = server.url().to_owned();
        let told = server.stop(signal);
        // Nobody sits before it: every line is one of a log.
        let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["level"] == "INFO"), "{told}");
        let messages: Vec<&str> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
        let first = format!("Mainstay listens on {url}");
        let last = ["Stopping; once more to end at once.", "Stopped; everything under way was finished."];
        assert_eq!(messages, [first.as_str(), last[0], last[1]]);
        assert_eq!((&lines[0]["url"], &lines[0]["store"]), (&json!(url), &json!("sqlite:mainstay.db")));
        assert_eq!(folder.files(), ["mainstay.db"], "the log and the lock are gone after a clean end");
    }
}

#[test]
fn a_panic_is_a_line_of_the_log_like_any_other() {
    let folder = Folder::new();
    let server = Serving::start_with(&folder, &[("MAINSTAY_FAILPOINTS", "store.begin=panic@200")]);
    for _ in 0..200 {
        server.send("POST", "/v1/events", &[], r#"{"events":[{"type":"OrderPlaced","data":1}]}"#);
    }
    let told = server.stop("-TERM");
    let lines = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_panics =
        lines.filter(|line| line["message"].as_str().is_some_and(|said| said.contains("panicked at")));
    assert!(of_panics.count() > 0, "{told}");
}

#[test]
fn a_store_that_another_process_holds_cannot_be_served() {
    let folder = Folder::new();
    let server = Serving::start(&folder);
    folder.run("serve --listen 127.0.0.1:0").assert_logged(1, "STORE_OWNED");
    // Whoever asks for JSON has it as other verbs do, and whoever wants no log is told why it ended all the same.
    let told = folder.run("serve --json --listen 127.0.0.1:0").stderr;
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["code"], "STORE_OWNED");
    folder.run("serve --log off --listen 127.0.0.1:0").assert_failed(1, "STORE_OWNED");
    let address = server.address();
    let taken = folder.run(&format!("serve --store sqlite:other.db --listen {address}"));
    taken.assert_logged(1, "SERVER_LISTEN_FAILED");
    server.stop("-TERM");
}

#[test]
fn an_address_that_others_reach_is_refused_without_tokens_and_tls() {
    let folder = Folder::new();
    let answer = folder.run("serve --listen 0.0.0.0:0");
    let line = answer.assert_logged(1, "SERVER_UNPROTECTED");
    let said = format!("{}\n{}", line["message"].as_str().unwrap(), line["hint"].as_str().unwrap());
    insta::assert_snapshot!(said, @"
        0.0.0.0:0 can be reached from elsewhere, and the server has neither a token nor TLS
        Create a token with `mainstay token create`, set server.tlsCert and server.tlsKey, or listen on 127.0.0.1. Behind a proxy that does TLS, --insecure says that this is meant.
        ");
    folder.write("mainstay.toml", "[server]\ntlsCert = \"c.pem\"\n");
    folder.run("serve").assert_logged(1, "SERVER_TLS_INVALID");
    folder.run("serve --listen localhost").assert_logged(2, "CONFIG_INVALID_VALUE");
}

#[test]
fn tokens_are_made_in_the_store_and_through_the_server_that_holds_it() {
    let folder = Folder::new();
    let made = folder.run("token create --name first --role admin");
    assert_eq!(made.code, 0, "{made:?}");
    let admin = made.stdout.trim_end();
    assert!(admin.starts_with("mst_") && admin.len() == 85, "{admin}");
    assert!(
        made.stderr.ends_with("Its secret, above, is not shown again.\n")
            && !made.stderr.contains(&admin[21..])
    );

    let server = Serving::start(&folder);
    assert!(server.ask("GET /admin/tokens").starts_with("HTTP/1.1 401 "));
    let with = [("MAINSTAY_TOKEN", admin)];
    let at = format!("--server {}", server.url());
    let made = folder.run_with(
        &with,
        &format!("token create --name ci --role reader --tenant acme --expires-in 30d --json {at}"),
    );
    let id = made.json()["token"]["id"].as_str().unwrap().to_owned();
    assert!(made.json()["secret"].as_str().unwrap().starts_with(&format!("mst_{id}_")));
    let list = folder.run_with(&with, &format!("token list {at}"));
    assert_eq!(list.stdout.lines().count(), 3, "{list:?}");
    assert!(list.stdout.contains(&format!("{id}  ci     reader  acme ")), "{}", list.stdout);

    let reader = made.json()["secret"].as_str().unwrap().to_owned();
    let refused = folder.run(&format!("token list {at} --token {reader}"));
    refused.assert_failed(1, "UNAUTHORIZED");
    assert!(refused.stderr.contains("Admin role required"), "{}", refused.stderr);
    folder.run(&format!("token list {at}")).assert_failed(1, "UNAUTHENTICATED");
    assert_eq!(folder.run_with(&with, &format!("token revoke {id} {at}")).code, 0);
    folder.run_with(&with, &format!("token revoke 0123 {at}")).assert_failed(1, "TOKEN_NOT_FOUND");
    folder.run_with(&with, &format!("token revoke ../x {at}")).assert_failed(2, "CLI_USAGE_INVALID");
    server.stop("-TERM");

    let list = folder.run("token list --json").json();
    assert_eq!(list["tokens"][1]["id"], id);
    assert!(list["tokens"][1]["revokedAt"].is_string() && list["tokens"][0].get("revokedAt").is_none());
    folder.run("token revoke nobody").assert_failed(1, "TOKEN_NOT_FOUND");
}

#[test]
fn the_server_that_holds_the_store_is_found_by_its_address() {
    let folder = Folder::new();
    let made = folder.run("token create --name first --role admin");
    let server = Serving::start(&folder);
    let address = server.address().to_owned();
    folder.write("mainstay.toml", &format!("[server]\nlisten = \"{address}\"\n"));
    let list = folder.run_with(&[("MAINSTAY_TOKEN", made.stdout.trim_end())], "token list --json");
    assert_eq!(list.json()["tokens"][0]["name"], "first");

    // Port 1 is nobody's: the error tells why a server was asked at all.
    folder.write("mainstay.toml", "[server]\nlisten = \"127.0.0.1:1\"\n");
    let lost = folder.run("token list");
    lost.assert_failed(1, "CLI_SERVER_UNREACHABLE");
    assert!(lost.stderr.contains("asked because mainstay.db is held by process"), "{}", lost.stderr);
    server.stop("-TERM");
}

#[test]
fn what_a_token_cannot_be_is_told() {
    let folder = Folder::new();
    for (arguments, said) in [
        ("--name a --role root", "a role is worker, publisher, reader, operator or admin"),
        ("--name a --role admin --expires-in 30", "is not a time such as"),
        ("--name a --role worker", "scope.pools: a worker needs"),
        ("--name a --role worker --pool mainstay.x --function a", "scope.pools: names that begin with"),
        ("--name a --role reader --pool a --function a", "scope: only workers and publishers"),
        ("--name a --role admin --expires-in 999w", "expiresInMs: must be"),
        ("--name a --role admin --tenant a:b", "tenant: must have"),
        ("--name a --role admin --server ftp://x", "is not the URL of a server"),
    ] {
        let answer = folder.run(&format!("token create {arguments} --json"));
        assert_eq!((answer.code, answer.stdout.as_str()), (2, ""), "{answer:?}");
        assert!(
            ["CLI_USAGE_INVALID", "BODY_INVALID"].iter().any(|code| answer.stderr.contains(code))
                && answer.stderr.contains(said),
            "{}",
            answer.stderr
        );
    }
    let lost = folder.run("token list --server http://127.0.0.1:1");
    lost.assert_failed(1, "CLI_SERVER_UNREACHABLE");
    assert!(!lost.stderr.contains("because"));
}

#[test]
fn a_token_is_rotated_and_signed_out_where_no_server_is_asked() {
    let folder = Folder::new();
    let scope = "--pool mail --function send --expires-in never";
    let made = folder.run(&format!("token create --name ci --role worker {scope} --json")).json();
    assert!(made["token"]["expiresAt"].is_null(), "{made}");
    let id = made["token"]["id"].as_str().unwrap();
    let rotated = folder.run(&format!("token rotate {id} --overlap 0s --file new.token --json")).json();
    assert_eq!((&rotated["secret"], &rotated["file"]), (&Value::Null, &json!("new.token")));
    assert_eq!(rotated["token"]["scope"], json!({"pools": ["mail"], "functions": ["send"]}));
    assert_eq!(rotated["replaces"]["rotatedTo"], rotated["token"]["id"]);
    let secret = std::fs::read_to_string(folder.path().join("new.token")).unwrap();
    assert!(secret.starts_with(&format!("mst_{}_", rotated["token"]["id"].as_str().unwrap())), "{secret}");
    folder.run(&format!("token rotate {id}")).assert_failed(1, "TOKEN_SPENT");
    folder.run("token rotate nobody").assert_failed(1, "TOKEN_NOT_FOUND");
    assert_eq!(folder.run(&format!("token rotate {id} --overlap 31d")).code, 2);
    assert_eq!(folder.run(&format!("token sign-out {id} --json")).json()["ended"], 0);
    assert_eq!(folder.run("token sign-out --all --json").json()["ended"], 0);
    folder.run("token sign-out nobody").assert_failed(1, "TOKEN_NOT_FOUND");
    assert_eq!(folder.run("token sign-out").code, 2, "one, or all");
    let actions = folder.run("audit list --outcome done --json").json();
    let actions: Vec<&str> = actions["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    assert!(
        actions.contains(&"POST /admin/tokens/{id}/rotate") && actions.contains(&"DELETE /admin/sessions")
    );
    // By default, a year.
    let usual = folder.run("token create --name a --role reader --json").json();
    assert!(usual["token"]["expiresAt"].is_string(), "{usual}");
}

/// What the configuration says about access and bounds must reach the server, or nobody is protected by it.
#[test]
fn a_server_keeps_to_what_its_configuration_says_of_access_and_bounds() {
    let folder = Folder::new();
    let server = Serving::start(&folder);
    server.stop("-TERM");
    // Pools of the platform and of the file are not counted.
    let text = "[access]\nauditV1 = true\nmaxTokenLifeMs = 3600000\n[pools.own]\n[work]\nmaxPools = 1\n\
         [server]\nmaxConnectionsPerAddress = 4\n";
    folder.write("mainstay.toml", text);
    folder.run("token create --name a --role admin --expires-in never").assert_failed(2, "BODY_INVALID");
    let secret = |role: &str| {
        let made = folder.run(&format!("token create --name {role} --role {role} --json")).json();
        made["secret"].as_str().unwrap().to_owned()
    };
    let (admin, operator) = (secret("admin"), secret("operator"));

    let server = Serving::start(&folder);
    let send = |token: &str, method: &str, path: &str, body: &str| {
        let (status, told) =
            server.send(method, path, &[("Authorization", &format!("Bearer {token}"))], body);
        (status, serde_json::from_str::<Value>(&told).unwrap())
    };
    assert_eq!(send(&operator, "PUT", "/v1/pools/one", "{}").0, 200);
    let (status, told) = send(&operator, "PUT", "/v1/pools/two", "{}");
    assert_eq!((status, &told["code"]), (409, &json!("WORK_NAMES_TOO_MANY")), "{told}");
    let endless = r#"{"name":"b","role":"reader","expiresInMs":null}"#;
    let (status, told) = send(&admin, "POST", "/admin/tokens", endless);
    assert_eq!((status, &told["field"]), (400, &json!("expiresInMs")), "{told}");

    let event = r#"{"events":[{"type":"OrderPlaced","data":1}]}"#;
    assert_eq!(send(&operator, "POST", "/v1/events", event).0, 200);
    let (_, audit) = send(&admin, "GET", "/admin/audit", "");
    let actions: Vec<&Value> =
        audit["entries"].as_array().unwrap().iter().map(|one| &one["action"]).collect();
    assert!(actions.contains(&&json!("POST /v1/events")), "{audit}");

    // The place of a connection that has ended is free a moment later.
    let mut silent = Vec::new();
    let told = loop {
        silent.push(std::net::TcpStream::connect(server.address()).unwrap());
        let (status, told) = send(&operator, "GET", "/v1/pools", "");
        if status != 200 || silent.len() > 100 {
            break told;
        }
    };
    assert_eq!(told["code"], "CONNECTIONS_FULL", "{told}");
    assert_eq!(send(&admin, "GET", "/v1/pools", "").0, 200, "an admin has the reserve");
    server.stop("-TERM");
}
