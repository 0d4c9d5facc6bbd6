//! What holds of every limit, whatever is asked of it and whenever.

use super::*;
use proptest::prelude::*;

const DAY_MS: i64 = 86_400_000;

fn bucket(capacity: f64, per_second: f64) -> Limit {
    Limit::bucket(capacity, per_second).unwrap()
}

fn window(rate: u32, period_ms: u64, capacity: u32) -> Limit {
    Limit::new(Kind::FixedWindow, rate.into(), period_ms).unwrap().with_capacity(capacity.into()).unwrap()
}

fn sliding(capacity: u32, period_ms: u64) -> Limit {
    Limit::new(Kind::SlidingWindow, capacity.into(), period_ms).unwrap()
}

/// How many of the calls at these times are allowed.
fn granted(limit: &Limit, times: impl IntoIterator<Item = i64>) -> usize {
    let mut state = limit.fresh(0);
    times.into_iter().filter(|now_ms| limit.consume(&mut state, *now_ms, 1).allowed).count()
}

#[test]
fn b_019_a_limit_that_makes_no_sense_is_refused() {
    for capacity in [0.0, 0.9, -1.0, f64::NAN] {
        let error = Limit::bucket(capacity, 1.0).unwrap_err();
        assert_eq!(error.to_string(), "Rate limit capacity must be ≥ 1");
    }
    for rate in [0.0, -1.0, f64::NAN] {
        assert_eq!(Limit::bucket(1.0, rate).unwrap_err().to_string(), "tokensPerSecond must be > 0");
    }
    assert_eq!(Limit::bucket(f64::INFINITY, 1.0), Err(LimitError::CapacityTooLarge { most: MAX_CAPACITY }));
    assert_eq!(Limit::bucket(1.0, 1e6 + 1.0), Err(LimitError::RateTooHigh));
    assert_eq!(Limit::bucket(1.0, f64::INFINITY), Err(LimitError::RateTooHigh));
    assert_eq!(Limit::bucket(1.0, 1e-9), Err(LimitError::RateTooLow));
    for period in [0, MAX_PERIOD_MS + 1, u64::MAX] {
        assert_eq!(Limit::new(Kind::TokenBucket, 1.0, period), Err(LimitError::BadPeriod));
    }
    assert_eq!(Limit::new(Kind::FixedWindow, 0.5, 1_000), Err(LimitError::FractionalRate));
    let year = Limit::new(Kind::TokenBucket, 1.0, MAX_PERIOD_MS).unwrap();
    assert_eq!(year.with_capacity(1e6), Err(LimitError::CapacityTooLarge { most: 142_418 }));
}

#[test]
fn c_034_any_rate_is_taken_and_a_capacity_without_its_fraction() {
    assert_eq!(bucket(10.9, 0.1).capacity(), 10);
    assert_eq!(granted(&bucket(1.0, 0.1), (0..=60_000).step_by(100)), 7);
    let every_day = Limit::new(Kind::TokenBucket, 1.0, DAY_MS as u64).unwrap();
    assert_eq!(granted(&every_day, (0..=30 * DAY_MS).step_by(7_000)), 30);
    let fast = bucket(1e6, 1e6);
    let mut state = fast.fresh(0);
    assert_eq!(fast.consume(&mut state, 0, 1_000_000).remaining, 0);
    assert_eq!(fast.consume(&mut state, 0, 1).retry_after_ms, Some(1));
    assert_eq!(fast.consume(&mut state, 1, 1_000).remaining, 0);
    assert_eq!(fast.consume(&mut state, 2, 1_001).retry_after_ms, Some(1));
}

#[test]
fn b_025_c_004_polling_loses_no_token() {
    let limit = bucket(10.0, 1.0);
    for every in [1, 7, 100, 700, 999] {
        let mut state = limit.fresh(0);
        limit.consume(&mut state, 0, 10);
        let polls = (1..60_000).filter(|now_ms| now_ms % every == 0);
        let granted = polls.filter(|now_ms| limit.consume(&mut state, *now_ms, 1).allowed).count();
        assert_eq!(granted, 59, "polled every {every} ms");
    }
}

#[test]
fn b_021_impossible_only_when_it_costs_more_than_there_can_ever_be() {
    for limit in [bucket(10.0, 1.0), window(10, 1_000, 10), sliding(10, 1_000)] {
        let mut state = limit.fresh(0);
        assert_eq!(limit.consume(&mut state, 0, 11), Decision::impossible(10));
        assert_eq!(limit.consume(&mut state, 0, u64::MAX), Decision::impossible(10));
        assert_eq!(limit.consume(&mut state, 0, 10), Decision::allowed(0));
        assert!(limit.consume(&mut state, 0, 10).retry_after_ms.is_some());
    }
}

#[test]
fn b_012_windows_bring_back_their_rate_and_roll_over() {
    let limit = window(10, 60_000, 25);
    let mut state = limit.fresh(59_999);
    assert_eq!(limit.consume(&mut state, 59_999, 25), Decision::allowed(0));
    assert_eq!(limit.consume(&mut state, 59_999, 1), Decision::denied(0, 1));
    assert_eq!(limit.consume(&mut state, 59_999, 11), Decision::denied(0, 60_001));
    assert_eq!(limit.consume(&mut state, 60_000, 1), Decision::allowed(9));
    assert_eq!(limit.value(&state, 60_000 * 2), 19);
    assert_eq!(limit.value(&state, 60_000 * 100), 25);
    let hourly = window(10, 3_600_000, 10).starting_at(900_000);
    let mut state = hourly.fresh(1_000_000);
    assert_eq!(state.at_ms, 900_000);
    assert_eq!(hourly.consume(&mut state, 1_000_000, 10), Decision::allowed(0));
    assert_eq!(hourly.consume(&mut state, 1_000_000, 1), Decision::denied(0, 3_500_000));
    assert_eq!(window(1, 1_000, 1).starting_at(-1).start_ms(), 999);
}

#[test]
fn a_sliding_window_lets_use_fade_over_the_next_period() {
    let limit = sliding(10, 1_000);
    let mut state = limit.fresh(500);
    assert_eq!(limit.consume(&mut state, 500, 10), Decision::allowed(0));
    assert_eq!(limit.consume(&mut state, 600, 1), Decision::denied(0, 500));
    assert_eq!(limit.consume(&mut state, 1_100, 1), Decision::allowed(0));
    assert_eq!(limit.value(&state, 1_500), 4);
    assert_eq!(limit.value(&state, 2_500), 9);
    assert_eq!(limit.value(&state, 3_000), 10);
}

#[test]
fn what_was_used_stays_used_when_the_limit_changes() {
    let (small, large) = (bucket(10.0, 1.0), bucket(100.0, 7.0));
    let mut state = small.fresh(0);
    small.consume(&mut state, 0, 4);
    assert_eq!(large.value(&large.convert(&small, &state, 0), 0), 96);
    assert_eq!(small.value(&small.convert(&large, &large.convert(&small, &state, 0), 0), 0), 6);
    large.consume(&mut large.convert(&small, &state, 0), 0, 96);
    let hourly = window(50, 3_600_000, 50);
    assert_eq!(hourly.value(&hourly.convert(&small, &state, 0), 0), 46);
    let faded = sliding(20, 1_000);
    assert_eq!(faded.value(&faded.convert(&hourly, &hourly.convert(&small, &state, 0), 0), 0), 16);
    assert_eq!(small.convert(&large, &large.fresh(0), 0).missing, 0, "what was full stays full");
}

#[test]
fn a_penalty_owes_at_most_a_whole_capacity_and_a_refund_gives_no_more_than_there_was() {
    for limit in [bucket(10.0, 10.0), window(10, 1_000, 10), sliding(10, 1_000)] {
        let mut state = limit.fresh(0);
        limit.penalize(&mut state, 0, u64::MAX);
        assert_eq!(limit.value(&state, 0), -10, "{limit:?}");
        assert!(limit.consume(&mut state, 0, 1).retry_after_ms.unwrap() <= 2_000);
        limit.refund(&mut state, 0, 13);
        assert_eq!(limit.value(&state, 0), 3);
        limit.refund(&mut state, 0, u64::MAX);
        assert_eq!(limit.value(&state, 0), 10);
        assert!(limit.is_full(&state, 0));
    }
}

#[test]
fn a_reservation_is_taken_ahead_and_tells_when_its_time_comes() {
    let limit = bucket(10.0, 1.0);
    let mut state = limit.fresh(0);
    assert_eq!(limit.reserve(&mut state, 0, 10, 5), (Decision::allowed(0), 0));
    assert_eq!(limit.reserve(&mut state, 0, 3, 5), (Decision::allowed(0), 3_000));
    assert_eq!(limit.reserve(&mut state, 0, 3, 5), (Decision::denied(0, 6_000), 0));
    assert_eq!(limit.value(&state, 0), -3);
    assert_eq!(limit.consume(&mut state, 3_000, 1), Decision::denied(0, 1_000));
    let hourly = window(10, 3_600_000, 10);
    let mut state = hourly.fresh(1_000);
    hourly.consume(&mut state, 1_000, 10);
    assert_eq!(hourly.reserve(&mut state, 1_000, 11, 100), (Decision::allowed(0), 2 * 3_600_000 - 1_000));
    let mut state = sliding(10, 1_000).fresh(0);
    sliding(10, 1_000).consume(&mut state, 0, 10);
    assert!(!sliding(10, 1_000).reserve(&mut state, 0, 1, 100).0.allowed, "a sliding window lends nothing");
}

#[test]
fn b_024_a_clock_that_was_put_back_adds_nothing_and_the_budget_comes_back_by_it() {
    for limit in [bucket(10.0, 10.0), window(10, 1_000, 10), sliding(10, 1_000)] {
        let mut state = limit.fresh(DAY_MS);
        assert_eq!(limit.consume(&mut state, DAY_MS, 10).remaining, 0);
        assert!(!limit.consume(&mut state, DAY_MS - 500, 1).allowed, "callers that meet out of order");
        assert!(!limit.consume(&mut state, 0, 1).allowed, "a clock that was put back by a day");
        assert!(limit.consume(&mut state, 2_000, 10).allowed, "{limit:?}");
    }
}

#[test]
fn b_012_shards_split_capacity_and_rate_evenly() {
    let dispatch = Limit::new(Kind::TokenBucket, 100.0, 60_000).unwrap().with_capacity(150.0).unwrap();
    let shard = dispatch.share(50, 7).unwrap();
    assert_eq!((shard.capacity(), shard.rate(), shard.period_ms()), (3, 1, 30_000));
    let capacities: Vec<u64> =
        (0..3).map(|index| bucket(10.0, 1.0).share(3, index).unwrap().capacity()).collect();
    assert_eq!(capacities, [4, 3, 3]);
    let rates: Vec<u64> =
        (0..3).map(|index| window(10, 60_000, 20).share(3, index).unwrap().rate()).collect();
    assert_eq!(rates, [4, 3, 3]);
    for (limit, shards) in [(bucket(10.0, 1.0), 0), (bucket(10.0, 1.0), 11), (window(10, 1_000, 20), 11)] {
        assert_eq!(limit.share(shards, 0), Err(LimitError::TooManyShards));
    }
}

fn limits() -> impl Strategy<Value = Limit> {
    let buckets = (1_u32..1_000, 1_u32..2_000, 1_u64..100_000).prop_map(|(capacity, rate, period_ms)| {
        Limit::new(Kind::TokenBucket, rate.into(), period_ms)
            .and_then(|one| one.with_capacity(capacity.into()))
    });
    let windows = (1_u32..1_000, 1_u32..1_000, 1_u64..100_000, any::<i64>()).prop_map(
        |(capacity, rate, period_ms, start)| {
            let limit = Limit::new(Kind::FixedWindow, rate.into(), period_ms)?;
            Ok(limit.with_capacity(capacity.into())?.starting_at(start))
        },
    );
    let sliding = (1_u32..1_000, 1_u64..100_000)
        .prop_map(|(capacity, period_ms)| Limit::new(Kind::SlidingWindow, capacity.into(), period_ms));
    prop_oneof![buckets, windows, sliding].prop_filter_map("a rate that is too high", Result::ok)
}

/// Steps of time with costs.
fn calls() -> impl Strategy<Value = Vec<(i64, u64)>> {
    proptest::collection::vec((prop_oneof![0_i64..50, 0_i64..20_000], 1_u64..300), 1..80)
}

proptest! {
    #[test]
    fn a_retry_passes_when_told_and_not_a_millisecond_earlier(limit in limits(), calls in calls()) {
        let (mut now_ms, mut state) = (1_000_000, limit.fresh(1_000_000));
        for (step, cost) in calls {
            now_ms += step;
            let decision = limit.consume(&mut state, now_ms, cost);
            prop_assert_eq!(decision.is_impossible(), cost > limit.capacity());
            let Some(wait_ms) = decision.retry_after_ms else { continue };
            prop_assert!(wait_ms > 0);
            prop_assert!(limit.check(&state, now_ms + wait_ms as i64, cost).allowed);
            let early = limit.check(&state, now_ms + wait_ms as i64 - 1, cost);
            prop_assert_eq!(early.retry_after_ms, Some(1));
        }
    }

    #[test]
    fn a_denial_costs_nothing_and_what_remains_is_true(limit in limits(), calls in calls()) {
        let (mut now_ms, mut state) = (0, limit.fresh(0));
        for (step, cost) in calls {
            now_ms += step;
            let before = limit.value(&state, now_ms);
            let decision = limit.consume(&mut state, now_ms, cost);
            let expected = if decision.allowed { before - cost as i64 } else { before };
            prop_assert_eq!(limit.value(&state, now_ms), expected);
            prop_assert_eq!(decision.remaining as i64, expected);
            prop_assert!((0..=limit.capacity() as i64).contains(&expected));
            prop_assert_eq!(decision.allowed, before >= cost as i64);
        }
    }

    #[test]
    fn a_bucket_grants_its_capacity_and_its_rate_and_not_a_token_more(
        capacity in 1_u32..100, rate in 1_u32..1_000, period_ms in 1_u64..100_000, calls in calls(),
    ) {
        let limit = Limit::new(Kind::TokenBucket, rate.into(), period_ms);
        prop_assume!(limit.is_ok());
        let limit = limit.unwrap().with_capacity(capacity.into()).unwrap();
        let (mut now_ms, mut state, mut taken) = (0_i64, limit.fresh(0), 0_u64);
        for (step, cost) in calls {
            now_ms += step;
            if limit.consume(&mut state, now_ms, cost).allowed {
                taken += cost;
            }
            let ever = u64::from(capacity) + now_ms as u64 * u64::from(rate) / period_ms;
            prop_assert!(taken <= ever, "{taken} of {ever} at {now_ms}");
        }
        // Asked one by one while never full, it gives exactly that.
        let mut state = limit.fresh(0);
        limit.consume(&mut state, 0, u64::from(capacity));
        let until_ms = limit.full_after_ms() as i64;
        let mut got = 0;
        for now_ms in (0..until_ms.min(5_000)).step_by(3) {
            while limit.consume(&mut state, now_ms, 1).allowed {
                got += 1;
            }
            prop_assert_eq!(got, now_ms as u64 * u64::from(rate) / period_ms);
        }
    }

    #[test]
    fn an_empty_budget_is_full_when_it_says(limit in limits(), now_ms in 0_i64..1_000_000) {
        let mut state = limit.fresh(now_ms);
        limit.consume(&mut state, now_ms, limit.capacity());
        prop_assert!(!limit.is_full(&state, now_ms));
        prop_assert!(limit.is_full(&state, now_ms + limit.full_after_ms() as i64));
    }

    #[test]
    fn no_clock_makes_it_panic_or_grant_beyond_the_capacity(
        limit in limits(), calls in proptest::collection::vec((any::<i64>(), any::<u64>()), 1..40),
    ) {
        let mut state = limit.fresh(0);
        for (now_ms, cost) in calls {
            let now_ms = now_ms / 4;
            let decision = limit.consume(&mut state, now_ms, cost % 2_000);
            prop_assert!(decision.remaining <= limit.capacity());
            limit.penalize(&mut state, now_ms, cost);
            limit.refund(&mut state, now_ms, cost);
            limit.reserve(&mut state, now_ms, cost % 2_000, cost);
        }
    }
}
