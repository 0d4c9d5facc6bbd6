//! What is written down about a process.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use mainstay_testkit::{
    crash::{self, Child},
    disk::{self, Counts, Operation, PowerLoss, trace},
};

use super::{DATABASE, LOG, PATIENCE, ROWS, Workspace};

#[test]
fn the_trace_replays_to_what_is_there() {
    let workspace = Workspace::new();
    let child = workspace.run(&workspace.disk(), "full");
    assert_eq!(child.said(), ["started", "done"]);
    let mut trace = trace::read(workspace.path("trace")).unwrap();
    let syncs =
        |operation: &&Operation| matches!(operation, Operation::Sync { .. } | Operation::SyncFolder { .. });
    let writes = |operation: &&Operation| match operation {
        Operation::Write { path, .. } => path != Path::new("ack"),
        _ => false,
    };
    let counted = |filter: &dyn Fn(&&Operation) -> bool| trace.iter().filter(filter).count() as u64;
    assert_eq!(workspace.counts(), Counts { writes: counted(&writes), syncs: counted(&syncs) });
    assert_eq!(workspace.acknowledged(), Vec::from_iter(0..ROWS));

    // With everything synced an image is the folder itself.
    for name in [DATABASE, LOG] {
        trace.push(Operation::Sync { path: name.into() });
    }
    let image = workspace.path("image");
    PowerLoss::new(&trace, 1).image_at(trace.len(), &image).unwrap();
    for name in [DATABASE, LOG] {
        let (replayed, real) =
            (std::fs::read(image.join(name)).unwrap(), std::fs::read(workspace.root().join(name)));
        assert!(replayed == real.unwrap(), "{name} differs");
    }
}

#[test]
fn the_trace_follows_files_through_renames() {
    let workspace = Workspace::new();
    std::fs::write(workspace.root().join("closed"), "").unwrap();
    let mut child = Child::of("disk::traces::child_renames").disk(&workspace.disk()).spawn().unwrap();
    child.wait_for_success(PATIENCE).unwrap();
    let path = |name: &str| PathBuf::from(name);
    let write =
        |name, offset, bytes: &[u8]| Operation::Write { path: path(name), offset, bytes: bytes.to_vec() };
    let expected = [
        Operation::Create { path: path("draft") },
        write("draft", 0, b"one"),
        Operation::Sync { path: path("draft") },
        Operation::Rename { from: path("draft"), to: path("final") },
        write("final", 3, b"two"),
        Operation::SyncFolder { path: path("") },
        Operation::Open { path: path("final") },
        write("final", 6, b"three"),
        Operation::Truncate { path: path("final"), length: 4 },
        Operation::Open { path: path("final") },
        Operation::Truncate { path: path("final"), length: 0 },
        Operation::Unlink { path: path("final") },
    ];
    assert_eq!(trace::read(workspace.path("trace")).unwrap(), expected);
}

#[test]
fn child_renames() {
    if !crash::is_child() {
        return;
    }
    let root = disk::root().unwrap();
    let (draft, last) = (root.join("draft"), root.join("final"));
    let mut file = File::create(&draft).unwrap();
    file.write_all(b"one").unwrap();
    file.sync_all().unwrap();
    std::fs::rename(&draft, &last).unwrap();
    file.write_all(b"two").unwrap();
    File::open(&root).unwrap().sync_all().unwrap();
    let mut appended = File::options().append(true).open(&last).unwrap();
    appended.write_all(b"three").unwrap();
    appended.set_len(4).unwrap();
    let mut overwritten = File::create(&last).unwrap();
    std::fs::remove_file(&last).unwrap();
    overwritten.write_all(b"into nothing").unwrap();

    // The number of a closed file is given to the next one, which is none of ours.
    let watched = File::open(root.join("closed")).unwrap();
    drop(watched);
    let mut outside = File::create(root.parent().unwrap().join("outside")).unwrap();
    outside.write_all(b"elsewhere").unwrap();
}
