//! `orderNotification`: OrderConfirmed → SendNotification.

use super::wanted::want;
use crate::notifications::NotificationCommand;
use crate::orders::OrderEvent;
use mainstay::Handle;
use mainstay::events::Event;
use mainstay::flows::commands::{Command, decode};
use mainstay::flows::projections::{By, Category, Kind, Model, Projection};
use mainstay::store::{Result, Tx};

/// The process manager's name.
pub const ORDER_NOTIFICATION: &str = "orderNotification";

pub(super) fn projection(handle: &Handle) -> Projection {
    let handle = handle.clone();
    Projection::new(ORDER_NOTIFICATION, Category::Logic)
        .description("Tells customers that their orders were accepted")
        .kind(Kind::Secondary)
        .on(["OrderConfirmed"])
        .partitioned(2, By::Stream)
        .each(move |tx: Tx, _: Model, event: Event| {
            let handle = handle.clone();
            async move { apply(&handle, &tx, &event) }
        })
}

fn apply(handle: &Handle, tx: &Tx, event: &Event) -> Result<()> {
    let OrderEvent::OrderConfirmed { order_id } = decode(event)? else { return Ok(()) };
    let command = NotificationCommand::SendNotification {
        notification_id: format!("confirmed-{order_id}"),
        text: format!("Your order {order_id} is on its way."),
        order_id: order_id.clone(),
    };
    want(handle, tx, (ORDER_NOTIFICATION, event, &order_id), Command::of(&command)?)
}
