//! `mainstay demo`.

use crate::program::{Folder, Watchdog, command};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(50);

/// A demo that runs, as a process of its own.
struct Running {
    child: Child,
    told: BufReader<ChildStdout>,
    /// Where its server is.
    address: String,
    _watchdog: Watchdog,
}

impl Running {
    fn start(folder: &Folder, arguments: &str) -> Self {
        let mut child =
            command(folder, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::of(&child);
        let mut told = BufReader::new(child.stdout.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert_ne!(told.read_line(&mut line).unwrap(), 0, "it has ended");
            if let Some(address) = line.trim().strip_prefix("server   http://") {
                break address.to_owned();
            }
        };
        Self { child, told, address, _watchdog: watchdog }
    }

    /// Asks its server.
    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Asks its server until an answer is right.
    fn wait_for(&self, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let answer = self.get(path);
            if is_right(&answer) {
                return answer;
            }
            assert!(began.elapsed() < PATIENCE, "{path}: {answer}");
        }
    }

    /// Has enough of it; what it told from then on.
    fn stop(mut self) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let mut told = String::new();
        self.told.read_to_string(&mut told).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{told}");
        told
    }
}

#[test]
fn everything_that_it_promises_happens_and_nothing_is_left() {
    let folder = Folder::new();
    let inside = [("TMPDIR", folder.path().to_str().unwrap())];
    let answer = folder.run_with(&inside, "demo --json --cycle 8 --rate 6 --listen 127.0.0.1:0");
    assert_eq!(answer.stderr, "");
    let facts = answer.json();
    for claim in facts["claims"].as_array().unwrap() {
        assert_eq!(claim["holds"], true, "{facts}");
    }
    let number = |pointer: &str| facts.pointer(pointer).and_then(Value::as_u64).unwrap();
    assert!(number("/orders/placed") > 0 && number("/orders/confirmed") > 0, "{facts}");
    assert!(number("/circuit/opened") > 0 && number("/circuit/closed") > 0, "{facts}");
    assert!(number("/letters/resolved") > 0, "{facts}");
    assert_eq!(number("/letters/pending"), 0, "{facts}");
    assert!(number("/quarantined") > 0, "{facts}");
    // However often the provider was called and failed: what it has charged is what the log says, once.
    assert!(number("/payments/failedCalls") > 0 && number("/payments/calls") > number("/payments/charged"));
    assert_eq!(number("/payments/charged"), number("/payments/completed"), "{facts}");
    assert_eq!(number("/payments/differences"), 0, "{facts}");
    assert_eq!(facts["ended"], "settled");
    let health = facts["health"].as_array().unwrap();
    assert!(health.contains(&"healthy".into()) && health.contains(&"degraded".into()), "{facts}");
    assert_eq!(folder.files(), [""; 0]);
}

#[test]
fn it_is_told_in_a_pipe_with_links_and_without_colours() {
    let folder = Folder::new();
    let answer = folder.run("demo --for 1 --cycle 600 --listen 127.0.0.1:0");
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""), "{}", answer.stdout);
    for said in [
        "/console/dead-letters",
        "/console/circuits",
        "After 180 s the provider of payments gets slow, after 240 s it is down.",
        "no more orders",
        "and the log agrees with each of them",
        "not seen  the circuit opened, and closed again",
    ] {
        assert!(answer.stdout.contains(said), "{said}: {}", answer.stdout);
    }
    assert!(!answer.stdout.contains('\x1b'));
    assert_eq!(folder.files(), [""; 0]);
}

#[test]
fn its_server_is_a_real_one_and_what_is_kept_goes_on_where_it_was() {
    let folder = Folder::new();
    let arguments = "demo --keep kept --rate 10 --cycle 600 --listen 127.0.0.1:0";
    let demo = Running::start(&folder, arguments);
    let is_there = |answer: &Value| !answer["events"].as_array().unwrap().is_empty();
    let confirmed = demo.wait_for("/v1/events?type=OrderConfirmed", is_there);
    demo.wait_for("/health", |answer| answer["status"] == "healthy");
    // All of an order is one correlation, from its creation to what its customer is told.
    let correlation = confirmed["events"][0]["correlationId"].as_str().unwrap();
    let path = format!("/v1/events?correlationId={correlation}");
    let whole = demo.wait_for(&path, |answer| answer["events"].as_array().unwrap().len() >= 8);
    let types: Vec<&str> =
        whole["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    for expected in ["OrderCreated", "StockReserved", "PaymentCompleted", "OrderConfirmed"] {
        assert!(types.contains(&expected), "{types:?}");
    }
    let told = demo.stop();
    assert!(told.contains("What came of it"), "{told}");
    let files = std::fs::read_dir(folder.path().join("kept")).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    for expected in ["shop.db", "provider.db", "notifications.db"] {
        assert!(files.iter().any(|file| file == expected), "{files:?}");
    }

    let read = "events read --store sqlite:kept/shop.db --json --type OrderConfirmed --limit 1000";
    let before = folder.run(read).stdout.lines().count();
    let facts = folder.run("demo --json --keep kept --for 2 --cycle 600 --listen 127.0.0.1:0").json();
    assert_eq!(
        (&facts["payments"]["differences"], &facts["ended"]),
        (&0.into(), &"settled".into()),
        "{facts}"
    );
    assert!(folder.run(read).stdout.lines().count() > before);
}

#[test]
fn killed_in_the_midst_of_an_outage_it_goes_on_and_nobody_pays_twice() {
    let folder = Folder::new();
    let mut demo = Running::start(&folder, "demo --keep kept --rate 10 --cycle 5 --listen 127.0.0.1:0");
    demo.wait_for("/v1/circuits", |answer| answer["circuits"][0]["state"] == "open");
    demo.child.kill().unwrap();
    demo.child.wait().unwrap();
    let facts = folder.run("demo --json --keep kept --for 1 --cycle 5 --listen 127.0.0.1:0").json();
    assert_eq!(
        (&facts["payments"]["differences"], &facts["ended"]),
        (&0.into(), &"settled".into()),
        "{facts}"
    );
    // What was under way when it was killed is finished, besides what is new.
    let number = |pointer: &str| facts.pointer(pointer).and_then(Value::as_u64).unwrap();
    let settled = number("/payments/completed") + number("/payments/declined");
    assert!(settled > number("/orders/placed"), "{facts}");
}

#[test]
fn the_shop_is_in_the_store_that_a_flag_says_and_in_no_other() {
    let folder = Folder::new();
    folder.write("mainstay.toml", "[store]\nurl = \"sqlite:precious.db\"\n");
    let facts = folder.run("demo --json --for 1 --cycle 600 --listen 127.0.0.1:0").json();
    assert!(!facts["store"].as_str().unwrap().contains("precious"));
    assert_eq!(folder.files(), ["mainstay.toml"]);
    let facts =
        folder.run("demo --json --for 1 --cycle 600 --listen 127.0.0.1:0 --store sqlite:mine.db").json();
    assert_eq!(facts["store"], "sqlite:mine.db");
    assert_eq!(folder.files(), ["mainstay.toml", "mine.db"]);
}

#[test]
fn what_cannot_be_played_is_refused() {
    let folder = Folder::new();
    for arguments in [
        "demo --rate 0",
        "demo --rate 201",
        "demo --cycle 1",
        "demo --for 0",
        "demo --listen x",
        "demo --facts --rate 3",
    ] {
        let answer = folder.run(arguments);
        assert_eq!((answer.code, answer.stdout.as_str()), (2, ""), "{arguments}: {}", answer.stderr);
    }
}

#[test]
fn the_experiments_are_told_and_leave_nothing() {
    let folder = Folder::new();
    let began = Instant::now();
    let answer = folder.run_with(&[("TMPDIR", folder.path().to_str().unwrap())], "demo --facts");
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""));
    for said in [
        "2. Two want the last lamp",
        "APPEND_CONDITION_FAILED",
        "already applied, at position 6",
        "IDEMPOTENCY_CONFLICT",
        "6. Many callers at once",
        "62 committed",
        "STORE_FOREIGN_AWAIT",
        "is held by process",
        "What comes next",
    ] {
        assert!(answer.stdout.contains(said), "{said}: {}", answer.stdout);
    }
    assert!(!answer.stdout.contains('\x1b'), "no colours in a pipe");
    assert_eq!(folder.files(), [""; 0]);
}

#[test]
fn figures_of_the_experiments_are_what_they_claim() {
    let facts = Folder::new().run("demo --facts --json").json();
    assert_eq!(facts["oneByOne"]["commits"], 64);
    assert_eq!(facts["together"]["transactions"], 64);
    assert!(facts["together"]["commits"].as_u64().unwrap() < 64, "{facts}");
    assert_eq!(
        (&facts["withCulprits"]["transactions"], &facts["withCulprits"]["rows"]),
        (&62.into(), &62.into())
    );
    assert_eq!(facts["withCulprits"]["refused"].as_array().unwrap().len(), 2);
    assert_eq!(facts["wakeup"]["afterRollback"], false);
    assert!(facts["wakeup"]["afterCommitUs"].is_u64());
    assert_eq!(facts["secondOpening"]["code"], "STORE_OWNED");
}

#[test]
fn the_log_of_the_experiments_is_what_they_claim() {
    let log = Folder::new().run("demo --facts --json").json()["log"].take();
    let race = &log["lastLamp"];
    assert_eq!((&race["left"], &race["leftThen"]), (&1.into(), &0.into()));
    assert_eq!(race["refused"]["code"], "APPEND_CONDITION_FAILED");
    assert_eq!(
        (&race["witness"], &race["won"]["position"]),
        (&4.into(), &4.into()),
        "the winner is the witness"
    );
    assert_eq!(race["decidedAnew"]["position"], 5);
    assert_eq!(
        (&log["payment"]["again"]["status"], &log["payment"]["again"]["position"]),
        (&"duplicate".into(), &6.into())
    );
    assert_eq!(
        (&log["payment"]["head"], &log["payment"]["other"]["code"]),
        (&6.into(), &"IDEMPOTENCY_CONFLICT".into())
    );
    assert_eq!(
        (&log["rowAndEvent"]["rows"], &log["rowAndEvent"]["done"]["position"]),
        (&1.into(), &7.into())
    );
    assert_eq!(log["rowAndEvent"]["refused"]["code"], "APPEND_CONDITION_FAILED");
    let seen = log["seen"].as_array().unwrap().iter().map(|seen| seen["position"].as_u64().unwrap());
    assert_eq!(Vec::from_iter(seen), Vec::from_iter(1..=7));
}

#[test]
fn experiments_are_on_a_store_only_when_that_is_said_in_a_flag() {
    let folder = Folder::new();
    folder.write("mainstay.toml", "[store]\nurl = \"sqlite:precious.db\"\n");
    let facts = folder.run("demo --facts --json").json();
    assert!(!facts["store"].as_str().unwrap().contains("precious"));
    assert_eq!(folder.files(), ["mainstay.toml"]);

    let facts = folder.run("demo --facts --json --store sqlite:mine.db").json();
    assert_eq!(facts["store"], "sqlite:mine.db");
    assert_eq!(folder.files(), ["mainstay.toml", "mine.db"]);
    assert_eq!(folder.run("events read --store sqlite:mine.db").stdout, "", "its log is not touched");
    let facts = folder.run("demo --facts --json --store sqlite::memory:").json();
    assert!(facts["secondOpening"].is_null());
}
