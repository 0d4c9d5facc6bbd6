//! How far something has come, for a person who waits.

use mainstay::events::Progress;
use std::time::{Duration, Instant};

/// Often enough to see that it goes on.
const EVERY: Duration = Duration::from_secs(1);

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
