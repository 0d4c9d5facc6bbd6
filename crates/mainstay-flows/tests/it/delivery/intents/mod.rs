//! Intents, from their beginning to their end: items 176 to 184.

mod house;
mod listing;
mod recording;
mod tenants;
mod timeouts;
