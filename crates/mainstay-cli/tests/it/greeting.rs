//! How a server greets whoever starts it: with a link into the console, on a terminal and while there is no token.

use crate::program::{Folder, command};
use crate::serving::Serving;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;

/// A terminal that somebody sits before.
struct Terminal(OwnedFd);

impl Terminal {
    fn open() -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        Self(terminal)
    }

    /// The end that a program writes to.
    fn end(&self) -> File {
        let name = ptsname(&self.0, Vec::new()).unwrap();
        OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap()
    }

    /// What the greeting says about the console, which is its last line here.
    fn console(self) -> String {
        let mut lines = BufReader::new(File::from(self.0)).lines();
        let found = lines.find_map(|line| Some(line.unwrap().trim().strip_prefix("console: ")?.to_owned()));
        found.unwrap()
    }
}

/// Starts a server, and returns what it says about the console to whoever sits before it.
fn start(folder: &Folder, flags: &str) -> (Serving, String) {
    let terminal = Terminal::open();
    let mut command = command(folder, &format!("serve --json {flags}"));
    command.stderr(terminal.end());
    let server = Serving::listening(command);
    (server, terminal.console())
}

#[test]
fn a_link_is_offered_until_there_is_a_token_and_lets_in_once() {
    let folder = Folder::new();
    let (server, console) = start(&folder, "--listen 127.0.0.1:0");
    let link = console.strip_suffix(" (once, within 15 minutes)").unwrap();
    let path = link.strip_prefix(server.url()).unwrap();
    assert!(path.starts_with("/console/login?link="), "{path}");
    let first = server.ask(&format!("GET {path}"));
    assert!(first.starts_with("HTTP/1.1 303 ") && first.contains("set-cookie: "), "{first}");
    let again = server.ask(&format!("GET {path}"));
    assert!(again.starts_with("HTTP/1.1 401 ") && !again.contains("set-cookie: "), "{again}");
    server.stop("-TERM");

    // The next start offers another, and none once there is a token.
    let (server, console) = start(&folder, "--listen 127.0.0.1:0");
    assert!(console.contains("link=") && !console.contains(link), "{console}");
    server.stop("-TERM");
    assert_eq!(folder.run("token create --name first --role reader").code, 0);
    let (server, console) = start(&folder, "--listen 127.0.0.1:0");
    assert_eq!(console, format!("{}/console (log in with a token)", server.url()));
    server.stop("-TERM");
}

#[test]
fn no_link_is_offered_where_others_reach_the_server() {
    let (server, console) = start(&Folder::new(), "--listen 0.0.0.0:0 --insecure");
    assert!(console.contains("log in with a token") && !console.contains("link="), "{console}");
    server.stop("-TERM");
}

#[test]
fn no_link_stands_in_a_log_which_says_how_to_come_in_instead() {
    let folder = Folder::new();
    let told = Serving::start(&folder).stop("-TERM");
    assert!(!told.contains("link="), "{told}");
    assert!(told.contains("mainstay token create --name NAME --role admin"), "{told}");
    assert_eq!(folder.run("token create --name first --role reader").code, 0);
    let told = Serving::start(&folder).stop("-TERM");
    assert!(!told.contains("token create") && told.contains("log in with a token"), "{told}");
}
