//! What was measured, held against what is promised.

use super::{Answered, Measured, Pages};
use std::time::Duration;

/// The share of a core that one who follows the overview may take.
const SHARE: f64 = 0.01;
/// What a browser may load for the console.
const BYTES: usize = 200_000;
/// A late page may take twice as long as the first, and what a clock cannot tell apart.
const FLAT: f64 = 2.0;
const SAME_MS: f64 = 2.0;

impl Measured {
    /// What is over its limit, in words.
    pub fn over(&self) -> Vec<String> {
        let mut over: Vec<String> = self.answers.iter().filter_map(late).collect();
        over.extend(self.pages.iter().filter_map(steep));
        if let Some(share) = self.live_share.filter(|share| *share >= SHARE) {
            over.push(format!("following the overview takes {:.1} % of a core, of 1", share * 100.0));
        }
        if self.transferred >= BYTES {
            over.push(format!("the console is {} bytes, of {BYTES}", self.transferred));
        }
        over
    }
}

/// Probes must be in time always, also while the store is written to; pages nineteen times of twenty while it is not, and
/// figures also while it is.
fn late(answer: &Answered) -> Option<String> {
    let Answered { path, most, quiet, busy, .. } = answer;
    let most_ms = most.as_secs_f64() * 1e3;
    let took = match *path {
        path if path.starts_with("/health") => Answered::longest_ms(quiet).max(Answered::longest_ms(busy)),
        "/metrics" => usual_ms(quiet).max(usual_ms(busy)),
        _ => usual_ms(quiet),
    };
    (took >= most_ms).then(|| format!("{path} takes {took:.1} ms, of {most_ms:.0}"))
}

fn steep(pages: &Pages) -> Option<String> {
    let (first, later) = (Answered::middle_ms(&pages.first), Answered::middle_ms(&pages.later));
    let is_steep = pages.page > 1 && later > (first * FLAT).max(first + SAME_MS);
    let told =
        || format!("page {} of {} takes {later:.1} ms, and the first {first:.1}", pages.page, pages.list);
    is_steep.then(told)
}

/// What nineteen of twenty take at most.
fn usual_ms(times: &[Duration]) -> f64 {
    let place = (times.len() * 19).div_ceil(20).saturating_sub(1);
    times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(path: &'static str, most: u64, quiet: &[u64], busy: &[u64]) -> Answered {
        let times = |times: &[u64]| times.iter().copied().map(Duration::from_millis).collect();
        Answered { path, most: Duration::from_millis(most), bytes: 1, quiet: times(quiet), busy: times(busy) }
    }

    fn measured(answers: Vec<Answered>) -> Measured {
        Measured {
            events: 1,
            letters: 1,
            appended_per_second: 1.0,
            answers,
            pages: Vec::new(),
            live_share: Some(0.001),
            transferred: 60_000,
        }
    }

    #[test]
    fn what_is_in_time_is_not_told() {
        let busy = [1, 2, 300];
        assert!(measured(vec![answer("/console", 100, &[1, 2, 99], &busy)]).over().is_empty());
        let mut quiet = vec![5; 19];
        quiet.push(500);
        assert!(measured(vec![answer("/console", 100, &quiet, &busy)]).over().is_empty(), "once in twenty");
    }

    #[test]
    fn what_is_late_is_told_and_probes_are_never_late() {
        let over = |answer| measured(vec![answer]).over();
        assert_eq!(over(answer("/console", 100, &[1, 120], &[])), ["/console takes 120.0 ms, of 100"]);
        assert_eq!(over(answer("/health/ready", 50, &[1], &[1, 60])), ["/health/ready takes 60.0 ms, of 50"]);
        assert_eq!(over(answer("/metrics", 20, &[1], &[25])), ["/metrics takes 25.0 ms, of 20"]);
    }

    #[test]
    fn a_list_that_gets_slower_page_by_page_is_told() {
        let times = |ms| vec![Duration::from_millis(ms)];
        let pages = |page, first, later| Pages {
            list: "/admin/work",
            page,
            first: times(first),
            later: times(later),
        };
        let over = |pages| Measured { pages: vec![pages], ..measured(Vec::new()) }.over();
        assert!(over(pages(1_000, 5, 9)).is_empty() && over(pages(1_000, 1, 3)).is_empty());
        assert!(over(pages(1, 5, 50)).is_empty(), "there is one page");
        assert_eq!(over(pages(1_000, 5, 11)), ["page 1000 of /admin/work takes 11.0 ms, and the first 5.0"]);
    }

    #[test]
    fn an_overview_that_costs_and_a_console_that_is_fat_are_told() {
        let measured = Measured { live_share: Some(0.025), transferred: 300_000, ..measured(Vec::new()) };
        assert_eq!(
            measured.over(),
            ["following the overview takes 2.5 % of a core, of 1", "the console is 300000 bytes, of 200000"]
        );
    }
}
