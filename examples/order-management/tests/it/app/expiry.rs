//! Reservations expire by the clock.

use super::Shop;
use mainstay_testkit::stores::{Kind, for_each_store};
use mainstay_testkit::time::VirtualTime;
use order_management::OrderManagement;
use order_management::inventory::RESERVATION_TTL_MS;
use order_management::projections::{ACTIVE_RESERVATIONS, PRODUCT_CATALOG, catalog};

const FIVE_MINUTES_MS: i64 = 5 * 60 * 1_000;

#[test]
fn a_reservation_that_nobody_confirmed_expires_at_the_next_tick_and_others_stay() {
    for_each_store(async |place| {
        let (store, time) = VirtualTime::open(&place).await.unwrap();
        // The clock of a server is set through it.
        if place.kind() != Kind::Postgres {
            store.close().await;
        }
        let shop = Shop(OrderManagement::open(place.options().clock(time.clock())).await.unwrap());
        shop.stock("lamp", 5).await;
        for order in ["o-1", "o-2"] {
            shop.submit(order, "lamp", 2).await;
            shop.reserve(order, "lamp", 2).await;
        }
        shop.confirm_reservation("o-2").await;
        shop.shows(ACTIVE_RESERVATIONS).await;
        // Virtual time begins at a tick, so this is one.
        time.advance(RESERVATION_TTL_MS + FIVE_MINUTES_MS).await.unwrap();
        shop.0.mainstay().engine().look_around();
        let expired = shop.happened("ReservationExpired", 1).await;
        assert!(expired[0].tags().any(|tag| tag == "order:o-1"));
        shop.shows(PRODUCT_CATALOG).await;
        let entry = catalog(shop.0.store(), "lamp").await.unwrap().unwrap();
        assert_eq!((entry.available, entry.reserved), (3, 2));
        let crons = shop.0.mainstay().work().crons().await.unwrap();
        let expiry = crons.iter().find(|cron| cron.name == "expireReservations").unwrap();
        assert_eq!(expiry.fired, 1);
        shop.close().await;
    });
}
