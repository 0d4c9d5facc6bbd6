//! Events that are published to other contexts.

mod bench;
mod circuits;
mod letters;
mod order;
mod publish;
mod translate;
mod upkeep;
