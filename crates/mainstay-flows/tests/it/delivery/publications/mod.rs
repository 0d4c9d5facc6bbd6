//! Events that are published to other contexts.

pub(crate) mod bench;
mod circuits;
mod crash;
mod forged;
mod forward;
mod letters;
mod nodes;
mod order;
mod publish;
mod reach;
mod speed;
mod tenants;
mod translate;
mod upkeep;
mod webhook;
