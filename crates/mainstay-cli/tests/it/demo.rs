//! `mainstay demo`.

use crate::program::Folder;
use std::time::{Duration, Instant};

#[test]
fn tells_its_story_and_leaves_nothing() {
    let folder = Folder::new();
    let began = Instant::now();
    let answer = folder.run_with(&[("TMPDIR", folder.path().to_str().unwrap())], "demo");
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""));
    for said in [
        "2. Two want the last lamp",
        "APPEND_CONDITION_FAILED",
        "already applied, at position 6",
        "IDEMPOTENCY_CONFLICT",
        "6. A call that fails is made again",
        "9. A limit gives no more than there is",
        "11. Many callers at once",
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
fn its_figures_are_what_it_claims() {
    let facts = Folder::new().run("demo --json").json();
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
fn its_work_is_what_it_claims() {
    let work = Folder::new().run("demo --json").json()["work"].take();
    let payment = &work["payment"];
    let numbers = payment["attempts"].as_array().unwrap().iter().map(|one| one["number"].as_u64().unwrap());
    assert_eq!(Vec::from_iter(numbers), [1, 2, 3]);
    assert_eq!((&payment["result"], &payment["rows"]), (&"success".into(), &1.into()));
    let sent = work["parcels"]["sent"].as_object().unwrap();
    assert_eq!(sent.len(), 3);
    assert!(sent.values().all(|parcels| *parcels == serde_json::json!([1, 2, 3, 4])), "{sent:?}");
    assert_eq!(work["parcels"]["atOnceOfOne"], 1);
    assert_eq!(
        (&work["letter"]["error"], &work["letter"]["attempts"], &work["letter"]["triedAgain"]),
        (&"permanentServiceError: no such street".into(), &1.into(), &"success".into())
    );
}

#[test]
fn its_guards_are_what_it_claims() {
    let guards = Folder::new().run("demo --json").json()["guards"].take();
    let (rush, outage) = (&guards["rush"], &guards["outage"]);
    assert_eq!((&rush["calls"], &rush["allowed"]), (&50.into(), &10.into()));
    assert!((1..=6_000).contains(&rush["retryAfterMs"].as_u64().unwrap()), "{rush}");
    assert_eq!((&outage["callsUntilOpen"], &outage["callsWhileOpen"]), (&3.into(), &0.into()));
    assert_eq!((&outage["probes"], &outage["succeeded"]), (&1.into(), &12.into()));
}

#[test]
fn its_log_is_what_it_claims() {
    let log = Folder::new().run("demo --json").json()["log"].take();
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
fn works_on_a_store_only_when_that_is_said_in_a_flag() {
    let folder = Folder::new();
    folder.write("mainstay.toml", "[store]\nurl = \"sqlite:precious.db\"\n");
    let facts = folder.run("demo --json").json();
    assert!(!facts["store"].as_str().unwrap().contains("precious"));
    assert_eq!(folder.files(), ["mainstay.toml"]);

    let facts = folder.run("demo --json --store sqlite:mine.db").json();
    assert_eq!(facts["store"], "sqlite:mine.db");
    assert_eq!(folder.files(), ["mainstay.toml", "mine.db"]);
    assert_eq!(folder.run("events read --store sqlite:mine.db").stdout, "", "its log is not touched");
    let facts = folder.run("demo --json --store sqlite::memory:").json();
    assert!(facts["secondOpening"].is_null());
}
