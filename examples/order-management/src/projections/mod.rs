//! The read models.
//!
//! | projection | for | tables | follows in order |
//! |---|---|---|---|
//! | `orderSummary` | customers | `order_summary`, `order_lines` | each order |
//! | `productCatalog` | customers | `product_catalog`, `stock_availability` | everything: a reservation is of several products |
//! | `activeReservations` | the expiry of reservations | `active_reservations` | each reservation |
//! | `customerCancellations` | decisions about customers | `customer_cancellations` | each order |
//! | `orderWithInventory` | other systems | `order_with_inventory` | each order, over both contexts |
//!
//! Every table is managed: it can be rebuilt beside the one that is read.

mod active_reservations;
mod customer_cancellations;
mod order_summary;
mod order_with_inventory;
mod product_catalog;

use mainstay::events::Event;
use mainstay::flows::projections::{By, Registry};

pub use active_reservations::{ACTIVE_RESERVATIONS, expired};
pub use customer_cancellations::{CUSTOMER_CANCELLATIONS, cancellations_since};
pub use order_summary::{ORDER_SUMMARY, Summary, summary};
pub use order_with_inventory::{ORDER_WITH_INVENTORY, OrderWithInventory, order_with_inventory};
pub use product_catalog::{CatalogEntry, PRODUCT_CATALOG, catalog};

/// How many lanes a projection of orders has.
const LANES: u32 = 4;

/// All of them.
pub fn all(registry: Registry) -> Registry {
    registry
        .with(order_summary::projection())
        .with(product_catalog::projection())
        .with(active_reservations::projection())
        .with(customer_cancellations::projection())
        .with(order_with_inventory::projection())
}

/// Keeps events in order that have the same tag of a kind: `order` for `order:7`.
pub(crate) fn by_tag(kind: &'static str) -> By {
    By::custom(move |event: &Event| {
        let is_of = |tag: &&str| tag.split_once(':').is_some_and(|(name, _)| name == kind);
        event.tags().find(is_of).unwrap_or_default().to_owned()
    })
}
