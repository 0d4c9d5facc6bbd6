//! Delivery: outbox, durable append, intents, publications and inboxes, and that nothing of them is lost.

mod appends;
mod crash;
mod crash_failing;
mod crash_receiver;
mod inbox;
mod incoming;
mod intents;
mod outbox;
mod outbox_retries;
mod publications;
mod server;
mod support;
mod ways;
