//! What a person sees: what happens as it happens, and below it how everything is.

use super::look::{Letters, Look};
use super::schedule::Weather;
use crate::{Failure, Result};
use mainstay::guards::circuits::State;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

/// Where nobody can be shown something that moves, a line says how it is from time to time.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Lines that are broken could not be drawn again.
const WIDTH: usize = 79;

/// Where it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// On a terminal, in place.
    Live,
    /// As lines, for files and pipes.
    Plain,
    /// Not at all.
    Silent,
}

/// What a person sees.
pub(super) struct Screen {
    kind: Kind,
    /// How many lines below the story can be drawn again.
    drawn: usize,
    last_line: Option<Duration>,
}

impl Screen {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, drawn: 0, last_line: None }
    }

    /// Shows a text that stays.
    pub(super) fn say(&mut self, text: &str) -> Result<()> {
        if self.kind == Kind::Silent {
            return Ok(());
        }
        let text = format!("{}{text}", self.wipe());
        print(&text)
    }

    /// Says that something has happened.
    pub(super) fn note(&mut self, at: Duration, what: &str) -> Result<()> {
        self.say(&format!("  {}  {what}\n", clock(at)))
    }

    /// Shows how everything is.
    pub(super) fn show(&mut self, look: &Look) -> Result<()> {
        match self.kind {
            Kind::Silent => Ok(()),
            Kind::Plain => {
                let is_due = self.last_line.is_none_or(|last| look.elapsed >= last + LINE_EVERY);
                if !is_due {
                    return Ok(());
                }
                self.last_line = Some(look.elapsed);
                self.note(look.elapsed, &line(look))
            }
            Kind::Live => {
                let lines = board(look);
                let text = format!("{}{}\n", self.wipe(), lines.join("\n"));
                self.drawn = lines.len();
                print(&text)
            }
        }
    }

    /// Takes away what can be drawn again.
    fn wipe(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        }
    }
}

/// Prints to stdout. A reader that has seen enough, as `| head`, is no failure.
pub(super) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Io { what: "stdout".to_owned(), source: error }.into())
        }
        _ => Ok(()),
    }
}

/// How everything is, in some lines.
fn board(look: &Look) -> Vec<String> {
    let rows = [
        String::new(),
        format!("  orders    {}", orders(look)),
        format!("  payments  {}", payments(look)),
        format!("  log       {} events, slowest read model {} behind", look.head, look.lag),
        format!("  aside     {}", aside(look)),
        format!("  health    {}   {}", look.health.as_deref().unwrap_or("…"), clock(look.elapsed)),
    ];
    rows.iter().map(|row| row.chars().take(WIDTH).collect()).collect()
}

/// How everything is, in one line.
fn line(look: &Look) -> String {
    format!(
        "{:.1} orders/s, {} confirmed, {} events, lag {}, circuit {}, {} letters, {} in quarantine, {}",
        look.orders_per_second,
        look.count.confirmed,
        look.head,
        look.lag,
        state(look.circuit),
        look.letters.pending,
        look.quarantined,
        look.health.as_deref().unwrap_or("…"),
    )
}

fn orders(look: &Look) -> String {
    let count = &look.count;
    format!(
        "{:.1}/s   {} placed, {} confirmed, {} cancelled",
        look.orders_per_second, count.submitted, count.confirmed, count.cancelled
    )
}

fn payments(look: &Look) -> String {
    let weather = match look.weather {
        Weather::Well => "provider well",
        Weather::Slow => "provider slow",
        Weather::Down => "provider DOWN",
    };
    format!(
        "{} paid   {weather}, circuit {}, {} waiting",
        look.count.completed,
        state(look.circuit),
        look.waiting
    )
}

fn aside(look: &Look) -> String {
    let Letters { pending, resolved, .. } = look.letters;
    format!("{pending} dead letters ({resolved} mended), events in quarantine: {}", look.quarantined)
}

pub(super) fn state(state: State) -> &'static str {
    match state {
        State::Closed => "closed",
        State::Open => "OPEN",
        State::HalfOpen => "half open",
    }
}

fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    format!("{:02}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::super::tally::Count;
    use super::*;

    fn seen() -> Look {
        Look {
            elapsed: Duration::from_secs(77),
            orders_per_second: 4.0,
            count: Count { submitted: 120, confirmed: 98, cancelled: 12, completed: 101, ..Count::default() },
            head: 1_234,
            lag: 3,
            letters: Letters { pending: 2, retrying: 0, resolved: 5 },
            quarantined: 1,
            weather: Weather::Down,
            circuit: State::Open,
            changes: (1, 0),
            waiting: 7,
            working: 9,
            health: Some("degraded".to_owned()),
        }
    }

    #[test]
    fn the_board_tells_all_at_one_glance_and_breaks_no_line() {
        insta::assert_snapshot!(board(&seen()).join("\n"), @r"

          orders    4.0/s   120 placed, 98 confirmed, 12 cancelled
          payments  101 paid   provider DOWN, circuit OPEN, 7 waiting
          log       1234 events, slowest read model 3 behind
          aside     2 dead letters (5 mended), events in quarantine: 1
          health    degraded   01:17
        ");
        let busy = Look { head: u64::MAX, waiting: u64::MAX, lag: u64::MAX, ..seen() };
        assert!(board(&busy).iter().all(|row| row.chars().count() <= WIDTH));
    }

    #[test]
    fn a_line_tells_it_in_a_pipe() {
        insta::assert_snapshot!(line(&seen()), @"4.0 orders/s, 98 confirmed, 1234 events, lag 3, circuit OPEN, 2 letters, 1 in quarantine, degraded");
    }

    #[test]
    fn what_was_drawn_is_taken_away_before_more_is_told() {
        let mut screen = Screen { drawn: 6, ..Screen::new(Kind::Live) };
        assert_eq!(screen.wipe(), "\x1b[6A\x1b[J");
        assert_eq!(screen.wipe(), "");
    }
}
