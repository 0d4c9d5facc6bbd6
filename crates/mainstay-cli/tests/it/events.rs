//! `mainstay events`: the log, in a file and through the server that holds it.

use crate::program::{Answer, Folder, Watchdog, command};
use crate::serving::Serving;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};

const PLACE: &str = "events append --type OrderPlaced --data {\"item\":\"lamp\"}";

/// What changes from run to run: times and ids that were made.
fn steady(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace).map(|word| {
        let bare = word.trim_end_matches(char::is_whitespace);
        let is_time = bare.len() == 24 && bare.starts_with("20") && bare.ends_with('Z');
        let is_made = bare.len() > 36 && bare.contains("_event_");
        match (is_time, is_made) {
            (true, _) => word.replace(bare, "2027-01-15T08:00:00.000Z"),
            (_, true) => word.replace(bare, "app_event_…"),
            _ => word.to_owned(),
        }
    });
    words.collect()
}

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn positions(answer: &Answer) -> Vec<u64> {
    lines(answer).iter().map(|event| event["position"].as_u64().unwrap()).collect()
}

/// Runs a test body on a file, and through a server: `at` is what to add to a command.
fn alike(body: impl Fn(&Folder, &str)) {
    let folder = Folder::new();
    body(&folder, "");
    let folder = Folder::new();
    let server = Serving::start(&folder);
    body(&folder, &format!(" --server {}", server.url()));
    server.stop("-TERM");
}

#[test]
fn appends_once_reads_and_says_who_was_first() {
    alike(|folder, at| {
        let place = format!("{PLACE} --id e1 --tag order:1 --tag item:lamp --fail-if-tag order:1{at}");
        let first = folder.run(&place);
        assert_eq!((first.code, first.stderr.as_str()), (0, "Appended; the log is at position 1.\n"));
        insta::allow_duplicates! {
            insta::assert_snapshot!(first.stdout, @"
                POSITION  VERSION  EVENT ID
                1         -        e1
                ");
            let again = folder.run(&place.replace("e1", "e2"));
            again.assert_failed(1, "APPEND_CONDITION_FAILED");
            insta::assert_snapshot!(again.stderr, @"
                error[APPEND_CONDITION_FAILED]: an event that the condition forbids is at position 1: OrderPlaced e1
                hint: Read again, decide anew, and append with the new `after`. The answer names the newest such event.
                ");
            let known = folder.run(&format!("{PLACE} --id e2 --tag order:1 --fail-if-tag order:1 --after 1 --stream order/1 --json{at}"));
            insta::assert_snapshot!(known.stdout, @r#"
                {
                  "status": "appended",
                  "events": [
                    {
                      "eventId": "e2",
                      "position": 2,
                      "version": 1
                    }
                  ],
                  "head": 2
                }
                "#);
            assert_eq!(known.stderr, "");
            let read = folder.run(&format!("events read{at}"));
            insta::assert_snapshot!(steady(&read.stdout), @r#"
                POSITION  TIME                      TYPE         STREAM     TAGS               DATA
                1         2027-01-15T08:00:00.000Z  OrderPlaced  -          order:1 item:lamp  {"item":"lamp"}
                2         2027-01-15T08:00:00.000Z  OrderPlaced  order/1@1  order:1            {"item":"lamp"}
                "#);
        }
    });
}

#[test]
fn every_flag_of_an_append_reaches_the_event() {
    alike(|folder, at| {
        let whole = format!(
            "{PLACE} --id e1 --key pay:1 --correlation-id c1 --tenant acme --metadata {{\"by\":\"me\"}} --stream order/a/b \
             --expected-version 0{at}"
        );
        assert_eq!(folder.run(&whole).code, 0);
        let event = lines(&folder.run(&format!("events read --json{at}"))).remove(0);
        let mut expected: Value = serde_json::from_str(
            r#"{"eventId":"e1","position":1,"type":"OrderPlaced","stream":{"type":"order","id":"a/b","version":1},"tags":[],
            "data":{"item":"lamp"},"metadata":{"by":"me"},"category":"domain","schemaVersion":1,"tenantId":"acme",
            "correlationId":"c1","idempotencyKey":"pay:1"}"#,
        )
        .unwrap();
        expected["timestamp"] = event["timestamp"].clone();
        assert_eq!(event, expected);

        let repeated = folder.run(&whole);
        assert_eq!(
            (repeated.code, repeated.stderr.as_str()),
            (0, "Appended before, with the same key; nothing was changed.\n")
        );
        assert_eq!(folder.run(&format!("{whole} --json")).json()["status"], "duplicate");
        let other = whole.replace("lamp", "desk");
        folder.run(&other).assert_failed(1, "IDEMPOTENCY_CONFLICT");
        let late = folder.run(&format!("{PLACE} --tenant acme --stream order/a/b --expected-version 0{at}"));
        late.assert_failed(1, "VERSION_CONFLICT");
        assert!(late.stderr.contains("stream order/a/b is at version 1, not 0"), "{}", late.stderr);
        folder.run(&format!("{PLACE} --id e1 --tenant acme{at}")).assert_failed(1, "EVENT_ID_TAKEN");
        assert_eq!(positions(&folder.run(&format!("events read --json{at}"))), [1]);
    });
}

#[test]
fn a_file_or_stdin_holds_the_body_of_the_request() {
    alike(|folder, at| {
        let body = r#"{"events":[{"type":"A","data":[1,
            2],"tags":["t"]},{"type":"B","data":{}}],"condition":{"failIfEventsMatch":[{"tags":["t"]}]}}"#;
        folder.write("body.json", body);
        assert_eq!(folder.run(&format!("events append --file body.json --json{at}")).json()["head"], 2);
        let read = folder.run(&format!("events read --json --type A{at}"));
        assert_eq!(read.stdout.lines().count(), 1, "data over two lines is one line: {}", read.stdout);

        let mut stdin = command(folder, &format!("events append --file -{at}"));
        let mut child =
            stdin.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert!(String::from_utf8(ended.stderr).unwrap().starts_with("error[APPEND_CONDITION_FAILED]"));
        folder.run(&format!("events append --file gone.json{at}")).assert_failed(1, "CLI_IO_FAILED");
    });
}

#[test]
fn reads_what_is_asked_for_page_by_page() {
    alike(|folder, at| {
        for batch in 0..12 {
            let event = |number: usize| {
                let number = batch * 100 + number;
                let stream = if number < 3 { r#","stream":{"type":"s","id":"a b"}"# } else { "" };
                format!(
                    r#"{{"type":"T{}","data":{number},"tags":["n:{number}"],"correlationId":"c{batch}"{stream}}}"#,
                    number % 2
                )
            };
            let events: Vec<String> = (0..100).map(event).collect();
            folder.write("body.json", &format!(r#"{{"events":[{}]}}"#, events.join(",")));
            assert_eq!(folder.run(&format!("events append --file body.json{at}")).code, 0);
        }
        let read = |flags: &str| positions(&folder.run(&format!("events read --json {flags}{at}")));
        assert_eq!(read(""), Vec::from_iter(1..=100), "a hundred unless told otherwise");
        assert_eq!(read("--all"), Vec::from_iter(1..=1200));
        assert_eq!(read("--limit 1100 --after 50"), Vec::from_iter(51..=1150), "across pages");
        assert_eq!(read("--type T0 --limit 3"), [1, 3, 5]);
        assert_eq!(read("--type T0 --type T1 --limit 3"), [1, 2, 3]);
        assert_eq!(read("--type T0 --tag n:1"), [0; 0]);
        assert_eq!(read("--tag n:7"), [8]);
        assert_eq!(read(r#"--query [{"tags":["n:7"]},{"tags":["n:9"],"types":["T1"]}]"#), [8, 10]);
        assert_eq!(read("--correlation-id c11"), Vec::from_iter(1101..=1200));
        assert_eq!(read("--since 2100-01-01T00:00:00Z"), [0; 0]);
        assert_eq!(read("--before 0"), [0; 0]);
        assert_eq!(read("--since 0 --before 2100-01-01T00:00:00Z --limit 2"), [1, 2]);

        let more = folder.run(&format!("events read --limit 2{at}"));
        assert_eq!(more.stderr, "There is more; --after 2 goes on from here.\n");
        let none = folder.run(&format!("events read --tag nobody{at}"));
        assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "There are no such events.\n"));
    });
}

#[test]
fn a_stream_is_read_by_its_versions() {
    alike(|folder, at| {
        for _ in 0..3 {
            assert_eq!(folder.run(&format!("{PLACE} --stream an/order{at}")).code, 0);
            assert_eq!(folder.run(&format!("{PLACE} --stream another/order{at}")).code, 0);
        }
        let read = |flags: &str| {
            positions(&folder.run(&format!("events read --json --stream an/order {flags}{at}")))
        };
        assert_eq!(read(""), [1, 3, 5]);
        assert_eq!(read("--after 1"), [3, 5]);
        assert_eq!(read("--after 1 --limit 1"), [3]);
        let more = folder.run(&format!("events read --stream an/order --limit 2{at}"));
        assert_eq!(more.stderr, "There is more; --after 2 goes on from here.\n");
        assert_eq!(positions(&folder.run(&format!("events read --json --stream no/body{at}"))), [0; 0]);
    });
}

#[test]
fn what_cannot_be_taken_is_told_by_its_flag_and_makes_no_store() {
    let folder = Folder::new();
    for (arguments, said) in [
        ("append --type A --data {", "--data: EOF while parsing"),
        ("append --type A --data 1 --metadata x", "--metadata: expected value"),
        ("append --type A --data 1 --fail-if {}", "--fail-if: invalid type: map"),
        ("append --type A --data 1 --fail-if []", "--fail-if: a query needs at least one item"),
        ("append --type A --data 1 --fail-if [{\"tag\":[]}]", "--fail-if: unknown field `tag`"),
        ("append --type A --data 1 --stream order", "--stream: \"order\" is not TYPE/ID"),
        ("append --type A --data 1 --after 1", "required arguments were not provided"),
        ("append --type A --data 1 --expected-version 1", "required arguments were not provided"),
        ("append --type A", "required arguments were not provided"),
        ("append --data 1", "required arguments were not provided"),
        ("append --file x --type A", "cannot be used with"),
        ("read --query x", "--query: expected value"),
        ("read --query [] --tag a", "cannot be used with"),
        ("read --since yesterday", "is not a time such as 2027-01-15T08:00:00Z"),
        ("read --limit 0", "0 is not in 1.."),
        ("read --all --limit 1", "cannot be used with"),
        ("read --after -1", "unexpected argument"),
        ("read --stream a/b --tag t", "cannot be used with"),
        ("follow --after 1 --from-start", "cannot be used with"),
        ("follow --until 0", "0 is not in 1.."),
    ] {
        let answer = folder.run(&format!("events {arguments} --json"));
        assert_eq!((answer.code, answer.stdout.as_str()), (2, ""), "{arguments}: {answer:?}");
        let told = folder.run(&format!("events {arguments}")).stderr;
        assert!(answer.stderr.contains("CLI_USAGE_INVALID") && told.contains(said), "{arguments}: {told}");
    }
    for verb in ["read", "follow"] {
        folder.run(&format!("events {verb}")).assert_failed(1, "STORE_OPEN_FAILED");
    }
    assert_eq!(folder.files(), [""; 0]);
    folder.run(&format!("{PLACE} --tag {}", "t".repeat(600))).assert_failed(1, "EVENT_INVALID");
    folder.run(&format!("{PLACE} --fail-if-tag a --after 1")).assert_failed(1, "AFTER_BEYOND_HEAD");
}

/// `mainstay events follow`, while it runs.
struct Following {
    _watchdog: Watchdog,
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Following {
    fn start(folder: &Folder, flags: &str) -> Self {
        let mut command = command(folder, &format!("events follow {flags}"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::of(&child);
        let mut told = String::new();
        let stderr = child.stderr.as_mut().unwrap();
        // Byte by byte, so that what follows is left for later.
        while !told.ends_with('\n') {
            let mut byte = [0];
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{told}");
            told.push(char::from(byte[0]));
        }
        assert!(told.starts_with("Following after position "), "{told}");
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { _watchdog: watchdog, child, out }
    }

    fn next(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    fn position(&mut self) -> u64 {
        let line = self.next();
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        event["position"].as_u64().unwrap()
    }

    fn ended(&mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let mut told = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut told).unwrap();
        assert_eq!(self.next(), "", "there is more output");
        (code, told)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn follows_what_is_there_and_ends_where_it_is_told() {
    alike(|folder, at| {
        for number in 1..=4 {
            let tag = if number == 3 { "--tag odd" } else { "" };
            assert_eq!(folder.run(&format!("{PLACE} --id e{number} {tag}{at}")).code, 0);
        }
        let follow = |flags: &str| folder.run(&format!("events follow --json {flags}{at}"));
        assert_eq!(positions(&follow("--from-start --until 3")), [1, 2, 3]);
        assert_eq!(positions(&follow("--after 2 --until 4")), [3, 4]);
        assert_eq!(positions(&follow("--from-start --until 3 --tag odd")), [3]);
        assert_eq!(positions(&follow("--until 4")), [0; 0], "it is there already");
        let table = folder.run(&format!("events follow --after 3 --until 4{at}"));
        insta::allow_duplicates! {
            insta::assert_snapshot!(steady(&table.stdout), @r#"
                POSITION  TIME                      TYPE         STREAM  TAGS  DATA
                4         2027-01-15T08:00:00.000Z  OrderPlaced  -       -     {"item":"lamp"}
                "#);
        }
        assert_eq!(table.stderr, "Following after position 3; Ctrl-C ends it.\n");
    });
}

#[test]
fn follows_live_across_a_restart_of_the_server_without_loss_or_repetition() {
    let folder = Folder::new();
    let server = Serving::start(&folder);
    let address = server.address().to_owned();
    let at = format!(" --server http://{address}");
    let append = || assert_eq!(folder.run(&format!("{PLACE}{at}")).code, 0);
    append();
    let mut following = Following::start(&folder, &format!("--json --until 4{at}"));
    append();
    assert_eq!(following.position(), 2, "from now on: the first is not among them");
    server.stop("-TERM");
    // While nobody serves, the store is free.
    assert_eq!(folder.run(PLACE).code, 0);
    let server = Serving::start_at(&folder, &address);
    assert_eq!(following.position(), 3);
    append();
    assert_eq!(following.position(), 4);
    let (code, told) = following.ended();
    assert_eq!(code, Some(0));
    assert!(told.contains("connecting again until it answers"), "{told}");
    server.stop("-TERM");
}

#[test]
#[cfg(unix)]
fn following_ends_with_ctrl_c_and_when_nobody_reads() {
    let folder = Folder::new();
    let server = Serving::start(&folder);
    let at = format!(" --server {}", server.url());
    let mut following = Following::start(&folder, &at);
    let id = following.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(following.ended().0, Some(0));

    let mut following = Following::start(&folder, &at);
    drop(std::mem::replace(&mut following.out, BufReader::new(empty_pipe())));
    assert_eq!(folder.run(&format!("{PLACE}{at}")).code, 0);
    assert_eq!(following.ended().0, Some(0));
    server.stop("-TERM");
}

/// The output of a program that says nothing.
#[cfg(unix)]
fn empty_pipe() -> ChildStdout {
    let mut child = std::process::Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    child.wait().unwrap();
    child.stdout.take().unwrap()
}

#[test]
fn a_server_that_says_no_is_not_asked_again() {
    let folder = Folder::new();
    let made = folder.run("token create --name first --role reader --tenant acme");
    let server = Serving::start(&folder);
    let at = format!("--server {}", server.url());
    folder.run(&format!("events follow {at}")).assert_failed(1, "UNAUTHENTICATED");
    let with = [("MAINSTAY_TOKEN", made.stdout.trim_end())];
    folder.run_with(&with, &format!("{PLACE} {at}")).assert_failed(1, "UNAUTHORIZED");
    assert_eq!(folder.run_with(&with, &format!("events read {at}")).code, 0);
    server.stop("-TERM");
    folder.run(&format!("events follow {at}")).assert_failed(1, "CLI_SERVER_UNREACHABLE");
}
