//! Runs the real binary in a folder of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use tempfile::TempDir;

/// A folder in which the program runs.
pub(crate) struct Folder(TempDir);

/// What came of it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program, about to be run in a folder and with nothing of our own environment that it would mind.
pub(crate) fn command(folder: &Folder, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MAINSTAY")) {
        command.env_remove(name);
    }
    command.current_dir(folder.path()).args(arguments.split_whitespace());
    command
}

/// Kills a program that does not end: a test that waits for ever says nothing.
pub(crate) struct Watchdog(#[expect(dead_code, reason = "its end is what is heard")] mpsc::Sender<()>);

impl Watchdog {
    pub(crate) fn of(child: &Child) -> Self {
        let (sender, receiver) = mpsc::channel();
        let id = child.id().to_string();
        std::thread::spawn(move || {
            if receiver.recv_timeout(Duration::from_secs(180)) == Err(RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-KILL", &id]).status();
            }
        });
        Self(sender)
    }
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    /// The names of everything in the folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn run(&self, arguments: &str) -> Answer {
        self.run_with(&[], arguments)
    }

    /// Runs the program with some environment variables.
    pub(crate) fn run_with(&self, environment: &[(&str, &str)], arguments: &str) -> Answer {
        let mut command = command(self, arguments);
        command.envs(environment.iter().copied());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _watchdog = Watchdog::of(&child);
        let output = child.wait_with_output().unwrap();
        Answer {
            code: output.status.code().unwrap_or_else(|| panic!("{arguments}: {output:?}")),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Answer {
    /// The data, when it is JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// As [`assert_failed`](Self::assert_failed), of a service: what it tells is a log, whose last line says so.
    #[track_caller]
    pub(crate) fn assert_logged(&self, exit: i32, code: &str) -> serde_json::Value {
        assert_eq!((self.code, self.stdout.as_str()), (exit, ""), "{self:?}");
        let lines: Vec<serde_json::Value> =
            self.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = lines.last().unwrap();
        assert_eq!((&last["level"], &last["code"]), (&"ERROR".into(), &code.into()), "{last}");
        assert!(last["message"].is_string() && last["hint"].is_string(), "{last}");
        last.clone()
    }

    /// Asserts that the program failed with an exit code and an error code, said what to do, and gave no data.
    #[track_caller]
    pub(crate) fn assert_failed(&self, exit: i32, code: &str) {
        assert_eq!(self.code, exit, "{self:?}");
        assert!(self.stderr.starts_with(&format!("error[{code}]: ")), "{}", self.stderr);
        assert!(self.stderr.contains("\nhint: "), "{}", self.stderr);
        assert_eq!(self.stdout, "");
    }
}
