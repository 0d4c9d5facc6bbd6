//! The inbox of dead letters: what is listed, what is done about it, and that nothing of it is lost or doubled.

mod bench;
mod bulk;
mod crash;
mod forged;
mod history;
mod kinds;
mod listing;
mod live;
mod migration;
mod nodes;
mod quarantine;
mod search;
mod speed;
mod upkeep;
