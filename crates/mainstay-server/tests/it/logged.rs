//! What is logged in this process, kept to be looked at.

use std::io::Write;
use std::sync::{Mutex, OnceLock};

static TEXT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Kept;

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        TEXT.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Begins to keep what is logged. For all threads: what is logged where is remembered for the whole process, also by tests
/// beside the one that looks.
pub(crate) fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let level = tracing::Level::TRACE;
        tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(|| Kept).init();
    });
}

/// What was logged so far, by all tests.
pub(crate) fn text() -> String {
    String::from_utf8(TEXT.lock().unwrap().clone()).unwrap()
}
