//! Numbers that nobody but the author knows must be given: item 280.

use super::support::{Bench, components, noting};
use mainstay_core::retry::{RetryPolicy, RetryPolicyError};
use mainstay_flows::projections::{Poison, Projections, Registry};
use mainstay_testkit::stores::for_each_store;

/// Compiles only as long as `Poison` has no default: with one, it could not be told which of the two is meant.
trait NoDefault<Which> {
    fn holds() {}
}

impl<T> NoDefault<()> for T {}

struct HasDefault;

impl<T: Default> NoDefault<HasDefault> for T {}

#[test]
fn b_280_poison_handling_and_policies_are_made_of_numbers_that_are_given() {
    <Poison as NoDefault<_>>::holds();
    let policy = RetryPolicy::new(3, 100, 2.0, 30_000).unwrap();
    assert_eq!(
        (policy.max_attempts(), policy.initial_backoff_ms(), policy.base(), policy.max_backoff_ms()),
        (3, 100, 2.0, 30_000)
    );
    assert_eq!(RetryPolicy::new(0, 100, 2.0, 30_000).unwrap_err(), RetryPolicyError::NoAttempts);
    let nonsense = [
        ("initialBackoffMs", (0, 2.0, 30_000)),
        ("base", (100, 0.0, 30_000)),
        ("base", (100, -1.0, 30_000)),
        ("base", (100, f64::NAN, 30_000)),
        ("base", (100, f64::INFINITY, 30_000)),
        ("maxBackoffMs", (100, 2.0, 0)),
    ];
    for (name, (initial_backoff_ms, base, max_backoff_ms)) in nonsense {
        let refused = RetryPolicy::new(3, initial_backoff_ms, base, max_backoff_ms).unwrap_err();
        assert_eq!(refused, RetryPolicyError::NotPositive(name));
    }
}

#[test]
fn b_280_numbers_that_make_no_sense_are_refused_before_anything_is_made() {
    for_each_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let bench = Bench::on(store, vec![noting("a").poison(Poison::new(1, true))]).await;
        let registry = Registry::new().with(noting("b").poison(Poison::new(0, true)));
        let refused = Projections::open(&bench.store, &bench.log, &bench.work, registry).await.unwrap_err();
        assert_eq!(refused.code(), "FLOW_INVALID");
        assert!(refused.to_string().contains("maxAttempts must be 1 or more"), "{refused}");
        let names = bench.projections.definitions().map(|definition| definition.name().to_owned());
        assert_eq!(names.collect::<Vec<_>>(), ["a"]);
        let made = async |tx: mainstay_store::Tx| {
            tx.query_one("SELECT count(*) FROM mainstay_projections", &[]).await?.get::<u64>(0)
        };
        assert_eq!(bench.store.read(made).await.unwrap(), 1, "nothing was made of the other");
    });
}
