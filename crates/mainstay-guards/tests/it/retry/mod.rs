//! Retries, on a clock that goes on only when everybody waits.

mod layers;

use mainstay_core::circuit::Gate;
use mainstay_core::clock::ManualClock;
use mainstay_core::failure::{Class, Failure};
use mainstay_core::measure::{Measured, Reading};
use mainstay_core::random::SeededRandom;
use mainstay_guards::circuits::{COMPONENT, Circuits};
use mainstay_guards::retry::{
    Breaker, BreakerSettings, Budget, BudgetSettings, ExponentialBackoff, FixedInterval, NoRetry, Policy,
    RetryConfig, RetryError, RetryExecutor,
};
use mainstay_store::Options;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

fn busy() -> Failure {
    Failure::retryable("busy")
}

fn fixed(ms: u64, max_retries: u32) -> Arc<dyn Policy> {
    Arc::new(FixedInterval { delay: Duration::from_millis(ms), max_retries, jitter: None })
}

/// Fails so often, then succeeds; counts.
struct Calls {
    count: AtomicU32,
    failing: u32,
    failure: Failure,
}

impl Calls {
    fn failing(failing: u32, failure: Failure) -> Self {
        Self { count: AtomicU32::new(0), failing, failure }
    }

    fn next(&self) -> Result<u32, Failure> {
        let call = self.count.fetch_add(1, Ordering::SeqCst);
        if call < self.failing { Err(self.failure.clone()) } else { Ok(call) }
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }
}

/// What a policy was told.
struct Told {
    inner: Arc<dyn Policy>,
    told: Mutex<Vec<String>>,
}

impl Policy for Told {
    fn should_retry(&self, attempt: u32, failure: &Failure) -> bool {
        self.inner.should_retry(attempt, failure)
    }

    fn delay_duration(&self, attempt: u32) -> Duration {
        self.inner.delay_duration(attempt)
    }

    fn on_success(&self) {
        self.told.lock().unwrap().push("success".into());
    }

    fn on_failure(&self, attempt: u32, failure: &Failure) {
        self.told.lock().unwrap().push(format!("failure {attempt} {}", failure.class()));
    }
}

#[tokio::test(start_paused = true)]
async fn b_099_what_fails_twice_is_called_three_times() {
    let calls = Calls::failing(2, busy());
    let began = Instant::now();
    let executor = RetryExecutor::new(Arc::new(ExponentialBackoff::default()));
    assert_eq!(executor.execute(async |_| calls.next()).await, Ok(2));
    assert_eq!((calls.count(), began.elapsed().as_millis()), (3, 600), "c_032: 200 and 400 ms");
}

#[tokio::test(start_paused = true)]
async fn b_097_a_policy_hears_of_every_failure_and_of_the_success_once() {
    let told = Arc::new(Told { inner: fixed(1, 5), told: Mutex::default() });
    let calls = Calls::failing(2, busy());
    RetryExecutor::new(told.clone()).execute(async |_| calls.next()).await.unwrap();
    let heard = told.told.lock().unwrap().join(", ");
    let class = "temporaryServiceUnavailable";
    assert_eq!(heard, format!("failure 0 {class}, failure 1 {class}, success"));
}

#[tokio::test(start_paused = true)]
async fn b_098_what_is_given_up_says_after_how_many_tries() {
    let calls = Calls::failing(u32::MAX, busy());
    let given_up = RetryExecutor::new(fixed(1, 3)).execute(async |_| calls.next()).await.unwrap_err();
    assert_eq!(given_up, RetryError::MaxAttemptsExceeded { attempts: 4, last_error: busy() });
    assert_eq!(calls.count(), 4, "c_001: three retries");
    assert_eq!(Failure::from(given_up), busy());

    let wrong = Failure::permanent("wrong");
    let calls = Calls::failing(u32::MAX, wrong.clone());
    let given_up = RetryExecutor::new(fixed(1, 3)).execute(async |_| calls.next()).await.unwrap_err();
    assert_eq!(given_up, RetryError::MaxAttemptsExceeded { attempts: 1, last_error: wrong });

    let given_up =
        RetryExecutor::new(Arc::new(NoRetry)).execute(async |_| Err::<(), _>(busy())).await.unwrap_err();
    assert_eq!(given_up.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn b_091_what_the_service_says_replaces_the_wait_and_c_018_the_cap() {
    let executor = RetryExecutor::new(fixed(10, 3));
    for (failure, ms) in [
        (Failure::new(Class::RateLimitExceeded, "slow down").with_retry_after_ms(70_000), 70_000),
        (Failure::new(Class::ProviderThrottling, "slow down"), 60_000),
        (busy(), 10),
    ] {
        let (calls, began) = (Calls::failing(1, failure), Instant::now());
        executor.execute(async |_| calls.next()).await.unwrap();
        assert_eq!(began.elapsed().as_millis(), ms);
    }
}

#[tokio::test(start_paused = true)]
async fn b_095_all_of_it_has_five_minutes() {
    let began = Instant::now();
    let given_up =
        RetryExecutor::new(fixed(1_000, 1_000)).execute(async |_| Err::<(), _>(busy())).await.unwrap_err();
    assert!(matches!(given_up, RetryError::Timeout { timeout_ms: 300_000, attempts: 300, .. }), "{given_up}");
    assert_eq!(began.elapsed(), Duration::from_secs(299), "c_018: nobody sleeps only to be too late");
}

#[tokio::test(start_paused = true)]
async fn b_096_a_try_that_runs_at_the_deadline_is_ended() {
    let told = Arc::new(Told { inner: fixed(1_000, 1_000), told: Mutex::default() });
    let executor = RetryExecutor::new(told.clone()).with_timeout(Duration::from_millis(1_500));
    let began = Instant::now();
    let given_up = executor
        .execute(async |attempt| match attempt {
            0 => Err(busy()),
            _ => std::future::pending::<Result<(), Failure>>().await,
        })
        .await
        .unwrap_err();
    assert!(matches!(given_up, RetryError::Timeout { timeout_ms: 1_500, attempts: 2, .. }), "{given_up}");
    assert_eq!(began.elapsed(), Duration::from_millis(1_500), "one deadline for tries and waits");
    assert_eq!(told.told.lock().unwrap().last().unwrap(), "failure 1 networkTimeout");
    assert_eq!(Failure::from(given_up).class(), Class::NetworkTimeout);
}

#[tokio::test(start_paused = true)]
async fn c_018_a_wait_that_ends_after_the_deadline_is_not_begun() {
    let began = Instant::now();
    let far = Failure::new(Class::RateLimitExceeded, "tomorrow").with_retry_after_ms(u64::MAX);
    let executor = RetryExecutor::new(fixed(1, 5)).with_timeout(Duration::from_secs(10));
    let given_up = executor.execute(async |_| Err::<(), _>(far.clone())).await.unwrap_err();
    assert!(
        matches!(&given_up, RetryError::Timeout { attempts: 1, last_error: Some(last), .. } if *last == far)
    );
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_ends_at_once_and_is_counted_nowhere() {
    let told = Arc::new(Told { inner: fixed(1_000, 5), told: Mutex::default() });
    let executor = RetryExecutor::new(told.clone());
    let calls = Calls::failing(u32::MAX, busy());
    let dropped =
        tokio::time::timeout(Duration::from_millis(1_500), executor.execute(async |_| calls.next())).await;
    dropped.unwrap_err();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((calls.count(), told.told.lock().unwrap().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_no_more_retries_than_the_budget_has() {
    let settings = BudgetSettings { gain_per_second: 0, ..BudgetSettings::default() };
    let budget = Budget::new(settings);
    let executor = RetryExecutor::new(fixed(1, 3)).with_budget(budget.clone());
    let (calls, mut outcomes) = (Calls::failing(u32::MAX, busy()), Vec::new());
    for _ in 0..100 {
        outcomes.push(executor.execute(async |_| calls.next()).await.unwrap_err().outcome());
    }
    assert_eq!(calls.count(), 100 + 35, "every call once, and 500 tokens at 14 for a retry");
    let exhausted = outcomes.iter().filter(|outcome| **outcome == "budget_exhausted").count();
    assert_eq!((exhausted, outcomes.len() - exhausted), (89, 11));
    let mut seen = Vec::new();
    budget.measure(&mut |name, _, reading| seen.push((name, reading)));
    assert!(seen.contains(&("retry_budget_exhausted", Reading::Counter(89))));
    assert!(seen.contains(&("retry_budget_spent", Reading::Counter(35))));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_helps_costs_nothing_and_throttling_costs_less() {
    let budget = Budget::new(BudgetSettings { gain_per_second: 0, ..BudgetSettings::default() });
    let executor = RetryExecutor::new(fixed(1, 3)).with_budget(budget.clone());
    let calls = Calls::failing(1, busy());
    executor.execute(async |_| calls.next()).await.unwrap();
    assert_eq!(budget.tokens(), 500);
    let throttled = Failure::new(Class::RateLimitExceeded, "slow down");
    executor.execute(async |_| Err::<(), _>(throttled.clone())).await.unwrap_err();
    assert_eq!(budget.tokens(), 485);
}

#[tokio::test(start_paused = true)]
async fn time_brings_the_budget_back() {
    let budget = Budget::default();
    let executor = RetryExecutor::new(fixed(1, 1_000)).with_budget(budget.clone());
    executor.execute(async |_| Err::<(), _>(busy())).await.unwrap_err();
    assert!(budget.tokens() < 14);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let calls = Calls::failing(u32::MAX, busy());
    executor.execute(async |_| calls.next()).await.unwrap_err();
    assert!((3..=5).contains(&calls.count()), "one retry for every second: {}", calls.count());
}

#[tokio::test(start_paused = true)]
async fn b_101_a_breaker_as_policy_ends_retries_for_all() {
    let settings =
        BreakerSettings { failure_threshold: 3, recovery_timeout_ms: 60_000, success_threshold: 1 };
    let clock = Arc::new(ManualClock::at(0));
    let breaker: Arc<dyn Policy> = Arc::new(Breaker::new(fixed(1, 100), settings, clock.clone()).unwrap());
    let calls = Calls::failing(u32::MAX, busy());
    let executor = RetryExecutor::new(breaker.clone());
    executor.execute(async |_| calls.next()).await.unwrap_err();
    assert_eq!(calls.count(), 4, "three retries, and then it is open");
    RetryExecutor::new(breaker).execute(async |_| calls.next()).await.unwrap_err();
    assert_eq!(calls.count(), 5, "whoever shares it does not retry at all");
    clock.advance(60_000);
    let calls = Calls::failing(1, busy());
    assert_eq!(executor.execute(async |_| calls.next()).await, Ok(1), "the retry is the probe");
}

#[tokio::test]
async fn behind_a_circuit_every_try_is_asked_for_and_told() {
    let store = Options::new("sqlite::memory:").component(COMPONENT).open().await.unwrap();
    let circuits = Circuits::open(&store).await.unwrap();
    let circuit = circuits.circuit("stripe-api").unwrap();
    let executor = RetryExecutor::new(fixed(1, 10)).behind(Arc::new(circuit.clone()));
    let calls = Calls::failing(u32::MAX, busy());
    let given_up = executor.execute(async |_| calls.next()).await.unwrap_err();
    assert_eq!((calls.count(), circuit.gate()), (3, Gate::Shut));
    let RetryError::CircuitOpen { attempts: 3, rejected } = given_up else { panic!("{given_up}") };
    assert_eq!(rejected.to_string(), "CIRCUIT_OPEN:stripe-api");
    let given_up = executor.execute(async |_| calls.next()).await.unwrap_err();
    assert_eq!((given_up.attempts(), calls.count()), (0, 3), "not called at all");
}

#[tokio::test(start_paused = true)]
async fn a_configured_policy_drives_it() {
    let policy =
        RetryConfig::default().policy(Arc::new(SeededRandom::new(1)), Arc::new(ManualClock::at(0))).unwrap();
    let (calls, began) = (Calls::failing(u32::MAX, busy()), Instant::now());
    RetryExecutor::new(policy).execute(async |_| calls.next()).await.unwrap_err();
    assert_eq!(calls.count(), 4);
    let waited = began.elapsed().as_millis();
    assert!((1_120..=1_690).contains(&waited), "200, 400 and 800 ms, each spread by a fifth: {waited}");
}

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

#[tokio::test(start_paused = true)]
async fn b_100_tries_and_waits_are_traced() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    let _here = tracing::subscriber::set_default(subscriber);
    let executor = RetryExecutor::new(fixed(250, 1));
    executor.execute(async |_| Err::<(), _>(busy())).await.unwrap_err();
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let said: Vec<&str> = text.lines().map(str::trim).collect();
    let expected = [
        ("INFO attempt{attempt=0}:", "calling"),
        ("WARN attempt{attempt=0}:", "the call failed"),
        ("INFO attempt{attempt=0 delay_ms=250}:", "waiting before the next call"),
        ("INFO attempt{attempt=1}:", "calling"),
        ("WARN attempt{attempt=1}:", "the call failed"),
        ("ERROR", "given up"),
    ];
    assert_eq!(said.len(), expected.len(), "{text}");
    for (line, (start, part)) in said.iter().zip(expected) {
        assert!(line.starts_with(start) && line.contains(part), "{line}");
    }
    assert!(said[5].contains("attempts=2 outcome=\"max_attempts_exceeded\""), "{}", said[5]);
}
