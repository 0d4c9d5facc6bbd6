//! Items that a caller has made up: they remove no table and end no replay. They are made as the platform makes its own,
//! past the check of names, so that what is shown holds by itself.

use super::beside::{exists, managed, rows};
use super::{chunks_are_tried, ended};
use crate::projections::support::{Bad, Bench, PATIENCE, components, until};
use mainstay_flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_flows::projections::{Category, Projection};
use mainstay_store::{Tx, params};
use mainstay_testkit::stores::for_each_store;
use mainstay_testkit::time::VirtualTime;
use mainstay_work::{Call, Failure, Functions, LetterFilter, Native, NewWork, Pool, Work};
use serde_json::{Value, json};

const ATTACK: &str = r#"[{"name":"mainstay_events --","statements":[]}]"#;

fn tidy(args: &Value) -> NewWork {
    NewWork::platform("eventReplayPool", "mainstay.replay.tidy", args).unwrap()
}

/// The error of the dead letter of a function, once there is one.
pub(super) async fn letter(work: &Work, function: &str) -> String {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let letters = work.letters(LetterFilter::default(), 100).await.unwrap();
        if let Some(letter) = letters.into_iter().find(|letter| letter.function == function) {
            return letter.error;
        }
        assert!(tokio::time::Instant::now() < deadline, "{function} has no dead letter");
        tokio::task::yield_now().await;
    }
}

#[test]
fn the_removal_of_a_generation_takes_nothing_but_ids_from_its_args() {
    for_each_store(async |place| {
        let bench = Bench::open(&place, vec![managed(&Bad::default(), false)]).await;
        let engine = bench.work.start().await.unwrap();
        bench.append_many(30).await;
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        // One that is built beside, and does not go on.
        bench.work.pause("eventReplayPool").await.unwrap();
        bench.projections.trigger_rebuild(Rebuild::of("orders").from(0)).await.unwrap();
        bench.work.pool(Pool::new("other")).await.unwrap();
        for generation in [-1, 0, 1, 2, 3, 999] {
            for shape in [ATTACK, r#"[{"name":"order_rows","statements":[]}]"#] {
                let args = json!({ "projection": "orders", "generation": generation, "shape": shape });
                let item = NewWork::platform("other", "mainstay.replay.tidy", &args).unwrap();
                let id = bench.work.enqueue(item).await.unwrap().work_id;
                let status = bench.work.wait_for(&id, PATIENCE).await.unwrap();
                assert_eq!(status.native, Native::Success, "generation {generation}: nothing to do");
            }
        }
        for table in
            ["mainstay_events", "mainstay_work", "order_rows__g1", "order_rows__g2", "order_rows__g3"]
        {
            assert!(exists(&bench.store, table).await, "{table}");
        }
        assert_eq!(rows(&bench.store).await, (1..=30).collect::<Vec<u64>>());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn an_item_of_the_previous_version_removes_the_generation_that_it_names() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, vec![managed(&Bad::default(), false)]).await;
        let engine = bench.work.start().await.unwrap();
        bench.append_many(30).await;
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        engine.stop(PATIENCE).await.unwrap();
        for item in bench.work.pending("eventReplayPool", 10).await.unwrap() {
            bench.work.cancel(&item.work_id).await.unwrap();
        }
        time.advance(601_000).await.unwrap();
        let args = json!({ "projection": "orders", "generation": 1, "shape": ATTACK });
        let id = bench.work.enqueue(tidy(&args)).await.unwrap().work_id;
        let engine = bench.work.start().await.unwrap();
        assert_eq!(bench.work.wait_for(&id, PATIENCE).await.unwrap().native, Native::Success);
        assert!(!exists(&bench.store, "order_rows__g1").await);
        assert!(exists(&bench.store, "mainstay_events").await);
        assert_eq!(rows(&bench.store).await, (1..=30).collect::<Vec<u64>>());
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_shape_with_a_name_that_no_author_can_give_leads_to_an_error_and_to_no_statement() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open_with(&place, components(place.options())).await.unwrap();
        let bench = Bench::on(store, vec![managed(&Bad::default(), false)]).await;
        chunks_are_tried(&bench, 1).await;
        let engine = bench.work.start().await.unwrap();
        bench.append_many(30).await;
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        engine.stop(PATIENCE).await.unwrap();
        let tamper = async |tx: Tx| {
            tx.execute("UPDATE mainstay_replays SET shape = $1", params![ATTACK]).await?;
            tx.execute("UPDATE mainstay_projections SET shape = $1", params![ATTACK]).await
        };
        bench.store.transact(tamper).await.unwrap();
        time.advance(601_000).await.unwrap();
        let engine = bench.work.start().await.unwrap();
        until("the item is a dead letter", async || {
            engine.look_around();
            !bench.work.letters(LetterFilter::default(), 1).await.unwrap().is_empty()
        })
        .await;
        let error = letter(&bench.work, "mainstay.replay.tidy").await;
        assert!(error.contains("mainstay_events --"), "{error}");
        for table in ["mainstay_events", "order_rows__g1", "order_rows__g2"] {
            assert!(exists(&bench.store, table).await, "{table}");
        }
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn the_end_of_an_item_that_is_not_the_replay_s_does_not_end_the_replay() {
    for_each_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let functions = Functions::new()
            .action("refuse", async |_: Call, _: Value| Err::<(), _>(Failure::permanent("no")));
        let bench = Bench::with(store, vec![managed(&Bad::default(), false)], functions).await;
        bench.work.pool(Pool::new("shop")).await.unwrap();
        bench.work.pause("eventReplayPool").await.unwrap();
        bench.append_many(30).await;
        let begun = bench.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap();
        let context = json!({ "replayId": begun.replay_id, "step": 1 });
        let other = NewWork::new("shop", "refuse", "x").unwrap();
        let other = other.tell_platform("mainstay.replay.ended").context(&context).unwrap();
        let args =
            json!({ "workId": "work_x", "context": context, "result": { "kind": "failed", "error": "no" } });
        let plain = NewWork::platform("shop", "mainstay.replay.ended", &args).unwrap();
        bench.work.enqueue_all(vec![other, plain]).await.unwrap();
        let engine = bench.work.start().await.unwrap();
        until("both are dead letters", async || {
            let letters = bench.work.letters(LetterFilter::default(), 10).await.unwrap();
            letters.iter().filter(|letter| letter.function == "mainstay.replay.ended").count() == 2
        })
        .await;
        let error = letter(&bench.work, "mainstay.replay.ended").await;
        assert!(error.contains("validationError"), "{error}");
        let progress = bench.projections.rebuild_status(&begun.replay_id).await.unwrap();
        assert_eq!(progress.status, ReplayStatus::Running);
        bench.work.resume("eventReplayPool").await.unwrap();
        assert_eq!(ended(&bench, &begun.replay_id).await.status, ReplayStatus::Completed);
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn names_of_the_platform_and_of_databases_are_not_for_projections_and_their_tables() {
    for_each_store(async |place| {
        let store = components(place.options()).open().await.unwrap();
        let open = async |projection: Projection| {
            let registry = mainstay_flows::projections::Registry::new().with(projection);
            let log = mainstay_events::Log::open(&store).await.unwrap();
            let work = Work::open(&store, Functions::new()).await.unwrap();
            let opened = mainstay_flows::projections::Projections::open(&store, &log, &work, registry).await;
            opened.map(drop).unwrap_err()
        };
        let named = |name: &str| Projection::new(name, Category::View).each(async |_, _, _| Ok(()));
        for name in ["mainstay.x", "MAINSTAY.x", " Mainstay.x "] {
            let error = open(named(name)).await;
            assert_eq!(error.code(), "NAME_RESERVED", "{name:?}: {error}");
        }
        for table in ["mainstay_audit", "pg_class", "sqlite_master", "a b", "a--", "Orders"] {
            let error = open(named("orders").table(table, &["CREATE TABLE {table} (a BIGINT)"])).await;
            assert_eq!(error.code(), "FLOW_INVALID", "{table:?}: {error}");
            assert!(error.to_string().contains(table), "{error}");
        }
        let count = async |tx: Tx| {
            let row = tx.query_one("SELECT count(*) FROM mainstay_projections", &[]).await?;
            row.get::<i64>(0)
        };
        assert_eq!(store.read(count).await.unwrap(), 0);
    });
}
