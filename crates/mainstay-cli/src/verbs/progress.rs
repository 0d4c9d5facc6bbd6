//! How far something has come, for a person who waits.

use crate::Result;
use mainstay::events::Progress;
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Often enough to see that it goes on.
const EVERY: Duration = Duration::from_secs(1);

/// Often enough to see that it moves.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How wide a bar is.
const WIDTH: usize = 40;

/// Looks again and again until something does not run any more, and tells how far it is: with a bar where somebody sees it.
pub(crate) async fn watch(
    is_json: bool,
    look: impl AsyncFn() -> Result<Value>,
    bar: impl Fn(&Value) -> String,
) -> Result<Value> {
    loop {
        let told = look().await?;
        show(is_json, &bar(&told));
        if told["status"] != "running" {
            end(is_json);
            return Ok(told);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_seen(is_json: bool) -> bool {
    !is_json && std::io::stderr().is_terminal()
}

/// Shows a bar in place of the one before, where somebody sees it.
pub(crate) fn show(is_json: bool, bar: &str) {
    if is_seen(is_json) {
        eprint!("\r\x1b[K{bar}");
        drop(std::io::stderr().flush());
    }
}

/// Nothing is shown in place of the last bar.
pub(crate) fn end(is_json: bool) {
    if is_seen(is_json) {
        eprintln!();
    }
}

/// A bar, and how many percent that is.
pub(crate) fn bar(percent: f64) -> String {
    let percent = percent.clamp(0.0, 100.0);
    let full = (percent / 100.0 * WIDTH as f64) as usize;
    format!("[{}{}] {percent:.1} %", "█".repeat(full), "░".repeat(WIDTH - full))
}

/// Tells on stderr, about once a second.
pub(crate) fn teller(is_json: bool) -> impl FnMut(Progress) + Send {
    let mut told = Instant::now();
    move |progress| {
        if !is_json && told.elapsed() >= EVERY {
            told = Instant::now();
            eprintln!("{}", line(progress));
        }
    }
}

fn line(Progress { stage, done, of }: Progress) -> String {
    of.map_or_else(|| format!("{stage}: {done}"), |of| format!("{stage}: {done} of {of}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay::events::Stage;

    #[test]
    fn a_line_says_how_far_it_is() {
        insta::assert_snapshot!(line(Progress { stage: Stage::Events, done: 5, of: Some(9) }), @"events: 5 of 9");
        insta::assert_snapshot!(line(Progress { stage: Stage::Index, done: 5, of: None }), @"index: 5");
    }
}
