//! Read models that are rebuilt while orders come in.

use super::{PATIENCE, Shop, fold};
use mainstay::flows::projections::replay::{Rebuild, ReplayStatus};
use mainstay_testkit::stores::for_each_store;
use order_management::integration::ORDER_INTEGRATION;
use order_management::processes::{ORDER_NOTIFICATION, RESERVATION_RELEASE};
use order_management::projections::PRODUCT_CATALOG;

/// One order; every third is cancelled in the end, and every fifth gets no stock.
async fn order(shop: &Shop, number: usize) -> bool {
    let order = format!("o-{number}");
    shop.submit(&order, "lamp", 2).await;
    let product = if number.is_multiple_of(5) { "sofa" } else { "lamp" };
    shop.reserve(&order, product, 1).await;
    if product == "lamp" {
        shop.confirm_reservation(&order).await;
    }
    shop.confirm(&order).await;
    if number.is_multiple_of(3) {
        shop.cancel(&order).await;
    }
    number.is_multiple_of(3) && product == "lamp"
}

#[test]
fn read_models_equal_a_fold_of_the_log_after_a_rebuild_under_live_traffic() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        shop.stock("lamp", 10_000).await;
        shop.stock("sofa", 1).await;
        shop.submit("first", "sofa", 1).await;
        shop.reserve("first", "sofa", 1).await;
        let (mut orders, mut releases) = (0, 0);
        for _ in 0..20 {
            orders += 1;
            releases += usize::from(order(&shop, orders).await);
        }
        let (projections, work) = (shop.0.mainstay().projections(), shop.0.mainstay().work());
        work.pause("eventReplayPool").await.unwrap();
        let mut running = Vec::new();
        for (name, triggered) in projections.rebuild_all(Some(10)).await {
            match triggered {
                Ok(triggered) => running.push((name, triggered.replay_id)),
                // What follows from an event is not done again.
                Err(error) => {
                    let once = [ORDER_NOTIFICATION, RESERVATION_RELEASE, ORDER_INTEGRATION];
                    assert!(once.contains(&&*name), "{name}: {error}");
                }
            }
        }
        assert_eq!(running.len(), 5);
        // However fast the rebuilds are, some orders come in between.
        for _ in 0..5 {
            orders += 1;
            releases += usize::from(order(&shop, orders).await);
        }
        work.resume("eventReplayPool").await.unwrap();
        for (name, replay_id) in &running {
            // Orders come in until it has ended.
            loop {
                let progress = projections.rebuild_status(replay_id).await.unwrap();
                if progress.status != ReplayStatus::Running {
                    assert_eq!(progress.status, ReplayStatus::Completed, "{name}: {progress:?}");
                    break;
                }
                orders += 1;
                releases += usize::from(order(&shop, orders).await);
            }
            assert_eq!(projections.status(name).await.unwrap().generation, 2);
        }
        shop.happened("NotificationRequested", orders).await;
        shop.happened("ReservationReleased", releases).await;
        for (name, _) in &running {
            shop.shows(name).await;
        }
        let folded = fold::of(shop.0.mainstay().log()).await;
        assert_eq!(folded["order_summary"].len(), orders + 1);
        let is_equal = async || {
            let read = fold::read(shop.0.store()).await;
            for (table, rows) in &folded {
                assert_eq!(&read[table], rows, "{table} on {}", place.kind());
            }
        };
        is_equal().await;
        // And once more while nothing else happens.
        let again = projections.trigger_rebuild(Rebuild::of(PRODUCT_CATALOG)).await.unwrap();
        let progress = projections.wait_for_rebuild(&again.replay_id, PATIENCE).await.unwrap();
        assert_eq!(progress.status, ReplayStatus::Completed);
        assert_eq!(projections.status(PRODUCT_CATALOG).await.unwrap().generation, 3);
        is_equal().await;
        shop.close().await;
    });
}
