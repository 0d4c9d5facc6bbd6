//! Budgets in the memory of one process.

use super::contract::{self, Bench};
use super::is_long;
use mainstay_core::clock::ManualClock;
use mainstay_guards::limits::memory::{self, Memory};
use mainstay_guards::limits::{Decision, Policy, RateLimiter};
use mainstay_testkit::crash::{self, Child};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct InMemory {
    clock: Arc<ManualClock>,
    backend: Memory,
}

impl InMemory {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Self::START_MS));
        Self { backend: Memory::new().clock(clock.clone()), clock }
    }
}

impl Bench for InMemory {
    async fn limiter(&self, policy: Policy) -> Arc<dyn RateLimiter> {
        // Some of the contract begins at the start of an hour.
        self.clock.set(Self::START_MS);
        Arc::new(self.backend.limiter(policy))
    }

    async fn again(&self, _policy: Policy) -> Option<Arc<dyn RateLimiter>> {
        None
    }

    async fn advance(&self, by_ms: i64) {
        self.clock.advance(by_ms);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_in_memory_keep_the_contract() {
    contract::hold(&InMemory::new()).await;
}

#[test]
fn b_033_a_limiter_is_made_alone_or_by_a_backend() {
    let policy = Policy::bucket(10.0, 1.0).unwrap();
    let alone = memory::limiter(policy.clone());
    let of_a_backend = Memory::new().limiter(policy);
    assert_eq!(alone.consume_now("a", 10).unwrap(), Decision::allowed(0));
    assert_eq!(of_a_backend.consume_now("a", 1).unwrap(), Decision::allowed(9));
}

/// Nobody can say what time it is but whoever makes the limiter: calls take none.
#[test]
fn b_028_budgets_come_back_by_the_clock_of_the_limiter_alone() {
    let clock = Arc::new(ManualClock::at(0));
    let limiter = Memory::new().clock(clock.clone()).limiter(Policy::bucket(1.0, 1_000_000.0).unwrap());
    for _ in 0..3 {
        assert!(limiter.consume_now("a", 1).unwrap().allowed);
        // However much time passes elsewhere.
        for _ in 0..1_000 {
            assert_eq!(limiter.consume_now("a", 1).unwrap().retry_after_ms, Some(1));
        }
        clock.advance(1);
    }
}

#[test]
fn b_010_a_limiter_in_memory_says_that_it_is_one() {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let policy = Policy::bucket(10.0, 1.0).unwrap().with_prefix("front-door:").unwrap();
        memory::limiter(policy);
    });
    let said = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(said.contains("front-door:") && said.contains("in the memory of this process"), "{said}");
}

#[test]
fn b_034_dispose_clears_it() {
    let limiter = memory::limiter(Policy::bucket(10.0, 1.0).unwrap());
    limiter.consume_now("a", 10).unwrap();
    assert_eq!(limiter.keys(), 1);
    limiter.dispose();
    assert_eq!(limiter.keys(), 0);
    assert_eq!(limiter.consume_now("a", 1).unwrap(), Decision::allowed(9));
}

#[test]
fn b_034_at_the_cap_full_budgets_are_forgotten_first() {
    let clock = Arc::new(ManualClock::at(0));
    let limiter =
        Memory::new().clock(clock.clone()).max_keys(100).limiter(Policy::bucket(10.0, 1.0).unwrap());
    for number in 0..50 {
        limiter.consume_now(&format!("used up {number}"), 10).unwrap();
    }
    for number in 0..50 {
        limiter.consume_now(&format!("once {number}"), 1).unwrap();
    }
    clock.advance(1_000);
    for number in 0..50 {
        assert!(limiter.consume_now(&format!("new {number}"), 10).unwrap().allowed);
        assert!(limiter.keys() <= 100);
    }
    for number in 0..50 {
        assert_eq!(limiter.consume_now(&format!("used up {number}"), 1).unwrap(), Decision::allowed(0));
        assert!(!limiter.consume_now(&format!("new {number}"), 1).unwrap().allowed);
    }
}

#[test]
fn b_034_when_none_is_full_those_go_that_have_least_to_recover() {
    let clock = Arc::new(ManualClock::at(0));
    let limiter = Memory::new().clock(clock).max_keys(100).limiter(Policy::bucket(10.0, 1.0).unwrap());
    for number in 0..40 {
        limiter.consume_now(&format!("used up {number}"), 10).unwrap();
    }
    for number in 0..10_000 {
        assert!(limiter.consume_now(&format!("rotated {number}"), 1).unwrap().allowed);
        assert!(limiter.keys() <= 100);
    }
    for number in 0..40 {
        let decision = limiter.consume_now(&format!("used up {number}"), 1).unwrap();
        assert!(!decision.allowed, "rotating keys brought back what {number} had used up");
    }
}

/// In a process of its own, whose memory nobody else uses.
#[test]
fn child_uses_keys_without_end() {
    if !crash::is_child() {
        return;
    }
    let (keys, max_keys) = measured_keys();
    let use_up = |keys: usize, max_keys: usize| {
        let limiter = Memory::new().max_keys(max_keys).limiter(Policy::bucket(10.0, 1.0).unwrap());
        for number in 0..keys {
            assert!(limiter.consume_now(&format!("key {number}"), 1).unwrap().allowed);
        }
        limiter
    };
    // The program itself comes into memory as it is used.
    drop(use_up(3_000, 1_000));
    let before = peak_memory();
    let limiter = use_up(keys, max_keys);
    assert!((max_keys / 2..=max_keys).contains(&limiter.keys()), "{}", limiter.keys());
    crash::say(format_args!("grew by {}", peak_memory() - before));
}

/// How many keys, and how many of them may be kept.
fn measured_keys() -> (usize, usize) {
    if is_long() { (10_000_000, 1_000_000) } else { (500_000, 100_000) }
}

/// The most bytes that this process ever had.
fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1_024
}

#[test]
fn keys_without_end_stay_under_the_cap() {
    let mut child = Child::of("limits::memory::child_uses_keys_without_end").spawn().unwrap();
    let said = child.wait_for("grew by ", Duration::from_secs(600)).unwrap();
    child.wait_for_success(Duration::from_secs(60)).unwrap();
    let grown: usize = said.trim_start_matches("grew by ").parse().unwrap();
    let (keys, max_keys) = measured_keys();
    println!("{keys} keys, {max_keys} kept: {grown} bytes");
    // A key takes less than 80 bytes; the rest of the process wants a little too.
    assert!(grown < max_keys * 80 + (8 << 20), "{grown} bytes for {max_keys} keys");
}

#[test]
fn a_denied_or_impossible_call_of_an_unknown_key_keeps_nothing() {
    let limiter = memory::limiter(Policy::bucket(10.0, 1.0).unwrap());
    assert_eq!(limiter.consume_now("a", 11).unwrap(), Decision::impossible(10));
    limiter.act_now("b", mainstay_guards::limits::Verb::Peek(1)).unwrap();
    assert_eq!(limiter.keys(), 0);
}

#[test]
fn threads_at_one_key_get_what_is_there_and_no_more() {
    let clock = Arc::new(ManualClock::at(0));
    let limiter = Memory::new().clock(clock).limiter(Policy::bucket(10_000.0, 1.0).unwrap());
    let taken: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| (0..5_000).filter(|_| limiter.consume_now("a", 1).unwrap().allowed).count())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(taken, 10_000);
}
