//! Items 17 to 32: what a bucket gives, to whom, and that nobody gets more.

use super::{Bench, bucket, bucket_policy, consume, remaining};
use mainstay_guards::limits::{Decision, RateLimiter};
use std::sync::Arc;

pub(super) async fn hold(bench: &impl Bench) {
    b_030_the_first_the_eleventh_and_the_impossible(bench).await;
    b_029_of_fifteen_at_once_ten_are_allowed(bench).await;
    b_027_b_031_limiters_do_not_meet(bench).await;
    b_032_limiters_share_a_backend(bench).await;
    b_026_a_denial_costs_nothing(bench).await;
    b_022_what_remains_is_a_whole_number(bench).await;
    b_017_a_limiter_tells_its_policy(bench).await;
    keys_of_any_text_are_apart(bench).await;
    many_callers_of_many_keys_get_what_is_theirs(bench).await;
}

async fn b_030_the_first_the_eleventh_and_the_impossible(bench: &impl Bench) {
    let limiter = bucket(bench, "b030", 10.0, 1.0).await;
    assert_eq!(consume(&limiter, "user:1", 1).await, Decision::allowed(9));
    for left in (0..9).rev() {
        assert_eq!(consume(&limiter, "user:1", 1).await, Decision::allowed(left));
    }
    assert_eq!(consume(&limiter, "user:1", 1).await, Decision::denied(0, 1_000));
    assert_eq!(consume(&limiter, "user:2", 1).await, Decision::allowed(9));
    assert_eq!(consume(&limiter, "user:3", 3).await, Decision::allowed(7));
    assert_eq!(consume(&limiter, "user:4", 11).await, Decision::impossible(10));
    assert_eq!(consume(&limiter, "user:4", u64::MAX).await, Decision::impossible(10));
    assert_eq!(consume(&limiter, "user:4", 10).await, Decision::allowed(0));
}

async fn b_029_of_fifteen_at_once_ten_are_allowed(bench: &impl Bench) {
    let limiter = bucket(bench, "b029", 10.0, 1.0).await;
    let calls = (0..15).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move { consume(&limiter, "user:1", 1).await })
    });
    let mut left: Vec<u64> = Vec::new();
    let mut denied = 0;
    for call in calls.collect::<Vec<_>>() {
        let decision = call.await.unwrap();
        if decision.allowed { left.push(decision.remaining) } else { denied += 1 }
    }
    left.sort_unstable();
    assert_eq!((left, denied), ((0..10).collect(), 5));
}

async fn b_027_b_031_limiters_do_not_meet(bench: &impl Bench) {
    let (large, small) = (bucket(bench, "b031a", 10.0, 1.0).await, bucket(bench, "b031b", 5.0, 1.0).await);
    assert!(consume(&large, "user:1", 10).await.allowed);
    assert!(!consume(&large, "user:1", 1).await.allowed);
    assert_eq!(consume(&small, "user:1", 1).await, Decision::allowed(4));
}

async fn b_032_limiters_share_a_backend(bench: &impl Bench) {
    let (api, report) = (bucket(bench, "b032a", 100.0, 50.0).await, bucket(bench, "b032b", 10.0, 2.0).await);
    let (one, other) = tokio::join!(consume(&api, "api:user:1", 1), consume(&report, "report:user:1", 5));
    assert_eq!((one, other), (Decision::allowed(99), Decision::allowed(5)));
}

async fn b_022_what_remains_is_a_whole_number(bench: &impl Bench) {
    let limiter = bucket(bench, "b022", 10.0, 2.5).await;
    assert!(consume(&limiter, "user:1", 10).await.allowed);
    // 0.25, 1.0, 1.25 and 1.975 tokens.
    for (advance_ms, whole) in [(100, 0), (300, 1), (100, 1), (290, 1)] {
        bench.advance(advance_ms).await;
        assert_eq!(remaining(&limiter, "user:1").await, whole, "{advance_ms} ms later");
    }
}

async fn b_026_a_denial_costs_nothing(bench: &impl Bench) {
    let limiter = bucket(bench, "b026", 10.0, 1.0).await;
    assert!(consume(&limiter, "user:1", 8).await.allowed);
    for _ in 0..5 {
        assert_eq!(consume(&limiter, "user:1", 3).await, Decision::denied(2, 1_000));
    }
    assert_eq!(consume(&limiter, "user:1", 2).await, Decision::allowed(0));
}

async fn b_017_a_limiter_tells_its_policy(bench: &impl Bench) {
    let policy = bucket_policy("b017", 10.9, 2.5);
    let limiter = bench.limiter(policy.clone()).await;
    assert_eq!(limiter.policy(), policy);
    let limit = *limiter.policy().limit();
    assert_eq!((limit.capacity(), limit.tokens_per_second(), limiter.policy().prefix()), (10, 2.5, "b017:"));
}

async fn keys_of_any_text_are_apart(bench: &impl Bench) {
    let limiter = bucket(bench, "texts", 2.0, 1.0).await;
    let texts = [
        "a",
        "A",
        " a",
        "a ",
        "ä",
        "a\u{308}",
        "{a}",
        "}a{",
        "a{b}c",
        "*",
        "?",
        "'; DROP TABLE",
        "%s",
        &"x".repeat(512),
    ];
    for key in texts {
        assert_eq!(consume(&limiter, key, 1).await, Decision::allowed(1), "{key}");
    }
    for key in texts {
        assert_eq!(consume(&limiter, key, 1).await, Decision::allowed(0), "{key}");
    }
}

async fn many_callers_of_many_keys_get_what_is_theirs(bench: &impl Bench) {
    let limiter = bucket(bench, "many", 20.0, 1.0).await;
    let caller = |caller: usize, limiter: Arc<dyn RateLimiter>| async move {
        let mut allowed = [0_u64; 8];
        for call in 0..40 {
            let key = (caller + call) % 8;
            allowed[key] += u64::from(consume(&limiter, &format!("user:{key}"), 1).await.allowed);
        }
        allowed
    };
    let callers: Vec<_> = (0..8).map(|number| tokio::spawn(caller(number, limiter.clone()))).collect();
    let mut total = [0; 8];
    for one in callers {
        let allowed = one.await.unwrap();
        total.iter_mut().zip(allowed).for_each(|(sum, one)| *sum += one);
    }
    assert_eq!(total, [20; 8]);
    assert_eq!(remaining(&limiter, "user:0").await, 0);
}
