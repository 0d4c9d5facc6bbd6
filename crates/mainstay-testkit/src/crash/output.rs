//! What a child has said so far, gathered by threads so that it never waits for the test to read.

use std::{
    io::{BufRead, BufReader, Read},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::PREFIX;

/// How much of what a child printed goes into a message about its failure.
const LINES_SHOWN: usize = 40;

#[derive(Debug, Default)]
pub(super) struct Said {
    /// What came through [`say`](super::say), without the prefix.
    pub(super) messages: Vec<String>,
    /// Everything else, from both outputs.
    other: Vec<String>,
    /// Outputs that are not yet at their end.
    open: usize,
}

impl Said {
    pub(super) fn acknowledged(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().filter_map(|message| message.strip_prefix("ack "))
    }

    pub(super) fn ended(&self) -> bool {
        self.open == 0
    }

    pub(super) fn describe(&self) -> String {
        let tail = |lines: &[String]| lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
        format!("It said last:\n{}\nand printed:\n{}", tail(&self.messages), tail(&self.other))
    }
}

/// The outputs of one child.
#[derive(Debug, Default)]
pub(super) struct Output {
    shared: Arc<(Mutex<Said>, Condvar)>,
    readers: Vec<JoinHandle<()>>,
}

impl Output {
    pub(super) fn read(&mut self, pipe: impl Read + Send + 'static) {
        self.said().open += 1;
        let shared = Arc::clone(&self.shared);
        self.readers.push(std::thread::spawn(move || gather(pipe, &shared)));
    }

    pub(super) fn said(&self) -> MutexGuard<'_, Said> {
        lock(&self.shared.0)
    }

    /// Waits until `found` finds something, the child has closed its outputs, or time is up.
    pub(super) fn wait_until<T>(&self, timeout: Duration, found: impl Fn(&Said) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + timeout;
        let mut said = self.said();
        loop {
            let result = found(&said);
            let left = deadline.saturating_duration_since(Instant::now());
            if result.is_some() || said.ended() || left.is_zero() {
                return result;
            }
            let waited = self.shared.1.wait_timeout(said, left);
            said = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes in what a child that has ended left in its pipes.
    pub(super) fn finish(&mut self) {
        for reader in self.readers.drain(..) {
            // A reader has nothing to panic about; if it did, the message is out already.
            let _ = reader.join();
        }
    }
}

fn gather(pipe: impl Read, shared: &(Mutex<Said>, Condvar)) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    // A pipe that fails is a pipe that has ended.
    while pipe.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line);
        let mut said = lock(&shared.0);
        // The test runner starts a line with the test's name before the test says anything, hence not at the start.
        match text.split_once(PREFIX) {
            Some((_, message)) => said.messages.push(message.trim_end().to_owned()),
            None => said.other.push(text.trim_end().to_owned()),
        }
        shared.1.notify_all();
        line.clear();
    }
    lock(&shared.0).open -= 1;
    shared.1.notify_all();
}

fn lock(said: &Mutex<Said>) -> MutexGuard<'_, Said> {
    // Lines are only ever added, so what a panicking thread leaves behind is still true.
    said.lock().unwrap_or_else(PoisonError::into_inner)
}
