//! The last calls, and how many of them failed or were slow.

use super::settings::{Rate, Span};
use std::collections::VecDeque;

/// A window of time is as many slots, so what is too old leaves it a tenth at a time.
const SLOTS: u64 = 10;

/// How a call ended, for a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it failed.
    pub is_failure: bool,
    /// How long it took.
    pub took_ms: u64,
}

/// How many calls, and how many of them failed or were slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// All of them.
    pub calls: u32,
    /// Those that failed.
    pub failed: u32,
    /// Those that took too long.
    pub slow: u32,
}

impl Tally {
    fn add(&mut self, one: Self) {
        self.calls = self.calls.saturating_add(one.calls);
        self.failed = self.failed.saturating_add(one.failed);
        self.slow = self.slow.saturating_add(one.slow);
    }

    fn take(&mut self, one: Self) {
        self.calls -= one.calls;
        self.failed -= one.failed;
        self.slow -= one.slow;
    }
}

/// The last calls of one node.
#[derive(Debug, Clone)]
pub struct Window {
    rate: Rate,
    /// One entry for each call, or for each slot of time with its number.
    kept: VecDeque<(i64, Tally)>,
    sum: Tally,
}

impl Window {
    /// A window without calls.
    pub fn new(rate: Rate) -> Self {
        Self { rate, kept: VecDeque::new(), sum: Tally::default() }
    }

    /// Forgets all calls.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.sum = Tally::default();
    }

    /// Takes a call in, and tells whether there are too many bad ones now.
    pub fn record(&mut self, outcome: Outcome, now_ms: i64) -> bool {
        let is_slow = self.rate.slow.is_some_and(|slow| outcome.took_ms > slow.after_ms);
        let one = Tally { calls: 1, failed: outcome.is_failure.into(), slow: is_slow.into() };
        match self.rate.span {
            Span::Calls(most) => {
                while self.kept.len() >= most as usize {
                    self.forget_oldest();
                }
                self.kept.push_back((0, one));
            }
            Span::Time(ms) => {
                let slot = self.forget_before(ms, now_ms);
                match self.kept.back_mut() {
                    Some((newest, tally)) if *newest == slot => tally.add(one),
                    _ => self.kept.push_back((slot, one)),
                }
            }
        }
        self.sum.add(one);
        self.is_too_bad()
    }

    /// What is in the window at a moment.
    pub fn tally(&mut self, now_ms: i64) -> Tally {
        if let Span::Time(ms) = self.rate.span {
            self.forget_before(ms, now_ms);
        }
        self.sum
    }

    fn is_too_bad(&self) -> bool {
        let Tally { calls, failed, slow } = self.sum;
        let is_over = |bad: u32, percent: f64| f64::from(bad) * 100.0 >= percent * f64::from(calls);
        calls >= self.rate.minimum_calls
            && (self.rate.failure_percent.is_some_and(|percent| is_over(failed, percent))
                || self.rate.slow.is_some_and(|rule| is_over(slow, rule.percent)))
    }

    /// Forgets the slots that are too old, and tells the number of the present one. A clock that went back stays in the
    /// newest slot.
    fn forget_before(&mut self, span_ms: u64, now_ms: i64) -> i64 {
        let width = i64::try_from((span_ms / SLOTS).max(1)).unwrap_or(i64::MAX);
        let slot = now_ms.div_euclid(width).max(self.kept.back().map_or(i64::MIN, |(newest, _)| *newest));
        while self.kept.front().is_some_and(|(oldest, _)| *oldest <= slot.saturating_sub(SLOTS as i64)) {
            self.forget_oldest();
        }
        slot
    }

    fn forget_oldest(&mut self) {
        if let Some((_, tally)) = self.kept.pop_front() {
            self.sum.take(tally);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::settings::Slow;
    use proptest::prelude::*;

    const GOOD: Outcome = Outcome { is_failure: false, took_ms: 1 };
    const BAD: Outcome = Outcome { is_failure: true, took_ms: 1 };
    const SLOW: Outcome = Outcome { is_failure: false, took_ms: 501 };

    #[test]
    fn half_of_the_last_calls_is_too_much_once_there_are_enough() {
        let rate = Rate { span: Span::Calls(10), minimum_calls: 4, ..Rate::default() };
        let mut window = Window::new(rate);
        assert_eq!([BAD, BAD, BAD].map(|one| window.record(one, 0)), [false; 3], "three say nothing");
        assert!(window.record(GOOD, 0));
        window.clear();
        let calls = [GOOD, GOOD, GOOD, BAD, GOOD, BAD].map(|one| window.record(one, 0));
        assert_eq!(calls, [false; 6]);
        (0..10).for_each(|_| assert!(!window.record(GOOD, 0)));
        assert_eq!(window.tally(0), Tally { calls: 10, failed: 0, slow: 0 }, "older calls are forgotten");
    }

    #[test]
    fn calls_that_take_too_long_open_it_too() {
        let slow = Some(Slow { after_ms: 500, percent: 50.0 });
        let rate = Rate { span: Span::Calls(4), minimum_calls: 4, failure_percent: None, slow };
        let mut window = Window::new(rate);
        assert_eq!(
            [SLOW, BAD, BAD, BAD].map(|one| window.record(one, 0)),
            [false; 4],
            "failures do not count here"
        );
        assert_eq!([SLOW, SLOW].map(|one| window.record(one, 0)), [false, true]);
        let exact = Outcome { took_ms: 500, ..SLOW };
        assert_eq!([exact, exact, exact].map(|one| window.record(one, 0)), [true, true, false]);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let rate = Rate { span: Span::Time(1_000), minimum_calls: 1, ..Rate::default() };
        let mut window = Window::new(rate);
        assert!(window.record(BAD, 0));
        assert!(window.record(GOOD, 950), "one of two");
        assert!(!window.record(GOOD, 1_000), "none of two");
        assert_eq!(window.tally(1_899).calls, 2);
        assert_eq!(window.tally(1_900).calls, 1);
        assert_eq!(window.tally(50_000), Tally::default());
        window.record(GOOD, 50_000);
        window.record(BAD, 49_000);
        assert_eq!(window.tally(50_000).calls, 2, "a clock that went back loses nothing");
    }

    proptest! {
        #[test]
        fn a_window_of_calls_is_the_last_ones(calls in prop::collection::vec(any::<(bool, bool)>(), 0..200), most in 1_u32..20) {
            let slow = Some(Slow { after_ms: 500, percent: 100.0 });
            let rate = Rate { span: Span::Calls(most), minimum_calls: 1, failure_percent: Some(100.0), slow };
            let mut window = Window::new(rate);
            for (is_failure, is_slow) in &calls {
                window.record(Outcome { is_failure: *is_failure, took_ms: if *is_slow { 501 } else { 1 } }, 0);
            }
            let last = &calls[calls.len().saturating_sub(most as usize)..];
            let count = |holds: fn(&&(bool, bool)) -> bool| last.iter().filter(holds).count() as u32;
            let expected = Tally { calls: last.len() as u32, failed: count(|call| call.0), slow: count(|call| call.1) };
            prop_assert_eq!(window.tally(0), expected);
        }

        #[test]
        fn a_window_of_time_holds_nine_tenths_to_all_of_it(steps in prop::collection::vec((0_i64..400, any::<bool>()), 1..200)) {
            let rate = Rate { span: Span::Time(1_000), minimum_calls: 1, ..Rate::default() };
            let (mut window, mut now, mut all) = (Window::new(rate), 0, Vec::new());
            for (step, is_failure) in steps {
                now += step;
                all.push((now, is_failure));
                window.record(Outcome { is_failure, took_ms: 0 }, now);
                let tally = window.tally(now);
                let within = |ms: i64| all.iter().filter(|(at, _)| *at > now - ms).count() as u32;
                prop_assert!(tally.calls >= within(900) && tally.calls <= within(1_001), "{tally:?}");
                let failed = |ms: i64| all.iter().filter(|(at, failed)| *at > now - ms && *failed).count() as u32;
                prop_assert!(tally.failed >= failed(900) && tally.failed <= failed(1_001));
            }
        }
    }
}
