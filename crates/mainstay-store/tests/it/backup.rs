//! Copies of a store that is in use, stores made from copies, and what a file keeps of what was deleted.

use mainstay_store::{Options, Store, Tx, backup, params};
use mainstay_testkit::postgres::Postgres;
use mainstay_testkit::stores::{Kind, Place, for_each_kind, for_each_lasting_store, for_each_store};
use std::path::Path;
use std::process::Command;

async fn fill(store: &Store) {
    let fill = async |tx: Tx| {
        tx.execute("CREATE TABLE notes (id BIGINT NOT NULL PRIMARY KEY, text TEXT NOT NULL)", &[]).await?;
        for id in 0..50 {
            tx.execute("INSERT INTO notes (id, text) VALUES ($1, $2)", params![id, "a note"]).await?;
        }
        Ok(())
    };
    store.transact(fill).await.unwrap();
}

async fn count(store: &Store) -> i64 {
    store.read(async |tx| tx.query_one("SELECT count(*) FROM notes", &[]).await?.get(0)).await.unwrap()
}

#[test]
fn a_copy_is_a_store_of_its_own() {
    for_each_lasting_store(async |place| {
        let store = place.open().await;
        fill(&store).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("copy");
        assert!(store.backup(&file).await.unwrap() > 1_000);
        store.transact(async |tx| tx.execute("DELETE FROM notes WHERE id > 9", &[]).await).await.unwrap();

        let new = Place::new(place.kind());
        let restoring = backup::restore(&file, new.options()).await.unwrap();
        if let Some(target) = new.file() {
            assert!(!target.exists(), "it has no name before it is finished");
        }
        restoring.finish().await.unwrap();
        let copy = new.open().await;
        assert_eq!((count(&copy).await, count(&store).await), (50, 10));
        assert_eq!(copy.check_integrity().await.unwrap().is_some(), place.kind() == Kind::SqliteFile);

        let again = backup::restore(&file, new.options()).await.unwrap_err();
        assert_eq!(again.code(), "STORE_TARGET_EXISTS", "{again}");
        assert_eq!(store.backup(&file).await.unwrap_err().code(), "STORE_TARGET_EXISTS");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    });
}

/// A copy has tokens that were revoked since.
#[test]
fn a_copy_is_not_opened_before_it_was_restored() {
    for_each_lasting_store(async |place| {
        let store = place.open().await;
        fill(&store).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("copy");
        backup::backup(place.url(), &file).await.unwrap();
        let new = Place::new(place.kind());
        let restoring = backup::restore(&file, new.options()).await.unwrap();
        // A file is in its place only when it is finished, but a copy of a file is a database.
        let unfinished = match place.kind() {
            Kind::Postgres => new.options(),
            _ => Options::new(format!("sqlite:{}", file.display())),
        };
        for options in [unfinished.clone(), unfinished.clone().migrate(false)] {
            let refused = options.open().await.unwrap_err();
            assert_eq!((refused.code(), refused.is_retryable()), ("STORE_NOT_RESTORED", false), "{refused}");
        }
        // As a process that has died leaves it.
        std::mem::forget(restoring);
        if place.kind() == Kind::Postgres {
            let again = backup::restore(&file, new.options()).await.unwrap_err();
            assert_eq!(again.code(), "STORE_TARGET_EXISTS", "{again}");
            // A copy of a database that is not finished is one.
            backup::backup(new.url(), &folder.path().join("other")).await.unwrap();
        }
        let third = Place::new(place.kind());
        backup::restore(&file, third.options()).await.unwrap().finish().await.unwrap();
        let restored = third.open().await;
        assert_eq!(count(&restored).await, 50);
        // What was restored is a store like any other.
        let file = folder.path().join("second");
        restored.backup(&file).await.unwrap();
        let fourth = Place::new(place.kind());
        backup::restore(&file, fourth.options()).await.unwrap().finish().await.unwrap();
        assert_eq!(count(&fourth.open().await).await, 50);
    });
}

/// The mark is there before anything that it is about.
#[test]
fn a_restore_that_died_before_it_put_anything_there_can_begin_again() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let store = place.open().await;
        fill(&store).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("copy");
        store.backup(&file).await.unwrap();
        let database = Postgres::shared().unwrap().database().unwrap();
        database.run("CREATE TABLE mainstay_restore_pending (marked_at BIGINT NOT NULL)").unwrap();
        let new = || Options::new(database.url()).connections(4);
        assert_eq!(new().open().await.unwrap_err().code(), "STORE_NOT_RESTORED");
        backup::restore(&file, new()).await.unwrap().finish().await.unwrap();
        assert_eq!(count(&new().open().await.unwrap()).await, 50);
    });
}

#[test]
fn a_restore_that_is_abandoned_leaves_nothing() {
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let store = place.open().await;
        fill(&store).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("copy");
        store.backup(&file).await.unwrap();
        let options = Options::new(format!("sqlite:{}", folder.path().join("new.db").display()));
        let restoring = backup::restore(&file, options).await.unwrap();
        restoring.options().open().await.unwrap().close().await;
        drop(restoring);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    });
}

#[test]
fn a_store_in_memory_is_copied_by_its_own_process() {
    for_each_kind(&[Kind::SqliteMemory], async |place| {
        let store = place.open().await;
        fill(&store).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("copy");
        store.backup(&file).await.unwrap();
        let new = folder.path().join("new.db");
        let options = Options::new(format!("sqlite:{}", new.display()));
        backup::restore(&file, options.clone()).await.unwrap().finish().await.unwrap();
        assert_eq!(count(&options.open().await.unwrap()).await, 50);
        let other = backup::backup("sqlite::memory:", &folder.path().join("other")).await.unwrap_err();
        assert_eq!(other.code(), "STORE_OPEN_FAILED");
    });
}

#[test]
fn the_database_is_asked_about_itself() {
    for_each_store(async |place| {
        let store = place.open().await;
        fill(&store).await;
        let found = store.check_integrity().await.unwrap();
        let expected = if place.kind() == Kind::Postgres { None } else { Some(Vec::new()) };
        assert_eq!(found, expected);
        assert!(store.empty_log().await.unwrap());
    });
}

#[test]
fn a_damaged_file_says_so() {
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let store = place.open().await;
        fill(&store).await;
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'notes'";
        let root = store.read(async |tx| tx.query_one(root, &[]).await?.get::<u64>(0)).await.unwrap();
        store.close().await;
        let file = place.file().unwrap();
        let mut bytes = std::fs::read(&file).unwrap();
        // The number of cells of the table's first page.
        bytes[(root as usize - 1) * 4096 + 4] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let store = place.open().await;
        assert!(!store.check_integrity().await.unwrap().unwrap().is_empty());
    });
}

fn is_in(text: &str, file: &Path) -> bool {
    // Another process looks: closing the file here would drop SQLite's locks on it.
    file.exists() && Command::new("grep").args(["-qaF", text]).arg(file).status().unwrap().success()
}

#[test]
fn what_was_deleted_is_gone_from_the_file_and_from_an_empty_log() {
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let store = place.open().await;
        fill(&store).await;
        let insert = "INSERT INTO notes (id, text) VALUES (100, 'a secret')";
        store.transact(async |tx| tx.execute(insert, &[]).await).await.unwrap();
        let (file, wal) = (place.file().unwrap(), place.folder().unwrap().join("store.db-wal"));
        assert!(store.empty_log().await.unwrap());
        assert_eq!((is_in("a secret", &file), is_in("a secret", &wal)), (true, false));
        store.transact(async |tx| tx.execute("DELETE FROM notes WHERE id = 100", &[]).await).await.unwrap();
        assert!(store.empty_log().await.unwrap());
        assert_eq!((is_in("a secret", &file), is_in("a secret", &wal)), (false, false));
    });
}
