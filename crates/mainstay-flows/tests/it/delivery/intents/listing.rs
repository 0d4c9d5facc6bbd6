//! Finding intents again.

use super::house::{House, MINUTE, components};
use mainstay_flows::delivery::intents::{
    Completion, Intent, IntentFilter, IntentPage, IntentStatus, NewIntent, OnTimeout, Orphans,
};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::{START_MS, VirtualTime};

fn new(operation: &str, order: u32) -> NewIntent {
    NewIntent::new(operation, ("Order", order.to_string()), "orders", MINUTE, OnTimeout::alert())
}

fn streams(intents: &[Intent]) -> Vec<u32> {
    intents.iter().map(|intent| intent.stream_id.parse().unwrap()).collect()
}

#[test]
fn b_184_of_a_hundred_intents_with_ninety_five_completed_five_are_orphans() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let house = House::on(store).await;
        for number in 0..100 {
            let operation = if number % 40 == 0 { "Payment" } else { "Submission" };
            let key = house.intents.record(new(operation, number)).await.unwrap().intent_key;
            if number % 20 != 0 {
                house.intents.complete(Completion::success(key)).await.unwrap();
            }
            time.advance(1_000).await.unwrap();
        }
        let orphans = async |orphans: Orphans, limit| house.intents.orphans(orphans, limit).await.unwrap();
        let all = orphans(Orphans::default(), 100).await;
        assert_eq!(streams(&all.intents), [0, 20, 40, 60, 80]);
        assert!(all.next.is_none());
        let now = START_MS + 100_000;
        for intent in &all.intents {
            assert_eq!(intent.time_since_intent, now - intent.started_at);
            assert_eq!(intent.status, IntentStatus::Pending);
        }
        // Those of an operation, and those that are old enough.
        let payments = Orphans { operation_type: Some("Payment".to_owned()), ..Orphans::default() };
        assert_eq!(streams(&orphans(payments, 100).await.intents), [0, 40, 80]);
        let old = Orphans { older_than_ms: 60_000, ..Orphans::default() };
        assert_eq!(streams(&orphans(old.clone(), 100).await.intents), [0, 20, 40]);
        let IntentPage { intents, next } = orphans(old.clone(), 2).await;
        assert_eq!(streams(&intents), [0, 20]);
        let IntentPage { intents, next } = orphans(Orphans { after: next, ..old }, 2).await;
        assert_eq!((streams(&intents), next), (vec![40], None));
        let older = Orphans { older_than_ms: u64::MAX, ..Orphans::default() };
        assert!(orphans(older, 100).await.intents.is_empty());
        // Page by page, also when the last of a page is completed meanwhile.
        let IntentPage { intents, next } = orphans(Orphans::default(), 2).await;
        assert_eq!(streams(&intents), [0, 20]);
        house.intents.complete(Completion::success(&intents[1].intent_key)).await.unwrap();
        let IntentPage { intents, next } = orphans(Orphans { after: next, ..Orphans::default() }, 2).await;
        assert_eq!(streams(&intents), [40, 60]);
        let IntentPage { intents, next } = orphans(Orphans { after: next, ..Orphans::default() }, 2).await;
        assert_eq!((streams(&intents), next), (vec![80], None));
    });
}

#[test]
fn intents_are_listed_the_newest_first_by_what_is_asked_for() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let house = House::on(store).await;
        for number in 0..40 {
            let operation = if number % 2 == 0 { "Even" } else { "Odd" };
            let intent = new(operation, number).correlation(format!("corr-{}", number % 5));
            let key = house.intents.record(intent).await.unwrap().intent_key;
            let ended = match number % 4 {
                0 => continue_pending(&time).await,
                1 => Some(Completion::success(key)),
                2 => Some(Completion::failure(key, "no")),
                _ => Some(Completion::abandoned(key, "no")),
            };
            if let Some(completion) = ended {
                house.intents.complete(completion).await.unwrap();
            }
        }
        let all = async |filter: IntentFilter, limit| {
            let (mut filter, mut found) = (filter, Vec::new());
            loop {
                let page = house.intents.list(filter.clone(), limit).await.unwrap();
                assert!(page.intents.len() <= limit);
                found.extend(streams(&page.intents));
                let Some(next) = page.next else { return found };
                filter.after = Some(next);
            }
        };
        // Several began in one moment; their keys order them.
        let mut everything = all(IntentFilter::default(), 7).await;
        assert_eq!(everything.len(), 40);
        everything.sort_unstable();
        assert_eq!(everything, (0..40).collect::<Vec<u32>>());
        let of = |is_wanted: fn(&u32) -> bool| (0..40).filter(is_wanted).collect::<Vec<u32>>();
        let sorted = async |filter| {
            let mut found = all(filter, 3).await;
            found.sort_unstable();
            found
        };
        let failed = IntentFilter { status: Some(IntentStatus::Failed), ..IntentFilter::default() };
        assert_eq!(sorted(failed).await, of(|number| number % 4 == 2));
        let odd = IntentFilter { operation_type: Some("Odd".to_owned()), ..IntentFilter::default() };
        assert_eq!(sorted(odd.clone()).await, of(|number| number % 2 == 1));
        let both = IntentFilter { status: Some(IntentStatus::Abandoned), ..odd };
        assert_eq!(sorted(both).await, of(|number| number % 4 == 3));
        let correlated =
            IntentFilter { correlation_id: Some("corr-3".to_owned()), ..IntentFilter::default() };
        assert_eq!(sorted(correlated).await, of(|number| number % 5 == 3));
        let pages = house.intents.list(IntentFilter::default(), 40).await.unwrap();
        assert!(pages.next.is_none());
        assert!(pages.intents.is_sorted_by_key(|intent| std::cmp::Reverse(intent.started_at)));
    });
}

async fn continue_pending(time: &VirtualTime) -> Option<Completion> {
    time.advance(1).await.unwrap();
    None
}
