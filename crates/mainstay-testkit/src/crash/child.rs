//! What the child itself calls.

use std::{fmt::Display, io::Read, sync::Once};

use rustix::process::{Signal, getpid, kill_process};

use super::{PREFIX, STARTED, VARIABLE};

/// Whether this process is a child of a test; a test function that is meant for a child returns at once when not.
///
/// In a child this also calls [`die_with_parent`].
pub fn is_child() -> bool {
    let child = std::env::var_os(VARIABLE).is_some();
    if child {
        die_with_parent();
    }
    child
}

/// Ends this process when its parent ends, however the parent ends: the parent holds the other end of our input.
pub fn die_with_parent() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| {
            let mut input = std::io::stdin().lock();
            while matches!(input.read(&mut [0; 64]), Ok(1..)) {}
            // As abruptly as the parent would have done it; an orderly exit could wait for a lock.
            let _ = kill_process(getpid(), Signal::KILL);
        });
        say(STARTED);
    });
}

/// Tells the parent that `what` is done and must not be lost.
pub fn ack(what: impl Display) {
    say(format_args!("ack {what}"));
}

/// Tells the parent something, which it can wait for with [`Running::wait_for`](super::Running::wait_for).
pub fn say(what: impl Display) {
    let line = format!("{PREFIX}{what}\n");
    // Past the buffer of `std::io::stdout`, and in one call: a pipe takes a line of this length whole or not at
    // all, so a kill cannot tear it.
    let written = rustix::io::retry_on_intr(|| rustix::io::write(std::io::stdout(), line.as_bytes()));
    assert_eq!(written, Ok(line.len()), "the parent reads what its child says");
}
