//! A store in memory for authors' tests.

use super::{HallCommand, HallEvent, Halls};
use mainstay_events::{NewEvent, Selection};
use mainstay_flows::commands::Decision;
use mainstay_flows::commands::testing::Bench;
use mainstay_store::migrations::{Component, Script, Step};
use std::time::Duration;

#[tokio::test]
async fn decides_on_what_is_in_the_log_and_appends() {
    let bench = Bench::open().await.unwrap();
    let sell = HallCommand::SellSeat { hall: 1, seat: 1 };
    bench.given([HallEvent::SeatSold { hall: 1, seat: 4 }]).await.unwrap();
    bench.log().append(NewEvent::new("LampBroke", &1).unwrap().tag("hall:1")).await.unwrap();
    let decided = bench.when(Halls, sell.clone()).await.unwrap().unwrap();
    assert_eq!(decided, Decision::success(2, [HallEvent::SeatSold { hall: 1, seat: 1 }]));
    let again = bench.when(Halls, sell.clone()).await.unwrap().unwrap();
    let refused = HallEvent::SeatRefused { hall: 1, seat: 1 };
    assert_eq!(again, Decision::failed("the seat is sold", [refused.clone()]));
    bench.when(Halls, HallCommand::CloseHall { hall: 1 }).await.unwrap().unwrap();
    let late = bench.when(Halls, sell).await.unwrap().unwrap_err();
    assert_eq!(late.code, "HALL_CLOSED");
    let all: Vec<HallEvent> = bench.events().await.unwrap();
    assert_eq!((all.len(), &all[2]), (4, &refused));
}

#[tokio::test]
async fn its_time_is_the_tests_own() {
    let bench = Bench::open().await.unwrap();
    let before = bench.now_ms();
    bench.advance(Duration::from_secs(3_600));
    bench.when(Halls, HallCommand::CloseHall { hall: 1 }).await.unwrap().unwrap();
    let late = bench.when(Halls, HallCommand::CloseHall { hall: 1 }).await.unwrap().unwrap_err();
    assert_eq!(late.context, Some(serde_json::json!({"at": before + 3_600_000})));
    let page = bench.log().read(&Selection::all(), 10).await.unwrap();
    assert_eq!(page.events[0].timestamp_ms(), before + 3_600_000, "the database's time is the same");
    assert!(page.events[0].causation_id().unwrap().starts_with("cmd_"));
    assert!(page.events[0].correlation_id().starts_with("corr_"));
}

#[tokio::test]
async fn has_the_applications_tables_and_the_same_chance_in_every_run() {
    const CREATE: Step =
        Step { name: "create", script: Script::Both(&["CREATE TABLE halls (id BIGINT)"]), needs: 0 };
    let mut ids = Vec::new();
    for _ in 0..2 {
        let bench = Bench::open_with(&[Component { name: "halls", steps: &[CREATE] }]).await.unwrap();
        bench
            .store()
            .transact(async |tx| tx.execute("INSERT INTO halls VALUES (1)", &[]).await)
            .await
            .unwrap();
        bench.when(Halls, HallCommand::CloseHall { hall: 1 }).await.unwrap().unwrap();
        let page = bench.log().read(&Selection::all(), 10).await.unwrap();
        ids.push(page.events[0].id().to_owned());
    }
    assert_eq!(ids[0], ids[1]);
}
