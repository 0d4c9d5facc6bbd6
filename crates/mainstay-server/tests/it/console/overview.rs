//! How everything is, on one page.

use super::{House, PATIENCE, tile};
use mainstay_server::Role;
use mainstay_testkit::stores::for_each_store;

#[test]
fn events_that_were_put_aside_are_told_of_apart_from_dead_letters() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let browser = house.log_in(Role::Reader).await;
        house.rooms.projections.wait_for("orders", 2, PATIENCE).await.unwrap();
        let page = browser.page("/console").await;
        assert_eq!(
            (tile(&page, "Dead letters pending"), tile(&page, "Events put aside")),
            ("1", "1"),
            "{page}"
        );
        assert!(page.contains("href=\"/console/projections#poison\""), "{page}");
        assert!(page.contains("<li>orders has put 1 event aside</li>"), "{page}");
        let aside = house.rooms.projections.quarantined(Some("orders"), None, 10).await.unwrap();
        house.rooms.projections.ignore_quarantined("orders", &aside[0].event_id).await.unwrap();
        let page = browser.page("/console").await;
        assert_eq!(
            (tile(&page, "Dead letters pending"), tile(&page, "Events put aside")),
            ("1", "0"),
            "{page}"
        );
        assert!(!page.contains("event aside"), "{page}");
    });
}
