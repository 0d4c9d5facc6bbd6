//! Commands, from dispatch to outcome.

mod batch;
mod crash;
mod deciders;
mod dispatch;
mod flow;
mod house;
mod limits;
mod nodes;
mod pipeline;
mod promises;
mod retry;
mod speed;
mod steps;
mod tenants;
mod trace;
mod unheard;
