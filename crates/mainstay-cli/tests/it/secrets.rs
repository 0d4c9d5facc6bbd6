//! What is secret is told nowhere: not in the log, to a collector, to those who look, or to those who are refused, not even
//! when an endpoint repeats what it was told in confidence. And what is exported is one trace.

use crate::endpoint::{Asked, Endpoint};
use crate::program::Folder;
use crate::serving::{LOG, Serving};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A house full of secrets, in which everything fails.
struct House {
    folder: Folder,
    server: Serving,
    token: String,
    /// All that was answered to anybody.
    answers: Vec<String>,
}

impl House {
    fn open(others: &Endpoint, collector: &Endpoint) -> Self {
        let (folder, at) = (Folder::new(), others.address);
        folder.write(
            "mainstay.toml",
            &format!(
                "[pools.shop]\nretry = {{ maxAttempts = 2, initialBackoffMs = 1, maxBackoffMs = 1 }}\n\
                 [egress]\nallow = [\"127.0.0.1\"]\n\
                 [functions.send]\nurl = \"http://{at}/send?key=canary-url\"\nsecret = \"env:SHOP_SECRET\"\n\
                 [functions.confide]\nurl = \"http://{at}/confide?key=canary-url\"\nsecret = \"env:SHOP_SECRET\"\n\
                 [targets.inventory]\nurl = \"http://{at}/hook\"\nsecret = \"canary-hook\"\n\
                 [tracing]\notlpEndpoint = \"http://{}\"\notlpHeaders = \"env:OTLP\"\nserviceName = \"shop\"\n",
                collector.address
            ),
        );
        let token = folder.run("token create --name test --role admin").stdout.trim().to_owned();
        let secrets = [("SHOP_SECRET", "canary-function"), ("OTLP", "x-key=canary-otlp")];
        let server = Serving::start_logging(&folder, &secrets);
        Self { folder, server, token, answers: Vec::new() }
    }

    /// Asks with everything that browsers and proxies send along.
    fn ask(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let bearer = format!("Bearer {}", self.token);
        self.ask_as(&bearer, method, path, body)
    }

    fn ask_as(&mut self, bearer: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let headers = [
            ("Authorization", bearer),
            ("Cookie", "mainstay_console=canary-cookie"),
            ("traceparent", TRACEPARENT),
            ("tracestate", "vendor=canary-state"),
            ("baggage", "user=canary-baggage"),
            ("X-Api-Key", "canary-header"),
        ];
        let (status, text) = self.server.send(method, path, &headers, &body.to_string());
        self.answers.push(text.clone());
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    fn until(&mut self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..4_000 {
            let (status, body) = self.ask("GET", path, &Value::Null);
            assert_eq!(status, 200, "{path}: {body}");
            if is_so(&body) {
                return body;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{path} does not come to it");
    }
}

/// An endpoint that takes nothing, and tells everybody what it was told, except where it is asked to send.
fn chatterbox() -> Endpoint {
    Endpoint::start(|asked| {
        let Asked { path, headers, body } = asked;
        let told =
            if path.starts_with("/send") { "no".to_owned() } else { format!("{path} {body} {headers:?}") };
        (500, told)
    })
}

fn spans(got: &[Asked]) -> Vec<Value> {
    let of = |asked: &Asked| asked.json()["resourceSpans"][0]["scopeSpans"][0]["spans"].clone();
    got.iter().flat_map(|asked| of(asked).as_array().unwrap().clone()).collect()
}

fn named<'a>(spans: &'a [Value], name: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["name"] == name).collect()
}

#[test]
fn b_260_secrets_are_told_nowhere_and_what_is_exported_is_one_trace() {
    let others = chatterbox();
    let collector = Endpoint::start(|_| (200, "{}".to_owned()));
    let mut house = House::open(&others, &collector);

    let item = json!({"function": "send", "args": {"card": "canary-args"}, "context": "canary-context"});
    let (status, work) = house.ask("POST", "/v1/pools/shop/work", &item);
    assert_eq!(status, 200, "{work}");
    let id = work["work"][0]["workId"].as_str().unwrap().to_owned();
    house.until(&format!("/v1/work/{id}"), |item| item["state"] == "failed");

    let event =
        json!({"events": [{"type": "T", "data": {"card": "canary-data"}, "correlationId": "corr-1"}]});
    let (status, appended) = house.ask("POST", "/v1/events", &event);
    assert_eq!(status, 200, "{appended}");
    let event_id = appended["events"][0]["eventId"].as_str().unwrap().to_owned();
    let asked = json!({"eventId": event_id, "sourceContext": "s", "targetContexts": ["inventory"]});
    assert_eq!(house.ask("POST", "/v1/publications", &asked).0, 200);
    house
        .until(&format!("/v1/publications/{event_id}"), |found| !found["publications"][0]["error"].is_null());

    let (status, made) = house.ask("POST", "/admin/tokens", &json!({"name": "other", "role": "reader"}));
    assert_eq!(status, 201, "{made}");
    house.answers.pop();
    let made = made["secret"].as_str().unwrap().to_owned();
    let who = ["Bearer canary-token".to_owned(), format!("Bearer {}x", &made[..made.len() - 1])];
    for bearer in &who {
        assert_eq!(house.ask_as(bearer, "GET", "/admin/tokens?token=canary-query", &Value::Null).0, 401);
    }
    assert_eq!(house.ask("GET", "/nowhere?key=canary-query", &Value::Null).0, 404);
    assert_eq!(house.ask("POST", "/v1/pools/nowhere/work", &item).0, 404);
    let seen =
        ["/admin/audit", "/admin/traces/corr-1", "/admin/config", "/admin/tokens", "/admin/publications"];
    for path in seen {
        assert_eq!(house.ask("GET", path, &Value::Null).0, 200, "{path}");
    }
    house.ask("GET", "/admin/dead-letters", &Value::Null);
    let audit = house.ask("GET", "/admin/audit", &Value::Null).1.to_string();

    let House { folder, server, token, answers } = house;
    server.stop("-TERM");
    let log = std::fs::read_to_string(folder.path().join(LOG)).unwrap();
    let got = collector.rest();
    let sent = got.iter().map(|asked| asked.body.as_str()).collect::<String>();
    assert!(got.iter().all(|asked| asked.path == "/v1/traces" && asked.header("x-key") == "canary-otlp"));

    let told = [("the log", log.as_str()), ("what was exported", &sent), ("an answer", &answers.concat())];
    let secrets =
        ["cookie", "state", "baggage", "header", "token", "query", "url", "function", "hook", "otlp"];
    let secrets = secrets.map(|name| format!("canary-{name}"));
    let tokens = [token[21..].to_owned(), made[21..].to_owned()];
    for (place, text) in told {
        for secret in secrets.iter().chain(&tokens) {
            assert!(!text.contains(secret.as_str()), "{secret} is in {place}: {text}");
        }
    }
    for (place, text) in [("the log", &log), ("what was exported", &sent), ("audit", &audit)] {
        for payload in ["canary-args", "canary-context", "canary-data"] {
            assert!(!text.contains(payload), "{payload} is in {place}: {text}");
        }
    }

    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours = lines.filter(|line| line["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736");
    assert!(ours.count() > 5, "{log}");

    let spans = spans(&got);
    let requests = named(&spans, "POST");
    let of = |path: &str| {
        let is_it = |span: &&&Value| span["attributes"].to_string().contains(path);
        requests.iter().find(is_it).copied().unwrap_or_else(|| panic!("{path}: {requests:?}"))
    };
    assert_eq!(of("/v1/pools/shop/work")["parentSpanId"], "00f067aa0ba902b7");
    let tries = named(&spans, "work send");
    assert_eq!(tries.len(), 2, "{spans:?}");
    for one in tries {
        assert_eq!(one["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(one["parentSpanId"], of("/v1/pools/shop/work")["spanId"]);
        assert_eq!(one["status"]["code"], 2, "{one}");
    }
    let delivered = spans.iter().find(|span| span["attributes"].to_string().contains("inventory")).unwrap();
    assert_eq!(delivered["parentSpanId"], of("/v1/events")["spanId"], "the event stands in that request");
    let called: Vec<_> = others.rest().iter().map(|asked| asked.header("traceparent").to_owned()).collect();
    let is_exported =
        |header: &String| spans.iter().any(|span| header.contains(span["spanId"].as_str().unwrap()));
    assert!(called.len() >= 3 && called.iter().all(is_exported), "{called:?}");
}

/// Whatever is given here is named like a secret.
const NAMED: [&str; 5] = ["canary-args", "canary-context", "canary-data", "canary-meta", "canary-result"];

/// Verbs that look at what the house has, of its work and its event.
fn looks(work_id: &str, event_id: &str, intent_key: &str, letters: &[String]) -> Vec<String> {
    let each = letters.iter().map(|letter| format!("dead-letters show {letter}"));
    let plain = [
        "audit list",
        "circuits list",
        "circuits history",
        "config show",
        "config check",
        "dead-letters list",
        "dead-letters groups",
        "dead-letters stats",
        "intents list",
        "intents orphans",
        "limits list",
        "metrics",
        "projections list",
        "publications list",
        "publications letters",
        "publications stats",
        "state",
        "token list",
        "trace corr-1",
        "work pools",
        "work list --state failed",
    ];
    let of_one = [
        format!("intents show {intent_key}"),
        format!("work show {work_id}"),
        format!("publications letter inventory {event_id}"),
    ];
    plain.map(str::to_owned).into_iter().chain(of_one).chain(each).collect()
}

/// Every page of the console that one can come to.
fn console(house: &mut House) -> Vec<(String, String)> {
    let token = house.token.clone();
    let cookie = house.server.log_in(&token);
    let (mut known, mut next) = (BTreeSet::new(), vec!["/console".to_owned()]);
    let mut pages = Vec::new();
    while let Some(path) = next.pop().filter(|_| pages.len() < 300) {
        let (status, page) = house.server.send("GET", &path, &[("Cookie", &cookie)], "");
        assert_eq!(status, 200, "{path}: {page}");
        for link in page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let link = link.replace("&amp;", "&");
            let is_page = link.starts_with("/console") && !link.contains("/assets/");
            if is_page && known.insert(link.clone()) {
                next.push(link);
            }
        }
        pages.push((path, page));
    }
    pages
}

#[test]
fn b_260_what_was_confided_is_in_no_view_and_in_no_output() {
    let (others, collector) = (chatterbox(), Endpoint::start(|_| (200, "{}".to_owned())));
    let mut house = House::open(&others, &collector);
    let item = json!({
        "function": "confide", "args": {"order": 5, "apiKey": "canary-args"},
        "context": {"clientSecret": "canary-context"},
    });
    let (status, work) = house.ask("POST", "/v1/pools/shop/work", &item);
    assert_eq!(status, 200, "{work}");
    let work_id = work["work"][0]["workId"].as_str().unwrap().to_owned();
    house.until(&format!("/admin/work/{work_id}"), |found| found["state"] == "failed");
    let event =
        json!({"type": "T", "data": {"total": 1, "password": "canary-data"}, "correlationId": "corr-1"});
    let (status, appended) = house.ask("POST", "/v1/events", &json!({"events": [event]}));
    assert_eq!(status, 200, "{appended}");
    let event_id = appended["events"][0]["eventId"].as_str().unwrap().to_owned();
    let asked = json!({"eventId": event_id, "sourceContext": "s", "targetContexts": ["inventory"]});
    assert_eq!(house.ask("POST", "/v1/publications", &asked).0, 200);
    let intent = json!({
        "operationType": "trip", "streamType": "Trip", "boundedContext": "travel", "streamId": "1", "timeoutMs": 60_000, "onTimeout": "alert",
        "metadata": {"accessToken": "canary-meta"}, "correlationId": "corr-1",
    });
    let (status, begun) = house.ask("POST", "/v1/intents", &intent);
    assert_eq!(status, 200, "{begun}");
    let intent_key = begun["intentKey"].as_str().unwrap().to_owned();
    let ended = json!({"status": "success", "result": {"passphrase": "canary-result"}});
    assert_eq!(house.ask("POST", &format!("/v1/intents/{intent_key}/complete"), &ended).0, 200);
    let letters = house.until("/admin/dead-letters", |found| found["letters"].as_array().unwrap().len() == 2);
    let letters: Vec<String> = letters["letters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["letterId"].as_str().unwrap().to_owned())
        .collect();

    let mut told = Vec::new();
    let described = house.ask("GET", "/openapi.json", &Value::Null).1;
    let paths = described["paths"].as_object().unwrap();
    let is_read = |path: &str| path.starts_with("/admin/") && !paths[path]["get"].is_null();
    let mut asked: Vec<String> =
        paths.keys().filter(|path| is_read(path) && !path.contains('{')).cloned().collect();
    asked.extend(letters.iter().map(|letter| format!("/admin/dead-letters/{letter}")));
    asked.extend([
        format!("/admin/work/{work_id}"),
        format!("/admin/runs/{work_id}"),
        format!("/admin/publications/letters/inventory/{event_id}"),
        format!("/admin/intents/{intent_key}"),
        "/admin/traces/corr-1".to_owned(),
        "/metrics".to_owned(),
        "/health".to_owned(),
    ]);
    for path in asked {
        house.answers.clear();
        let (status, _) = house.ask("GET", &path, &Value::Null);
        assert!(status == 200 || status == 400 || status == 404, "{path}: {status}");
        told.push((path, house.answers.concat()));
    }
    let pages = console(&mut house);
    assert!(pages.len() > 20, "{:?}", pages.iter().map(|(path, _)| path).collect::<Vec<_>>());
    // One event in full is one event in full.
    told.extend(pages.into_iter().filter(|(path, _)| !path.starts_with("/console/events")));

    let token = house.token.clone();
    let to_it = format!("--server {}", house.server.url());
    let environment = [("MAINSTAY_TOKEN", token.as_str())];
    let House { folder, server, .. } = house;
    let mut run = |environment: &[(&str, &str)], whom: &str| {
        for verb in looks(&work_id, &event_id, &intent_key, &letters) {
            for form in ["", " --json"] {
                let answer = folder.run_with(environment, &format!("{verb}{form} --log debug {whom}"));
                // Some ask the server what only that knows.
                assert!(answer.code == 0 || environment.is_empty(), "{verb}: {answer:?}");
                told.push((format!("mainstay {verb}{form} {whom}"), answer.stdout + &answer.stderr));
            }
        }
    };
    run(&environment, &to_it);
    server.stop("-TERM");
    run(&[], "");
    told.push(("the log".to_owned(), std::fs::read_to_string(folder.path().join(LOG)).unwrap()));
    let exported = collector.rest();
    assert!(!exported.is_empty());
    told.push(("what was exported".to_owned(), exported.iter().map(|asked| asked.body.as_str()).collect()));

    let repeated = others.rest();
    assert!(repeated.iter().any(|asked| asked.path.starts_with("/confide?key=canary-url")), "{repeated:?}");
    let hidden = told.iter().filter(|(_, text)| text.contains("[hidden]")).count();
    assert!(hidden > 10, "somebody repeated it: {hidden}");
    let secrets =
        ["canary-url", "canary-function", "canary-hook", "canary-otlp", "canary-cookie", "canary-header"];
    let signatures: Vec<String> = repeated
        .iter()
        .map(|asked| asked.header("mainstay-signature").split_once("v1=").unwrap().1.to_owned())
        .collect();
    let token = [&token[21..]];
    let leaks: Vec<_> = told
        .iter()
        .flat_map(|(place, text)| {
            let all = NAMED
                .iter()
                .chain(&secrets)
                .chain(&token)
                .copied()
                .chain(signatures.iter().map(String::as_str));
            all.filter(|secret| text.contains(secret))
                .map(move |secret| format!("{secret} is in {place}: {text}"))
        })
        .collect();
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
}
