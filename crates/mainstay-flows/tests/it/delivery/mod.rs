//! Delivery: outbox, durable append, intents, and that nothing of them is lost.

mod appends;
mod crash;
mod intents;
mod outbox;
mod support;
