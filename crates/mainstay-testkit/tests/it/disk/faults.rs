//! Writes and syncs that fail.

use std::{fs::File, io::Write, path::Path};

use mainstay_testkit::{
    crash::{self, Child},
    disk::{self, Counts, Fault, Operation, trace},
};

use super::{LOG, PATIENCE, ROWS, Workspace, stored};

/// Runs the workload with a fault and returns the error it met, after checking that nothing acknowledged is lost and
/// nothing is half there.
fn error_with(fault: Fault) -> Option<String> {
    let workspace = Workspace::new();
    let child = workspace.run(&workspace.disk().fault(fault), "full");
    let stored = stored(&workspace.root());
    let acknowledged = workspace.acknowledged();
    assert!(acknowledged.iter().all(|id| stored.contains(id)), "{fault}: {acknowledged:?} of {stored:?}");
    child.said().iter().find_map(|said| said.strip_prefix("error ").map(str::to_owned))
}

/// The writes of an undisturbed run that go to the log and not to shared memory, the database or its journal,
/// counted like faults are.
fn writes_to_the_log() -> Vec<u64> {
    let workspace = Workspace::new();
    workspace.run(&workspace.disk(), "full");
    let written = |operation: Operation| match operation {
        Operation::Write { path, .. } if path != Path::new("ack") => Some(path),
        _ => None,
    };
    let writes = trace::read(workspace.path("trace")).unwrap().into_iter().filter_map(written);
    (1..).zip(writes).filter(|(_, path)| path == Path::new(LOG)).map(|(number, _)| number).collect()
}

#[test]
fn a_full_disk_is_an_error_at_every_write_to_the_log() {
    let writes = writes_to_the_log();
    assert!(writes.len() > ROWS as usize, "each transaction writes: {writes:?}");
    for &first in writes.iter().step_by(writes.len() / 10).chain(writes.last()) {
        let error = error_with(Fault::enospc(first)).unwrap_or_default();
        assert!(error.contains("disk is full"), "write {first} failed and SQLite said: {error:?}");
    }
    assert_eq!(error_with(Fault::enospc(100_000)), None, "a fault beyond the end never strikes");
}

/// SQLite keeps quiet when only a checkpoint fails, hence no error is asked for.
#[test]
fn a_full_disk_anywhere_loses_nothing() {
    let last = *writes_to_the_log().last().unwrap();
    for first in (1..12).chain((12..last).step_by(60)) {
        error_with(Fault::enospc(first));
        error_with(Fault::short(first));
    }
}

#[test]
fn each_kind_of_fault_strikes() {
    let writes = writes_to_the_log();
    let middle = writes[writes.len() / 2];
    let error = |fault| error_with(fault).unwrap_or_default();
    assert!(error(Fault::enospc(middle).for_ever()).contains("disk is full"));
    assert!(error(Fault::short(middle)).contains("disk is full"));
    assert!(error(Fault::eio(middle).times(3)).contains("disk I/O error"));
    // A sync that fails once may be one of a checkpoint, about which SQLite keeps quiet.
    assert!(error(Fault::eio_sync(20).for_ever()).contains("disk I/O error"));
}

#[test]
fn faults_strike_at_their_number_and_as_often_as_they_say() {
    for (fault, failures) in [
        (Fault::enospc(3), vec![3]),
        (Fault::eio(2).times(3), vec![2, 3, 4]),
        (Fault::eio(8).for_ever(), vec![8, 9, 10]),
        (Fault::short(4), vec![4, 5]),
        (Fault::eio_sync(6).times(2), vec![6, 7]),
    ] {
        let workspace = Workspace::new();
        let mut child = Child::of("disk::faults::child_writes_ten_times")
            .disk(&workspace.disk().fault(fault))
            .spawn()
            .unwrap();
        child.wait_for_success(PATIENCE).unwrap();
        let expected: Vec<String> = failures.iter().map(ToString::to_string).collect();
        assert_eq!(child.acknowledged(), expected, "{fault}");
        assert_eq!(workspace.counts(), Counts { writes: 10, syncs: 10 });
        // Nothing of a failed write is there, and half of a short one.
        let length = std::fs::metadata(workspace.root().join("file")).unwrap().len();
        let lost = match fault.to_string().split_once('@').unwrap().0 {
            "eio-sync" => 0,
            "short" => 5 + 10,
            _ => 10 * failures.len() as u64,
        };
        assert_eq!(length, 100 - lost, "{fault}");
    }
}

/// Acknowledges the numbers of those that did not do all that they should.
#[test]
fn child_writes_ten_times() {
    if !crash::is_child() {
        return;
    }
    let mut file = File::create(disk::root().unwrap().join("file")).unwrap();
    for number in 1..=10 {
        let written = file.write(&[7; 10]);
        let synced = file.sync_data();
        if !matches!(written, Ok(10)) || synced.is_err() {
            crash::ack(number);
        }
    }
}
