//! What orders want of products, as inventory hears of it: by the public event, in its own table.

use crate::integration::OrderPlaced;
use mainstay::core::failure::Failure;
use mainstay::flows::delivery::publications::Delivery;
use mainstay::store::migrations::{Component, Script, Step};
use mainstay::store::{Error, Result, Store, Tx, params};

/// The tables of inventory.
pub static COMPONENT: Component = Component { name: "inventory", steps: &[CREATE_DEMAND] };

const CREATE_DEMAND: Step = Step { name: "create_demand", script: Script::Both(&[DEMAND]), needs: 0 };

const DEMAND: &str = "CREATE TABLE demand (
    product_id TEXT COLLATE \"binary\" NOT NULL,
    order_id TEXT COLLATE \"binary\" NOT NULL,
    quantity BIGINT NOT NULL,
    PRIMARY KEY (product_id, order_id))";

/// Notes what a placed order wants, in the transaction that notes the delivery.
pub(crate) async fn note_demand(tx: Tx, delivery: Delivery) -> Result<()> {
    let placed: OrderPlaced = serde_json::from_str(delivery.event.data.get())
        .map_err(|error| Error::application(Failure::permanent(error.to_string())))?;
    for item in placed.items {
        let sql = "INSERT INTO demand (product_id, order_id, quantity) VALUES ($1, $2, $3)";
        tx.execute(sql, params![item.product_id, &placed.order_id, item.quantity]).await?;
    }
    Ok(())
}

/// How many of a product orders want.
pub async fn demand(store: &Store, product_id: &str) -> Result<i64> {
    let read = async |tx: Tx, product_id: String| {
        let sql = "SELECT CAST(coalesce(sum(quantity), 0) AS BIGINT) FROM demand WHERE product_id = $1";
        tx.query_one(sql, params![product_id]).await?.get(0)
    };
    store.read_with(product_id.to_owned(), read).await
}
