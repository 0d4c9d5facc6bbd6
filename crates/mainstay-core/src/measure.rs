//! Plain counters, gauges and histograms that a part keeps about itself.
//!
//! A part owns its figures as fields and lists them through [`Measured`]; whoever serves them (`/metrics`, a
//! REPORT line, a bench) walks the list. Recording is a relaxed atomic or two and never allocates, but for the first
//! value of a [`Family`]'s member.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// Something that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `by`.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Something that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Puts the gauge to `value`.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Moves the gauge by `by` and returns where it then stands.
    pub fn add(&self, by: i64) -> i64 {
        self.0.fetch_add(by, Ordering::Relaxed) + by
    }

    /// Where the gauge stands.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

const BUCKETS: usize = 40;

/// How often which magnitude was seen: bucket `i` counts values up to `2^i`, so the whole range from a
/// microsecond to days fits in forty numbers with an error of at most a factor of two.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Records a duration in microseconds.
    pub fn record_duration(&self, duration: Duration) {
        self.record(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// Records a value.
    pub fn record(&self, value: u64) {
        let magnitude = (u64::BITS - value.saturating_sub(1).leading_zeros()) as usize;
        self.buckets[magnitude.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// What was recorded so far.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let buckets: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        HistogramSnapshot { count: buckets.iter().sum(), sum: self.sum.load(Ordering::Relaxed), buckets }
    }
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// How many values were recorded.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// How many fell in each bucket; the upper bound of bucket `i` is `2^i`.
    pub buckets: Vec<u64>,
}

impl HistogramSnapshot {
    /// The upper bound of the bucket that holds the value at `quantile` (0 to 1); 0 when nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = (quantile.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (magnitude, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return 1 << magnitude;
            }
        }
        0
    }

    /// The mean of what was recorded; 0 when nothing was.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }
}

/// What a [`Family`] counts together that it has no room for.
pub const OTHER: &str = "other";

/// Figures for each of several, by name. There are at most so many: names are not ours, and whoever makes them up must not
/// fill the memory. What comes after them counts as [`OTHER`].
#[derive(Debug)]
pub struct Family<T, const MOST: usize = 100> {
    members: RwLock<BTreeMap<Box<str>, T>>,
}

impl<T, const MOST: usize> Default for Family<T, MOST> {
    fn default() -> Self {
        Self { members: RwLock::default() }
    }
}

impl<T: Default, const MOST: usize> Family<T, MOST> {
    /// Records something of the member with this name.
    pub fn with<R>(&self, name: &str, record: impl FnOnce(&T) -> R) -> R {
        {
            let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
            let is_full = members.len() >= MOST;
            if let Some(member) = members.get(name).or_else(|| members.get(OTHER).filter(|_| is_full)) {
                return record(member);
            }
        }
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        let is_full = members.len() >= MOST && !members.contains_key(name);
        record(members.entry(if is_full { OTHER } else { name }.into()).or_default())
    }

    /// A row for each member, in the order of their names.
    pub fn rows<R>(&self, mut row: impl FnMut(&str, &T) -> R) -> Vec<R> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.iter().map(|(name, member)| row(name, member)).collect()
    }
}

/// Readings that several have, told apart by labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labelled<T> {
    /// The names of the labels.
    pub labels: &'static [&'static str],
    /// The values of the labels, as many as there are names, with their reading.
    pub rows: Vec<(Vec<String>, T)>,
}

/// The reading of one figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Of a [`Counter`].
    Counter(u64),
    /// Of a [`Gauge`].
    Gauge(i64),
    /// Of a [`Histogram`] of microseconds.
    Microseconds(HistogramSnapshot),
    /// Of a [`Histogram`] of plain numbers.
    Sizes(HistogramSnapshot),
    /// Of [counters](Counter) with labels.
    Counters(Labelled<u64>),
    /// Of [histograms](Histogram) of microseconds with labels.
    Times(Labelled<HistogramSnapshot>),
}

/// A part that keeps figures about itself.
pub trait Measured {
    /// Calls `visit` with the name, the meaning and the reading of every figure.
    fn measure(&self, visit: &mut dyn FnMut(&'static str, &'static str, Reading));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_keeps_the_order_of_magnitude() {
        let histogram = Histogram::default();
        assert_eq!(histogram.snapshot().quantile(0.5), 0);
        for value in 1..=1000 {
            histogram.record(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count, snapshot.sum), (1000, 500_500));
        assert_eq!(snapshot.quantile(0.5), 512);
        assert_eq!(snapshot.quantile(0.99), 1024);
        assert_eq!(snapshot.quantile(0.0), 1);
    }

    #[test]
    fn a_family_has_room_for_so_many_and_counts_the_rest_together() {
        let family = Family::<Counter, 2>::default();
        for name in ["a", "b", "c", "d", "a", OTHER] {
            family.with(name, Counter::increment);
        }
        let rows = family.rows(|name, counter| (name.to_owned(), counter.get()));
        let expected = [("a", 2), ("b", 1), (OTHER, 3)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(rows, expected);
        for name in 0..1_000 {
            family.with(&name.to_string(), Counter::increment);
        }
        assert_eq!(family.rows(|_, _| ()).len(), 3);
    }

    #[test]
    fn extremes_have_a_bucket() {
        let histogram = Histogram::default();
        histogram.record(0);
        histogram.record(u64::MAX);
        histogram.record_duration(Duration::MAX);
        assert_eq!(histogram.snapshot().count, 3);
    }
}
