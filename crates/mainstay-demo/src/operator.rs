//! Somebody who minds the shop: when the provider has been well for a while, what failed meanwhile is tried again.

use super::schedule::{Schedule, Weather};
use crate::Result;
use mainstay::flows::dead_letters::{Action, DeadLetters, Filter, Status};
use mainstay::guards::circuits::State;
use std::time::{Duration, Instant};

/// Under this name it stands in the records.
const NAME: &str = "the demo's operator";

/// Somebody who minds the shop.
pub(super) struct Operator {
    patience: Duration,
    well_since: Option<Instant>,
}

impl Operator {
    pub(super) fn new(schedule: Schedule) -> Self {
        Self { patience: schedule.patience(), well_since: None }
    }

    /// Looks, and does what is to be done; how many letters are tried again.
    pub(super) async fn tend(
        &mut self,
        letters: &DeadLetters,
        (weather, circuit, pending): (Weather, State, u64),
    ) -> Result<Option<u64>> {
        if !self.is_time(weather == Weather::Well && circuit != State::Open, Instant::now()) || pending == 0 {
            return Ok(None);
        }
        // As anybody would: see what it touches, then let it run.
        let waiting = Filter { status: Some(Status::Pending), ..Filter::default() };
        let operation = letters.preview(Action::Retry, waiting, NAME).await?;
        letters.run(&operation.operation_id).await?;
        // What fails again is looked at anew.
        self.well_since = None;
        Ok(Some(operation.total))
    }

    /// Whether everything has been well for long enough.
    fn is_time(&mut self, is_well: bool, now: Instant) -> bool {
        if !is_well {
            self.well_since = None;
            return false;
        }
        let since = *self.well_since.get_or_insert(now);
        now.duration_since(since) >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_until_all_has_been_well_for_a_while() {
        let mut operator = Operator::new(Schedule::new(Duration::from_secs(40)));
        let began = Instant::now();
        let mut at = |seconds, is_well| operator.is_time(is_well, began + Duration::from_secs(seconds));
        assert!(!at(0, true) && !at(4, true));
        assert!(!at(5, false), "it was down again");
        assert!(!at(6, true) && !at(10, true));
        assert!(at(11, true));
    }
}
