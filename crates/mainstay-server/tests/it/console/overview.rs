//! How everything is, on one page.

use super::{House, PATIENCE, later, tile};
use mainstay_flows::projections::replay::Rebuild;
use mainstay_guards::circuits::Force;
use mainstay_server::Role;
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use mainstay_work::Pool;

#[test]
fn quarantined_events_are_dead_letters_and_have_a_tile_of_their_own() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let browser = house.log_in(Role::Reader).await;
        house.services.projections.wait_for("orders", 2, PATIENCE).await.unwrap();
        let page = browser.page("/console").await;
        assert_eq!(
            (tile(&page, "Dead letters pending"), tile(&page, "Events put aside")),
            ("2", "1"),
            "{page}"
        );
        assert!(page.contains("href=\"/console/projections#poison\""), "{page}");
        assert!(page.contains("<li>orders has put 1 event aside</li>"), "{page}");
        let aside = house.services.projections.quarantined(Some("orders"), None, 10).await.unwrap();
        house.services.projections.ignore_quarantined("orders", &aside[0].event_id).await.unwrap();
        let page = browser.page("/console").await;
        assert_eq!(
            (tile(&page, "Dead letters pending"), tile(&page, "Events put aside")),
            ("1", "0"),
            "{page}"
        );
        assert!(!page.contains("event aside"), "{page}");
    });
}

/// What has changed, as the overview has it: each row without its tags, the newest first.
fn changes(page: &str) -> Vec<String> {
    let (_, rest) = page.split_once("<h2>What changed lately</h2>").unwrap();
    let rows = rest.split("</section>").next().unwrap().split("<tr>").skip(2);
    let bare =
        |row: &str| row.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text).collect();
    rows.map(bare).collect()
}

fn open_by_hand() -> Force {
    Force { is_open: true, actor: "test".to_owned(), reason: "by hand".to_owned(), for_ms: None }
}

#[test]
fn what_changed_lately_is_of_every_kind_and_the_newest_first() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let browser = house.log_in(Role::Reader).await;
        let (services, store) = (&house.services, &house.server.store);
        services.projections.wait_for("orders", 2, PATIENCE).await.unwrap();
        assert_eq!(changes(&browser.page("/console").await), [""; 0]);

        let replay = services.projections.trigger_rebuild(Rebuild::of("orders")).await.unwrap().replay_id;
        services.projections.wait_for_rebuild(&replay, PATIENCE).await.unwrap();
        later(store).await;
        services.circuits.force("payments", open_by_hand()).await.unwrap();
        later(store).await;
        services.work.pause("eventReplayPool").await.unwrap();
        // It is active again in a moment.
        let rebuild = async || {
            while services.projections.status("orders").await.unwrap().status.as_str() != "active" {}
            services.projections.trigger_rebuild(Rebuild::of("orders").from(0)).await.unwrap().replay_id
        };
        let replay = tokio::time::timeout(PATIENCE, rebuild()).await.unwrap();
        later(store).await;
        let page = browser.page("/console").await;
        let told = changes(&page);
        assert!(told[0].ends_with("Projection ordersrebuilding"), "{told:?}");

        services.projections.cancel_rebuild(&replay).await.unwrap();
        later(store).await;
        let pause = async || while services.projections.pause("orders").await.is_err() {};
        tokio::time::timeout(PATIENCE, pause()).await.unwrap();
        later(store).await;
        services.work.pause("shop").await.unwrap();
        let page = browser.page("/console").await;
        let told = changes(&page);
        let wanted = [
            "Pool shoppaused",
            "Projection orderspaused",
            "Rebuild orderscancelled0 of 2 events",
            "Pool eventReplayPoolpaused",
            "Circuit paymentsclosed → openby hand, by test",
            "Rebuild orderscompleted2 of 2 events",
        ];
        let are_alike = |(told, wanted): (&String, &&str)| told.ends_with(wanted);
        assert!(told.len() == wanted.len() && told.iter().zip(&wanted).all(are_alike), "{told:#?}");
        for to in ["work/pools/shop", "projections/orders", "circuits/payments"] {
            assert!(page.contains(&format!("href=\"/console/{to}\"")), "{to}: {page}");
        }
    });
}

#[tokio::test]
async fn what_changed_lately_is_no_longer_than_a_page_has_room_for() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let browser = house.log_in(Role::Reader).await;
    let pause = async |pool: String| {
        house.services.work.pool(Pool::new(&*pool)).await.unwrap();
        house.services.work.pause(&pool).await.unwrap();
    };
    pause("old".to_owned()).await;
    later(&house.server.store).await;
    for number in 0..20 {
        house.services.circuits.force(&format!("c{number}"), open_by_hand()).await.unwrap();
    }
    let told = changes(&browser.page("/console").await);
    assert!(told.len() == 6 && told[5].ends_with("Pool oldpaused"), "many changes of circuits: {told:#?}");
    for number in 0..20 {
        pause(format!("p{number}")).await;
    }
    assert_eq!(changes(&browser.page("/console").await).len(), 10);
}
