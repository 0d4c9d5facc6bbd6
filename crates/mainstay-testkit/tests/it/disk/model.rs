//! The model of a power loss, on traces made by hand.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use mainstay_testkit::disk::{Image, Operation, PowerLoss};

const IMAGES: usize = 300;

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn create(path: &str) -> Operation {
    Operation::Create { path: path.into() }
}

fn write(path: &str, offset: u64, bytes: impl AsRef<[u8]>) -> Operation {
    Operation::Write { path: path.into(), offset, bytes: bytes.as_ref().to_vec() }
}

fn sync(path: &str) -> Operation {
    Operation::Sync { path: path.into() }
}

fn sync_folder(path: &str) -> Operation {
    Operation::SyncFolder { path: path.into() }
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::Rename { from: from.into(), to: to.into() }
}

fn files_of(folder: &Path) -> Files {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into(), std::fs::read(entry.path()).unwrap())).collect()
}

/// What different images find when the whole trace was done.
fn outcomes(trace: &[Operation]) -> BTreeSet<Files> {
    let folder = tempfile::tempdir().unwrap();
    let mut power_loss = PowerLoss::new(trace, 1);
    let make = |number: usize| {
        let into = folder.path().join(number.to_string());
        power_loss.image_at(trace.len(), &into).unwrap();
        files_of(&into)
    };
    (0..IMAGES).map(make).collect()
}

fn files<const N: usize>(files: [(&str, &[u8]); N]) -> Files {
    files.map(|(path, bytes)| (path.into(), bytes.to_vec())).into()
}

#[test]
fn what_is_synced_stays() {
    let trace = [create("a"), write("a", 0, "one"), write("a", 3, "two"), sync("a")];
    assert_eq!(outcomes(&trace), [files([("a", b"onetwo")])].into());
}

#[test]
fn what_is_not_synced_may_go_each_for_itself() {
    let trace = [create("a"), sync("a"), write("a", 0, "1"), write("a", 512, "2"), write("a", 1024, "3")];
    let kept =
        |file: &Files| [0, 512, 1024].map(|at| file[Path::new("a")].get(at).is_some_and(|&byte| byte != 0));
    let kept: BTreeSet<_> = outcomes(&trace).iter().map(kept).collect();
    assert_eq!(kept.len(), 8, "every combination is found: {kept:?}");
}

#[test]
fn a_write_may_be_torn_between_sectors_only() {
    let trace = [create("a"), write("a", 0, [1; 2048]), sync("a"), write("a", 100, [2; 1500])];
    let outcomes = outcomes(&trace);
    assert!(outcomes.len() > 4, "torn in different places: {}", outcomes.len());
    for outcome in outcomes {
        let bytes = &outcome[Path::new("a")];
        assert!(bytes[..100].iter().chain(&bytes[1600..]).all(|&byte| byte == 1), "the rest is untouched");
        for sector in [100..512, 512..1024, 1024..1536, 1536..1600] {
            assert!(
                bytes[sector.clone()].iter().all(|&byte| byte == bytes[sector.start]),
                "a sector is whole"
            );
        }
    }
}

#[test]
fn a_sector_is_as_it_once_was_in_memory() {
    let trace = [create("a"), sync("a"), write("a", 0, "1"), write("a", 1, "2")];
    let expected: [&[u8]; 3] = [b"", b"1", b"12"];
    assert_eq!(outcomes(&trace), expected.map(|bytes| files([("a", bytes)])).into());
}

#[test]
fn a_new_file_may_be_missing_until_it_or_its_folder_is_synced() {
    assert_eq!(outcomes(&[create("a")]), [files([]), files([("a", b"")])].into());
    assert_eq!(outcomes(&[create("a"), sync_folder("")]), [files([("a", b"")])].into());
    assert_eq!(outcomes(&[create("a"), sync_folder("elsewhere")]), [files([]), files([("a", b"")])].into());
}

#[test]
fn a_removed_file_may_be_back() {
    let removed = [create("a"), sync("a"), Operation::Unlink { path: "a".into() }];
    assert_eq!(outcomes(&removed), [files([]), files([("a", b"")])].into());
    assert_eq!(outcomes(&[&removed[..], &[sync_folder("")]].concat()), [files([])].into());
}

#[test]
fn a_rename_happened_or_not_and_content_may_be_missing() {
    let written = [create("a"), write("a", 0, "old"), sync("a"), create("b"), write("b", 0, "new")];
    let safe = [&written[..], &[sync("b"), rename("b", "a")]].concat();
    assert_eq!(outcomes(&safe), [files([("a", b"old"), ("b", b"new")]), files([("a", b"new")])].into());
    // The usual mistake: the new name is there and its content is not.
    let hasty = [&written[..], &[rename("b", "a")]].concat();
    assert!(outcomes(&hasty).contains(&files([("a", b"")])));
}

#[test]
fn a_truncation_may_be_undone() {
    let trace =
        [create("a"), write("a", 0, "long"), sync("a"), Operation::Truncate { path: "a".into(), length: 1 }];
    assert_eq!(outcomes(&trace), [files([("a", b"l")]), files([("a", b"long")])].into());
}

#[test]
fn acknowledgements_are_those_before_the_cut_and_no_file() {
    let trace =
        [create("ack"), write("ack", 0, "1\n"), create("a-shm"), sync("a-shm"), write("ack", 2, "2\n")];
    let folder = tempfile::tempdir().unwrap();
    let image = PowerLoss::new(&trace, 1).image_at(4, folder.path()).unwrap();
    assert_eq!(image, Image { acknowledged: b"1\n".to_vec(), cut: 4 });
    assert_eq!(image.acknowledged_lines(), ["1"]);
    assert_eq!(files_of(folder.path()), files([]), "neither the acknowledgements nor shared memory");
}

#[test]
fn files_from_before_the_trace_must_be_given() {
    let trace = [Operation::Open { path: "old".into() }, write("old", 0, "x")];
    let (before, first, second) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let error = PowerLoss::new(&trace, 1).image_at(2, first.path()).unwrap_err();
    assert!(error.to_string().contains("before the trace began"), "{error}");

    std::fs::write(before.path().join("old"), "abc").unwrap();
    let mut power_loss = PowerLoss::new(&trace, 1).over(before.path());
    power_loss.image_at(0, second.path()).unwrap();
    assert_eq!(files_of(second.path()), files([("old", b"abc")]));
}

#[test]
fn a_seed_gives_the_same_images_and_cuts_are_many() {
    let trace: Vec<Operation> = std::iter::once(create("a"))
        .chain((0..20).flat_map(|n| [write("a", n * 512, [7; 512]), sync("a"), write("ack", n, ".")]))
        .collect();
    let images = |seed| {
        let folder = tempfile::tempdir().unwrap();
        let mut power_loss = PowerLoss::new(&trace, seed);
        let make = |number: usize| {
            let into = folder.path().join(number.to_string());
            (power_loss.image(&into).unwrap().cut, files_of(&into))
        };
        (0..IMAGES).map(make).collect::<Vec<_>>()
    };
    let first = images(1);
    assert_eq!(first, images(1));
    assert_ne!(first, images(2));
    let cuts: BTreeSet<usize> = first.iter().map(|(cut, _)| *cut).collect();
    assert!(cuts.len() > trace.len() / 2, "the power goes at many moments: {cuts:?}");
}
