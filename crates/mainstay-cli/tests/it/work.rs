//! `mainstay work`: pools, items, letters and crons, in a file and through the server that holds it.

use crate::endpoint::Endpoint;
use crate::program::{Answer, Folder};
use crate::serving::Serving;
use serde_json::{Value, json};
use std::time::Duration;

/// Nothing is at this address, and nobody is asked for it before a server runs.
const CONFIG: &str = "[pools.mail]\nmaxParallelism = 3\n[functions.send]\nurl = \"http://127.0.0.1:9/send\"\n\
    [crons.daily]\nschedule = { cron = \"0 2 * * *\", timeZone = \"Europe/Berlin\" }\npool = \"mail\"\nfunction = \"send\"\n";

/// What changes from run to run: ids, times and ages.
fn steady(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace).map(|word| {
        let bare = word.trim_end();
        let is_time = bare.len() == 24 && bare.starts_with("20") && bare.ends_with('Z');
        match (is_time, bare.starts_with("work_")) {
            (true, _) => word.replace(bare, "2027-01-15T08:00:00.000Z"),
            (_, true) => word.replace(bare, "work_…"),
            _ => word.to_owned(),
        }
    });
    words.collect()
}

/// Runs a test body on a file, and through a server in which nothing of the pool starts: `at` is what to add to a command.
fn alike(body: impl Fn(&dyn Fn(&str) -> Answer)) {
    let folder = Folder::new();
    folder.write("mainstay.toml", CONFIG);
    body(&|arguments| folder.run(arguments));

    let folder = Folder::new();
    folder.write("mainstay.toml", CONFIG);
    let token = folder.run("token create --name test --role operator").stdout;
    let server = Serving::start(&folder);
    let with = [("MAINSTAY_TOKEN", token.trim())];
    let run = |arguments: &str| folder.run_with(&with, &format!("{arguments} --server {}", server.url()));
    run("work pause mail");
    body(&run);
    server.stop("-TERM");
}

fn id(answer: &Answer) -> String {
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.stdout.trim().to_owned()
}

#[test]
fn an_empty_pool_is_deleted_and_one_of_the_configuration_stays() {
    let folder = Folder::new();
    folder.write("mainstay.toml", &format!("{CONFIG}[pools.old]\n"));
    let item = id(&folder.run("work enqueue old send --args 1"));
    folder.write("mainstay.toml", CONFIG);
    folder.run("work pools delete old").assert_failed(1, "WORK_NAME_IN_USE");
    folder.run(&format!("work cancel {item}"));
    assert_eq!(folder.run("work pools delete old").stderr, "old is deleted.\n");
    folder.run("work pools delete old").assert_failed(1, "UNKNOWN_POOL");
    folder.run("work pools delete mail").assert_failed(1, "WORK_NAME_IN_USE");
    assert!(folder.run("work pools").stdout.contains("mail"));
}

#[test]
fn items_are_enqueued_listed_shown_and_cancelled() {
    alike(|run| {
        let first =
            run("work enqueue mail send --args {\"to\":\"ada\"} --key k --context [1] --run-after 2h --json");
        let enqueued = first.json();
        assert_eq!(enqueued["work"][0]["isDuplicate"], false);
        let first = enqueued["work"][0]["workId"].as_str().unwrap().to_owned();
        let second =
            run("work enqueue mail send --priority -5 --dedupe-key once --max-attempts 2 --base 1.5 \
                          --on-complete send --deadline 30d --initial-backoff 10ms");
        assert_eq!((second.code, second.stderr.as_str()), (0, "Enqueued in mail.\n"), "{second:?}");
        let again = run("work enqueue mail send --dedupe-key once --dedupe-window 1d");
        assert_eq!(again.stderr, "Enqueued before, with the same dedupe key; nothing was changed.\n");
        assert_eq!(id(&again), id(&second));
        run("work enqueue mail send --run-at 2100-01-01T00:00:00Z");
        insta::allow_duplicates! {
            insta::assert_snapshot!(steady(&run("work list mail").stdout), @"
                WORK ID                                    FUNCTION  STATE    KEY  ATTEMPTS  ENQUEUED                  DUE
                work_…  send      ready    -    0         2027-01-15T08:00:00.000Z  2027-01-15T08:00:00.000Z
                work_…  send      delayed  k    0         2027-01-15T08:00:00.000Z  2027-01-15T08:00:00.000Z
                work_…  send      delayed  -    0         2027-01-15T08:00:00.000Z  2100-01-01T00:00:00.000Z
                ");
            insta::assert_snapshot!(steady(&run(&format!("work show {first}")).stdout), @r#"
                work        work_…
                pool        mail
                function    send
                state       pending (delayed)
                attempts    0
                key         k
                args        {"to":"ada"}
                context     [1]
                enqueued    2027-01-15T08:00:00.000Z
                due         2027-01-15T08:00:00.000Z
                "#);
        }
        assert_eq!(run("work list mail --limit 1").stderr, "There may be more; --limit shows up to 1000.\n");
        let listed = run("work list mail --json").json();
        assert_eq!(listed["work"].as_array().unwrap().len(), 3);
        let canceled = run(&format!("work cancel {first}"));
        assert_eq!((canceled.code, canceled.stderr), (0, format!("{first} is cancelled.\n")));
        assert_eq!(run(&format!("work cancel {first} --json")).json()["canceled"], "tooLate");
        assert_eq!(run(&format!("work show {first} --json")).json()["result"], json!({"kind": "canceled"}));
        let unknown = run("work show work-123");
        assert!(
            unknown.code == 0 && unknown.stderr.starts_with("Nothing is known of work-123"),
            "{unknown:?}"
        );
        assert_eq!(run("work show work-123 --json").json(), json!({"found": false}));

        let run_id = id(&run("work run send --args 7 --max-failures 2 --on-complete send --context {}"));
        assert_eq!(run(&format!("work show {run_id} --json")).json()["pool"], "retrier");
        assert_eq!(run("work run send --json").json()["runId"].as_str().unwrap().len(), run_id.len());
    });
}

#[test]
fn items_of_all_pools_are_listed_by_what_they_are_and_one_starts_now() {
    alike(|run| {
        let later = id(&run("work enqueue mail send --key k --run-after 2h"));
        let behind = id(&run("work enqueue mail send --key k"));
        let ids = |arguments: &str| {
            let page = run(&format!("work list {arguments} --json")).json();
            let work = page["work"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["workId"].as_str().unwrap().to_owned());
            (work.collect::<Vec<_>>(), page["next"].as_str().map(str::to_owned))
        };
        assert_eq!(ids("").0, [behind.clone(), later.clone()]);
        let (first, next) = ids("--oldest --limit 1");
        assert_eq!(first, [later.as_str()]);
        assert_eq!(ids(&format!("--oldest --cursor {}", next.unwrap())).0, [behind.as_str()]);
        assert_eq!(ids("mail --state delayed").0, [later.as_str()]);
        assert_eq!(ids("--key k --function send").0.len(), 2);
        assert_eq!(ids("--state failed").0, [""; 0]);
        assert!(run("work list --state lost").code == 2);
        let keys = run("work keys mail --json").json();
        assert_eq!((&keys["keys"][0]["key"], &keys["keys"][0]["depth"]), (&json!("k"), &json!(2)));
        assert!(run("work keys mail").stdout.contains(&later));
        let now = run(&format!("work run-now {later}"));
        assert_eq!((now.code, now.stderr), (0, format!("{later} may start now.\n")));
        assert_eq!(run(&format!("work run-now {behind} --json")).json()["starts"], "behind");
        run("work run-now work-123").assert_failed(1, "WORK_NOT_FOUND");
        let status = run(&format!("work run-status {later} --json")).json();
        assert_eq!((&status["runId"], &status["attemptCount"]), (&json!(later), &json!(0)));
        assert_eq!(run("work run-status run-123 --json").json(), json!({"found": false}));
    });
}

#[test]
fn pools_and_crons_are_told_and_changed() {
    alike(|run| {
        run("work enqueue mail send");
        assert_eq!(run("work pause mail").stderr, "mail is paused; 1 wait, 0 run on.\n");
        let pool = run("work pools mail --json").json();
        assert_eq!((&pool["isPaused"], &pool["settings"]["maxParallelism"]), (&json!(true), &json!(3)));
        let told = run("work pools").stdout;
        let line = told.lines().find(|line| line.starts_with("mail ")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>()[..4], ["mail", "1", "0", "3"], "{told}");
        assert!(line.ends_with("  yes"), "{told}");
        let heading = told.lines().next().unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(heading[..3], ["POOL", "PENDING", "RUNNING"], "{told}");
        assert_eq!(run("work resume mail --json").json()["isPaused"], false);
    });
    // Crons are declared by a server; they stay when it is gone.
    let folder = Folder::new();
    folder.write("mainstay.toml", CONFIG);
    let server = Serving::start(&folder);
    let at = format!("--server {}", server.url());
    let over = |arguments: &str| folder.run(&format!("{arguments} {at}"));
    insta::assert_snapshot!(steady(&over("work crons").stdout), @"
        CRON   SCHEDULE                 POOL  FUNCTION  NEXT                      LAST  FIRED
        daily  0 2 * * * Europe/Berlin  mail  send      2027-01-15T08:00:00.000Z  -     0
        ");
    assert_eq!(over("work crons --pause daily").stderr, "daily rests.\n");
    assert!(over("work crons --resume daily").stderr.starts_with("daily goes on at 20"));
    server.stop("-TERM");
    assert_eq!(folder.run("work crons --json").json()["crons"][0]["name"], "daily");
    assert_eq!(folder.run("work crons --pause daily --json").json()["isPaused"], true);
    assert!(folder.run("work crons").stdout.contains("  paused  "));
    assert_eq!(folder.run("work crons --remove daily").stderr, "daily is gone.\n");
    folder.run("work crons --remove daily").assert_failed(1, "UNKNOWN_CRON");
    assert_eq!(folder.run("work crons").stderr, "There are no crons.\n");
}

#[test]
fn letters_are_listed_retried_and_ignored() {
    let endpoint = Endpoint::start(|_| (422, r#"{"why":"gone"}"#.to_owned()));
    let folder = Folder::new();
    let config = CONFIG.replace("127.0.0.1:9/", &format!("{}/", endpoint.address));
    folder.write("mainstay.toml", &format!("{config}[egress]\nallow = [\"127.0.0.1\"]\n"));
    let token = folder.run("token create --name test --role operator").stdout;
    let server = Serving::start(&folder);
    let with = [("MAINSTAY_TOKEN", token.trim())];
    let at = format!(" --server {}", server.url());
    let run = |arguments: &str| folder.run_with(&with, &format!("{arguments}{at}"));
    let mut ids = Vec::new();
    for number in 0..3 {
        let one = id(&run(&format!("work enqueue mail send --args {number}")));
        while run(&format!("work show {one} --json")).json()["state"] != "failed" {
            std::thread::sleep(Duration::from_millis(5));
        }
        ids.push(one);
    }
    let listed = run("dead-letters list --kind work --name send --json").json();
    let listed = listed["letters"].as_array().unwrap();
    let of = |one: &Value| one["reference"].as_str().unwrap().to_owned();
    assert_eq!(listed.iter().rev().map(of).collect::<Vec<_>>(), ids);
    let letter = listed[1]["letterId"].as_str().unwrap();
    let error = listed[0]["error"].as_str().unwrap();
    assert!(error.contains("the reply is 422 Unprocessable Entity: {\"why\":\"gone\"}"), "{error}");
    folder.run(&format!("dead-letters list{at}")).assert_failed(1, "UNAUTHENTICATED");

    let retried = id(&run(&format!("work retry {}", ids[0])));
    while run(&format!("work show {retried} --json")).json()["state"] != "failed" {
        std::thread::sleep(Duration::from_millis(5));
    }
    run(&format!("work retry {}", ids[0])).assert_failed(1, "DEAD_LETTER_NOT_FOUND");
    assert_eq!(run(&format!("dead-letters ignore {letter}")).code, 0);
    let ignored = run("dead-letters list --status ignored --json").json();
    assert_eq!(ignored["letters"][0]["reference"], json!(ids[1]));
    server.stop("-TERM");

    // The same on the file: one that failed again and one that was never tried.
    let letters = folder.run("dead-letters list --status pending --json").json();
    let mut pending: Vec<String> = letters["letters"].as_array().unwrap().iter().map(of).collect();
    pending.sort_unstable();
    let mut expected = [retried, ids[2].clone()];
    expected.sort_unstable();
    assert_eq!(pending, expected);
    let at = |verb: &str| folder.run(&format!("dead-letters {verb} --json")).json();
    assert_eq!(at("stats --pool mail --status pending")["total"], 2);
    assert_eq!(at("stats --pool nowhere")["total"], 0);
    assert_eq!(at("purge --status ignored --before 2001-09-09T01:46:40Z --run")["done"], 0);
    assert_eq!(at("purge --status ignored --pool mail --before 2999-01-01T00:00:00Z")["total"], 1);
    assert_ne!(folder.run("dead-letters purge --before 1 --older-than 1d").code, 0);
    let many = folder.run("dead-letters retry --kind work --run --json").json();
    assert_eq!(many["done"], 2, "{many}");
    let none = folder.run("dead-letters list --status pending");
    assert_eq!(none.stderr, "There are none.\n", "{none:?}");
    folder.run(&format!("work retry {}", ids[1])).assert_failed(1, "DEAD_LETTER_NOT_FOUND");
}

#[test]
fn what_cannot_be_done_is_told() {
    alike(|run| {
        run("work enqueue nowhere send").assert_failed(1, "UNKNOWN_POOL");
        run("work enqueue mail nobody").assert_failed(1, "UNKNOWN_FUNCTION");
        run("work enqueue mail send --on-complete nobody").assert_failed(1, "UNKNOWN_FUNCTION");
        run("work run nobody").assert_failed(1, "UNKNOWN_FUNCTION");
        run("work list nowhere").assert_failed(1, "UNKNOWN_POOL");
        run("work pause nowhere").assert_failed(1, "UNKNOWN_POOL");
        run("work pools nowhere").assert_failed(1, "UNKNOWN_POOL");
        run("work cancel work-123").assert_failed(1, "WORK_NOT_FOUND");
        run("work retry x").assert_failed(1, "DEAD_LETTER_NOT_FOUND");
        run("work crons --pause nightly").assert_failed(1, "UNKNOWN_CRON");
        let answer = run("work enqueue mail send --key \u{7}");
        answer.assert_failed(1, "WORK_INVALID");
        assert!(answer.stderr.contains("key: must be 1 to 512 bytes"), "{}", answer.stderr);
    });
    let folder = Folder::new();
    for arguments in [
        "work",
        "work enqueue mail",
        "work enqueue mail send --args {",
        "work enqueue mail send --run-after soon",
        "work enqueue mail send --run-after 1s --run-at 5",
        "work enqueue mail send --max-attempts 0",
        "work enqueue mail send --dedupe-window 1h",
        "work list mail --limit 0",
        "work retry",
        "work crons --pause a --remove b",
    ] {
        let answer = folder.run(arguments);
        assert_eq!((answer.code, answer.stdout.as_str()), (2, ""), "{arguments}: {answer:?}");
    }
    folder.run("work pools").assert_failed(1, "STORE_OPEN_FAILED");
    assert_eq!(folder.files(), [""; 0], "whoever looks makes nothing");
}
