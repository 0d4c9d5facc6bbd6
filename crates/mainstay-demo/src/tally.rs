//! Follows the log, and counts.

use crate::Result;
use mainstay::events::{Event, Log, Selection};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many events are read at once.
const PAGE: usize = 500;
/// How long it waits for more before it looks whether it is still wanted.
const PATIENCE: Duration = Duration::from_secs(1);
/// What happened longer ago than this says nothing about how fast it goes now.
const LATELY: Duration = Duration::from_secs(5);

/// What has happened since the demo began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) submitted: u64,
    pub(super) confirmed: u64,
    pub(super) cancelled: u64,
    pub(super) completed: u64,
    pub(super) declined: u64,
    pub(super) refunded: u64,
}

impl Count {
    fn add(&mut self, event: &Event) {
        let counted = match event.event_type() {
            "OrderSubmitted" => &mut self.submitted,
            "OrderConfirmed" => &mut self.confirmed,
            "OrderCancelled" => &mut self.cancelled,
            "PaymentCompleted" => &mut self.completed,
            "PaymentDeclined" => &mut self.declined,
            "PaymentRefunded" => &mut self.refunded,
            _ => return,
        };
        *counted += 1;
    }
}

/// Counts. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Tally(Arc<Mutex<Counting>>);

#[derive(Default)]
struct Counting {
    count: Count,
    position: u64,
    /// When orders were submitted, lately.
    lately: VecDeque<Instant>,
}

impl Tally {
    /// Follows a log from a position on, for as long as nobody drops it.
    pub(super) async fn follow(self, log: Log, from: u64) -> Result<()> {
        let mut after = from;
        loop {
            let page = log.read(&Selection::all().after(after), PAGE).await?;
            self.with(|counting| counting.take(&page.events, page.next.unwrap_or(page.head)));
            after = page.next.unwrap_or(page.head);
            if page.next.is_none() {
                // Whether something came or not, it is looked again.
                drop(log.wait_for(after + 1, PATIENCE).await);
            }
        }
    }

    pub(super) fn count(&self) -> Count {
        self.with(|counting| counting.count)
    }

    /// Up to where it has counted.
    pub(super) fn position(&self) -> u64 {
        self.with(|counting| counting.position)
    }

    /// Orders in a second, lately; `elapsed` is how long there have been any.
    pub(super) fn orders_per_second(&self, elapsed: Duration) -> f64 {
        let lately = elapsed.clamp(Duration::from_secs(1), LATELY);
        self.with(|counting| {
            counting.forget();
            counting.lately.len() as f64 / lately.as_secs_f64()
        })
    }

    fn with<T>(&self, look: impl FnOnce(&mut Counting) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Counting {
    fn take(&mut self, events: &[Event], position: u64) {
        for event in events {
            self.count.add(event);
            if event.event_type() == "OrderSubmitted" {
                self.lately.push_back(Instant::now());
            }
        }
        self.position = position;
        self.forget();
    }

    fn forget(&mut self) {
        while self.lately.front().is_some_and(|at| at.elapsed() > LATELY) {
            self.lately.pop_front();
        }
    }
}
