//! Orders from their draft to their end.

use super::{PATIENCE, Shop};
use mainstay::events::Selection;
use mainstay::flows::commands::{Outcome, decode};
use mainstay::work::NewWork;
use mainstay_testkit::stores::for_each_store;
use order_management::notifications::NotificationEvent;
use order_management::processes::{ORDER_NOTIFICATION, POOL, RESERVATION_RELEASE};
use order_management::projections::{
    CUSTOMER_CANCELLATIONS, ORDER_SUMMARY, ORDER_WITH_INVENTORY, PRODUCT_CATALOG, cancellations_since,
    catalog, order_with_inventory, summary,
};

async fn availability(shop: &Shop, product: &str) -> (i64, i64) {
    shop.shows(PRODUCT_CATALOG).await;
    let entry = catalog(shop.0.store(), product).await.unwrap().unwrap();
    (entry.available, entry.reserved)
}

#[test]
fn an_order_is_drafted_submitted_reserved_and_confirmed_and_its_customer_is_told_once() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        shop.stock("lamp", 5).await;
        shop.submit("o-1", "lamp", 2).await;
        assert!(matches!(shop.reserve("o-1", "lamp", 2).await, Outcome::Success { .. }));
        shop.confirm_reservation("o-1").await;
        shop.confirm("o-1").await;

        shop.shows(ORDER_SUMMARY).await;
        let seen = summary(shop.0.store(), "o-1").await.unwrap().unwrap();
        assert_eq!((seen.customer_id.as_str(), seen.status.as_str()), ("ada", "confirmed"));
        assert_eq!((seen.item_count, seen.total_cents), (1, 1_000));
        assert_eq!(availability(&shop, "lamp").await, (3, 2));
        shop.shows(ORDER_WITH_INVENTORY).await;
        let whole = order_with_inventory(shop.0.store(), "o-1").await.unwrap().unwrap();
        assert_eq!((whole.order_status.as_str(), whole.total_cents), ("confirmed", 1_000));
        assert_eq!(whole.reservation_status.as_deref(), Some("confirmed"));

        let told = shop.happened("NotificationRequested", 1).await;
        let NotificationEvent::NotificationRequested { order_id, .. } = decode(&told[0]).unwrap();
        assert_eq!(order_id, "o-1");
        // It belongs to what caused it.
        let confirmed = &shop.happened("OrderConfirmed", 1).await[0];
        assert_eq!(told[0].correlation_id(), confirmed.correlation_id());
        // The process manager takes the event again, and nothing comes of it.
        let projections = shop.0.mainstay().projections();
        for lane in 0..2 {
            projections.set_checkpoint(ORDER_NOTIFICATION, lane, 0).await.unwrap();
        }
        shop.shows(ORDER_NOTIFICATION).await;
        // What is done for an order is done in order: once this has ended, so has what came before.
        let work = shop.0.mainstay().work();
        let last = NewWork::new(POOL, "processes.expireReservations", &()).unwrap().key("o-1");
        let last = work.enqueue(last).await.unwrap();
        work.wait_for(&last.work_id, PATIENCE).await.unwrap();
        assert_eq!(shop.happened("NotificationRequested", 1).await.len(), 1);
        let commands = shop.0.mainstay().dispatcher().correlated(confirmed.correlation_id()).await.unwrap();
        let types: Vec<&str> = commands.iter().map(|command| command.command_type.as_str()).collect();
        assert_eq!(types, ["ConfirmOrder", "SendNotification"]);
        shop.close().await;
    });
}

#[test]
fn stock_that_is_not_there_fails_with_an_event_and_holds_nothing() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        shop.stock("lamp", 1).await;
        shop.submit("o-1", "lamp", 2).await;
        let Outcome::Failed { reason, events } = shop.reserve("o-1", "lamp", 2).await else {
            panic!("there is one");
        };
        assert_eq!((reason.as_str(), events.len()), ("INSUFFICIENT_STOCK", 1));
        assert_eq!(availability(&shop, "lamp").await, (1, 0));
        shop.shows(ORDER_WITH_INVENTORY).await;
        let whole = order_with_inventory(shop.0.store(), "o-1").await.unwrap().unwrap();
        assert_eq!(whole.reservation_status.as_deref(), Some("failed"));
        shop.close().await;
    });
}

#[test]
fn a_cancelled_order_holds_nothing_also_when_it_is_reserved_for_afterwards() {
    for_each_store(async |place| {
        let shop = Shop::open(&place).await;
        shop.stock("lamp", 5).await;
        // One is cancelled after it was confirmed, one before anything is reserved for it.
        for order in ["o-1", "o-2"] {
            shop.submit(order, "lamp", 2).await;
        }
        shop.reserve("o-1", "lamp", 2).await;
        shop.confirm_reservation("o-1").await;
        shop.confirm("o-1").await;
        shop.cancel("o-1").await;
        shop.cancel("o-2").await;
        shop.reserve("o-2", "lamp", 2).await;

        let released = shop.happened("ReservationReleased", 2).await;
        assert_eq!(availability(&shop, "lamp").await, (5, 0));
        let cancelled = &shop.happened("OrderCancelled", 2).await[0];
        let first = released.iter().find(|event| event.tags().any(|tag| tag == "order:o-1")).unwrap();
        assert_eq!(first.correlation_id(), cancelled.correlation_id());
        shop.shows(CUSTOMER_CANCELLATIONS).await;
        assert_eq!(cancellations_since(shop.0.store(), "ada", 0).await.unwrap(), 2);
        shop.shows(RESERVATION_RELEASE).await;
        let log = shop.0.mainstay().log();
        let all = log.read(&Selection::all().of_type("ReservationReleased").unwrap(), 10).await.unwrap();
        assert_eq!(all.events.len(), 2, "each is released once");
        shop.close().await;
    });
}
