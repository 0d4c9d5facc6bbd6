//! Notifications.

use mainstay::flows::commands::testing::Given;
use order_management::notifications::{NotificationCommand, NotificationEvent, Notifications};

#[test]
fn a_notification_is_asked_for_once() {
    let (notification_id, order_id, text) = ("n-1".to_owned(), "o-1".to_owned(), "hello".to_owned());
    let requested = NotificationEvent::NotificationRequested {
        notification_id: notification_id.clone(),
        order_id: order_id.clone(),
        text: text.clone(),
    };
    let send = NotificationCommand::SendNotification { notification_id, order_id, text };
    Given::decider(Notifications).when(send.clone()).then_events([requested.clone()]);
    Given::decider(Notifications)
        .events([requested])
        .when(send)
        .then_rejected("NOTIFICATION_ALREADY_REQUESTED");
}
