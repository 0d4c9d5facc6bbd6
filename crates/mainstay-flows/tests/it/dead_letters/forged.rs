//! Items that a caller has made up do not end operations.

use super::bench::{Bench, PATIENCE, SHOP, until};
use mainstay_flows::dead_letters::{Action, Filter, OperationStatus, POOL};
use mainstay_testkit::stores::for_each_store;
use mainstay_work::{LetterFilter, NewWork};
use serde_json::json;

#[test]
fn the_end_of_an_item_that_is_not_the_operation_s_does_not_end_the_operation() {
    for_each_store(async |place| {
        let bench = Bench::open(&place).await;
        let engine = bench.start().await;
        bench.charge(["1".to_owned()]).await;
        bench.work.pause(POOL).await.unwrap();
        let preview = bench.letters.preview(Action::Retry, Filter::default(), "ops").await.unwrap();
        let running = bench.letters.run(&preview.operation_id).await.unwrap();
        assert_eq!(running.status, OperationStatus::Running);
        let context = json!({ "operationId": running.operation_id, "step": 1 });
        let ended = "mainstay.letters.ended";
        let other =
            NewWork::new(SHOP, "charge", "2").unwrap().tell_platform(ended).context(&context).unwrap();
        let result = json!({ "kind": "failed", "error": "no" });
        let args = json!({ "workId": "work_x", "context": context, "result": result });
        let plain = NewWork::platform(SHOP, ended, &args).unwrap();
        bench.work.enqueue_all(vec![other, plain]).await.unwrap();
        until("both are dead letters", async || {
            let letters = bench.work.letters(LetterFilter::default(), 10).await.unwrap();
            letters.iter().filter(|letter| letter.function == ended).count() == 2
        })
        .await;
        let found = bench.letters.operation(&running.operation_id).await.unwrap();
        assert_eq!(found.status, OperationStatus::Running);
        bench.mend();
        bench.work.resume(POOL).await.unwrap();
        until("it is done", async || {
            let found = bench.letters.operation(&running.operation_id).await.unwrap();
            found.status == OperationStatus::Done
        })
        .await;
        engine.stop(PATIENCE).await.unwrap();
    });
}
