//! `customerCancellations`: how often customers cancel, for decisions about them.

use super::LANES;
use crate::orders::OrderEvent;
use mainstay::events::Event;
use mainstay::flows::commands::decode;
use mainstay::flows::projections::{By, Category, Kind, Model, Projection};
use mainstay::store::{Result, Store, Tx, params};

/// The projection's name.
pub const CUSTOMER_CANCELLATIONS: &str = "customerCancellations";

const CREATE: &str = "CREATE TABLE {table} (
    order_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    customer_id TEXT COLLATE \"binary\" NOT NULL,
    cancelled_at BIGINT)";
const BY_CUSTOMER: &str = "CREATE INDEX {table}_by_customer ON {table} (customer_id, cancelled_at)";

/// A cancellation does not say whose it is, so a row for each order does. By orders it can follow in lanes, too.
pub(super) fn projection() -> Projection {
    Projection::new(CUSTOMER_CANCELLATIONS, Category::Logic)
        .description("Orders that customers have cancelled")
        .kind(Kind::Secondary)
        .on(["OrderCreated", "OrderCancelled"])
        .partitioned(LANES, By::Stream)
        .table("customer_cancellations", &[CREATE, BY_CUSTOMER])
        .each(apply)
}

async fn apply(tx: Tx, model: Model, event: Event) -> Result<()> {
    let table = model.table("customer_cancellations")?;
    match decode::<OrderEvent>(&event)? {
        OrderEvent::OrderCreated { order_id, customer_id } => {
            let sql = format!("INSERT INTO {table} (order_id, customer_id) VALUES ($1, $2)");
            tx.execute(&sql, params![order_id, customer_id]).await.map(drop)
        }
        OrderEvent::OrderCancelled { order_id, .. } => {
            let sql = format!("UPDATE {table} SET cancelled_at = $2 WHERE order_id = $1");
            tx.execute(&sql, params![order_id, event.timestamp_ms()]).await.map(drop)
        }
        _ => Ok(()),
    }
}

/// How many orders a customer has cancelled since `since_ms`.
pub async fn cancellations_since(store: &Store, customer_id: &str, since_ms: i64) -> Result<i64> {
    let read = async |tx: Tx, (customer_id, since_ms): (String, i64)| {
        let sql = "SELECT count(*) FROM customer_cancellations WHERE customer_id = $1 AND cancelled_at >= $2";
        tx.query_one(sql, params![customer_id, since_ms]).await?.get(0)
    };
    store.read_with((customer_id.to_owned(), since_ms), read).await
}
