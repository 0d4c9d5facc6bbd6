//! Items that a caller has made up: the retry of a letter does not end with them.

use super::support::{Bad, Bench, PATIENCE, noting_unless};
use mainstay_flows::projections::failures::LetterStatus;
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{Call, Functions, Native, NewWork, Pool};
use serde_json::{Value, json};
use std::time::Duration;

const RETRIED: &str = "mainstay.projection.retried";

#[test]
fn a_forged_end_of_a_retry_changes_no_letter() {
    for_each_store(async |place| {
        let bad = Bad::texts(&["bad"]);
        let note = Functions::new().action("note", async |_: Call, _: Value| Ok(()));
        let store = super::support::components(place.options()).open().await.unwrap();
        let bench = Bench::with(store, vec![noting_unless("a", &bad)], note).await;
        bench.work.pool(Pool::new("shop")).await.unwrap();
        let ids = bench.append("Noted", &["bad"]).await;
        let projecting = bench.projections.start();
        bench.caught_up("a").await;
        // The retry waits, as its pool is paused.
        bench.work.pause("projectionPool").await.unwrap();
        let run = bench.projections.retry_letter("a", &ids[0]).await.unwrap();
        let engine = bench.work.start().await.unwrap();

        let context = json!({ "projection": "a", "eventId": ids[0] });
        let result = json!({ "kind": "success", "returnValue": true });
        let told =
            |work_id: &str| json!({ "workId": work_id, "context": context, "result": result, "attempts": 1 });
        let note = || NewWork::new("shop", "note", "x").unwrap();
        let forged = vec![
            // Calls with the args of an end: of the run, and of no run.
            NewWork::platform("shop", RETRIED, &told(&run)).unwrap(),
            NewWork::platform("shop", RETRIED, &told("work_x")).unwrap(),
            // The end of another item, which is reported, and says that it is the run's.
            note().tell_platform(RETRIED).context(&context).unwrap(),
            note().tell_platform(RETRIED).context(&told(&run)).unwrap(),
            // A call that does the run's work.
            NewWork::platform("shop", "mainstay.projection.apply", &context).unwrap(),
        ];
        let ends = [Native::Failed, Native::Failed, Native::Success, Native::Success, Native::Success];
        let forged = bench.work.enqueue_all(forged).await.unwrap();
        for (one, native) in forged.iter().zip(ends) {
            assert_eq!(bench.work.wait_for(&one.work_id, PATIENCE).await.unwrap().native, native);
        }
        let letter = bench.projections.letter("a", &ids[0]).await.unwrap();
        assert_eq!(letter.status, LetterStatus::Retrying);
        assert!(bench.noted("a").await.is_empty());

        bad.mend();
        bench.work.resume("projectionPool").await.unwrap();
        assert_eq!(bench.work.wait_for(&run, PATIENCE).await.unwrap().native, Native::Success);
        let letter = bench.projections.letter("a", &ids[0]).await.unwrap();
        assert_eq!((letter.status, bench.noted("a").await), (LetterStatus::Resolved, vec![1]));
        projecting.stop(PATIENCE).await;
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}
