//! A backup is the whole log; a restored log is a new epoch of it, and goes on.

use super::{fill, verify};
use crate::support::{all, append, open};
use mainstay_events::{COMPONENT, Log, Selection, restore, restore_with};
use mainstay_store::{Options, Store};
use mainstay_testkit::postgres::Postgres;
use mainstay_testkit::stores::{Place, for_each_lasting_store};

/// An empty place of the same kind.
fn elsewhere(place: &Place) -> Place {
    Place::new(place.kind())
}

#[test]
fn restore_into_a_new_place_and_go_on() {
    for_each_lasting_store(async |place| {
        let log = open(&place).await;
        fill(&log).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("night.backup");
        let written = log.store().backup(&file).await.unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().len(), written);
        let taken = log.store().backup(&file).await.unwrap_err();
        assert_eq!(taken.code(), "STORE_TARGET_EXISTS");
        let before: Vec<String> = all(&log).await.iter().map(|event| format!("{event:?}")).collect();

        // A consumer goes on beyond the backup, and keeps epoch and position.
        log.append(append("Lost", &[])).await.unwrap();
        let mut consumer = log.subscribe(Selection::all().after(50));
        assert_eq!(consumer.next().await.unwrap().position(), 51);
        let (epoch, position) = (consumer.epoch().unwrap(), consumer.position());
        assert_eq!((epoch, position), (1, 51));

        let new = elsewhere(&place);
        let restored = restore(&file, new.options().component(COMPONENT), |_| ()).await.unwrap();
        assert_eq!((restored.epoch, restored.report.head), (2, 50));
        assert_eq!(restored.report.problems, []);
        let again = restore(&file, new.options().component(COMPONENT), |_| ()).await.unwrap_err();
        assert_eq!(again.code(), "STORE_TARGET_EXISTS");

        let log = open(&new).await;
        let after: Vec<String> = all(&log).await.iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(after, before);
        let mut consumer = log.subscribe(Selection::all().after(position)).in_epoch(epoch);
        assert_eq!(consumer.next().await.unwrap_err().code(), "LOG_EPOCH_CHANGED");
        let goes_on = log.append(append("Goes on", &["x"])).await.unwrap();
        assert_eq!(goes_on.events[0].position, 51);
        let mut consumer = log.subscribe(Selection::all().after(50)).in_epoch(2);
        assert_eq!(consumer.next().await.unwrap().event_type(), "Goes on");
        assert_eq!(verify(&log).await.problems, []);
    });
}

/// What must hold again that was decided after the backup, such as that tokens are revoked.
#[test]
fn a_restore_that_could_not_be_prepared_is_opened_by_nobody() {
    for_each_lasting_store(async |place| {
        let log = open(&place).await;
        fill(&log).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("night.backup");
        log.store().backup(&file).await.unwrap();
        let new = elsewhere(&place);
        let fails = async |_: &Store| Err::<(), _>(mainstay_store::Error::application("cannot be revoked"));
        let options = || new.options().component(COMPONENT);
        let failed = restore_with(&file, options(), |_| (), fails).await.unwrap_err();
        assert_eq!(failed.code(), "STORE_ROLLED_BACK", "{failed}");
        match new.file() {
            Some(target) => assert!(!target.exists()),
            None => assert_eq!(options().open().await.unwrap_err().code(), "STORE_NOT_RESTORED"),
        }
    });
}

#[test]
fn a_backup_taken_under_load_is_whole() {
    for_each_lasting_store(async |place| {
        let log = open(&place).await;
        fill(&log).await;
        let folder = tempfile::tempdir().unwrap();
        let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
        let writing = tokio::spawn({
            let log = log.clone();
            async move {
                let mut last = 0;
                while stopped.try_recv().is_err() {
                    last = log.append(append("Meanwhile", &["x"])).await.unwrap().head;
                }
                last
            }
        });
        let mut heads = Vec::new();
        for number in 0..3 {
            let least = log.head().await.unwrap();
            let file = folder.path().join(format!("{number}.backup"));
            // By URL, as another process would while this one owns the file.
            mainstay_store::backup::backup(place.url(), &file).await.unwrap();
            let most = log.head().await.unwrap();
            heads.push((file, least..=most));
        }
        stop.send(()).unwrap();
        assert!(writing.await.unwrap() > 50);
        for (file, heads) in heads {
            let restored = restore(&file, elsewhere(&place).options().component(COMPONENT), |_| ()).await;
            let report = restored.unwrap().report;
            assert_eq!(report.problems, []);
            assert!(heads.contains(&report.head), "{} in {heads:?}", report.head);
        }
    });
}

#[test]
fn followers_notice_a_new_epoch() {
    for_each_lasting_store(async |place| {
        let log = open(&place).await;
        log.append(append("A", &[])).await.unwrap();
        let mut following = log.subscribe(Selection::all());
        assert_eq!(following.next().await.unwrap().position(), 1);
        let waiting = tokio::spawn(async move { following.next().await });
        assert_eq!(log.begin_epoch().await.unwrap(), 2);
        assert_eq!(waiting.await.unwrap().unwrap_err().code(), "LOG_EPOCH_CHANGED");
        assert_eq!(log.epoch().await.unwrap(), 2);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_where_a_restore_fails() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new.db");
    let options = || Options::new(format!("sqlite:{}", target.display())).component(COMPONENT);
    let missing = restore(&folder.path().join("none"), options(), |_| ()).await.unwrap_err();
    assert_eq!(missing.code(), "STORE_OPEN_FAILED");
    let letter = folder.path().join("letter");
    std::fs::write(&letter, "Dear database, I am a letter and would like to stay one. ".repeat(20)).unwrap();
    let other = restore(&letter, options(), |_| ()).await.unwrap_err();
    assert_eq!(other.code(), "STORE_NOT_A_DATABASE");
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["letter"]);

    let database = Postgres::shared().unwrap().database().unwrap();
    let options = || Options::new(database.url()).component(COMPONENT);
    let refused = restore(&letter, options(), |_| ()).await.unwrap_err();
    assert_eq!(refused.code(), "STORE_TOOL_FAILED", "{refused}");
    // It is still empty, and can become a store.
    let store = options().open().await.unwrap();
    assert_eq!(Log::open(&store).await.unwrap().head().await.unwrap(), 0);
}
