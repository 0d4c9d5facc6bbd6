//! Who hears of orders, and how.

use super::contract::OrderPlaced;
use crate::inventory;
use mainstay::flows::Result;
use mainstay::flows::delivery::publications::{Retry, Target, Targets, Webhook};
use mainstay::work::egress::Egress;
use mainstay::work::http::{HttpConfig, Secret};
use std::sync::Arc;

/// The context that keeps stock.
pub const INVENTORY: &str = "inventory";
/// The context that tells customers.
pub const NOTIFICATIONS: &str = "notifications";
/// The projection that publishes.
pub const ORDER_INTEGRATION: &str = "orderIntegration";

/// Five retries, after 100 ms, 200 ms and so on; then it is a dead letter.
const RETRY: Retry = Retry { max_retries: 5, initial_backoff_ms: 100, base: 2.0 };

/// The service of notifications at a URL, which knows us by a secret. Only addresses that `egress` lets through are reached.
pub fn notifications_at(url: &str, secret: Secret, egress: Egress) -> Result<Webhook> {
    Webhook::new(HttpConfig { secrets: vec![secret], ..HttpConfig::new(url) }, Arc::new(egress))
}

/// Publishes every submitted order to inventory, which is in this program, and to the notification service if there is one.
pub(crate) fn targets(notifications: Option<Webhook>) -> Targets {
    // In the same store, in the transaction that records the delivery: exactly once.
    let inventory = Target::handler(INVENTORY, inventory::note_demand).translate(OrderPlaced::translate);
    let (mut targets, mut names) = (Targets::new(RETRY).with(inventory), vec![INVENTORY]);
    if let Some(webhook) = notifications {
        // Over HTTP: at least once, with the same idempotency key each time.
        targets = targets.with(Target::webhook(NOTIFICATIONS, webhook).translate(OrderPlaced::translate));
        names.push(NOTIFICATIONS);
    }
    targets.forward(ORDER_INTEGRATION, &["OrderSubmitted"], "orders", &names)
}
