//! Children that are killed, stopped and orphaned.

use std::{
    io::Read,
    net::{TcpListener, TcpStream},
    os::unix::process::ExitStatusExt,
    time::Duration,
};

use mainstay_testkit::crash::{self, Child};

const PATIENCE: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;

/// How long silence must last to count as silence.
const SILENCE: Duration = Duration::from_millis(200);

/// What a pipe of Linux holds, twice, as the reader has a buffer too.
const PIPE_BYTES: usize = 2 * 65536;

#[test]
fn child_acks_for_ever() {
    if crash::is_child() {
        for number in 0_u64.. {
            crash::ack(number);
        }
    }
}

#[test]
fn child_acks_twice() {
    if crash::is_child() {
        crash::ack("one");
        crash::ack("two");
    }
}

#[test]
fn child_fails() {
    assert!(!crash::is_child(), "this is why");
}

/// Connects to the test and then keeps quiet; the connection ends with the process.
#[test]
fn child_holds_a_connection() {
    if crash::is_child() {
        let mut connection = TcpStream::connect(std::env::var("LISTENER").unwrap()).unwrap();
        crash::say("connected");
        connection.read_exact(&mut [0]).unwrap();
    }
}

#[test]
fn child_with_a_child() {
    if crash::is_child() {
        let grandchild = Child::of("crash::child_holds_a_connection").spawn().unwrap();
        grandchild.wait_for("connected", PATIENCE).unwrap();
        crash::say("connected");
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn kill_9_loses_no_acknowledgement() {
    let mut child = Child::of("crash::child_acks_for_ever").spawn().unwrap();
    child.wait_for_acks(100, PATIENCE).unwrap();
    let status = child.kill9().unwrap();
    assert_eq!(status.signal(), Some(SIGKILL));
    let acknowledged = child.acknowledged();
    assert!(acknowledged.len() >= 100);
    for (expected, got) in acknowledged.iter().enumerate() {
        assert_eq!(got, &expected.to_string(), "every line is whole and in order");
    }
}

#[test]
fn a_stopped_child_does_nothing_until_it_continues() {
    let mut child = Child::of("crash::child_acks_for_ever").spawn().unwrap();
    child.wait_for_acks(10, PATIENCE).unwrap();
    child.stop().unwrap();
    // What the pipe still holds may come in, and no more.
    let most = child.acknowledged().len() + PIPE_BYTES / "mainstay-child: ack 0".len();
    let mut before = child.acknowledged().len();
    while child.wait_for_acks(before + 1, SILENCE).is_ok() {
        before = child.acknowledged().len();
        assert!(before <= most, "the child goes on while it is stopped");
    }
    child.cont().unwrap();
    child.wait_for_acks(before + 1, PATIENCE).unwrap();
    child.kill9().unwrap();
}

#[test]
fn a_child_that_ends_by_itself_has_said_everything() {
    let mut child = Child::of("crash::child_acks_twice").spawn().unwrap();
    child.wait_for_success(PATIENCE).unwrap();
    assert_eq!(child.acknowledged(), ["one", "two"]);
    assert_eq!(child.said(), ["started", "ack one", "ack two"]);
}

#[test]
fn the_failure_of_a_child_tells_why() {
    let mut child = Child::of("crash::child_fails").spawn().unwrap();
    let error = child.wait_for("ready", PATIENCE).unwrap_err().to_string();
    assert!(error.contains("this is why"), "{error}");
    let error = child.wait_for_success(PATIENCE).unwrap_err().to_string();
    assert!(error.contains("failed with exit status: 101"), "{error}");
}

#[test]
fn a_name_that_is_no_test_is_an_error() {
    let error = Child::of("crash::no_such_test").spawn().unwrap().wait(PATIENCE).unwrap_err().to_string();
    assert!(error.contains("is that the name of a test?"), "{error}");
}

#[test]
fn a_child_dies_with_a_killed_parent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut parent = Child::of("crash::child_with_a_child").env("LISTENER", address).spawn().unwrap();
    parent.wait_for("connected", PATIENCE).unwrap();
    let (mut grandchild, _) = listener.accept().unwrap();
    grandchild.set_read_timeout(Some(PATIENCE)).unwrap();
    parent.kill9().unwrap();
    let ended = grandchild.read(&mut [0]);
    assert_eq!(ended.expect("the grandchild ends in time"), 0);
}
