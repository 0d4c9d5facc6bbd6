//! Single flipped bits: every change of an event is found by `verify`, and no changed event is served.

use super::{fill, kinds, tamper, verify};
use crate::support::open;
use mainstay_events::{COMPONENT, Event, Log, Selection};
use mainstay_store::{Options, Tx, Value};
use mainstay_testkit::stores::{Kind, for_each_kind};
use rusqlite::OpenFlags;
use std::collections::BTreeMap;
use std::path::Path;

fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}

/// SplitMix64: the same places on every run.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % most as u64) as usize
    }
}

/// Every event as it is served, by position.
type Served = BTreeMap<u64, String>;

/// Reads everything that can be had, by position and by id, past what is refused.
async fn served(log: &Log, ids: &[String]) -> Served {
    let mut served = Served::new();
    let mut take = |event: &Event| drop(served.insert(event.position(), format!("{event:?}")));
    let mut after = 0;
    while after < 60 {
        match log.read(&Selection::all().after(after), 8).await {
            Ok(page) => {
                page.events.iter().for_each(&mut take);
                after = page.next.unwrap_or(60).max(after + 1);
            }
            Err(_) => {
                if let Ok(page) = log.read(&Selection::all().after(after).until(after + 1), 1).await {
                    page.events.iter().for_each(&mut take);
                }
                after += 1;
            }
        }
    }
    for id in ids {
        if let Ok(Some(event)) = log.find(id).await {
            take(&event);
        }
    }
    for tag in ["x", "large", "erase:1"] {
        if let Ok(page) = log.read(&Selection::all().tagged(tag).unwrap(), 100).await {
            page.events.iter().for_each(&mut take);
        }
    }
    served
}

/// What SQLite itself finds in a table.
fn raw(path: &Path, table: &str) -> Option<Vec<Vec<rusqlite::types::Value>>> {
    let db = rusqlite::Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
    let mut statement = db.prepare(&format!("SELECT * FROM {table}")).ok()?;
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect()).ok()?;
    rows.collect::<Result<_, _>>().ok()
}

/// What became of a flip.
#[derive(Debug, Default)]
struct Tally {
    events: u32,
    index: u32,
    scopes: u32,
    unopenable: u32,
    of_no_consequence: u32,
}

#[test]
fn no_flipped_bit_of_a_file_is_served_or_overlooked() {
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let log = open(&place).await;
        fill(&log).await;
        let ids: Vec<String> = log
            .read(&Selection::all(), 100)
            .await
            .unwrap()
            .events
            .iter()
            .map(|one| one.id().to_owned())
            .collect();
        let original = served(&log, &ids).await;
        assert_eq!(original.len(), 50);
        // So that the index is in the file, and not in memory only.
        assert!(log.verify(|_| ()).await.unwrap().is_sound());
        log.store().clone().close().await;
        let file = place.file().unwrap();
        let bytes = std::fs::read(&file).unwrap();
        let tables = ["mainstay_events", "mainstay_event_terms", "mainstay_scopes"];
        let truth = tables.map(|table| raw(&file, table));

        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("flipped.db");
        let mut random = Seeded(42);
        let mut tally = Tally::default();
        for flip in 0..if is_long() { 1_000 } else { 150 } {
            let (at, bit) = (random.below(bytes.len()), random.below(8));
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            for suffix in ["-wal", "-shm", "-journal"] {
                drop(std::fs::remove_file(folder.path().join(format!("flipped.db{suffix}"))));
            }
            std::fs::write(&copy, &flipped).unwrap();
            let now = tables.map(|table| raw(&copy, table));
            let is_changed = [0, 1, 2].map(|table| now[table] != truth[table]);

            let options = Options::new(format!("sqlite:{}", copy.display())).component(COMPONENT).readers(1);
            let what = format!("flip {flip}: bit {bit} of byte {at}, which changed {is_changed:?}");
            let Ok(store) = options.open().await else {
                tally.unopenable += 1;
                continue;
            };
            let Ok(log) = Log::open(&store).await else {
                tally.unopenable += 1;
                store.close().await;
                continue;
            };
            for (position, event) in served(&log, &ids).await {
                assert_eq!(Some(&event), original.get(&position), "{what}, at {position}");
            }
            // An error is a report too.
            let is_found = log.verify(|_| ()).await.map_or(true, |report| !report.is_sound());
            assert!(is_found || is_changed == [false; 3], "{what} was overlooked");
            match is_changed {
                [true, ..] => tally.events += 1,
                [_, true, _] => tally.index += 1,
                [_, _, true] => tally.scopes += 1,
                _ => tally.of_no_consequence += 1,
            }
            store.close().await;
        }
        eprintln!("{tally:?}");
        assert!(tally.events > 20 && tally.index > 5, "the flips hit too little: {tally:?}");
    });
}

#[test]
fn a_payload_of_another_type_is_not_taken_for_an_erased_one() {
    // In a record of SQLite the type of a blob is even and that of a text one more: one bit, and the same length.
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let log = open(&place).await;
        log.append(super::saying("E", "y")).await.unwrap();
        log.store().clone().close().await;
        let file = place.file().unwrap();
        let db = rusqlite::Connection::open(&file).unwrap();
        let header: Vec<u8> =
            db.query_row("SELECT header FROM mainstay_events", [], |row| row.get(0)).unwrap();
        drop(db);
        let mut bytes = std::fs::read(&file).unwrap();
        let at = bytes.windows(header.len()).position(|window| window == header).unwrap();
        // The type of the payload stands before the header's bytes.
        bytes[at - 1] ^= 1;
        std::fs::write(&file, &bytes).unwrap();

        let log = open(&place).await;
        let error = log.read(&Selection::all(), 10).await.unwrap_err();
        assert_eq!(error.code(), "LOG_CORRUPT", "{error}");
        assert_eq!(kinds(&verify(&log).await), [(1, mainstay_events::Damage::Event)]);
    });
}

#[test]
fn no_flipped_bit_of_a_row_is_served_or_overlooked() {
    for_each_kind(&[Kind::SqliteMemory, Kind::Postgres], async |place| {
        let log = open(&place).await;
        fill(&log).await;
        let original = served(&log, &[]).await;
        let mut random = Seeded(7);
        for flip in 0..if is_long() { 1_000 } else { 100 } {
            let position = random.below(50) as i64 + 1;
            let read = async |tx: Tx, position: i64| {
                let sql = "SELECT header, payload FROM mainstay_events WHERE position = $1";
                Ok(tx.query_one(sql, &[Value::Int(position)]).await?.into_values())
            };
            let before = log.store().read_with(position, read).await.unwrap();
            let mut after = before.clone();
            let Value::Blob(bytes) = &mut after[flip % 2] else { panic!("a blob") };
            let (at, bit) = (random.below(bytes.len()), random.below(8));
            bytes[at] ^= 1 << bit;
            let write = "UPDATE mainstay_events SET header = $2, payload = $3 WHERE position = $1";
            tamper(&log, write, &[&[Value::Int(position)], &after[..]].concat()).await;

            let what = format!("flip {flip}: bit {bit} of byte {at} at {position}");
            let error = log.read(&Selection::all().after(position as u64 - 1), 1).await.unwrap_err();
            assert_eq!(error.code(), "LOG_CORRUPT", "{what}");
            for (position, event) in served(&log, &[]).await {
                assert_eq!(Some(&event), original.get(&position), "{what}");
            }
            let found = kinds(&verify(&log).await);
            assert_eq!(found, [(position as u64, mainstay_events::Damage::Event)], "{what}");
            tamper(&log, write, &[&[Value::Int(position)], &before[..]].concat()).await;
        }
        assert!(verify(&log).await.is_sound());
    });
}
