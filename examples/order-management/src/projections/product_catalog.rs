//! `productCatalog`: what there is to buy, and `stockAvailability`: how many of it.

use crate::inventory::{InventoryEvent, Quantity};
use mainstay::events::Event;
use mainstay::flows::commands::decode;
use mainstay::flows::projections::{Category, Model, Projection};
use mainstay::store::{Result, Store, Tx, params};

/// The projection's name.
pub const PRODUCT_CATALOG: &str = "productCatalog";

const CREATE_CATALOG: &str = "CREATE TABLE {table} (
    product_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    sku TEXT NOT NULL,
    unit_price_cents BIGINT NOT NULL)";
const CREATE_AVAILABILITY: &str = "CREATE TABLE {table} (
    product_id TEXT COLLATE \"binary\" NOT NULL PRIMARY KEY,
    available BIGINT NOT NULL,
    reserved BIGINT NOT NULL)";

/// In one lane, because a reservation is of several products.
pub(super) fn projection() -> Projection {
    Projection::new(PRODUCT_CATALOG, Category::View)
        .description("Products, and how many of them can be had")
        .on(["ProductCreated", "StockAdded", "StockReserved", "ReservationReleased", "ReservationExpired"])
        .table("product_catalog", &[CREATE_CATALOG])
        .table("stock_availability", &[CREATE_AVAILABILITY])
        .each(apply)
}

async fn apply(tx: Tx, model: Model, event: Event) -> Result<()> {
    let (catalog, stock) = (model.table("product_catalog")?, model.table("stock_availability")?);
    match decode::<InventoryEvent>(&event)? {
        InventoryEvent::ProductCreated { product_id, sku, unit_price_cents } => {
            let sql =
                format!("INSERT INTO {catalog} (product_id, sku, unit_price_cents) VALUES ($1, $2, $3)");
            tx.execute(&sql, params![&product_id, sku, unit_price_cents]).await?;
            let sql = format!("INSERT INTO {stock} (product_id, available, reserved) VALUES ($1, 0, 0)");
            tx.execute(&sql, params![product_id]).await.map(drop)
        }
        InventoryEvent::StockAdded { product_id, quantity } => {
            let sql = format!("UPDATE {stock} SET available = available + $2 WHERE product_id = $1");
            tx.execute(&sql, params![product_id, quantity]).await.map(drop)
        }
        InventoryEvent::StockReserved { items, .. } => hold(&tx, stock, items, 1).await,
        InventoryEvent::ReservationReleased { items, .. }
        | InventoryEvent::ReservationExpired { items, .. } => hold(&tx, stock, items, -1).await,
        InventoryEvent::ReservationFailed { .. } | InventoryEvent::ReservationConfirmed { .. } => Ok(()),
    }
}

/// Holds pieces, or lets them go.
async fn hold(tx: &Tx, stock: &str, items: Vec<Quantity>, sign: i64) -> Result<()> {
    let sql = format!(
        "UPDATE {stock} SET available = available - $2, reserved = reserved + $2 WHERE product_id = $1"
    );
    let rows = items.into_iter().map(|item| params![item.product_id, sign * item.quantity].to_vec());
    tx.execute_many(&sql, &rows.collect::<Vec<_>>()).await.map(drop)
}

/// A product, and how many of it there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogEntry {
    /// The product.
    pub product_id: String,
    /// What it is called on its shelf.
    pub sku: String,
    /// What one costs.
    pub unit_price_cents: i64,
    /// How many can be had.
    pub available: i64,
    /// How many are held for orders.
    pub reserved: i64,
}

/// A product of the catalogue.
pub async fn catalog(store: &Store, product_id: &str) -> Result<Option<CatalogEntry>> {
    let read = async |tx: Tx, product_id: String| {
        let sql = "SELECT c.product_id, c.sku, c.unit_price_cents, s.available, s.reserved \
                   FROM product_catalog c JOIN stock_availability s ON s.product_id = c.product_id \
                   WHERE c.product_id = $1";
        let Some(row) = tx.query_optional(sql, params![product_id]).await? else { return Ok(None) };
        Ok(Some(CatalogEntry {
            product_id: row.get(0)?,
            sku: row.get(1)?,
            unit_price_cents: row.get(2)?,
            available: row.get(3)?,
            reserved: row.get(4)?,
        }))
    };
    store.read_with(product_id.to_owned(), read).await
}
