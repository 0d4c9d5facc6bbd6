//! `mainstay verify`, `backup`, `restore` and `events erase`: a log is looked after.

use crate::program::{Folder, command};
use mainstay::events::COMPONENT;
use mainstay::prelude::*;
use mainstay_testkit::postgres::{Database, Postgres};
use serde_json::json;

/// Makes a log of three events at `url`.
async fn fill(url: &str) {
    let store = Options::new(url).component(COMPONENT).open().await.unwrap();
    let log = Log::open(&store).await.unwrap();
    for number in 1..=3 {
        let event = NewEvent::new("Placed", &json!({"to": "Ada Lovelace"})).unwrap();
        log.append(event.id(format!("evt-{number}")).tag(format!("order:{number}"))).await.unwrap();
    }
    store.close().await;
}

fn url(folder: &Folder) -> String {
    format!("sqlite:{}", folder.path().join("mainstay.db").display())
}

async fn tamper(url: &str, sql: &'static str) {
    let store = Options::new(url).component(COMPONENT).open().await.unwrap();
    store.transact(async move |tx| tx.execute(sql, &[]).await).await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_log_is_told_to_be_whole() {
    let folder = Folder::new();
    fill(&url(&folder)).await;
    let answer = folder.run("verify");
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(answer.stdout, @"
        sqlite:mainstay.db
        head      3
        events    3 checked, 0 of them erased
        index     9 entries checked
        scopes    0 checked
        database  checked its own file
        problems  0
        ");
    let json = folder.run("verify --json").json();
    assert_eq!(
        (&json["events"], &json["problemCount"], &json["problems"]),
        (&json!(3), &json!(0), &json!([]))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn problems_are_listed_and_the_index_is_repaired() {
    let folder = Folder::new();
    fill(&url(&folder)).await;
    // Which also moves the index from memory to its table.
    assert_eq!(folder.run("verify").code, 0);
    tamper(&url(&folder), "DELETE FROM mainstay_event_terms WHERE position = 2").await;
    tamper(&url(&folder), "UPDATE mainstay_events SET payload = x'01' WHERE position = 3").await;
    let answer = folder.run("verify");
    assert_eq!(answer.code, 1);
    insta::assert_snapshot!(answer.stdout, @"
        sqlite:mainstay.db
        head      3
        events    3 checked, 0 of them erased
        index     6 entries checked
        scopes    0 checked
        database  checked its own file
        problems  4

        POSITION  KIND       PROBLEM
        3         event      the event at 3 is damaged: the payload's checksum is wrong
        2         unindexed  the index does not know the event at 2 by its tag
        2         unindexed  the index does not know the event at 2 by its type
        2         unindexed  the index does not know the event at 2 by its id
        ");
    insta::assert_snapshot!(answer.stderr, @"
        error[CLI_PROBLEMS_FOUND]: problems were found: 4
        hint: Read the report. An index is repaired with `mainstay verify --repair-index`; for the rest see docs/operations/log.md.
        ");

    let json = folder.run("verify --json --repair-index");
    assert_eq!(json.code, 1, "the damaged event stays damaged");
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["repaired"], json!({"added": 3, "removed": 0}));
    let damaged = json!([{
        "position": 3, "kind": "event",
        "sentence": "the event at 3 is damaged: the payload's checksum is wrong",
    }]);
    assert_eq!((&json["problems"], &json["problemCount"]), (&damaged, &json!(1)));
}

#[test]
fn a_log_that_is_not_there_is_not_made() {
    let folder = Folder::new();
    for verb in ["verify", "backup night", "events erase --event e --reason r --actor a"] {
        let answer = folder.run(verb);
        answer.assert_failed(1, "STORE_OPEN_FAILED");
        assert!(answer.stderr.contains("mainstay.db: it does not exist"), "{}", answer.stderr);
        assert_eq!(folder.files(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_use_is_copied_and_restored() {
    let folder = Folder::new();
    fill(&url(&folder)).await;
    let held = Options::new(url(&folder)).component(COMPONENT).open().await.unwrap();
    folder.run("verify").assert_failed(1, "STORE_OWNED");
    let answer = folder.run("backup night");
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(
        answer.stdout.starts_with("night: ") && answer.stdout.ends_with(" a copy of sqlite:mainstay.db\n")
    );
    folder.run("backup night").assert_failed(1, "STORE_TARGET_EXISTS");
    held.close().await;

    folder.run("restore night").assert_failed(1, "STORE_TARGET_EXISTS");
    let answer = folder.run("restore night --store sqlite:new.db");
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(answer.stdout, @"
        sqlite:new.db
        epoch     2
        tokens    0 revoked; `mainstay token create` makes new ones
        head      3
        events    3 checked, 0 of them erased
        index     9 entries checked
        scopes    0 checked
        database  checked its own file
        problems  0
        ");
    assert_eq!(folder.files(), ["mainstay.db", "new.db", "night"]);
    let again = folder.run("--json backup later --store sqlite:new.db").json();
    assert_eq!((&again["file"], &again["store"]), (&json!("later"), &json!("sqlite:new.db")));
    assert_eq!(folder.run("--json restore later --store sqlite:third.db").json()["epoch"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_copied_by_its_own_programs() {
    let server = Postgres::shared().unwrap();
    let (old, new) = (server.database().unwrap(), server.database().unwrap());
    fill(old.url()).await;
    let folder = Folder::new();
    let missing =
        folder.run_with(&[("MAINSTAY_PG_BIN", "/nowhere")], &format!("backup night --store {}", old.url()));
    missing.assert_failed(1, "STORE_TOOL_MISSING");
    insta::assert_snapshot!(missing.stderr, @"
        error[STORE_TOOL_MISSING]: pg_dump was not found in /nowhere
        hint: Install PostgreSQL's client programs, of the server's version or newer, or set MAINSTAY_PG_BIN to their folder.
        ");
    assert_eq!(folder.files(), [""; 0]);
    assert_eq!(folder.run(&format!("backup night --store {}", old.url())).code, 0);
    let restored = folder.run(&format!("restore night --json --store {}", new.url())).json();
    assert_eq!((&restored["epoch"], &restored["report"]["events"]), (&json!(2), &json!(3)));
    let again = folder.run(&format!("restore night --store {}", new.url()));
    again.assert_failed(1, "STORE_TARGET_EXISTS");
}

/// A token that was revoked after a backup must not come back with it.
#[test]
fn a_restored_backup_revives_no_token() {
    let server = Postgres::shared().unwrap();
    let databases = [server.database().unwrap(), server.database().unwrap(), server.database().unwrap()];
    let postgres: Vec<&str> = databases.iter().map(Database::url).collect();
    for [old, new, kept] in
        [["sqlite:old.db", "sqlite:new.db", "sqlite:kept.db"], postgres[..].try_into().unwrap()]
    {
        let folder = Folder::new();
        let run = |verb: &str, store: &str| folder.run(&format!("{verb} --json --store {store}")).json();
        let made = run("token create --name gone --role admin", old);
        let id = made["token"]["id"].as_str().unwrap();
        run("token create --name there --role admin", old);
        run("backup night", old);
        run(&format!("token revoke {id}"), old);

        assert_eq!(run("restore night", new)["revokedTokens"], 2);
        let tokens = run("token list", new);
        for token in tokens["tokens"].as_array().unwrap() {
            assert!(token["revokedAt"].is_string(), "{tokens}");
        }
        let audit = run("audit list", new);
        assert_eq!(audit["entries"][0]["action"], "mainstay restore", "{audit}");

        let restored = run("restore night --keep-tokens", kept);
        assert_eq!(restored["revokedTokens"], json!(null));
        let tokens = run("token list", kept);
        assert!(
            tokens["tokens"].as_array().unwrap().iter().all(|token| token["revokedAt"].is_null()),
            "{tokens}"
        );
    }
}

/// The process dies between the data and the end of the restore: its tokens must not work.
#[test]
fn a_restore_that_died_half_way_and_a_backup_are_served_by_nobody() {
    let server = Postgres::shared().unwrap();
    let databases = [server.database().unwrap(), server.database().unwrap()];
    for (old, new) in [("sqlite:old.db", "sqlite:new.db"), (databases[0].url(), databases[1].url())] {
        let folder = Folder::new();
        let is_file = old.starts_with("sqlite");
        let run = |verb: &str, store: &str| folder.run(&format!("{verb} --json --store {store}")).json();
        let made = run("token create --name gone --role admin", old);
        run("backup night", old);
        run(&format!("token revoke {}", made["token"]["id"].as_str().unwrap()), old);

        let mut dying = command(&folder, &format!("restore night --store {new}"));
        let died = dying.env("MAINSTAY_FAILPOINTS", "store.commit=abort").output().unwrap();
        assert_eq!(died.status.code(), None, "{died:?}");
        if is_file {
            assert!(!folder.files().contains(&"new.db".to_owned()), "{:?}", folder.files());
        }
        // What is there after the death: the database, or the copy.
        let left = if is_file { "sqlite:night" } else { new };
        for verb in ["serve --listen 127.0.0.1:0", "token list", "migrate", "verify"] {
            let answer = folder.run(&format!("{verb} --store {left}"));
            let said = format!("{}{}", answer.stdout, answer.stderr);
            assert!(answer.code != 0 && said.contains("STORE_NOT_RESTORED"), "{verb}: {answer:?}");
        }
        let again = folder.run(&format!("restore night --store {new}"));
        match is_file {
            true => assert_eq!(again.code, 0, "{again:?}"),
            false => again.assert_failed(1, "STORE_TARGET_EXISTS"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_erased_with_a_reason() {
    let folder = Folder::new();
    fill(&url(&folder)).await;
    assert_eq!(folder.run("events erase --event evt-1 --actor ada").code, 2, "a reason is needed");
    assert_eq!(folder.run("events erase --reason r --actor ada").code, 2, "something must be named");
    assert_eq!(folder.run("events erase --event evt-1 --tag order:2 --reason r --actor ada").code, 2);
    let answer = folder.run("events erase --event evt-1 --reason request-17 --actor ada");
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.stdout.starts_with("era_") && answer.stdout.ends_with(": 1 event erased\n"), "{answer:?}");
    let by_tag =
        folder.run_with(&[("USER", "ada")], "events erase --tag order:2 --reason request-17 --json").json();
    assert_eq!(by_tag["events"], 1);
    assert_eq!(folder.run("events erase --tag order:2 --reason r --actor ada --json").json()["events"], 0);
    folder.run("events erase --event evt-9 --reason r --actor ada").assert_failed(1, "EVENT_NOT_FOUND");
    assert_eq!(folder.run("verify --json").json()["erased"], 2);
    let bytes = std::fs::read(folder.path().join("mainstay.db")).unwrap();
    let count = bytes.windows(12).filter(|window| window == b"Ada Lovelace").count();
    assert_eq!(count, 1, "of the event that was not erased");
}
