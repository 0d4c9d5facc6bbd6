//! Killing a server's process tree.

use std::fs;

use rustix::process::{Pid, RawPid, Signal, kill_process};

/// Kills a postmaster and its children in one stroke and returns the children.
///
/// A signal to its process group would not do: every PostgreSQL process leads a group of its own. The postmaster
/// is held first, so that it neither makes new children nor reacts to the death of one.
pub(super) fn kill_tree(postmaster: u32) -> Vec<Pid> {
    let Some(postmaster) = Pid::from_raw(postmaster as RawPid) else { return Vec::new() };
    if kill_process(postmaster, Signal::STOP).is_err() {
        return Vec::new();
    }
    // A fork under way is finished once the state says stopped.
    while state(postmaster).is_some_and(|(state, _)| !matches!(state, 'T' | 'Z')) {
        std::thread::yield_now();
    }
    let children = children(postmaster);
    for process in children.iter().chain([&postmaster]) {
        let _ = kill_process(*process, Signal::KILL);
    }
    children
}

/// A zombie counts as dead: it holds nothing any more, and who should reap it is not for us to say.
pub(super) fn is_running(process: Pid) -> bool {
    state(process).is_some_and(|(state, _)| state != 'Z')
}

/// Empty where there is no `/proc`; there, children end by themselves on noticing the postmaster's death.
fn children(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|process| state(*process).is_some_and(|(_, of)| of == parent.as_raw_pid()))
        .collect()
}

/// State and parent, from `pid (name) state parent …`, where the name may hold anything.
fn state(process: Pid) -> Option<(char, RawPid)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
