//! `orderSummary`: what a customer sees of an order.

use super::LANES;
use crate::orders::OrderEvent;
use mainstay::events::Event;
use mainstay::flows::commands::decode;
use mainstay::flows::projections::{By, Category, Model, Projection};
use mainstay::store::{Result, Store, Tx, params};

/// The projection's name.
pub const ORDER_SUMMARY: &str = "orderSummary";

const CREATE_SUMMARY: &str = "CREATE TABLE {table} (
    order_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    customer_id TEXT COLLATE \"binary\" NOT NULL,
    status TEXT NOT NULL,
    item_count BIGINT NOT NULL,
    total_cents BIGINT NOT NULL,
    updated_at BIGINT NOT NULL)";
const BY_CUSTOMER: &str = "CREATE INDEX {table}_by_customer ON {table} (customer_id)";
const CREATE_LINES: &str = "CREATE TABLE {table} (
    order_id TEXT COLLATE \"binary\" NOT NULL,
    product_id TEXT COLLATE \"binary\" NOT NULL,
    quantity BIGINT NOT NULL,
    unit_price_cents BIGINT NOT NULL,
    PRIMARY KEY (order_id, product_id))";

pub(super) fn projection() -> Projection {
    Projection::new(ORDER_SUMMARY, Category::View)
        .description("An order, with what is in it")
        .on([
            "OrderCreated",
            "OrderItemAdded",
            "OrderItemRemoved",
            "OrderSubmitted",
            "OrderConfirmed",
            "OrderCancelled",
        ])
        .partitioned(LANES, By::Stream)
        .table("order_summary", &[CREATE_SUMMARY, BY_CUSTOMER])
        .table("order_lines", &[CREATE_LINES])
        .each(apply)
}

async fn apply(tx: Tx, model: Model, event: Event) -> Result<()> {
    let (summary, lines) = (model.table("order_summary")?, model.table("order_lines")?);
    let at = event.timestamp_ms();
    match decode::<OrderEvent>(&event)? {
        OrderEvent::OrderCreated { order_id, customer_id } => {
            let sql = format!(
                "INSERT INTO {summary} (order_id, customer_id, status, item_count, total_cents, updated_at) \
                 VALUES ($1, $2, 'draft', 0, 0, $3)"
            );
            tx.execute(&sql, params![order_id, customer_id, at]).await.map(drop)
        }
        OrderEvent::OrderItemAdded { order_id, item } => {
            let sql = format!(
                "INSERT INTO {lines} (order_id, product_id, quantity, unit_price_cents) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (order_id, product_id) DO UPDATE SET \
                 quantity = {lines}.quantity + excluded.quantity, unit_price_cents = excluded.unit_price_cents"
            );
            tx.execute(&sql, params![&order_id, item.product_id, item.quantity, item.unit_price_cents])
                .await?;
            add_up(&tx, summary, lines, &order_id, at).await
        }
        OrderEvent::OrderItemRemoved { order_id, product_id } => {
            let sql = format!("DELETE FROM {lines} WHERE order_id = $1 AND product_id = $2");
            tx.execute(&sql, params![&order_id, product_id]).await?;
            add_up(&tx, summary, lines, &order_id, at).await
        }
        OrderEvent::OrderSubmitted { order_id, .. } => {
            set_status(&tx, summary, &order_id, "submitted", at).await
        }
        OrderEvent::OrderConfirmed { order_id } => set_status(&tx, summary, &order_id, "confirmed", at).await,
        OrderEvent::OrderCancelled { order_id, .. } => {
            set_status(&tx, summary, &order_id, "cancelled", at).await
        }
    }
}

async fn add_up(tx: &Tx, summary: &str, lines: &str, order_id: &str, at: i64) -> Result<()> {
    let sql = format!(
        "UPDATE {summary} SET updated_at = $2, \
         item_count = (SELECT count(*) FROM {lines} WHERE order_id = $1), \
         total_cents = (SELECT CAST(coalesce(sum(quantity * unit_price_cents), 0) AS BIGINT) \
                        FROM {lines} WHERE order_id = $1) \
         WHERE order_id = $1"
    );
    tx.execute(&sql, params![order_id, at]).await.map(drop)
}

async fn set_status(tx: &Tx, summary: &str, order_id: &str, status: &str, at: i64) -> Result<()> {
    let sql = format!("UPDATE {summary} SET status = $2, updated_at = $3 WHERE order_id = $1");
    tx.execute(&sql, params![order_id, status, at]).await.map(drop)
}

/// A row of `order_summary`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The order.
    pub order_id: String,
    /// Whose it is.
    pub customer_id: String,
    /// `draft`, `submitted`, `confirmed` or `cancelled`.
    pub status: String,
    /// How many lines it has.
    pub item_count: i64,
    /// What it costs.
    pub total_cents: i64,
}

/// What there is to see of an order.
pub async fn summary(store: &Store, order_id: &str) -> Result<Option<Summary>> {
    let read = async |tx: Tx, order_id: String| {
        let sql = "SELECT order_id, customer_id, status, item_count, total_cents FROM order_summary \
                   WHERE order_id = $1";
        let Some(row) = tx.query_optional(sql, params![order_id]).await? else { return Ok(None) };
        Ok(Some(Summary {
            order_id: row.get(0)?,
            customer_id: row.get(1)?,
            status: row.get(2)?,
            item_count: row.get(3)?,
            total_cents: row.get(4)?,
        }))
    };
    store.read_with(order_id.to_owned(), read).await
}
