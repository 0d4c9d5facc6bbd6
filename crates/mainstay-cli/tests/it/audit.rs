//! `mainstay audit`, alike on the store and through the server.

use crate::program::Folder;
use crate::serving::Serving;
use mainstay::store::{Options, Tx};
use mainstay_testkit::postgres::Postgres;

/// A store that somebody worked on through a server: one token made, one that is not there revoked.
fn worked_on() -> (Folder, String) {
    let folder = Folder::new();
    let token = folder.run("token create --name test --role admin").stdout.trim().to_owned();
    let server = Serving::start(&folder);
    let with = [("MAINSTAY_TOKEN", token.as_str())];
    folder.run_with(&with, &format!("token create --name ci --role reader --server {}", server.url()));
    let gone = folder.run_with(&with, &format!("token revoke nobody --server {}", server.url()));
    gone.assert_failed(1, "TOKEN_NOT_FOUND");
    for verb in ["list --outcome done --json", "verify --json"] {
        let answer = folder.run_with(&with, &format!("audit {verb} --server {}", server.url()));
        assert_eq!(answer.code, 0, "{answer:?}");
    }
    server.stop("-TERM");
    (folder, token)
}

/// Does something to a database that no program of ours does.
fn execute(url: &str, statements: &'static [&'static str]) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = Options::new(url).open().await.unwrap();
        let change = async |tx: Tx, statements: &'static [&'static str]| {
            for statement in statements {
                tx.execute(statement, &[]).await?;
            }
            Ok(())
        };
        store.transact_with(statements, change).await.unwrap();
        store.close().await;
    });
}

#[test]
fn what_was_done_is_listed_and_the_chain_is_whole() {
    let (folder, token) = worked_on();
    let done = folder.run("audit list --outcome done --json").json();
    assert!(done.to_string().contains("POST /admin/tokens") && !done.to_string().contains(&token));
    let refused = folder.run("audit list --outcome refused").stdout;
    assert!(refused.contains("TOKEN_NOT_FOUND") && refused.contains("/admin/tokens/nobody"), "{refused}");
    let head = folder.run("audit verify");
    assert!(head.code == 0 && head.stderr.contains("whole"), "{head:?}");
    let again = folder.run(&format!("audit verify --expect {} --json", head.stdout.trim()));
    assert_eq!(again.json()["isWhole"], true);
}

#[test]
fn a_chain_that_was_changed_is_not_whole() {
    let (folder, _) = worked_on();
    let head = folder.run("audit verify").stdout;
    let url = format!("sqlite:{}", folder.path().join("mainstay.db").display());
    execute(&url, &["UPDATE mainstay_audit SET user_id = 'somebody' WHERE number = 1"]);
    folder.run("audit verify").assert_failed(1, "CLI_AUDIT_BROKEN");
    assert_eq!(folder.run(&format!("audit verify --json --expect {}", head.trim())).code, 1);
    let wrong = folder.run("audit verify --expect 5");
    assert!(wrong.code == 2 && wrong.stderr.contains("64 digits"), "{wrong:?}");
}

/// What somebody with access to the database can do to nine entries, the first entry of which that is noticed, and by which words.
const TAMPERINGS: [(&[&str], u64, &str); 9] = [
    (&["UPDATE mainstay_audit SET outcome = 'refused' WHERE number = 5"], 5, "not what was written"),
    (&["UPDATE mainstay_audit SET args = '{' WHERE number = 5"], 5, "not what was written"),
    (&["DELETE FROM mainstay_audit WHERE number = 5"], 5, "missing"),
    (
        &[
            "UPDATE mainstay_audit SET number = 100 WHERE number = 5",
            "UPDATE mainstay_audit SET number = 5 WHERE number = 6",
            "UPDATE mainstay_audit SET number = 6 WHERE number = 100",
        ],
        5,
        "not what was written",
    ),
    (&["DELETE FROM mainstay_audit WHERE number > 7"], 8, "the end is cut off"),
    (
        &[
            "UPDATE mainstay_audit_head SET number = 7, hash = (SELECT hash FROM mainstay_audit WHERE number = 7)",
            "UPDATE mainstay_audit SET user_id = 'somebody' WHERE number = 9",
        ],
        9,
        "not what was written",
    ),
    (
        &[
            "UPDATE mainstay_audit_head SET number = 7, hash = (SELECT hash FROM mainstay_audit WHERE number = 7)",
        ],
        8,
        "the head was put back",
    ),
    (&["DELETE FROM mainstay_audit_head"], 1, "the head was put back"),
    (
        &["UPDATE mainstay_audit_head SET hash = (SELECT hash FROM mainstay_audit WHERE number = 7)"],
        9,
        "the head says",
    ),
];

const KEEP: [&str; 2] = [
    "CREATE TABLE kept AS SELECT * FROM mainstay_audit",
    "CREATE TABLE kept_head AS SELECT * FROM mainstay_audit_head",
];
const RESTORE: [&str; 4] = [
    "DELETE FROM mainstay_audit",
    "DELETE FROM mainstay_audit_head",
    "INSERT INTO mainstay_audit SELECT * FROM kept",
    "INSERT INTO mainstay_audit_head SELECT * FROM kept_head",
];

#[test]
fn whatever_is_done_to_entries_or_head_shows_on_both_databases() {
    let database = Postgres::shared().unwrap().database().unwrap();
    let folder = Folder::new();
    let file = format!("sqlite:{}", folder.path().join("mainstay.db").display());
    for url in [file.as_str(), database.url()] {
        for _ in 0..9 {
            assert_eq!(folder.run(&format!("token create --name ci --role reader --store {url}")).code, 0);
        }
        execute(url, &KEEP);
        let verify = format!("audit verify --json --store {url}");
        for (statements, number, said) in TAMPERINGS {
            assert_eq!(folder.run(&verify).json()["number"], 9);
            execute(url, statements);
            let told = folder.run(&verify);
            let found: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
            assert_eq!((told.code, &found["number"]), (1, &number.into()), "{statements:?}: {told:?}");
            assert!(found["reason"].as_str().unwrap().contains(said), "{statements:?}: {found}");
            execute(url, &RESTORE);
        }
    }
}
