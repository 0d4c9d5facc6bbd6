//! Upgrades of a store whose last process, of an earlier version, was killed with work in flight.
//!
//! `fixtures/README.md` lists its contents and how it was made.

use crate::program::{Folder, Watchdog, command};
use mainstay_testkit::postgres::Postgres;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(150);

/// The folder of a demo of an earlier version, killed with SIGKILL.
fn fixture(archive: &str) -> (Folder, Value) {
    let folder = Folder::new();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(archive);
    let unpacked = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()).status();
    assert!(unpacked.unwrap().success());
    let told = std::fs::read_to_string(folder.path().join("in_flight.json")).unwrap();
    (folder, serde_json::from_str(&told).unwrap())
}

#[test]
fn work_in_flight_of_an_earlier_version_ends_on_sqlite() {
    let (folder, left) = fixture("in_flight.tar.gz");
    finish(&folder, &left, "sqlite:shop.db");
}

#[test]
fn work_in_flight_of_an_earlier_version_ends_on_postgres() {
    let (folder, left) = fixture("in_flight_postgres.tar.gz");
    let database = Postgres::shared().unwrap().database().unwrap();
    database.run(&std::fs::read_to_string(folder.path().join("shop.sql")).unwrap()).unwrap();
    finish(&folder, &left, database.url());
}

/// Migrates the store, runs the demo on it, and checks that everything in flight ends.
fn finish(folder: &Folder, left: &Value, store: &str) {
    let of = |name: &str| left[name].as_str().unwrap();
    let run = |arguments: &str| {
        let answer = folder.run(&format!("--store {store} {arguments}"));
        assert_eq!(answer.code, 0, "{arguments}: {answer:?}");
        answer
    };
    let migrated = run("migrate");
    assert!(migrated.stdout.contains("applied now"), "{migrated:?}");
    assert!(run("audit verify").stderr.contains("whole"));
    // The operation was begun while this pool was paused.
    run("work resume deadLetterPool");

    let mut demo =
        command(folder, &format!("--store {store} demo --keep . --rate 1 --cycle 600 --listen 127.0.0.1:0"));
    let mut demo = demo.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let _watchdog = Watchdog::of(&demo);
    let mut told = BufReader::new(demo.stdout.take().unwrap());
    let url = loop {
        let mut line = String::new();
        assert_ne!(told.read_line(&mut line).unwrap(), 0, "the demo has ended");
        if let Some(url) = line.trim().strip_prefix("server   ") {
            break url.to_owned();
        }
    };
    // The token of the earlier version is valid.
    let ask = |verb: &str| {
        let answer =
            folder.run_with(&[("MAINSTAY_TOKEN", of("token"))], &format!("--server {url} --json {verb}"));
        assert_eq!(answer.code, 0, "{verb}: {answer:?}");
        answer.json()
    };
    let until = |verb: String, status: &str| {
        let began = Instant::now();
        loop {
            let found = ask(&verb);
            if found["status"] == status {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "{found}");
        }
    };
    until(format!("replay show {}", of("replayId")), "completed");
    let operation = until(format!("dead-letters operation {}", of("operationId")), "done");
    assert_eq!(operation["total"], 1, "{operation}");
    // The first was leased by the process that was killed. No worker claims either item here.
    for (item, natives) in [("leasedWorkId", &["ready"][..]), ("delayedWorkId", &["delayed", "ready"])] {
        let found = ask(&format!("work show {}", of(item)));
        assert!(natives.contains(&found["native"].as_str().unwrap()), "{item}: {found}");
    }
    // The intent times out a day after the fixture was made.
    let intent = ask(&format!("intents show {}", of("intentKey")));
    assert!(["pending", "abandoned"].contains(&intent["status"].as_str().unwrap()), "{intent}");

    // Its end is held against the books of the provider: whatever was in flight was paid once.
    assert!(Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap().success());
    let mut end = String::new();
    told.read_to_string(&mut end).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(0), "{end}");
    let verified = run("verify --json").json();
    assert_eq!(verified["problemCount"], 0, "{verified}");
    assert!(verified["events"].as_u64() > left["events"].as_u64(), "{verified}");
    run("audit verify");
}
