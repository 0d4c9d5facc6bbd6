//! Products.

use mainstay::flows::commands::testing::Given;
use order_management::inventory::{InventoryEvent, MAX_PRICE_CENTS, MAX_QUANTITY, ProductCommand, Products};

fn lamp() -> String {
    "lamp".to_owned()
}

fn created() -> InventoryEvent {
    InventoryEvent::ProductCreated { product_id: lamp(), sku: "L-1".to_owned(), unit_price_cents: 500 }
}

fn create(unit_price_cents: i64) -> ProductCommand {
    ProductCommand::CreateProduct { product_id: lamp(), sku: "L-1".to_owned(), unit_price_cents }
}

fn add(quantity: i64) -> ProductCommand {
    ProductCommand::AddStock { product_id: lamp(), quantity }
}

fn given(events: impl IntoIterator<Item = InventoryEvent>) -> Given<Products> {
    Given::decider(Products).events(events)
}

#[test]
fn a_product_is_created_once() {
    given([]).when(create(500)).then_events([created()]);
    given([created()]).when(create(500)).then_rejected("PRODUCT_ALREADY_EXISTS");
    for price in [-1, MAX_PRICE_CENTS + 1] {
        given([]).when(create(price)).then_rejected("INVALID_PRICE");
    }
}

#[test]
fn stock_is_added_to_a_product() {
    let added = InventoryEvent::StockAdded { product_id: lamp(), quantity: 5 };
    given([created()]).when(add(5)).then_events([added]);
    given([]).when(add(5)).then_rejected("PRODUCT_NOT_FOUND");
    for quantity in [0, -5, MAX_QUANTITY + 1] {
        given([created()]).when(add(quantity)).then_rejected("INVALID_QUANTITY");
    }
}
