//! The schema and its history: applied once, by whoever comes first, all or nothing.

use mainstay_store::migrations::{AppliedStep, Component, Script, Step};
use mainstay_store::{Error, Store};
use mainstay_testkit::crash::{self, Child};
use mainstay_testkit::stores::{Kind, Place, for_each_kind, for_each_lasting_store};
use std::error::Error as _;
use std::time::Duration;

const fn step(name: &'static str, statements: &'static [&'static str], needs: u32) -> Step {
    Step { name, script: Script::Both(statements), needs }
}

const fn notes(steps: &'static [Step]) -> Component {
    Component { name: "notes", steps }
}

const CREATE: Step = step(
    "create_notes",
    // Fails when it is applied twice.
    &["CREATE TABLE notes (id BIGINT PRIMARY KEY)", "INSERT INTO notes (id) VALUES (1)"],
    0,
);
const EXPAND: Step = step(
    "add_text",
    &["ALTER TABLE notes ADD COLUMN text TEXT", "CREATE TABLE words (word TEXT NOT NULL)"],
    0,
);
const CONTRACT: Step = step("drop_words", &["DROP TABLE words"], 3);
const FAIL: Step = step("fail", &["CREATE TABLE half (id BIGINT)", "INSERT INTO notes (id) VALUES (1)"], 0);

static FIRST: Component = notes(&[CREATE]);
static SECOND: Component = notes(&[CREATE, EXPAND]);
static THIRD: Component = notes(&[CREATE, EXPAND, CONTRACT]);
static FAILING: Component = notes(&[CREATE, EXPAND, FAIL]);
static EDITED: Component = notes(&[step("create_notes", &["CREATE TABLE notes (id TEXT PRIMARY KEY)"], 0)]);

async fn open(place: &Place, component: Component) -> Result<Store, Error> {
    place.options().component(component).open().await
}

/// The steps of `notes` that opening applied.
async fn applied(place: &Place, component: Component) -> Vec<String> {
    let (store, report) = place.options().component(component).open_reporting().await.unwrap();
    let names = of_notes(&report.applied);
    assert!(of_notes(&report.present).ends_with(&names), "{report:?}");
    store.close().await;
    names
}

fn of_notes(steps: &[AppliedStep]) -> Vec<String> {
    steps.iter().filter(|step| step.component == "notes").map(|step| step.name.clone()).collect()
}

async fn insert(store: &Store, id: i64) {
    let sql = "INSERT INTO notes (id) VALUES ($1)";
    let work = async move |tx: mainstay_store::Tx, id: i64| tx.execute(sql, &[id.into()]).await;
    store.transact_with(id, work).await.unwrap();
}

async fn exists(store: &Store, table: &'static str) -> bool {
    let result = store
        .read(move |tx| async move { tx.query(&format!("SELECT count(*) FROM {table}"), &[]).await })
        .await;
    result.inspect_err(|error| assert_eq!(error.code(), "STORE_SQL_INVALID", "{error}")).is_ok()
}

/// The names of the files of a SQLite store.
fn files(place: &Place) -> Option<Vec<String>> {
    let entries = std::fs::read_dir(place.folder()?).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    Some(names)
}

#[test]
fn a_component_that_several_parts_need_is_taken_once() {
    for_each_lasting_store(async |place| {
        let options = place.options().component(SECOND).component(SECOND);
        let (store, report) = options.open_reporting().await.unwrap();
        assert_eq!(of_notes(&report.applied), ["create_notes", "add_text"]);
        store.close().await;
    });
}

#[test]
fn steps_are_applied_once_and_reported() {
    for_each_lasting_store(async |place| {
        let (store, report) = place.options().component(SECOND).open_reporting().await.unwrap();
        assert_eq!(of_notes(&report.applied), ["create_notes", "add_text"]);
        assert_eq!(of_notes(&report.present), ["create_notes", "add_text"]);
        let numbers: Vec<u32> =
            report.present.iter().filter(|step| step.component == "notes").map(|step| step.number).collect();
        assert_eq!(numbers, [1, 2]);
        assert!(report.present.iter().all(|step| step.applied_at > 1_700_000_000_000), "{report:?}");
        store.close().await;
        let (store, report) = place.options().component(SECOND).open_reporting().await.unwrap();
        assert_eq!(report.applied, []);
        assert_eq!(of_notes(&report.present), ["create_notes", "add_text"]);
        assert_eq!(store.figures().committed.get(), 0, "nothing is written to a schema that is up to date");
        store.close().await;
        assert_eq!(applied(&place, THIRD).await, ["drop_words"], "an upgrade applies what is missing");
    });
}

#[test]
fn nodes_that_start_at_once_migrate_once() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let nodes = (0..8).map(|_| {
            let options = place.options().connections(2).component(SECOND);
            tokio::spawn(async move { options.open_reporting().await })
        });
        let mut applied = Vec::new();
        for node in nodes.collect::<Vec<_>>() {
            let (store, report) = node.await.unwrap().unwrap();
            assert_eq!(of_notes(&report.present), ["create_notes", "add_text"]);
            if !report.applied.is_empty() {
                assert_eq!(report.applied.len(), report.present.len(), "all or nothing");
                applied.push(report.applied);
            }
            assert!(exists(&store, "words").await);
        }
        assert_eq!(applied.len(), 1, "one of them did it: {applied:?}");
    });
}

#[test]
fn after_an_expanding_step_the_old_program_goes_on_working() {
    for_each_lasting_store(async |place| {
        open(&place, FIRST).await.unwrap().close().await;
        assert_eq!(applied(&place, SECOND).await, ["add_text"]);
        let (old, report) = place.options().component(FIRST).open_reporting().await.unwrap();
        assert_eq!(report.applied, []);
        insert(&old, 2).await;
        assert!(exists(&old, "notes").await);
    });
}

/// Nodes of two versions run side by side during an upgrade. The old one has prepared its statements.
#[test]
fn a_running_node_goes_on_working_while_another_expands() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let old = place.options().connections(4).component(FIRST).open().await.unwrap();
        let all = async || {
            let reads = (0..8).map(|_| {
                let old = old.clone();
                tokio::spawn(
                    async move { old.read(async |tx| tx.query("SELECT * FROM notes", &[]).await).await },
                )
            });
            for read in reads.collect::<Vec<_>>() {
                read.await.unwrap().unwrap();
            }
        };
        all().await;
        insert(&old, 2).await;
        let new = open(&place, SECOND).await.unwrap();
        all().await;
        insert(&old, 3).await;
        let sql = "INSERT INTO notes (id) VALUES (4) RETURNING *";
        old.transact(async |tx| tx.query(sql, &[]).await).await.unwrap();
        let rows = new.read(async |tx| tx.query("SELECT * FROM notes", &[]).await).await.unwrap();
        assert_eq!(rows.len(), 4);
    });
}

#[test]
fn after_a_contracting_step_the_old_program_is_refused() {
    for_each_lasting_store(async |place| {
        assert_eq!(applied(&place, THIRD).await, ["create_notes", "add_text", "drop_words"]);
        for old in [FIRST, SECOND] {
            let known = old.steps.len();
            let error = open(&place, old).await.unwrap_err();
            assert_eq!(error.code(), "STORE_SCHEMA_NEWER");
            let said =
                format!("the schema of notes needs a program that knows step 3; this one knows {known}");
            assert_eq!(error.to_string(), said);
        }
        assert_eq!(applied(&place, THIRD).await, [] as [&str; 0], "nothing was changed");
    });
}

#[test]
fn an_edited_step_is_refused() {
    for_each_lasting_store(async |place| {
        open(&place, FIRST).await.unwrap().close().await;
        for component in [EDITED, notes(&[FAIL, EXPAND])] {
            let error = open(&place, component).await.unwrap_err();
            assert_eq!(error.code(), "STORE_MIGRATION_CHANGED");
            assert!(error.to_string().contains("create_notes"), "{error}");
        }
        let store = open(&place, FIRST).await.unwrap();
        insert(&store, 2).await;
        assert!(!exists(&store, "words").await);
    });
}

#[test]
fn a_failing_step_undoes_the_whole_run() {
    for_each_lasting_store(async |place| {
        let failed = async || {
            let error = open(&place, FAILING).await.unwrap_err();
            assert_eq!(error.code(), "STORE_MIGRATION_FAILED", "{error}");
            assert!(error.to_string().contains("fail"), "{error}");
            assert!(error.source().unwrap().to_string().contains("unique"), "{error:?}");
        };
        failed().await;
        assert!(files(&place).is_none_or(|files| files.is_empty()), "{:?}", files(&place));

        open(&place, FIRST).await.unwrap().close().await;
        failed().await;
        let (old, report) = place.options().component(FIRST).open_reporting().await.unwrap();
        assert_eq!((report.applied, of_notes(&report.present)), (vec![], vec!["create_notes".to_owned()]));
        for table in ["words", "half"] {
            assert!(!exists(&old, table).await, "{table}");
        }
        insert(&old, 2).await;
    });
}

#[test]
fn a_program_told_not_to_migrate_refuses_and_writes_nothing() {
    for_each_lasting_store(async |place| {
        let behind = async |component: Component| {
            let error = place.options().component(component).migrate(false).open().await.unwrap_err();
            assert_eq!(error.code(), "STORE_SCHEMA_BEHIND", "{error}");
            error.to_string()
        };
        behind(FIRST).await;
        assert!(files(&place).is_none_or(|files| files.is_empty()), "{:?}", files(&place));

        open(&place, FIRST).await.unwrap().close().await;
        let content = || place.file().map(|file| std::fs::read(file).unwrap());
        let before = content();
        let said = behind(SECOND).await;
        assert!(said.contains("notes") && said.contains('1') && said.contains('2'), "{said}");
        assert!(content() == before, "the file was written to");
        assert!(files(&place).is_none_or(|files| files == ["store.db"]), "{:?}", files(&place));
        let store = place.options().component(FIRST).migrate(false).open().await.unwrap();
        assert!(exists(&store, "notes").await && !exists(&store, "words").await);
    });
}

/// Migrates the store that it is told of; a failpoint ends it before the commit.
#[test]
fn migrating_child() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let options = mainstay_store::Options::new(std::env::var("STORE").unwrap()).component(THIRD);
    runtime.block_on(options.open()).unwrap();
    crash::say("migrated");
}

#[test]
fn a_crash_while_migrating_leaves_the_old_schema() {
    for_each_lasting_store(async |place| {
        open(&place, FIRST).await.unwrap().close().await;
        let child = Child::of("migrations::migrating_child").env("STORE", place.url());
        let mut crashed = child.clone().env("MAINSTAY_FAILPOINTS", "store.commit=abort").spawn().unwrap();
        let status = crashed.wait(Duration::from_secs(30)).unwrap();
        assert!(!status.success() && !crashed.said().contains(&"migrated".to_owned()), "{status}");

        let (old, report) = place.options().component(FIRST).open_reporting().await.unwrap();
        assert_eq!((report.applied, of_notes(&report.present)), (vec![], vec!["create_notes".to_owned()]));
        assert!(!exists(&old, "words").await);
        insert(&old, 2).await;
        old.close().await;
        assert_eq!(applied(&place, THIRD).await, ["add_text", "drop_words"]);
    });
}
