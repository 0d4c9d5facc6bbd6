//! `mainstay migrate`.

use crate::program::Folder;
use serde_json::json;

#[test]
fn makes_the_store_and_then_has_nothing_to_do() {
    let folder = Folder::new();
    let first = folder.run("migrate");
    assert_eq!(first.code, 0, "{first:?}");
    let words: Vec<&str> = first.stdout.split_whitespace().collect();
    assert_eq!(words[..3], ["COMPONENT", "STEP", "NAME"], "{}", first.stdout);
    let first_step = ["store", "1", "tell_the_time"];
    assert!(words.windows(3).any(|three| three == first_step), "{}", first.stdout);
    assert!(first.stdout.ends_with("  applied now\n"), "{}", first.stdout);
    assert!(first.stderr.starts_with("sqlite:mainstay.db: SQLite 3."), "{}", first.stderr);
    assert!(first.stderr.contains("synchronous=FULL"), "{}", first.stderr);
    assert!(first.stderr.ends_with(" steps applied.\n"), "{}", first.stderr);
    assert_eq!(folder.files(), ["mainstay.db"], "the log and the lock are gone after a clean end");

    let again = folder.run("migrate");
    assert!(again.stdout.ends_with("  was there\n"), "{}", again.stdout);
    assert!(again.stderr.ends_with("Nothing to do: the schema is up to date.\n"), "{}", again.stderr);
}

#[test]
fn answers_in_json() {
    let folder = Folder::new();
    let first = folder.run("migrate --json --store sqlite:a.db").json();
    assert_eq!(first["store"], "sqlite:a.db");
    assert_eq!(first["applied"], first["present"]);
    assert_eq!(first["applied"][0]["name"], "tell_the_time");
    let again = folder.run("migrate --json --store sqlite:a.db").json();
    assert_eq!((&again["applied"], &again["present"]), (&json!([]), &first["present"]));
}

#[test]
fn migrates_also_where_programs_are_told_not_to() {
    let folder = Folder::new();
    folder.write("mainstay.toml", "[store]\nmigrate = false\n");
    assert_eq!(folder.run("migrate --json").json()["applied"][0]["name"], "tell_the_time");
}
