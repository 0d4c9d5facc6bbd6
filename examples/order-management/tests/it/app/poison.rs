//! An event that one read model cannot take.

use super::Shop;
use mainstay_testkit::stores::for_each_store;
use order_management::projections::{
    ACTIVE_RESERVATIONS, ORDER_WITH_INVENTORY, PRODUCT_CATALOG, catalog, order_with_inventory,
};

#[test]
fn a_reservation_for_no_order_is_put_aside_by_one_model_and_others_go_on() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        shop.stock("lamp", 5).await;
        shop.reserve("ghost", "lamp", 1).await;
        shop.submit("o-1", "lamp", 2).await;
        shop.reserve("o-1", "lamp", 2).await;
        for projection in [ORDER_WITH_INVENTORY, PRODUCT_CATALOG, ACTIVE_RESERVATIONS] {
            shop.shows(projection).await;
        }
        let whole = order_with_inventory(shop.0.store(), "o-1").await.unwrap().unwrap();
        assert_eq!(whole.reservation_id.as_deref(), Some("r-o-1"), "later events are applied");
        assert_eq!(order_with_inventory(shop.0.store(), "ghost").await.unwrap(), None);
        let entry = catalog(shop.0.store(), "lamp").await.unwrap().unwrap();
        assert_eq!((entry.available, entry.reserved), (2, 3), "others have taken it");

        let projections = shop.0.mainstay().projections();
        let ghost = &shop.happened("StockReserved", 2).await[0];
        let aside = projections.poison_event(ORDER_WITH_INVENTORY, ghost.id()).await.unwrap().unwrap();
        assert!(projections.is_quarantined(ORDER_WITH_INVENTORY, ghost.id()).await.unwrap());
        assert_eq!((aside.attempts, aside.error.as_str()), (3, "there is no order ghost"));

        // Once there is such an order, the event can be let out.
        shop.create("ghost").await;
        shop.shows(ORDER_WITH_INVENTORY).await;
        let work = projections.unquarantine(ORDER_WITH_INVENTORY, ghost.id()).await.unwrap();
        shop.0.mainstay().work().wait_for(&work, super::PATIENCE).await.unwrap();
        let whole = order_with_inventory(shop.0.store(), "ghost").await.unwrap().unwrap();
        assert_eq!(whole.reservation_status.as_deref(), Some("pending"));
        shop.close().await;
    });
}
