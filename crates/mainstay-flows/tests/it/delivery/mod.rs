//! Delivery: outbox, durable append, intents.

mod appends;
mod outbox;
mod support;
