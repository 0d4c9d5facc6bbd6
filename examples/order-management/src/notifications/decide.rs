//! What is decided about notifications: each is asked for once.

use mainstay::flows::commands::{Boundary, Decided, Decider, Decision, DomainEvent, Moment, Rejection};
use serde::{Deserialize, Serialize};

/// A command about a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase")]
pub enum NotificationCommand {
    /// Tell the customer of an order something.
    SendNotification {
        /// The notification.
        notification_id: String,
        /// About which order.
        order_id: String,
        /// What.
        text: String,
    },
}

/// An event of a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all_fields = "camelCase")]
pub enum NotificationEvent {
    /// It is to be sent.
    NotificationRequested {
        /// The notification.
        notification_id: String,
        /// About which order.
        order_id: String,
        /// What.
        text: String,
    },
}

impl DomainEvent for NotificationEvent {
    fn tags(&self) -> Vec<String> {
        let Self::NotificationRequested { notification_id, .. } = self;
        vec![format!("notification:{notification_id}")]
    }
}

/// Decides about one notification at a time. Its state is whether it was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Notifications;

impl Decider for Notifications {
    type Command = NotificationCommand;
    type Event = NotificationEvent;
    type State = bool;
    type Data = ();

    fn boundary(&self, command: &NotificationCommand) -> Boundary {
        let NotificationCommand::SendNotification { notification_id, .. } = command;
        Boundary::tag(format!("notification:{notification_id}"))
    }

    fn evolve(&self, is_requested: &mut bool, _: NotificationEvent) {
        *is_requested = true;
    }

    fn decide(
        &self,
        is_requested: &bool,
        command: &NotificationCommand,
        _: &Moment,
    ) -> Decided<NotificationEvent, ()> {
        if *is_requested {
            return Err(Rejection::new("NOTIFICATION_ALREADY_REQUESTED", "a notification is sent once"));
        }
        let NotificationCommand::SendNotification { notification_id, order_id, text } = command.clone();
        let requested = NotificationEvent::NotificationRequested { notification_id, order_id, text };
        Ok(Decision::success((), [requested]))
    }
}
