//! Runs the real server.

use crate::program::{Folder, command};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// Where a server writes its log that was asked for all of it.
pub(crate) const LOG: &str = "serve.log";

/// A server that runs in a folder, as a process of its own.
pub(crate) struct Serving {
    child: Child,
    pub(crate) listening: Value,
}

impl Serving {
    pub(crate) fn start(folder: &Folder) -> Self {
        Self::start_at(folder, "127.0.0.1:0")
    }

    pub(crate) fn start_at(folder: &Folder, address: &str) -> Self {
        Self::run(command(folder, &format!("serve --json --listen {address}")))
    }

    /// With some environment variables.
    pub(crate) fn start_with(folder: &Folder, environment: &[(&str, &str)]) -> Self {
        let mut command = command(folder, "serve --json --listen 127.0.0.1:0");
        command.envs(environment.iter().copied());
        Self::run(command)
    }

    /// With a log of everything, in a file: a pipe that nobody reads would hold the server up.
    pub(crate) fn start_logging(folder: &Folder, environment: &[(&str, &str)]) -> Self {
        let mut command = command(folder, "serve --json --log debug --listen 127.0.0.1:0");
        command.envs(environment.iter().copied());
        command.stderr(File::create(folder.path().join(LOG)).unwrap());
        Self::listening(command)
    }

    /// Under limits that a shell sets first.
    pub(crate) fn start_limited(folder: &Folder, limits: &str) -> Self {
        let program = command(folder, "serve --json --listen 127.0.0.1:0");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{limits} && exec \"$0\" \"$@\"")]);
        shell.arg(program.get_program()).args(program.get_args()).current_dir(folder.path());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        Self::run(shell)
    }

    /// The limits that hold for it, as Linux tells them.
    pub(crate) fn limits(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).unwrap()
    }

    fn run(mut command: Command) -> Self {
        command.stderr(Stdio::piped());
        Self::listening(command)
    }

    /// Runs what tells on stdout where it listens.
    pub(crate) fn listening(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let listening = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut told = String::new();
            child.stderr.iter_mut().for_each(|stderr| drop(stderr.read_to_string(&mut told)));
            panic!("{line:?} {told}")
        });
        Self { child, listening }
    }

    pub(crate) fn url(&self) -> &str {
        self.listening["url"].as_str().unwrap()
    }

    pub(crate) fn address(&self) -> &str {
        self.listening["address"].as_str().unwrap()
    }

    /// Asks it, and returns all that it says.
    pub(crate) fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends JSON, and returns the status and what is answered.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        let (head, body) = self.exchange(method, path, headers, "application/json", body);
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
    }

    /// Logs in to the console, and returns the cookie.
    pub(crate) fn log_in(&self, token: &str) -> String {
        let origin = [("Origin", self.url())];
        let form = "application/x-www-form-urlencoded";
        let (head, _) = self.exchange("POST", "/console/login", &origin, form, &format!("token={token}"));
        let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        cookie.unwrap_or_else(|| panic!("{head}")).split(';').next().unwrap().to_owned()
    }

    /// The head and the body of an answer.
    fn exchange(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        kind: &str,
        body: &str,
    ) -> (String, String) {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let (address, length) = (self.address(), body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}");
        write!(stream, "{head}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Stops it as an operator would, and returns what it told a person.
    pub(crate) fn stop(mut self, signal: &str) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let mut told = String::new();
        self.child.stderr.iter_mut().for_each(|stderr| drop(stderr.read_to_string(&mut told)));
        told
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind; one that did not has waited for it already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
