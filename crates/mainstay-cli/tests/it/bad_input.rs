//! Stores that cannot be opened: a clear error, a hint, an exit code and no half-made files.

use crate::program::Folder;
use mainstay::prelude::*;
use mainstay_testkit::postgres::Postgres;
use std::net::TcpListener;
use std::time::{Duration, Instant};

#[test]
fn a_url_with_a_typo() {
    let folder = Folder::new();
    for (url, said) in [
        ("mainstay.db", "did you mean sqlite:FILE?"),
        ("sqlit:mainstay.db", "did you mean sqlite: or postgres://?"),
        ("sqlite:", "names no file"),
        ("sqlite:folder/", "names a folder"),
        ("sqlite::memory", "is neither a file nor sqlite::memory:"),
        ("sqlite:a.db?mode=ro", "has options after '?'"),
        ("postgre://localhost/main", "did you mean postgres://?"),
        ("postgres:localhost/main", "must continue with //"),
        ("postgres://localhost", "names no database"),
        ("postgres://localhost:port/main", "postgres://localhost:port/main"),
    ] {
        let answer = folder.run(&format!("migrate --store {url}"));
        answer.assert_failed(2, "STORE_URL_INVALID");
        assert!(answer.stderr.contains(said), "{}", answer.stderr);
        assert_eq!(folder.files(), [""; 0], "{url}");
    }
}

#[test]
fn a_place_where_no_file_can_be() {
    let folder = Folder::new();
    folder.write("file", "");
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    for (file, said) in [
        ("missing/mainstay.db", "the folder missing does not exist"),
        ("file/mainstay.db", "the folder file does not exist"),
        ("folder", "it is a folder"),
        ("/proc/mainstay/mainstay.db", "the folder /proc/mainstay does not exist"),
        ("/proc/mainstay.db", "cannot open /proc/mainstay.db"),
    ] {
        let answer = folder.run(&format!("migrate --store sqlite:{file}"));
        answer.assert_failed(1, "STORE_OPEN_FAILED");
        assert!(answer.stderr.contains(said), "{}", answer.stderr);
        assert_eq!(folder.files(), ["file", "folder"], "{file}");
    }
}

#[test]
fn a_file_that_is_something_else_is_left_as_it_is() {
    let folder = Folder::new();
    let letter = "Dear database, I am a letter and would like to stay one.";
    folder.write("letter.txt", letter);
    let answer = folder.run("migrate --store sqlite:letter.txt");
    answer.assert_failed(1, "STORE_NOT_A_DATABASE");
    insta::assert_snapshot!(answer.stderr, @"
        error[STORE_NOT_A_DATABASE]: letter.txt is not a SQLite database; it was left as it is
        hint: Point the store at another file, or move this one away.
        ");
    assert_eq!(std::fs::read_to_string(folder.path().join("letter.txt")).unwrap(), letter);
    assert_eq!(folder.files(), ["letter.txt"]);
}

#[tokio::test]
async fn a_file_that_another_process_holds() {
    let folder = Folder::new();
    let held = Store::open(&format!("sqlite:{}", folder.path().join("mainstay.db").display())).await.unwrap();
    let before = folder.files();
    let answer = folder.run("migrate");
    answer.assert_failed(1, "STORE_OWNED");
    let holder = format!("mainstay.db is held by process {} since 20", std::process::id());
    assert!(answer.stderr.contains(&holder), "{}", answer.stderr);
    assert_eq!(folder.files(), before);
    held.close().await;
    assert_eq!(folder.run("migrate").code, 0);
}

#[tokio::test]
async fn a_schema_of_a_newer_version() {
    let folder = Folder::new();
    let path = folder.path().join("mainstay.db");
    let store = Store::open(&format!("sqlite:{}", path.display())).await.unwrap();
    let newer =
        "INSERT INTO mainstay_migrations (component, number, name, fingerprint, needs, applied_at, program)
        VALUES ('store', 99, 'drop_the_old', '', 99, 0, '9.9.9')";
    store.transact(async |tx| tx.execute(newer, &[]).await).await.unwrap();
    store.close().await;
    let before = std::fs::read(&path).unwrap();

    let answer = folder.run("migrate");
    answer.assert_failed(1, "STORE_SCHEMA_NEWER");
    insta::assert_snapshot!(answer.stderr, @"
        error[STORE_SCHEMA_NEWER]: the schema of store needs a program that knows step 99; this one knows 2
        hint: Upgrade this node to the version that ran the migration, or newer. Never delete rows from mainstay_migrations.
        ");
    assert_eq!(std::fs::read(&path).unwrap(), before, "nothing was written");
    assert_eq!(folder.files(), ["mainstay.db"]);
}

#[test]
fn a_server_that_grants_nothing() {
    let database = Postgres::shared().unwrap().database().unwrap();
    let url = database.limited_user().unwrap();
    let folder = Folder::new();
    let answer = folder.run(&format!("migrate --store {url}"));
    answer.assert_failed(1, "STORE_PERMISSION_DENIED");
    assert!(answer.stderr.contains("GRANT"), "{}", answer.stderr);
    assert_eq!(folder.files(), [""; 0]);
}

#[test]
fn a_server_that_is_not_there() {
    let began = Instant::now();
    let folder = Folder::new();
    let answer = folder.run("migrate --store postgres://ada:s3cret@127.0.0.1:1/main");
    answer.assert_failed(1, "STORE_UNAVAILABLE");
    assert!(answer.stderr.contains("refused") && !answer.stderr.contains("s3cret"), "{}", answer.stderr);
    let answer = folder.run("--json migrate --store postgres://ada:s3cret@127.0.0.1:1/main");
    assert_eq!((answer.code, answer.stdout.as_str()), (1, ""));
    assert_eq!(answer.stderr.lines().count(), 1);
    let told: serde_json::Value = serde_json::from_str(&answer.stderr).unwrap();
    assert_eq!(told["code"], "STORE_UNAVAILABLE");
    assert_eq!(told.as_object().unwrap().keys().collect::<Vec<_>>(), ["code", "hint", "message"]);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_server_that_never_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://ada@{}/main", silent.local_addr().unwrap());
    let began = Instant::now();
    let answer = Folder::new()
        .run_with(&[("MAINSTAY__STORE__BUSY_TIMEOUT_MS", "300")], &format!("migrate --store {url}"));
    answer.assert_failed(1, "STORE_UNAVAILABLE");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
