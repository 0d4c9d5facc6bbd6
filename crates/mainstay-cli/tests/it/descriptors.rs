//! File descriptors of a server: it takes as many as it may, and keeps its connections within them.

use crate::program::Folder;
use crate::serving::Serving;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The soft and the hard limit of open files.
fn open_files(server: &Serving) -> (String, String) {
    let limits = server.limits();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut words = line["Max open files".len()..].split_whitespace().map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

#[test]
fn a_server_raises_its_limit_of_open_files_as_far_as_it_may() {
    let folder = Folder::new();
    let server = Serving::start_limited(&folder, "ulimit -S -n 64");
    let (soft, hard) = open_files(&server);
    assert!(soft == hard && soft != "64", "{soft} of {hard}");
    server.stop("-TERM");
}

#[test]
fn more_half_open_connections_than_there_are_descriptors_do_not_keep_out_a_probe() {
    let folder = Folder::new();
    folder.write("mainstay.toml", "[server]\nheaderTimeoutMs = 120000\nmaxConnectionsPerAddress = 1024\n");
    let server = Serving::start_limited(&folder, "ulimit -n 256");
    let silent: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    for _ in 0..20 {
        let mut probe = TcpStream::connect(server.address()).unwrap();
        probe.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(probe, "GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    drop(silent);
    let told = server.stop("-TERM");
    let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let warned = lines.iter().find(|line| line["level"] == "WARN").unwrap_or_else(|| panic!("{told}"));
    assert_eq!((&warned["limit"], &warned["asked"]), (&Value::from(256), &Value::from(1_024)), "{told}");
    let connections = warned["connections"].as_u64().unwrap();
    assert!((100..200).contains(&connections) && warned["needed"].as_u64().unwrap() > 1_024, "{warned}");
}
