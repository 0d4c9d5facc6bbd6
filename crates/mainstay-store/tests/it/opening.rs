//! What may be opened as a SQLite store, by whom, and what is left where it may not.

use mainstay_store::migrations::{Component, Script, Step};
use mainstay_store::{Error, Options, Store, params};
use mainstay_testkit::crash::{self, Child};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// A folder and the database in it.
struct Home {
    folder: TempDir,
    file: PathBuf,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store.db");
        Self { folder, file }
    }

    fn url(&self) -> String {
        url(&self.file)
    }

    /// A store with one table and one row, closed again.
    async fn with_note() -> Self {
        let home = Self::new();
        let store = Store::open(&home.url()).await.unwrap();
        write_note(&store).await;
        store.close().await;
        home
    }

    /// The names of all files.
    fn listing(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn url(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

async fn write_note(store: &Store) {
    let work = async |tx: mainstay_store::Tx| {
        tx.execute("CREATE TABLE IF NOT EXISTS notes (id BIGINT PRIMARY KEY)", &[]).await?;
        tx.execute("INSERT INTO notes (id) SELECT coalesce(max(id), 0) + 1 FROM notes", params![]).await
    };
    store.transact(work).await.unwrap();
}

async fn notes(store: &Store) -> i64 {
    store.read(async |tx| tx.query_one("SELECT count(*) FROM notes", &[]).await?.get(0)).await.unwrap()
}

async fn refused(url: &str) -> Error {
    Store::open(url).await.unwrap_err()
}

#[tokio::test]
async fn a_file_has_one_owner_and_the_second_hears_who() {
    let home = Home::with_note().await;
    let owner = Store::open(&home.url()).await.unwrap();
    let error = refused(&home.url()).await;
    assert_eq!(error.code(), "STORE_OWNED");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    write_note(&owner).await;
    drop(owner);
    assert_eq!(notes(&Store::open(&home.url()).await.unwrap()).await, 2);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_has_one_owner_by_whatever_name() {
    let home = Home::with_note().await;
    let link = home.folder.path().join("link.db");
    std::os::unix::fs::symlink(&home.file, &link).unwrap();
    let owner = Store::open(&home.url()).await.unwrap();
    assert_eq!(refused(&url(&link)).await.code(), "STORE_OWNED");
    owner.close().await;
    let owner = Store::open(&url(&link)).await.unwrap();
    assert_eq!(refused(&home.url()).await.code(), "STORE_OWNED");
    owner.close().await;
    assert_eq!(home.listing(), ["link.db", "store.db"]);
}

/// Opens the store that it is told of, writes, and waits for its end.
#[test]
fn owner() {
    if !crash::is_child() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open(&std::env::var("STORE").unwrap()).await.unwrap();
        write_note(&store).await;
        crash::say("written");
        std::future::pending::<()>().await;
    });
}

#[tokio::test]
async fn a_file_of_another_process_is_refused_until_that_process_is_gone() {
    let home = Home::new();
    let mut child = Child::of("opening::owner").env("STORE", home.url()).spawn().unwrap();
    child.wait_for("written", PATIENCE).unwrap();
    let error = refused(&home.url()).await;
    assert_eq!(error.code(), "STORE_OWNED");
    assert!(error.to_string().contains(&format!("process {} since 2", child.id())), "{error}");
    child.kill9().unwrap();
    let store = Store::open(&home.url()).await.unwrap();
    assert_eq!(notes(&store).await, 1);
    store.close().await;
    assert_eq!(home.listing(), ["store.db"], "what the killed one left is cleared up");
}

/// Without them another program that opens the file, reads and closes it believes to be its last user, and removes the
/// log with all that is not yet in the file.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_refused_opening_leaves_the_owners_locks_alone() {
    use std::os::unix::fs::MetadataExt;
    let home = Home::with_note().await;
    let _owner = Store::open(&home.url()).await.unwrap();
    let holder = format!(" {} ", std::process::id());
    let inode = format!(":{} ", fs::metadata(&home.file).unwrap().ino());
    let locks = || {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().filter(|lock| lock.contains(&holder) && lock.contains(&inode)).count()
    };
    let before = locks();
    assert!(before > 0);
    assert_eq!(refused(&home.url()).await.code(), "STORE_OWNED");
    assert_eq!(locks(), before);
}

#[tokio::test]
async fn a_closed_store_leaves_one_file() {
    let home = Home::with_note().await;
    assert_eq!(home.listing(), ["store.db"]);
    let store = Store::open(&home.url()).await.unwrap();
    write_note(&store).await;
    drop(store);
    assert_eq!(home.listing(), ["store.db"], "dropped without closing");
}

#[tokio::test]
async fn a_place_that_cannot_hold_a_file_is_refused() {
    let home = Home::new();
    let missing = refused(&url(&home.folder.path().join("no/such/store.db"))).await;
    assert_eq!(missing.code(), "STORE_OPEN_FAILED");
    assert!(missing.to_string().contains("no/such does not exist"), "{missing}");

    let folder = refused(&url(home.folder.path())).await;
    assert_eq!(folder.code(), "STORE_OPEN_FAILED");
    assert!(folder.to_string().contains("is a folder"), "{folder}");

    fs::write(home.folder.path().join("file"), "").unwrap();
    let below = refused(&url(&home.folder.path().join("file/store.db"))).await;
    assert_eq!(below.code(), "STORE_OPEN_FAILED");
    assert_eq!(home.listing(), ["file"]);

    // Nobody can make a file there, root included.
    let unwritable = refused("sqlite:/proc/store.db").await;
    assert_eq!(unwritable.code(), "STORE_OPEN_FAILED");
    assert!(unwritable.to_string().contains("/proc/store.db"), "{unwritable}");
}

#[tokio::test]
async fn a_file_that_is_not_sqlite_is_left_as_it_is() {
    let whole = fs::read(&Home::with_note().await.file).unwrap();
    let mut scribbled = whole.clone();
    scribbled[20..60].fill(0xff);
    let cases: [(&str, &[u8]); 6] = [
        ("text", b"Dear diary, today I opened a store and wrote something down."),
        ("one byte", b"S"),
        ("a header cut short", &whole[..10]),
        ("a header and nothing else", &whole[..16]),
        ("a first page cut short", &whole[..600]),
        ("a header scribbled over", &scribbled),
    ];
    for (what, content) in cases {
        let home = Home::new();
        fs::write(&home.file, content).unwrap();
        let error = refused(&home.url()).await;
        assert!(["STORE_NOT_A_DATABASE", "STORE_CORRUPT"].contains(&error.code()), "{what}: {error}");
        assert!(fs::read(&home.file).unwrap() == content, "{what} was changed");
        assert_eq!(home.listing(), ["store.db"], "{what}");
    }
}

#[tokio::test]
async fn an_empty_file_is_a_new_database() {
    let home = Home::new();
    fs::write(&home.file, "").unwrap();
    let store = Store::open(&home.url()).await.unwrap();
    write_note(&store).await;
    store.close().await;
    assert_eq!(notes(&Store::open(&home.url()).await.unwrap()).await, 1);
}

const EXPANDED: Step =
    Step { name: "create_a", script: Script::Both(&["CREATE TABLE a (id BIGINT)"]), needs: 0 };
const CONTRACTED: Step = Step { name: "drop_a", script: Script::Both(&["DROP TABLE a"]), needs: 2 };
const OLD: Component = Component { name: "part", steps: &[EXPANDED] };
const NEW: Component = Component { name: "part", steps: &[EXPANDED, CONTRACTED] };

#[tokio::test]
async fn a_file_of_a_newer_program_is_left_as_it_is() {
    let home = Home::new();
    Options::new(home.url()).component(NEW).open().await.unwrap().close().await;
    let before = fs::read(&home.file).unwrap();
    let error = Options::new(home.url()).component(OLD).open().await.unwrap_err();
    assert_eq!(error.code(), "STORE_SCHEMA_NEWER");
    assert_eq!(error.to_string(), "the schema of part needs a program that knows step 2; this one knows 1");
    assert!(fs::read(&home.file).unwrap() == before);
    assert_eq!(home.listing(), ["store.db"]);
}

/// The modes of the files in a folder, by name.
#[cfg(unix)]
fn modes(folder: &Path) -> Vec<(String, u32)> {
    use std::os::unix::fs::PermissionsExt;
    let mode = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().permissions().mode() & 0o777)
    };
    let mut modes: Vec<_> = fs::read_dir(folder).unwrap().map(mode).collect();
    modes.sort();
    modes
}

#[cfg(unix)]
#[tokio::test]
async fn every_file_of_a_store_is_its_owners_alone() {
    let home = Home::new();
    let store = Store::open(&home.url()).await.unwrap();
    write_note(&store).await;
    store.backup(&home.folder.path().join("copy")).await.unwrap();
    let names = ["copy", "store.db", "store.db-owner", "store.db-shm", "store.db-wal"];
    assert_eq!(modes(home.folder.path()), names.map(|name| (name.to_owned(), 0o600)));
    store.close().await;

    let (copy, restored) = (home.folder.path().join("copy"), home.folder.path().join("restored.db"));
    let restoring = mainstay_store::backup::restore(&copy, Options::new(url(&restored))).await.unwrap();
    restoring.finish().await.unwrap();
    assert!(modes(home.folder.path()).contains(&("restored.db".to_owned(), 0o600)));
}

/// A mode that an operator chose stays, and holds for the write-ahead log too.
#[cfg(unix)]
#[tokio::test]
async fn a_wider_mode_of_a_store_is_left_as_it_is() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::with_note().await;
    fs::set_permissions(&home.file, PermissionsExt::from_mode(0o640)).unwrap();
    let store = Store::open(&home.url()).await.unwrap();
    write_note(&store).await;
    let wide = |name: &str| (name.to_owned(), 0o640);
    assert_eq!(
        modes(home.folder.path()),
        [wide("store.db"), ("store.db-owner".to_owned(), 0o600), wide("store.db-shm"), wide("store.db-wal")]
    );
}
