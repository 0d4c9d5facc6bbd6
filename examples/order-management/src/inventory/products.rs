//! What is decided about products.

use super::event::InventoryEvent;
use super::stock::Stock;
use super::{MAX_PRICE_CENTS, MAX_QUANTITY};
use mainstay::flows::commands::{Boundary, Decided, Decider, Decision, Moment, Rejection};
use serde::{Deserialize, Serialize};

/// A command about a product.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase")]
pub enum ProductCommand {
    /// Have a new product.
    CreateProduct {
        /// The product.
        product_id: String,
        /// What it is to be called on its shelf.
        sku: String,
        /// What one costs.
        unit_price_cents: i64,
    },
    /// Have more of it.
    AddStock {
        /// The product.
        product_id: String,
        /// How many more.
        quantity: i64,
    },
}

/// Decides about one product at a time.
#[derive(Debug, Clone, Copy)]
pub struct Products;

impl Decider for Products {
    type Command = ProductCommand;
    type Event = InventoryEvent;
    type State = Stock;
    type Data = ();

    /// Only whether the product exists matters, so that stock is added while orders reserve some of it.
    fn boundary(&self, command: &ProductCommand) -> Boundary {
        let (ProductCommand::CreateProduct { product_id, .. } | ProductCommand::AddStock { product_id, .. }) =
            command;
        Boundary::tag(format!("product:{product_id}")).types(["ProductCreated"])
    }

    fn evolve(&self, stock: &mut Stock, event: InventoryEvent) {
        stock.evolve(event);
    }

    fn decide(&self, stock: &Stock, command: &ProductCommand, _: &Moment) -> Decided<InventoryEvent, ()> {
        let event = match command {
            ProductCommand::CreateProduct { product_id, sku, unit_price_cents } => {
                if stock.products.contains_key(product_id) {
                    return Err(Rejection::new("PRODUCT_ALREADY_EXISTS", "a product is created once"));
                }
                if !(0..=MAX_PRICE_CENTS).contains(unit_price_cents) {
                    let reason = format!("a price is 0 to {MAX_PRICE_CENTS} cents");
                    return Err(Rejection::new("INVALID_PRICE", reason));
                }
                let (product_id, sku) = (product_id.clone(), sku.clone());
                InventoryEvent::ProductCreated { product_id, sku, unit_price_cents: *unit_price_cents }
            }
            ProductCommand::AddStock { product_id, quantity } => {
                if !stock.products.contains_key(product_id) {
                    return Err(Rejection::new("PRODUCT_NOT_FOUND", "there is no such product"));
                }
                if !(1..=MAX_QUANTITY).contains(quantity) {
                    let reason = format!("1 to {MAX_QUANTITY} pieces are added at once");
                    return Err(Rejection::new("INVALID_QUANTITY", reason));
                }
                InventoryEvent::StockAdded { product_id: product_id.clone(), quantity: *quantity }
            }
        };
        Ok(Decision::success((), [event]))
    }
}
